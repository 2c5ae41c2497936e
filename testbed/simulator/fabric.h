// SPDX-License-Identifier: Apache-2.0
// A leaf-spine fabric, packet by packet: ports, queues, marking, trimming, routes and failures.
#ifndef FORGIVE_TESTBED_SIMULATOR_FABRIC_H_
#define FORGIVE_TESTBED_SIMULATOR_FABRIC_H_

#include <cstdint>
#include <string>
#include <vector>

#include "testbed/simulator/clock.h"
#include "testbed/simulator/event_queue.h"
#include "testbed/simulator/fabric_counters.h"
#include "testbed/simulator/fabric_plan.h"
#include "testbed/simulator/packet.h"
#include "testbed/simulator/port.h"
#include "transport/draw.h"

namespace forgive::sim {

// Nodes are hosts (0 ..), then leaves, then spines. Host h hangs on leaf h / hosts_per_leaf.
//
// One event a hop. A port does not wake for each departure: it catches up when something arrives at it, and at the
// latest one propagation delay after a packet could have left, before that packet can be anywhere else. What left in
// the meantime left at the moment, in the order and by the queues' state at which it would have if it had been
// watched, so the result is exact; a departure that falls on an arrival's picosecond is decided first.
class Fabric {
 public:
  // The plan must be valid. Draws for marking and spraying, and the switches' hashes, come from the seed.
  Fabric(const FabricPlan& plan, uint64_t seed, EventQueue* queue, PacketArena* arena);

  // True while the host's NIC holds less data than nic_queue_bytes: the host may ask its endpoint for the next
  // packet.
  bool HostMaySend(uint32_t host) const {
    return ports_[host].queues[static_cast<int>(QueueClass::kData)].bytes < plan_.nic_queue_bytes;
  }

  // Puts a packet on its source's NIC: source, destination, flow, path, class (data or control), job, header and
  // payload bytes are set. Control goes first. Neither is ever refused. The fabric owns it until it is delivered or
  // lost.
  void Send(SimTime now, PacketIndex packet);

  struct Outcome {
    PacketIndex delivered = kNoPacket;  // it has reached its destination; the caller owns it
    uint32_t nic_ready_host = kNoHost;  // this host's NIC has taken its last packet of data
  };
  static constexpr uint32_t kNoHost = 0xffffffff;

  // For kPortFree, kArrival and kLink.
  Outcome OnEvent(SimTime now, const SimEvent& event);

  const FabricPlan& plan() const { return plan_; }
  const FabricCounters& counters() const { return counters_; }
  // What left a port by now: the NIC of a host; a leaf's port to a spine; a spine's to a leaf; a leaf's to a host.
  const PortCounters& nic_counters(uint32_t host) const { return ports_[host].counters; }
  const PortCounters& uplink_counters(uint32_t leaf, uint32_t spine) const;
  const PortCounters& downlink_counters(uint32_t spine, uint32_t leaf) const;
  const PortCounters& host_port_counters(uint32_t host) const;

  // Walks every queue: "" if each packet that came in is delivered, queued, on a link or counted as dropped and no
  // limit is broken, else the first thing that does not add up. O(packets queued).
  std::string CheckConservation() const;

 private:
  using Queue = PortQueue;

  Port& uplink(uint32_t leaf, uint32_t spine);
  Outcome Arrive(SimTime now, uint32_t node, PacketIndex index);
  Port* Route(uint32_t node, const Packet& packet);
  void Admit(SimTime now, Port* port, PacketIndex index);
  void CatchUp(SimTime now, Port* port);
  void Launch(Port* port, PacketIndex index);
  void ApplyFailure(uint32_t failure, bool down);

  FabricPlan plan_;
  EventQueue* queue_;
  PacketArena* arena_;
  std::vector<Port> ports_;
  FabricCounters counters_;
};

}  // namespace forgive::sim

#endif  // FORGIVE_TESTBED_SIMULATOR_FABRIC_H_
