// SPDX-License-Identifier: Apache-2.0
// Counts every call of operator new in this program.
#include "allocations.h"

#include <cstdlib>
#include <new>

namespace {

uint64_t allocations = 0;

void* Allocate(size_t size) {
  ++allocations;
  void* const memory = std::malloc(size == 0 ? 1 : size);
  if (memory == nullptr) std::abort();
  return memory;
}

}  // namespace

void* operator new(size_t size) { return Allocate(size); }
void* operator new[](size_t size) { return Allocate(size); }
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete[](void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, size_t) noexcept { std::free(memory); }
void operator delete[](void* memory, size_t) noexcept { std::free(memory); }

uint64_t forgive::dst::Allocations() { return allocations; }
