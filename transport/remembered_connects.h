// SPDX-License-Identifier: Apache-2.0
// The Connects that a listener has answered, so that one that is replayed makes no second connection.
#ifndef FORGIVE_TRANSPORT_REMEMBERED_CONNECTS_H_
#define FORGIVE_TRANSPORT_REMEMBERED_CONNECTS_H_

#include <algorithm>
#include <cstddef>
#include <memory>
#include <new>

#include "transport/wire.h"

namespace forgive {

// Forgets nothing while the listener lives: whoever could make it forget could replay what it forgot. Only Connects
// with a right tag get in, so only those who were given the ticket take its memory.
class RememberedConnects {
 public:
  // 64 KiB, and a search of microseconds for each replay. A listener of NCCL's accepts one connection.
  static constexpr std::size_t kMost = 4096;

  bool Contains(const Nonce& nonce) const {
    return std::find(nonces_.get(), nonces_.get() + count_, nonce) != nonces_.get() + count_;
  }
  bool full() const { return count_ == kMost; }
  // Makes room for one more. False: it is full, or no memory is left.
  bool HasRoom() {
    if (count_ < capacity_) return true;
    if (full()) return false;
    const std::size_t capacity = std::clamp<std::size_t>(2 * capacity_, 4, kMost);
    std::unique_ptr<Nonce[]> more(new (std::nothrow) Nonce[capacity]);
    if (more == nullptr) return false;
    std::copy_n(nonces_.get(), count_, more.get());
    nonces_ = std::move(more);
    capacity_ = capacity;
    return true;
  }
  // After HasRoom.
  void Add(const Nonce& nonce) { nonces_[count_++] = nonce; }

 private:
  std::unique_ptr<Nonce[]> nonces_;
  std::size_t count_ = 0;
  std::size_t capacity_ = 0;
};

}  // namespace forgive

#endif  // FORGIVE_TRANSPORT_REMEMBERED_CONNECTS_H_
