// SPDX-License-Identifier: Apache-2.0
// SipHash-2-4, word by word: every packet passes here twice.
#include "transport/siphash.h"

#include <bit>
#include <cstring>

#include "transport/check.h"

// Out of line, the state would go through memory between two words, on the path that bounds everything here.
#define FORGIVE_INLINE __attribute__((always_inline)) inline

namespace forgive {
namespace {

inline uint64_t LoadLittleEndian(const uint8_t* bytes) {
  uint64_t word;
  std::memcpy(&word, bytes, sizeof(word));
  if constexpr (std::endian::native == std::endian::big) word = __builtin_bswap64(word);
  return word;
}

// The last, partial word: 0 to 7 bytes.
inline uint64_t LoadPartial(const uint8_t* bytes, size_t length) {
  uint64_t word = 0;
  for (size_t i = 0; i < length; ++i) word |= uint64_t{bytes[i]} << (8 * i);
  return word;
}

// The four words of SipHash's state, kept in registers: every member function is inlined.
class SipState {
 public:
  FORGIVE_INLINE explicit SipState(const SipKey& key)
      : v0_(key.k0 ^ 0x736f6d6570736575u),
        v1_(key.k1 ^ 0x646f72616e646f6du),
        v2_(key.k0 ^ 0x6c7967656e657261u),
        v3_(key.k1 ^ 0x7465646279746573u) {}

  FORGIVE_INLINE void Absorb(uint64_t word) {
    v3_ ^= word;
    Round();
    Round();
    v0_ ^= word;
  }

  FORGIVE_INLINE const uint8_t* AbsorbWords(const uint8_t* bytes, size_t words) {
    for (; words >= 2; words -= 2, bytes += 16) {
      Absorb(LoadLittleEndian(bytes));
      Absorb(LoadLittleEndian(bytes + 8));
    }
    if (words == 1) {
      Absorb(LoadLittleEndian(bytes));
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

  uint64_t v0_;
  uint64_t v1_;
  uint64_t v2_;
  uint64_t v3_;
};

}  // namespace

uint64_t SipHash(const SipKey& key, const void* bytes, size_t length) {
  SipState state(key);
  const uint8_t* rest = state.AbsorbWords(static_cast<const uint8_t*>(bytes), length / 8);
  return state.Finish(LoadPartial(rest, length % 8), length);
}

uint64_t SipHash(const SipKey& key, const void* bytes, size_t length, uint64_t suffix) {
  SipState state(key);
  const uint8_t* rest = state.AbsorbWords(static_cast<const uint8_t*>(bytes), length / 8);
  const size_t odd = length % 8;
  if (odd == 0) {
    state.Absorb(suffix);
    return state.Finish(0, length + 8);
  }
  // The suffix straddles two words.
  state.Absorb(LoadPartial(rest, odd) | suffix << (8 * odd));
  return state.Finish(suffix >> (8 * (8 - odd)), length + 8);
}

uint64_t SipHash(const SipKey& key, const void* first, size_t first_length, const void* second, size_t second_length,
                 uint64_t suffix) {
  FORGIVE_CHECK(first_length % 8 == 0);
  FORGIVE_CHECK(second_length % 8 == 0);
  SipState state(key);
  state.AbsorbWords(static_cast<const uint8_t*>(first), first_length / 8);
  state.AbsorbWords(static_cast<const uint8_t*>(second), second_length / 8);
  state.Absorb(suffix);
  return state.Finish(0, first_length + second_length + 8);
}

}  // namespace forgive
