// SPDX-License-Identifier: Apache-2.0
// An array whose size is set once, and which says whether there was memory for it instead of throwing.
#ifndef FORGIVE_TRANSPORT_ARRAY_H_
#define FORGIVE_TRANSPORT_ARRAY_H_

#include <cstddef>
#include <memory>
#include <new>

namespace forgive {

// What a connection is made of: it is set up while a job runs, where no memory must end the connection and not the
// process. Without memory the array has its size and no elements: whoever owns it asks has_memory() before the first.
template <typename T>
class Array {
 public:
  explicit Array(size_t size) : elements_(new (std::nothrow) T[size]()), size_(size) {}

  bool has_memory() const { return elements_ != nullptr; }
  size_t size() const { return size_; }
  T& operator[](size_t index) { return elements_[index]; }
  const T& operator[](size_t index) const { return elements_[index]; }
  T* begin() { return elements_.get(); }
  T* end() { return elements_.get() + size_; }
  const T* begin() const { return elements_.get(); }
  const T* end() const { return elements_.get() + size_; }

 private:
  std::unique_ptr<T[]> elements_;
  size_t size_;
};

}  // namespace forgive

#endif  // FORGIVE_TRANSPORT_ARRAY_H_
