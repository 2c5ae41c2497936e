// SPDX-License-Identifier: Apache-2.0
// Replaces operator new in the program that this is linked into.
#include "allocation_hook.h"

#include <cstdlib>
#include <new>

namespace {

void* Allocate(size_t size, std::align_val_t alignment) noexcept {
  // aligned_alloc wants a size that is a multiple of the alignment, and not 0.
  const size_t unit = static_cast<size_t>(alignment);
  return std::aligned_alloc(unit, size == 0 ? unit : (size + unit - 1) / unit * unit);
}

void* Allocate(size_t size) noexcept { return std::malloc(size == 0 ? 1 : size); }

// The hook may throw; these forms of new may not.
template <typename... Alignment>
void* OrNull(size_t size, Alignment... alignment) noexcept {
  try {
    forgive::OnAllocation();
  } catch (const std::bad_alloc&) {
    return nullptr;
  }
  return Allocate(size, alignment...);
}

template <typename... Alignment>
void* OrThrow(size_t size, Alignment... alignment) {
  forgive::OnAllocation();
  void* const memory = Allocate(size, alignment...);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}

}  // namespace

// Every form is replaced: a form left to a sanitizer would pair its own new with the delete below, and abort.
void* operator new(size_t size) { return OrThrow(size); }
void* operator new[](size_t size) { return OrThrow(size); }
void* operator new(size_t size, const std::nothrow_t&) noexcept { return OrNull(size); }
void* operator new[](size_t size, const std::nothrow_t&) noexcept { return OrNull(size); }
void* operator new(size_t size, std::align_val_t alignment) { return OrThrow(size, alignment); }
void* operator new[](size_t size, std::align_val_t alignment) { return OrThrow(size, alignment); }
void* operator new(size_t size, std::align_val_t alignment, const std::nothrow_t&) noexcept {
  return OrNull(size, alignment);
}
void* operator new[](size_t size, std::align_val_t alignment, const std::nothrow_t&) noexcept {
  return OrNull(size, alignment);
}

void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete[](void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, size_t) noexcept { std::free(memory); }
void operator delete[](void* memory, size_t) noexcept { std::free(memory); }
void operator delete(void* memory, const std::nothrow_t&) noexcept { std::free(memory); }
void operator delete[](void* memory, const std::nothrow_t&) noexcept { std::free(memory); }
void operator delete(void* memory, std::align_val_t) noexcept { std::free(memory); }
void operator delete[](void* memory, std::align_val_t) noexcept { std::free(memory); }
void operator delete(void* memory, size_t, std::align_val_t) noexcept { std::free(memory); }
void operator delete[](void* memory, size_t, std::align_val_t) noexcept { std::free(memory); }
void operator delete(void* memory, std::align_val_t, const std::nothrow_t&) noexcept { std::free(memory); }
void operator delete[](void* memory, std::align_val_t, const std::nothrow_t&) noexcept { std::free(memory); }
