// SPDX-License-Identifier: Apache-2.0
// Ethernet frames of the dpdk driver: reading those that arrive, whatever a switch left stale, and writing headers.
#include "dataplane/dpdk/frame.h"

#include <netinet/in.h>

#include <algorithm>
#include <cstring>

#include "dataplane/socket_address.h"

namespace forgive {
namespace {

constexpr uint16_t kTypeIpv4 = 0x0800;
constexpr uint16_t kTypeArp = 0x0806;
constexpr uint16_t kTypeVlan = 0x8100;
constexpr uint16_t kTypeServiceVlan = 0x88a8;
constexpr uint16_t kTypeIpv6 = 0x86dd;
constexpr size_t kMostVlanTags = 2;
constexpr size_t kArpBytes = 28;
constexpr uint8_t kNeighbourSolicitation = 135;
constexpr uint8_t kNeighbourAdvertisement = 136;
constexpr size_t kNeighbourBytes = 24;
constexpr uint16_t kDontFragment = 0x4000;
constexpr uint8_t kHops = 64;

Address Ipv4Address(const uint8_t* host, uint16_t port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  std::memcpy(&address.sin_addr, host, sizeof(address.sin_addr));
  return ToAddress(reinterpret_cast<const sockaddr*>(&address));
}

Address Ipv6Address(const uint8_t* host, uint16_t port) {
  sockaddr_in6 address{};
  address.sin6_family = AF_INET6;
  address.sin6_port = htons(port);
  std::memcpy(&address.sin6_addr, host, sizeof(address.sin6_addr));
  return ToAddress(reinterpret_cast<const sockaddr*>(&address));
}

// `length` bytes are there from the UDP header on; the IP header announced `by_ip`.
bool ReadUdp(const uint8_t* udp, size_t length, size_t by_ip, Frame* frame) {
  const size_t in_packet = std::min(length, by_ip);
  if (in_packet < kUdpHeaderBytes) return false;
  const size_t by_udp = ReadBigEndian16(udp + 4);
  if (by_udp < kUdpHeaderBytes) return false;
  frame->kind = FrameKind::kUdp;
  frame->body = udp + kUdpHeaderBytes;
  frame->body_length = std::min(in_packet, by_udp) - kUdpHeaderBytes;
  frame->longer_by_ip = by_ip > length;
  frame->stale = frame->longer_by_ip || by_udp > in_packet;
  return true;
}

void ReadIpv4(const uint8_t* ip, size_t length, Frame* frame) {
  if (length < kIpv4HeaderBytes || ip[0] >> 4 != 4) return;
  const size_t header = static_cast<size_t>(ip[0] & 15) * 4;
  const size_t total = ReadBigEndian16(ip + 2);
  const bool fragment = (ReadBigEndian16(ip + 6) & 0x3fff) != 0;
  if (header < kIpv4HeaderBytes || header > length || total < header || fragment || ip[9] != IPPROTO_UDP) return;
  const uint8_t* udp = ip + header;
  if (!ReadUdp(udp, length - header, total - header, frame)) return;
  frame->traffic_class = ip[1];
  frame->source = Ipv4Address(ip + 12, ReadBigEndian16(udp));
  frame->destination = Ipv4Address(ip + 16, ReadBigEndian16(udp + 2));
}

void ReadIpv6(const uint8_t* ip, size_t length, Frame* frame) {
  if (length < kIpv6HeaderBytes || ip[0] >> 4 != 6) return;
  const uint8_t* body = ip + kIpv6HeaderBytes;
  const size_t in_frame = length - kIpv6HeaderBytes;
  const size_t by_ip = ReadBigEndian16(ip + 4);
  frame->traffic_class = static_cast<uint8_t>((ip[0] & 15) << 4 | ip[1] >> 4);
  if (ip[6] == IPPROTO_UDP) {
    if (!ReadUdp(body, in_frame, by_ip, frame)) return;
    frame->source = Ipv6Address(ip + 8, ReadBigEndian16(body));
    frame->destination = Ipv6Address(ip + 24, ReadBigEndian16(body + 2));
  } else if (ip[6] == IPPROTO_ICMPV6) {
    // Hop limit 255: it was sent on this link.
    if (std::min(in_frame, by_ip) < kNeighbourBytes || ip[7] != 255) return;
    if (body[0] != kNeighbourSolicitation && body[0] != kNeighbourAdvertisement) return;
    frame->kind = FrameKind::kNeighbour;
    frame->body = body;
    frame->body_length = std::min(in_frame, by_ip);
    frame->source = Ipv6Address(ip + 8, 0);
    frame->destination = Ipv6Address(ip + 24, 0);
  }
}

}  // namespace

Frame ReadFrame(const uint8_t* bytes, size_t length) {
  Frame frame;
  if (length < kEthernetHeaderBytes) return frame;
  std::copy_n(bytes + 6, 6, frame.source_mac.begin());
  size_t at = 12;
  uint16_t type = ReadBigEndian16(bytes + at);
  for (size_t tags = 0; tags < kMostVlanTags && (type == kTypeVlan || type == kTypeServiceVlan); ++tags) {
    at += kVlanTagBytes;
    if (length < at + 2) return frame;
    type = ReadBigEndian16(bytes + at);
  }
  at += 2;
  if (type == kTypeIpv4) {
    ReadIpv4(bytes + at, length - at, &frame);
  } else if (type == kTypeIpv6) {
    ReadIpv6(bytes + at, length - at, &frame);
  } else if (type == kTypeArp && length - at >= kArpBytes) {
    frame.kind = FrameKind::kArp;
    frame.body = bytes + at;
    frame.body_length = kArpBytes;
  }
  return frame;
}

HeaderTemplate::HeaderTemplate(const MacAddress& from_mac, const MacAddress& to_mac, const Address& from,
                               const Address& to) {
  const bool v6 = AddressFamily(to) == AF_INET6;
  uint8_t* const ethernet = bytes_.data();
  std::copy(to_mac.begin(), to_mac.end(), ethernet);
  std::copy(from_mac.begin(), from_mac.end(), ethernet + 6);
  WriteBigEndian16(v6 ? kTypeIpv6 : kTypeIpv4, ethernet + 12);
  uint8_t* const ip = ethernet + kEthernetHeaderBytes;
  uint8_t* udp;
  if (v6) {
    ip[0] = 0x60;
    ip[6] = IPPROTO_UDP;
    ip[7] = kHops;
    std::memcpy(ip + 8, from.bytes.data() + 8, 16);
    std::memcpy(ip + 24, to.bytes.data() + 8, 16);
    udp = ip + kIpv6HeaderBytes;
  } else {
    ip[0] = 0x45;
    WriteBigEndian16(kDontFragment, ip + 6);
    ip[8] = kHops;
    ip[9] = IPPROTO_UDP;
    std::memcpy(ip + 12, from.bytes.data() + 4, 4);
    std::memcpy(ip + 16, to.bytes.data() + 4, 4);
    fixed_sum_ = ChecksumSum(ip, kIpv4HeaderBytes);
    udp = ip + kIpv4HeaderBytes;
  }
  WriteBigEndian16(AddressPort(from), udp);
  WriteBigEndian16(AddressPort(to), udp + 2);
  length_ = static_cast<size_t>(udp + kUdpHeaderBytes - bytes_.data());
}

void HeaderTemplate::Write(uint8_t traffic_class, size_t payload_bytes, bool ip_checksum, uint8_t* out) const {
  std::memcpy(out, bytes_.data(), length_);
  const uint32_t udp_length = static_cast<uint32_t>(payload_bytes + kUdpHeaderBytes);
  uint8_t* const ip = out + kEthernetHeaderBytes;
  if (ipv6()) {
    ip[0] = static_cast<uint8_t>(0x60 | traffic_class >> 4);
    ip[1] = static_cast<uint8_t>(traffic_class << 4);
    WriteBigEndian16(udp_length, ip + 4);
    WriteBigEndian16(udp_length, ip + kIpv6HeaderBytes + 4);
    return;
  }
  const uint32_t total = udp_length + static_cast<uint32_t>(kIpv4HeaderBytes);
  ip[1] = traffic_class;
  WriteBigEndian16(total, ip + 2);
  if (ip_checksum) WriteBigEndian16(FoldChecksum(fixed_sum_ + traffic_class + total), ip + 10);
  WriteBigEndian16(udp_length, ip + kIpv4HeaderBytes + 4);
}

uint32_t PayloadOfMtu(uint32_t mtu_bytes, bool ipv6) {
  const uint32_t headers = static_cast<uint32_t>((ipv6 ? kIpv6HeaderBytes : kIpv4HeaderBytes) + kUdpHeaderBytes);
  return mtu_bytes > headers ? mtu_bytes - headers : 0;
}

uint32_t ChecksumSum(const uint8_t* bytes, size_t length) {
  uint32_t sum = 0;
  for (size_t i = 0; i + 1 < length; i += 2) sum += ReadBigEndian16(bytes + i);
  if (length % 2 != 0) sum += static_cast<uint32_t>(bytes[length - 1]) << 8;
  return sum;
}

uint16_t FoldChecksum(uint32_t sum) {
  while (sum >> 16 != 0) sum = (sum & 0xffff) + (sum >> 16);
  return static_cast<uint16_t>(~sum);
}

}  // namespace forgive
