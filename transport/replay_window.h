// SPDX-License-Identifier: Apache-2.0
// Which packet numbers were seen: a sliding bitmap behind the newest one.
#ifndef FORGIVE_TRANSPORT_REPLAY_WINDOW_H_
#define FORGIVE_TRANSPORT_REPLAY_WINDOW_H_

#include <bit>
#include <cstddef>
#include <cstdint>

#include "transport/array.h"
#include "transport/check.h"

namespace forgive {

// Accepts each number once. What lies a window or more below the newest is refused, seen or not (protocol.md, Wire).
class ReplayWindow {
 public:
  // `window` is a power of two, at least 64. `first`: the number that is expected first.
  explicit ReplayWindow(uint32_t window, uint64_t first = 0) : words_(window / 64), window_(window), newest_(first) {
    FORGIVE_CHECK(std::has_single_bit(window));
    FORGIVE_CHECK(window >= 64);
  }
  bool has_memory() const { return words_.has_memory(); }

  // True once for every number that is new enough.
  bool Accept(uint64_t number) {
    if (any_ && number == newest_ + 1) {
      // In order, the common case: its place is its own now, whatever it meant a window ago.
      newest_ = number;
      words_[WordOf(number)] |= uint64_t{1} << (number % 64);
      return true;
    }
    return AcceptOutOfOrder(number);
  }

  // The highest number accepted; before that the one that is expected first.
  uint64_t newest() const { return newest_; }

 private:
  size_t WordOf(uint64_t number) const { return (number & (window_ - 1)) / 64; }

  bool AcceptOutOfOrder(uint64_t number) {
    if (!any_ || number > newest_) {
      MoveTo(number);
    } else if (newest_ - number >= window_) {
      return false;
    }
    uint64_t& word = words_[WordOf(number)];
    const uint64_t bit = uint64_t{1} << (number % 64);
    if ((word & bit) != 0) return false;
    word |= bit;
    return true;
  }

  // Forgets what falls out of the window and what its places meant before.
  void MoveTo(uint64_t number) {
    if (!any_ || number - newest_ >= window_) {
      for (uint64_t& word : words_) word = 0;
    } else {
      for (uint64_t passed = newest_ + 1; passed <= number; ++passed) {
        words_[WordOf(passed)] &= ~(uint64_t{1} << (passed % 64));
      }
    }
    newest_ = number;
    any_ = true;
  }

  Array<uint64_t> words_;
  uint64_t window_;
  uint64_t newest_;
  bool any_ = false;
};

}  // namespace forgive

#endif  // FORGIVE_TRANSPORT_REPLAY_WINDOW_H_
