// SPDX-License-Identifier: Apache-2.0
// A fabric with its queue and arena, and a record of what it delivered, for the tests.
#ifndef FORGIVE_TESTS_SIMULATOR_RIG_H_
#define FORGIVE_TESTS_SIMULATOR_RIG_H_

#include <gtest/gtest.h>

#include <functional>
#include <vector>

#include "testbed/simulator/fabric.h"

namespace forgive::sim {

struct Delivery {
  SimTime time{};
  Packet packet;
};

class Rig {
 public:
  explicit Rig(const FabricPlan& plan, uint64_t seed = 1) : fabric(plan, seed, &queue, &arena) {}

  // A packet to be given to its source's NIC at `time`: by a timer, so calls may come in any order.
  void SendAt(int64_t time_ps, const Packet& packet) {
    queue.Schedule(SimTime{time_ps}, {SimEvent::Kind::kHostSend, static_cast<uint32_t>(pending_.size()), 0});
    pending_.push_back(packet);
  }

  void Send(SimTime time, const Packet& packet) {
    const PacketIndex index = arena.Take();
    Packet& taken = arena[index];
    taken = packet;
    fabric.Send(time, index);
  }

  // One event; false when there is none.
  bool Step() {
    SimEvent event;
    if (!queue.Next(&now, &event)) return false;
    if (event.kind == SimEvent::Kind::kHostSend) {
      Send(now, pending_[event.object]);
      return true;
    }
    const Fabric::Outcome outcome = fabric.OnEvent(now, event);
    if (outcome.delivered != kNoPacket) {
      deliveries.push_back({now, arena[outcome.delivered]});
      arena.Release(outcome.delivered);
    }
    if (outcome.nic_ready_host != Fabric::kNoHost && on_ready) on_ready(now, outcome.nic_ready_host);
    return true;
  }

  // Until nothing happens any more; then every packet must be accounted for and gone.
  void Run() {
    while (Step()) {
    }
    EXPECT_EQ(fabric.CheckConservation(), "");
    EXPECT_EQ(arena.in_use(), 0u);
  }

  EventQueue queue;
  PacketArena arena;
  Fabric fabric;
  SimTime now{};
  std::vector<Delivery> deliveries;
  std::function<void(SimTime, uint32_t)> on_ready;

 private:
  std::vector<Packet> pending_;
};

inline Packet MakePacket(uint32_t source, uint32_t destination, uint32_t flow, uint16_t payload_bytes,
                         QueueClass queue_class = QueueClass::kData) {
  Packet packet;
  packet.source = static_cast<uint16_t>(source);
  packet.destination = static_cast<uint16_t>(destination);
  packet.flow = flow;
  packet.header_bytes = 56;
  packet.payload_bytes = payload_bytes;
  packet.queue_class = queue_class;
  return packet;
}

inline constexpr int64_t kNanosecondPs = 1000;
inline constexpr int64_t kMicrosecondPs = 1'000'000;
// A packet of 56 + 4040 bytes, 4,096 on the wire, at 400 Gbit/s.
inline constexpr uint16_t kPayload = 4040;
inline constexpr uint32_t kPacket = 4096;
inline constexpr int64_t kPacketPs = 81'920;

}  // namespace forgive::sim

#endif  // FORGIVE_TESTS_SIMULATOR_RIG_H_
