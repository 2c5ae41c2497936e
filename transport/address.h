// SPDX-License-Identifier: Apache-2.0
// Where a peer is, as drivers write it.
#ifndef FORGIVE_TRANSPORT_ADDRESS_H_
#define FORGIVE_TRANSPORT_ADDRESS_H_

#include <array>
#include <cstdint>

namespace forgive {

// Opaque to the transport (drivers keep a socket address in it), compared byte by byte.
struct Address {
  std::array<uint8_t, 28> bytes{};
  friend bool operator==(const Address&, const Address&) = default;
};

}  // namespace forgive

#endif  // FORGIVE_TRANSPORT_ADDRESS_H_
