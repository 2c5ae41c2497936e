// SPDX-License-Identifier: Apache-2.0
// Ethernet frames of the dpdk driver: reading those that arrive, whatever a switch left stale, and writing headers.
#ifndef FORGIVE_DATAPLANE_DPDK_FRAME_H_
#define FORGIVE_DATAPLANE_DPDK_FRAME_H_

#include <array>
#include <cstddef>
#include <cstdint>

#include "dataplane/dpdk_options.h"
#include "transport/datagram.h"

namespace forgive {

inline constexpr size_t kEthernetHeaderBytes = 14;
inline constexpr size_t kVlanTagBytes = 4;
inline constexpr size_t kIpv4HeaderBytes = 20;
inline constexpr size_t kIpv6HeaderBytes = 40;
inline constexpr size_t kUdpHeaderBytes = 8;
inline constexpr size_t kMostHeaderBytes = kEthernetHeaderBytes + kIpv6HeaderBytes + kUdpHeaderBytes;

enum class FrameKind : uint8_t {
  kOther,      // nothing that this driver reads
  kUdp,        // whole or cut
  kArp,        // IPv4 over Ethernet
  kNeighbour,  // a neighbour solicitation or advertisement
};

struct Frame {
  FrameKind kind = FrameKind::kOther;
  MacAddress source_mac{};
  const uint8_t* body = nullptr;  // UDP payload; the ARP packet; the ICMPv6 message
  size_t body_length = 0;         // of UDP: the least of what frame, IP header and UDP header say
  uint8_t traffic_class = 0;
  bool stale = false;         // the UDP header or the IP header says that there should be more
  bool longer_by_ip = false;  // the IP header does
  // As socket addresses; ports only of UDP. Link-local sources have no scope yet.
  Address source;
  Address destination;
};

// Reads a frame: Ethernet, up to two VLAN tags, IPv4 without fragments or IPv6 without extension headers.
Frame ReadFrame(const uint8_t* bytes, size_t length);

// What stands before every payload that goes to one place.
class HeaderTemplate {
 public:
  HeaderTemplate() = default;
  // Both addresses are of one family.
  HeaderTemplate(const MacAddress& from_mac, const MacAddress& to_mac, const Address& from, const Address& to);

  size_t length() const { return length_; }
  bool ipv6() const { return length_ == kMostHeaderBytes; }
  // Writes length() bytes for a UDP payload of `payload_bytes`. The UDP checksum is zero: the payload has its own CRC
  // and a switch that trims cannot leave a checksum stale that is not there. `ip_checksum`: false where the port
  // writes it.
  void Write(uint8_t traffic_class, size_t payload_bytes, bool ip_checksum, uint8_t* out) const;

 private:
  std::array<uint8_t, kMostHeaderBytes> bytes_{};
  size_t length_ = 0;
  uint32_t fixed_sum_ = 0;  // of the IPv4 header without what differs from packet to packet
};

// The largest UDP payload that fits into `mtu_bytes`; 0: none does.
uint32_t PayloadOfMtu(uint32_t mtu_bytes, bool ipv6);

// The Internet checksum's sum of `length` bytes, not folded.
uint32_t ChecksumSum(const uint8_t* bytes, size_t length);
uint16_t FoldChecksum(uint32_t sum);

inline uint16_t ReadBigEndian16(const uint8_t* bytes) { return static_cast<uint16_t>(bytes[0] << 8 | bytes[1]); }
inline void WriteBigEndian16(uint32_t value, uint8_t* out) {
  out[0] = static_cast<uint8_t>(value >> 8);
  out[1] = static_cast<uint8_t>(value);
}

}  // namespace forgive

#endif  // FORGIVE_DATAPLANE_DPDK_FRAME_H_
