// SPDX-License-Identifier: Apache-2.0
// The two bounded lock-free rings between threads, and a record that one thread publishes and any thread reads.
#ifndef FORGIVE_DATAPLANE_RING_H_
#define FORGIVE_DATAPLANE_RING_H_

#include <array>
#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <type_traits>
#include <utility>

#include "transport/check.h"

namespace forgive {

// Fixed, not std::hardware_destructive_interference_size: that one may differ between translation units.
inline constexpr size_t kCacheLineBytes = 64;

// Many producers, one consumer, bounded (the cell-sequence scheme). Requests of NCCL's threads go down through it.
//
// Memory ordering. A cell's `sequence` says whose turn it is: equal to a position, a producer may take that position;
// position + 1, the consumer may read it. A producer claims a position by a relaxed exchange of tail_ (it publishes
// nothing), fills the cell, and stores sequence = position + 1; the consumer's acquire load of that value makes the
// filled cell visible. The consumer gives the cell back by a release store of position + capacity, which a producer's
// acquire load pairs with, so that a cell is never overwritten while it is read. The producer's store and Empty()'s
// load are seq_cst and not merely release/acquire: they are one half of the sleep handshake (doorbell.h).
template <typename T>
class CommandRing {
 public:
  // `capacity` is a power of two.
  explicit CommandRing(uint32_t capacity) : cells_(std::make_unique<Cell[]>(capacity)), mask_(capacity - 1) {
    FORGIVE_CHECK(capacity >= 2 && (capacity & (capacity - 1)) == 0);
    for (uint64_t i = 0; i < capacity; ++i) cells_[i].sequence.store(i, std::memory_order_relaxed);
  }

  // From any thread. False: full.
  bool Push(const T& value) {
    uint64_t position = tail_.load(std::memory_order_relaxed);
    Cell* cell = nullptr;
    while (true) {
      cell = &cells_[position & mask_];
      const uint64_t sequence = cell->sequence.load(std::memory_order_acquire);
      const int64_t turn = static_cast<int64_t>(sequence - position);
      if (turn < 0) return false;
      if (turn > 0) {
        position = tail_.load(std::memory_order_relaxed);
      } else if (tail_.compare_exchange_weak(position, position + 1, std::memory_order_relaxed)) {
        break;
      }
    }
    cell->value = value;
    cell->sequence.store(position + 1, std::memory_order_seq_cst);
    return true;
  }

  // From the consumer. False: empty, or the next position is claimed and not yet filled.
  bool Pop(T* out) {
    Cell* cell = &cells_[head_ & mask_];
    if (cell->sequence.load(std::memory_order_acquire) != head_ + 1) return false;
    *out = cell->value;
    cell->sequence.store(head_ + mask_ + 1, std::memory_order_release);
    ++head_;
    return true;
  }

  // From the consumer; see the class comment for the ordering.
  bool Empty() const { return cells_[head_ & mask_].sequence.load(std::memory_order_seq_cst) != head_ + 1; }

 private:
  struct alignas(kCacheLineBytes) Cell {
    std::atomic<uint64_t> sequence{0};
    T value{};
  };

  std::unique_ptr<Cell[]> cells_;
  uint64_t mask_;
  // Producers fight over tail_; the consumer's head_ stays out of their line.
  alignas(kCacheLineBytes) std::atomic<uint64_t> tail_{0};
  alignas(kCacheLineBytes) uint64_t head_ = 0;
};

// One producer, one consumer, bounded. Each side's index is stored with release after the element was written or
// read, and loaded with acquire by the other side.
template <typename T>
class SpscRing {
 public:
  // `capacity` is a power of two.
  explicit SpscRing(uint32_t capacity) : values_(std::make_unique<T[]>(capacity)), mask_(capacity - 1) {
    FORGIVE_CHECK(capacity >= 2 && (capacity & (capacity - 1)) == 0);
  }

  bool Push(const T& value) {
    const uint64_t tail = tail_.load(std::memory_order_relaxed);
    if (tail - head_.load(std::memory_order_acquire) > mask_) return false;
    values_[tail & mask_] = value;
    tail_.store(tail + 1, std::memory_order_release);
    return true;
  }
  bool Pop(T* out) {
    const uint64_t head = head_.load(std::memory_order_relaxed);
    if (head == tail_.load(std::memory_order_acquire)) return false;
    *out = std::move(values_[head & mask_]);  // the cell keeps nothing alive
    head_.store(head + 1, std::memory_order_release);
    return true;
  }

 private:
  std::unique_ptr<T[]> values_;
  uint64_t mask_;
  alignas(kCacheLineBytes) std::atomic<uint64_t> tail_{0};
  alignas(kCacheLineBytes) std::atomic<uint64_t> head_{0};
};

// A record that one thread writes now and then and others read as one consistent copy (a sequence lock). All words
// are atomics, so a torn read is detected and never undefined: the writer makes the version odd, stores the words
// with release and makes the version even; a reader that met a newer word has synchronised with the odd version
// before it, so its second look at the version differs from the first.
template <typename T>
class Published {
  static_assert(std::is_trivially_copyable_v<T> && sizeof(T) % 8 == 0);

 public:
  Published() { Store(T{}); }

  void Store(const T& value) {
    const auto words = std::bit_cast<std::array<uint64_t, kWords>>(value);
    const uint64_t version = version_.load(std::memory_order_relaxed);
    version_.store(version + 1, std::memory_order_relaxed);
    for (size_t i = 0; i < kWords; ++i) words_[i].store(words[i], std::memory_order_release);
    version_.store(version + 2, std::memory_order_release);
  }
  T Load() const {
    std::array<uint64_t, kWords> words;
    while (true) {
      const uint64_t before = version_.load(std::memory_order_acquire);
      for (size_t i = 0; i < kWords; ++i) words[i] = words_[i].load(std::memory_order_acquire);
      const uint64_t after = version_.load(std::memory_order_relaxed);
      if (before == after && before % 2 == 0) break;
    }
    return std::bit_cast<T>(words);
  }

 private:
  static constexpr size_t kWords = sizeof(T) / 8;
  alignas(kCacheLineBytes) std::atomic<uint64_t> version_{0};
  std::array<std::atomic<uint64_t>, kWords> words_{};
};

}  // namespace forgive

#endif  // FORGIVE_DATAPLANE_RING_H_
