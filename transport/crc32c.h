// SPDX-License-Identifier: Apache-2.0
// CRC32C (Castagnoli) of a payload, by the processor's instruction where it has one.
#ifndef FORGIVE_TRANSPORT_CRC32C_H_
#define FORGIVE_TRANSPORT_CRC32C_H_

#include <cstddef>
#include <cstdint>

namespace forgive {

// The CRC32C of `length` bytes (initial value and final xor of all ones, as in iSCSI: RFC 3720).
uint32_t Crc32c(const void* bytes, size_t length);

// The same, and copies the bytes to `to`, which does not overlap them: in one pass where the wide instructions are
// there. Half as fast again as one after the other where `to` is cold (`testbed/perf`, Sapphire Rapids).
uint32_t Crc32cCopy(const void* bytes, size_t length, void* to);

// The same as Crc32c by three lanes of the instruction: what Crc32c uses where wide carry-less multiplication is
// missing, and for short payloads.
uint32_t Crc32cThreeLanes(const void* bytes, size_t length);

// The same as Crc32c by tables alone, on any processor: what Crc32c uses where the instruction is missing.
uint32_t Crc32cPortable(const void* bytes, size_t length);

// True if Crc32c uses the instruction here.
bool Crc32cHasInstruction();

}  // namespace forgive

#endif  // FORGIVE_TRANSPORT_CRC32C_H_
