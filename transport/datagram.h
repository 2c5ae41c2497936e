// SPDX-License-Identifier: Apache-2.0
// What passes between a driver and an endpoint: datagrams that arrived and packets that leave.
#ifndef FORGIVE_TRANSPORT_DATAGRAM_H_
#define FORGIVE_TRANSPORT_DATAGRAM_H_

#include <array>
#include <cstddef>
#include <cstdint>

#include "transport/address.h"
#include "transport/event.h"
#include "transport/wire.h"

namespace forgive {

// What arrived. `length` is the least of what the frame, the IP header and the UDP header say was the UDP payload.
// A datagram that the local buffer cut must not be given to the endpoint.
struct Datagram {
  Address source;
  const uint8_t* bytes = nullptr;
  size_t length = 0;
  bool ce = false;
  // Of a report: the trim that it tells of is not taken for congestion. Only a simulator knows such a thing.
  bool ignore_trim_signal = false;
};

enum class PacketClass : uint8_t { kData, kControl };

// Of a data packet: the code point that the driver has for data.
inline constexpr uint8_t kDscpOfDriver = 0xff;

// One packet to leave. The payload view is the user's own memory: valid until the next Post of a close.
struct Transmit {
  Address destination;
  PacketClass packet_class = PacketClass::kControl;
  uint8_t dscp = kDscpOfDriver;  // of data, six bits; of control packets it means nothing
  uint16_t path = 0;
  ConnectionHandle connection;
  uint32_t header_length = 0;   // bytes of `header`
  uint32_t payload_length = 0;  // bytes at `payload`, behind the header
  const uint8_t* payload = nullptr;
  std::array<uint8_t, kMaxReportBytes> header;
};

}  // namespace forgive

#endif  // FORGIVE_TRANSPORT_DATAGRAM_H_
