// SPDX-License-Identifier: Apache-2.0
// The neighbours of a port that the driver owns: ARP and neighbour discovery, one subnet and one gateway.
#include "dataplane/dpdk/own_neighbours.h"

#include <netinet/in.h>

#include <algorithm>
#include <cstring>

#include "dataplane/socket_address.h"
#include "transport/check.h"

namespace forgive {
namespace {

constexpr size_t kMostNeighbours = 4096;
constexpr Nanoseconds kAskInterval = Milliseconds(100);
// A neighbour that was silent this often is asked on, but no more so eagerly.
constexpr uint32_t kEagerQuestions = 10;
constexpr Nanoseconds kSlowInterval = Seconds(1);

constexpr uint16_t kArpRequest = 1;
constexpr uint16_t kArpReply = 2;
constexpr size_t kArpBytes = 28;
constexpr uint8_t kSolicitation = 135;
constexpr uint8_t kAdvertisement = 136;
constexpr uint8_t kSourceLinkAddress = 1;
constexpr uint8_t kTargetLinkAddress = 2;
constexpr size_t kNeighbourMessageBytes = 32;  // with one option
constexpr uint8_t kSolicitedAndOverride = 0x60;

constexpr MacAddress kBroadcast{0xff, 0xff, 0xff, 0xff, 0xff, 0xff};

bool IsUnicast(const MacAddress& mac) { return (mac[0] & 1) == 0 && mac != MacAddress{}; }

void WriteEthernet(const MacAddress& to, const MacAddress& from, uint32_t type, uint8_t* out) {
  std::copy(to.begin(), to.end(), out);
  std::copy(from.begin(), from.end(), out + 6);
  WriteBigEndian16(type, out + 12);
}

MacAddress ReadMac(const uint8_t* bytes) {
  MacAddress mac;
  std::copy_n(bytes, mac.size(), mac.begin());
  return mac;
}

}  // namespace

OwnNeighbours::OwnNeighbours(const MacAddress& mac, const Address& own, const DpdkPortOptions& port)
    : mac_(mac), own_(HostOf(own)), ipv6_(AddressFamily(own) == AF_INET6), prefix_bits_(port.prefix_bits) {
  Address address;
  if (!port.gateway.empty() && ParseAddress(port.gateway, 0, &address)) {
    gateway_ = HostOf(address);
    has_gateway_ = true;
  }
  for (const auto& [host, neighbour_mac] : port.neighbours) {
    if (!ParseAddress(host, 0, &address)) continue;
    Neighbour& neighbour = neighbours_[HostOf(address)];
    neighbour.mac = neighbour_mac;
    neighbour.known = neighbour.fixed = true;
  }
}

OwnNeighbours::Host OwnNeighbours::HostOf(const Address& address) {
  Host host{};
  const bool v6 = AddressFamily(address) == AF_INET6;
  std::copy_n(address.bytes.begin() + (v6 ? 8 : 4), v6 ? 16 : 4, host.begin());
  return host;
}

bool OwnNeighbours::InSubnet(const Host& host) const {
  for (uint32_t bit = 0; bit < prefix_bits_; ++bit) {
    const uint8_t mask = static_cast<uint8_t>(0x80 >> bit % 8);
    if (((host[bit / 8] ^ own_[bit / 8]) & mask) != 0) return false;
  }
  return true;
}

Hop OwnNeighbours::Resolve(const Address& destination, TimePoint now) {
  if ((AddressFamily(destination) == AF_INET6) != ipv6_) return {};
  Host next = HostOf(destination);
  if (!InSubnet(next)) {
    if (!has_gateway_) return {};
    next = gateway_;
  }
  auto found = neighbours_.find(next);
  if (found == neighbours_.end()) {
    if (neighbours_.size() >= kMostNeighbours) return {};
    found = neighbours_.emplace(next, Neighbour{}).first;
    found->second.ask_at = now;
  }
  return {found->second.known ? HopState::kKnown : HopState::kAsked, found->second.mac};
}

bool OwnNeighbours::Poll(TimePoint) {
  const bool changed = changed_;
  changed_ = false;
  return changed;
}

// Only of those whom we asked for, or who ask for us: others cannot fill the table.
void OwnNeighbours::Learn(const Host& host, const MacAddress& mac) {
  if (!IsUnicast(mac)) return;
  const auto found = neighbours_.find(host);
  if (found == neighbours_.end()) return;
  Neighbour& neighbour = found->second;
  if (neighbour.fixed || (neighbour.known && neighbour.mac == mac)) return;
  neighbour.mac = mac;
  neighbour.known = true;
  neighbour.asked = 0;
  changed_ = true;
}

size_t OwnNeighbours::OnFrame(const Frame& frame, std::span<uint8_t> answer) {
  FORGIVE_CHECK(answer.size() >= kResolverFrameBytes);
  if (frame.kind == FrameKind::kArp && !ipv6_) return OnArp(frame, answer);
  if (frame.kind == FrameKind::kNeighbour && ipv6_) return OnNeighbourMessage(frame, answer);
  return 0;
}

size_t OwnNeighbours::OnArp(const Frame& frame, std::span<uint8_t> answer) {
  const uint8_t* arp = frame.body;
  constexpr uint8_t kIpv4OverEthernet[6] = {0, 1, 8, 0, 6, 4};
  if (std::memcmp(arp, kIpv4OverEthernet, sizeof(kIpv4OverEthernet)) != 0) return 0;
  const uint16_t operation = ReadBigEndian16(arp + 6);
  const MacAddress sender_mac = ReadMac(arp + 8);
  Host sender{};
  Host target{};
  std::copy_n(arp + 14, 4, sender.begin());
  std::copy_n(arp + 24, 4, target.begin());
  if (sender == own_) return 0;
  Learn(sender, sender_mac);
  if (operation != kArpRequest || target != own_ || !IsUnicast(sender_mac)) return 0;
  return WriteArp(kArpReply, sender_mac, sender, answer);
}

size_t OwnNeighbours::OnNeighbourMessage(const Frame& frame, std::span<uint8_t> answer) {
  const uint8_t* message = frame.body;
  Host target;
  std::copy_n(message + 8, target.size(), target.begin());
  const Host sender = HostOf(frame.source);
  const bool solicitation = message[0] == kSolicitation;
  const uint8_t wanted = solicitation ? kSourceLinkAddress : kTargetLinkAddress;
  MacAddress link = frame.source_mac;
  for (size_t at = 24; at + 8 <= frame.body_length && message[at + 1] != 0; at += message[at + 1] * size_t{8}) {
    if (message[at] == wanted) link = ReadMac(message + at + 2);
  }
  Learn(solicitation ? sender : target, link);
  if (!solicitation || target != own_ || sender == Host{} || !IsUnicast(link)) return 0;
  return WriteNeighbourMessage(false, link, sender, own_, answer);
}

size_t OwnNeighbours::NextQuestion(TimePoint now, std::span<uint8_t> out) {
  FORGIVE_CHECK(out.size() >= kResolverFrameBytes);
  for (auto& [host, neighbour] : neighbours_) {
    if (neighbour.known || now < neighbour.ask_at) continue;
    neighbour.ask_at = now + (++neighbour.asked < kEagerQuestions ? kAskInterval : kSlowInterval);
    if (!ipv6_) return WriteArp(kArpRequest, kBroadcast, host, out);
    // The multicast group of the last three bytes of the address, in IPv6 and in Ethernet.
    Host group{0xff, 0x02, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0xff, host[13], host[14], host[15]};
    return WriteNeighbourMessage(true, {0x33, 0x33, 0xff, host[13], host[14], host[15]}, group, host, out);
  }
  return 0;
}

size_t OwnNeighbours::WriteArp(uint16_t operation, const MacAddress& to_mac, const Host& to,
                               std::span<uint8_t> out) const {
  WriteEthernet(to_mac, mac_, 0x0806, out.data());
  uint8_t* arp = out.data() + kEthernetHeaderBytes;
  constexpr uint8_t kIpv4OverEthernet[6] = {0, 1, 8, 0, 6, 4};
  std::copy_n(kIpv4OverEthernet, 6, arp);
  WriteBigEndian16(operation, arp + 6);
  std::copy(mac_.begin(), mac_.end(), arp + 8);
  std::copy_n(own_.begin(), 4, arp + 14);
  const MacAddress target = operation == kArpRequest ? MacAddress{} : to_mac;
  std::copy(target.begin(), target.end(), arp + 18);
  std::copy_n(to.begin(), 4, arp + 24);
  return kEthernetHeaderBytes + kArpBytes;
}

size_t OwnNeighbours::WriteNeighbourMessage(bool solicitation, const MacAddress& to_mac, const Host& to,
                                            const Host& target, std::span<uint8_t> out) const {
  WriteEthernet(to_mac, mac_, 0x86dd, out.data());
  uint8_t* ip = out.data() + kEthernetHeaderBytes;
  std::fill_n(ip, kIpv6HeaderBytes + kNeighbourMessageBytes, uint8_t{0});
  ip[0] = 0x60;
  WriteBigEndian16(kNeighbourMessageBytes, ip + 4);
  ip[6] = IPPROTO_ICMPV6;
  ip[7] = 255;
  std::copy(own_.begin(), own_.end(), ip + 8);
  std::copy(to.begin(), to.end(), ip + 24);
  uint8_t* message = ip + kIpv6HeaderBytes;
  message[0] = solicitation ? kSolicitation : kAdvertisement;
  if (!solicitation) message[4] = kSolicitedAndOverride;
  std::copy(target.begin(), target.end(), message + 8);
  message[24] = solicitation ? kSourceLinkAddress : kTargetLinkAddress;
  message[25] = 1;  // eight bytes
  std::copy(mac_.begin(), mac_.end(), message + 26);
  const uint32_t pseudo = ChecksumSum(ip + 8, 32) + kNeighbourMessageBytes + IPPROTO_ICMPV6;
  WriteBigEndian16(FoldChecksum(pseudo + ChecksumSum(message, kNeighbourMessageBytes)), message + 2);
  return kEthernetHeaderBytes + kIpv6HeaderBytes + kNeighbourMessageBytes;
}

}  // namespace forgive
