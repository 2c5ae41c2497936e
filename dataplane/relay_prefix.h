// SPDX-License-Identifier: Apache-2.0
// What stands before every packet between a host and the user-space relay.
#ifndef FORGIVE_DATAPLANE_RELAY_PREFIX_H_
#define FORGIVE_DATAPLANE_RELAY_PREFIX_H_

#include <array>
#include <cstdint>
#include <cstring>

#include "transport/endpoint.h"

namespace forgive {

// Byte 0-2 the magic, byte 3 the flags, then an Address: on the way to the relay the destination, on the way from it
// the source.
inline constexpr uint32_t kRelayPrefixBytes = 32;
inline constexpr uint8_t kRelayMagic[3] = {'F', 'R', 'Y'};
inline constexpr uint8_t kRelayCongestionExperienced = 1;

inline void WriteRelayPrefix(const Address& address, uint8_t flags, uint8_t* out) {
  std::memcpy(out, kRelayMagic, sizeof(kRelayMagic));
  out[sizeof(kRelayMagic)] = flags;
  std::memcpy(out + 4, address.bytes.data(), address.bytes.size());
}

// False: these bytes do not begin with a prefix.
inline bool ReadRelayPrefix(const uint8_t* bytes, size_t length, Address* address, uint8_t* flags) {
  if (length < kRelayPrefixBytes || std::memcmp(bytes, kRelayMagic, sizeof(kRelayMagic)) != 0) return false;
  *flags = bytes[sizeof(kRelayMagic)];
  std::memcpy(address->bytes.data(), bytes + 4, address->bytes.size());
  return true;
}

}  // namespace forgive

#endif  // FORGIVE_DATAPLANE_RELAY_PREFIX_H_
