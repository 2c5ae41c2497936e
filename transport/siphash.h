// SPDX-License-Identifier: Apache-2.0
// SipHash-2-4 with a 64-bit result (Aumasson and Bernstein, 2012): the tag of every packet.
#ifndef FORGIVE_TRANSPORT_SIPHASH_H_
#define FORGIVE_TRANSPORT_SIPHASH_H_

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "transport/inline.h"

namespace forgive {

struct SipKey {
  uint64_t k0 = 0;
  uint64_t k1 = 0;
};

// The hash word by word, as the packets' headers are made of words. Four words of state, kept in registers: out of
// line they would go through memory between two words, on the path that bounds everything here. A copy of it
// remembers the hash of a beginning that several inputs share.
class SipState {
 public:
  SipState() = default;
  FORGIVE_INLINE explicit SipState(const SipKey& key)
      : v0_(key.k0 ^ 0x736f6d6570736575u),
        v2_(key.k0 ^ 0x6c7967656e657261u),
        v1_(key.k1 ^ 0x646f72616e646f6du),
        v3_(key.k1 ^ 0x7465646279746573u) {}

  FORGIVE_INLINE void Absorb(uint64_t word) {
    v3_ ^= word;
    Round();
    Round();
    v0_ ^= word;
  }

  // Whole words of a packet, in the order of its bytes; returns what stands behind them.
  FORGIVE_INLINE const uint8_t* AbsorbWords(const uint8_t* bytes, size_t words) {
    for (; words >= 2; words -= 2, bytes += 16) {
      Absorb(LoadWord(bytes));
      Absorb(LoadWord(bytes + 8));
    }
    if (words == 1) {
      Absorb(LoadWord(bytes));
      bytes += 8;
    }
    return bytes;
  }

  // `tail` holds the bytes behind the last whole word; its top byte is still zero.
  FORGIVE_INLINE uint64_t Finish(uint64_t tail, size_t total_length) {
    Absorb(tail | uint64_t{total_length & 0xff} << 56);
    v2_ ^= 0xff;
    Round();
    Round();
    Round();
    Round();
    return v0_ ^ v1_ ^ v2_ ^ v3_;
  }

  // The word that Absorb takes for 8 bytes of a packet: little-endian, as SipHash reads them.
  static FORGIVE_INLINE uint64_t LoadWord(const uint8_t* bytes) {
    uint64_t word;
    std::memcpy(&word, bytes, sizeof(word));
    if constexpr (std::endian::native == std::endian::big) word = __builtin_bswap64(word);
    return word;
  }

 private:
  FORGIVE_INLINE void Round() {
    v0_ += v1_;
    v2_ += v3_;
    v1_ = std::rotl(v1_, 13) ^ v0_;
    v3_ = std::rotl(v3_, 16) ^ v2_;
    v0_ = std::rotl(v0_, 32);
    v2_ += v1_;
    v0_ += v3_;
    v1_ = std::rotl(v1_, 17) ^ v2_;
    v3_ = std::rotl(v3_, 21) ^ v0_;
    v2_ = std::rotl(v2_, 32);
  }

  // The words that a round treats alike stand side by side, as siphash_lanes.cc loads them.
  uint64_t v0_ = 0;
  uint64_t v2_ = 0;
  uint64_t v1_ = 0;
  uint64_t v3_ = 0;
};

// What is left of a hash whose beginning `state` knows: two pieces of whole words, then a word of suffix. The hashed
// input ends with the suffix and is total_length bytes long.
struct SipRest {
  SipState state;
  const uint8_t* first = nullptr;
  size_t first_words = 0;
  const uint8_t* second = nullptr;
  size_t second_words = 0;
  uint64_t suffix = 0;
  size_t total_length = 0;
};

// By the widest instructions of this processor, and by plain ones alone: the same hash.
uint64_t SipFinish(const SipRest& rest);
uint64_t SipFinishPortable(const SipRest& rest);

// Several inputs that are equally long behind their beginnings: one piece and a suffix each.
struct SipLane {
  SipState state;
  const uint8_t* words = nullptr;
  uint64_t suffix = 0;
};
// hashes[i] gets the hash of lanes[i]. Where the processor has 512-bit registers, four of them cost little more than
// one.
void SipFinishLanes(const SipLane* lanes, size_t count, size_t words_each, size_t total_length, uint64_t* hashes);

// The hash of `length` bytes, followed by the 8 bytes of `suffix` in little-endian order: as if they stood behind
// the bytes. A packet's tag has the upper half of its number as suffix (docs/wire-format.md).
uint64_t SipHash(const SipKey& key, const void* bytes, size_t length, uint64_t suffix);

// The same of two pieces, as if they stood behind each other: what stands around a tag in the middle of a packet.
// Both lengths are multiples of 8.
uint64_t SipHash(const SipKey& key, const void* first, size_t first_length, const void* second, size_t second_length,
                 uint64_t suffix);

// The plain function, without a suffix: what the reference vectors test.
uint64_t SipHash(const SipKey& key, const void* bytes, size_t length);

}  // namespace forgive

#endif  // FORGIVE_TRANSPORT_SIPHASH_H_
