// SPDX-License-Identifier: Apache-2.0
// SipHash-2-4 with a 64-bit result (Aumasson and Bernstein, 2012): the tag of every packet.
#ifndef FORGIVE_TRANSPORT_SIPHASH_H_
#define FORGIVE_TRANSPORT_SIPHASH_H_

#include <cstddef>
#include <cstdint>

namespace forgive {

struct SipKey {
  uint64_t k0 = 0;
  uint64_t k1 = 0;
};

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
