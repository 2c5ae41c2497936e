// SPDX-License-Identifier: Apache-2.0
// Reading and writing what stands before every packet between a host and the user-space relay.
#ifndef FORGIVE_DATAPLANE_RELAY_PREFIX_H_
#define FORGIVE_DATAPLANE_RELAY_PREFIX_H_

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "dataplane/relay_layout.h"
#include "transport/datagram.h"

namespace forgive {

inline constexpr uint32_t kRelayPrefixBytes = sizeof(forgive_relay_prefix);
static_assert(kRelayPrefixBytes == 32 && sizeof(forgive_relay_prefix::address) == sizeof(Address::bytes));

inline void WriteRelayPrefix(const Address& address, uint8_t flags, uint8_t* out) {
  forgive_relay_prefix prefix{{FORGIVE_RELAY_MAGIC_0, FORGIVE_RELAY_MAGIC_1, FORGIVE_RELAY_MAGIC_2}, flags, {}};
  std::memcpy(prefix.address, address.bytes.data(), address.bytes.size());
  std::memcpy(out, &prefix, sizeof(prefix));
}

// False: these bytes do not begin with a prefix.
inline bool ReadRelayPrefix(const uint8_t* bytes, size_t length, Address* address, uint8_t* flags) {
  if (length < kRelayPrefixBytes) return false;
  forgive_relay_prefix prefix;
  std::memcpy(&prefix, bytes, sizeof(prefix));
  if (prefix.magic[0] != FORGIVE_RELAY_MAGIC_0 || prefix.magic[1] != FORGIVE_RELAY_MAGIC_1 ||
      prefix.magic[2] != FORGIVE_RELAY_MAGIC_2) {
    return false;
  }
  *flags = prefix.flags;
  std::memcpy(address->bytes.data(), prefix.address, address->bytes.size());
  return true;
}

}  // namespace forgive

#endif  // FORGIVE_DATAPLANE_RELAY_PREFIX_H_
