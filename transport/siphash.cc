// SPDX-License-Identifier: Apache-2.0
// SipHash-2-4, word by word: every packet passes here twice.
#include "transport/siphash.h"

#include "transport/check.h"

namespace forgive {
namespace {

// The last, partial word: 0 to 7 bytes.
inline uint64_t LoadPartial(const uint8_t* bytes, size_t length) {
  uint64_t word = 0;
  for (size_t i = 0; i < length; ++i) word |= uint64_t{bytes[i]} << (8 * i);
  return word;
}

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
