// SPDX-License-Identifier: Apache-2.0
// The sockets beneath DPDK's af_packet ports, which DPDK itself does not show: drops, wake-ups and filters.
#ifndef FORGIVE_DATAPLANE_DPDK_PACKET_RING_H_
#define FORGIVE_DATAPLANE_DPDK_PACKET_RING_H_

#include <linux/filter.h>

#include <cstdint>
#include <span>
#include <vector>

#include "transport/datagram.h"

namespace forgive {

// The packet sockets that this process has open.
std::vector<int> PacketSockets();
// The socket that was opened since `before` and is bound to the interface; -1: none is.
int NewPacketSocket(std::span<const int> before, uint32_t interface_index);

// The longest frame that a ring of frames of `frame_bytes` holds whole.
uint32_t PacketRingFrameBytes(uint32_t frame_bytes);

// Packets dropped since the last call because the ring was full.
uint64_t TakePacketDrops(int fd);

// Lets only UDP packets to these places into the ring (all of one family, at most 16), and with `neighbours` ARP and
// ICMPv6. False: the kernel refused, and everything comes.
bool FilterPacketRing(int fd, std::span<const Address> places, bool neighbours);
// The filter alone, for tests.
std::vector<sock_filter> PacketRingFilter(std::span<const Address> places, bool neighbours);

}  // namespace forgive

#endif  // FORGIVE_DATAPLANE_DPDK_PACKET_RING_H_
