// SPDX-License-Identifier: Apache-2.0
// Replaces operator new in the program that this is linked into.
#include "allocation_hook.h"

#include <cstdlib>
#include <new>

namespace {

void* Allocate(size_t size) {
  forgive::OnAllocation();
  void* const memory = std::malloc(size == 0 ? 1 : size);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}

}  // namespace

void* operator new(size_t size) { return Allocate(size); }
void* operator new[](size_t size) { return Allocate(size); }
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete[](void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, size_t) noexcept { std::free(memory); }
void operator delete[](void* memory, size_t) noexcept { std::free(memory); }
