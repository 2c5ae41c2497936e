// SPDX-License-Identifier: Apache-2.0
// The sockets beneath DPDK's af_packet ports, which DPDK itself does not show: drops, wake-ups and filters.
#include "dataplane/dpdk/packet_ring.h"

#include <linux/if_packet.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <system_error>

#include "dataplane/dpdk/frame.h"
#include "dataplane/parse_number.h"
#include "dataplane/socket_address.h"
#include "dataplane/udp_filter.h"

namespace forgive {
namespace {

// Where the kernel puts a frame behind the ring's own header: the network header lies aligned to 16 bytes.
constexpr uint32_t kFrameOffset = 66;
constexpr uint32_t kKeep = UINT32_MAX;
constexpr size_t kMostPlaces = 16;

bool IsPacketSocket(int fd) {
  int domain = 0;
  socklen_t length = sizeof(domain);
  return getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &domain, &length) == 0 && domain == AF_PACKET;
}

uint32_t Word(const uint8_t* bytes) {
  return static_cast<uint32_t>(ReadBigEndian16(bytes)) << 16 | ReadBigEndian16(bytes + 2);
}

// Classic BPF whose jumps go to the two ends, which are known last.
class FilterBuilder {
 public:
  void Load(uint16_t width, uint32_t offset) { Add(BPF_LD | width | BPF_ABS, offset); }
  void Add(int code, uint32_t value) { program_.push_back({static_cast<uint16_t>(code), 0, 0, value}); }
  // Jumps over the next `if_equal` or `if_not` instructions.
  void JumpEqual(uint32_t value, uint8_t if_equal, uint8_t if_not) {
    program_.push_back({BPF_JMP | BPF_JEQ | BPF_K, if_equal, if_not, value});
  }
  void Return(uint32_t value) { Add(BPF_RET | BPF_K, value); }
  std::vector<sock_filter> Take() { return std::move(program_); }

 private:
  std::vector<sock_filter> program_;
};

}  // namespace

std::vector<int> PacketSockets() {
  std::vector<int> found;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd", error)) {
    int fd = -1;
    if (ParseNumber(entry.path().filename().string(), &fd) && IsPacketSocket(fd)) found.push_back(fd);
  }
  return found;
}

int NewPacketSocket(std::span<const int> before, uint32_t interface_index) {
  for (const int fd : PacketSockets()) {
    if (std::ranges::find(before, fd) != before.end()) continue;
    sockaddr_ll name{};
    socklen_t length = sizeof(name);
    if (getsockname(fd, reinterpret_cast<sockaddr*>(&name), &length) == 0 &&
        name.sll_ifindex == static_cast<int>(interface_index)) {
      return fd;
    }
  }
  return -1;
}

uint32_t PacketRingFrameBytes(uint32_t frame_bytes) {
  return frame_bytes > kFrameOffset ? frame_bytes - kFrameOffset : 0;
}

uint64_t TakePacketDrops(int fd) {
  tpacket_stats statistics{};
  socklen_t length = sizeof(statistics);
  return getsockopt(fd, SOL_PACKET, PACKET_STATISTICS, &statistics, &length) == 0 ? statistics.tp_drops : 0;
}

// The kernel has taken an outer VLAN tag off before the filter runs; a frame with a second one is let through, as the
// driver reads it itself.
std::vector<sock_filter> PacketRingFilter(std::span<const Address> places, bool neighbours) {
  constexpr uint32_t kIp = kEthernetHeaderBytes;
  FilterBuilder filter;
  if (places.empty() || places.size() > kMostPlaces) {
    filter.Return(places.empty() ? 0 : kKeep);
    return filter.Take();
  }
  const bool ipv6 = AddressFamily(places[0]) == AF_INET6;
  filter.Load(BPF_H, 12);
  for (const uint32_t type : {0x8100u, 0x88a8u, 0x0806u}) {
    if (type == 0x0806u && !neighbours) continue;
    filter.JumpEqual(type, 0, 1);
    filter.Return(kKeep);
  }
  filter.JumpEqual(ipv6 ? 0x86dd : 0x0800, 1, 0);
  filter.Return(0);
  filter.Load(BPF_B, ipv6 ? kIp + 6 : kIp + 9);
  if (ipv6 && neighbours) {
    filter.JumpEqual(IPPROTO_ICMPV6, 0, 1);
    filter.Return(kKeep);
  }
  filter.JumpEqual(IPPROTO_UDP, 1, 0);
  filter.Return(0);
  if (ipv6) {
    filter.Add(BPF_LDX | BPF_IMM, kIpv6HeaderBytes);
  } else {
    filter.Add(BPF_LDX | BPF_B | BPF_MSH, kIp);
  }
  for (const Address& place : places) {
    const size_t words = ipv6 ? 4 : 1;
    const uint8_t* host = place.bytes.data() + (ipv6 ? 8 : 4);
    // To the next place: over the remaining pairs, the port's pair and the return.
    for (size_t word = 0; word < words; ++word) {
      filter.Load(BPF_W, static_cast<uint32_t>(kIp + (ipv6 ? 24 : 16) + word * 4));
      filter.JumpEqual(Word(host + word * 4), 0, static_cast<uint8_t>((words - word - 1) * 2 + 3));
    }
    filter.Add(BPF_LD | BPF_H | BPF_IND, kIp + 2);
    filter.JumpEqual(AddressPort(place), 0, 1);
    filter.Return(kKeep);
  }
  filter.Return(0);
  return filter.Take();
}

bool FilterPacketRing(int fd, std::span<const Address> places, bool neighbours) {
  return AttachFilter(fd, PacketRingFilter(places, neighbours));
}

}  // namespace forgive
