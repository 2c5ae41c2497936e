// SPDX-License-Identifier: Apache-2.0
// A port: three queues in front of one link, and what decides which of them goes next.
#ifndef FORGIVE_TESTBED_SIMULATOR_PORT_H_
#define FORGIVE_TESTBED_SIMULATOR_PORT_H_

#include <array>
#include <cstdint>

#include "testbed/simulator/fabric_counters.h"
#include "testbed/simulator/packet.h"

namespace forgive::sim {

// Packets in order, linked through Packet::next.
struct PortQueue {
  PacketIndex head = kNoPacket;
  PacketIndex tail = kNoPacket;
  uint32_t bytes = 0;  // on the wire

  bool empty() const { return head == kNoPacket; }

  void Append(PacketArena* arena, PacketIndex index) {
    Packet& packet = (*arena)[index];
    packet.next = kNoPacket;
    if (empty()) {
      head = index;
    } else {
      (*arena)[tail].next = index;
    }
    tail = index;
    bytes += packet.wire_bytes;
  }

  PacketIndex TakeFirst(PacketArena* arena) {
    const PacketIndex index = head;
    const Packet& packet = (*arena)[index];
    head = packet.next;
    bytes -= packet.wire_bytes;
    return index;
  }
};

// Trimmed headers may go ahead of waiting data as long as they have credit; data that leaves earns it. So over any
// time in which data waits, headers take at most their share of the bytes, plus what one largest credit holds.
struct HeaderCredit {
  // In hundredths of bytes. A header of b bytes costs b x (100 - share); data of b bytes earns b x share.
  uint32_t credit = 0;
  uint32_t limit = 0;
};

enum class PortKind : uint8_t { kNic, kUp, kDown, kLast };

// Invariant: while something is queued the link is busy until free_at_ps, the first moment at which the next packet
// may leave, and a kPortFree event stands at most one propagation delay after it.
struct alignas(64) Port {
  // First line: what every packet needs.
  std::array<PortQueue, kQueueClasses> queues;
  uint32_t peer = 0;       // the node at the far end
  int64_t free_at_ps = 0;  // when the link has taken the last packet that left
  int64_t delay_ps = 0;
  int32_t ps_per_byte = 0;  // 0: not a whole number; then by rate
  // Second line.
  HeaderCredit header_credit;
  PortKind kind = PortKind::kNic;
  bool wake_pending = false;
  bool may_fail = false;  // the plan has a failure of this link
  uint32_t owner = 0;     // the switch's number, or the host's
  uint64_t rate = 0;      // bits a second
  PortCounters counters;
};

}  // namespace forgive::sim

#endif  // FORGIVE_TESTBED_SIMULATOR_PORT_H_
