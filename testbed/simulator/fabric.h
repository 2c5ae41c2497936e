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
#include "testbed/simulator/routes.h"

namespace forgive::sim {

// Nodes are hosts (0 ..), then leaves, then spines. Host h hangs on leaf h / hosts_per_leaf.
//
// One event a hop: that of the first packet on a link, whose arrival brings on the next one's. A port does not wake
// for each departure: it catches up when something arrives at it, and at the latest one propagation delay after a
// packet could have left, before that packet can be anywhere else. What left in the meantime left at the moment, in
// the order and by the queues' state at which it would have if it had been watched, so the result is exact; a
// departure that falls on an arrival's picosecond is decided first.
class Fabric {
 public:
  static constexpr uint32_t kNoHost = 0xffffffff;
  // Data that leaves a queue earns credit for headers up to so many bytes x share.
  static constexpr uint32_t kHeaderCreditBytes = 16384;

  struct Outcome {
    PacketIndex delivered = kNoPacket;  // it has reached its destination; the caller owns it
    uint32_t nic_ready_host = kNoHost;  // the last packet of data in this host's NIC has begun to leave
  };

  // The plan must be valid. Draws for marking, jitter and spraying, and the switches' hashes, come from the seed.
  Fabric(const FabricPlan& plan, uint64_t seed, EventQueue* queue, PacketArena* arena);

  // True while the host's NIC holds less data than nic_queue_bytes: the host may ask its endpoint for the next
  // packet. After false, nic_ready_host names the host once its queue has run dry.
  bool HostMaySend(uint32_t host) const { return ports_[host].data().bytes() < plan_.nic_queue_bytes; }

  // Puts a packet on its source's NIC: source, destination, flow, path, class (data or control), job, header and
  // payload bytes are set. Control goes first. Neither is ever refused. The fabric owns it until it is delivered or
  // lost.
  void Send(SimTime now, PacketIndex packet);

  // For kPortFree, kArrival and kLink, at the time for which they were scheduled.
  Outcome OnEvent(SimTime now, const SimEvent& event);

  const FabricPlan& plan() const { return plan_; }
  const FabricCounters& counters() const { return counters_; }
  // What a port has put on its link: a host's NIC, a leaf's port to a spine, a spine's to a leaf, a leaf's to a host.
  const PortCounters& nic_counters(uint32_t host) const { return ports_[host].counters; }
  const PortCounters& uplink_counters(uint32_t leaf, uint32_t spine) const {
    return ports_[UplinkPort(leaf, spine)].counters;
  }
  const PortCounters& downlink_counters(uint32_t spine, uint32_t leaf) const {
    return ports_[DownlinkPort(spine, leaf)].counters;
  }
  const PortCounters& host_port_counters(uint32_t host) const { return ports_[HostPort(host)].counters; }

  // Packets put on links so far, and those that are on links now.
  uint64_t link_hops() const;
  PacketsAndBytes in_flight() const;

  // Walks every queue: "" if each packet and byte that came in is delivered, queued, on a link, cut off or counted as
  // dropped, and no queue is beyond its limit; else the first thing that does not add up. O(packets queued).
  std::string CheckConservation() const;

 private:
  uint32_t UplinkPort(uint32_t leaf, uint32_t spine) const { return hosts_ + leaf * plan_.spines + spine; }
  uint32_t HostPort(uint32_t host) const { return hosts_ + plan_.leaves * plan_.spines + host; }
  uint32_t DownlinkPort(uint32_t spine, uint32_t leaf) const {
    return 2 * hosts_ + plan_.leaves * plan_.spines + spine * plan_.leaves + leaf;
  }
  void MakePorts(uint64_t seed);
  void MakeOutPorts();
  void MakePort(uint32_t number, PortKind kind, uint32_t owner, uint32_t peer);

  uint32_t WireBytes(const Packet& packet) const {
    return uint32_t{packet.header_bytes} + packet.payload_bytes + plan_.wire_overhead_bytes;
  }
  Outcome Arrive(SimTime now, uint32_t number);
  uint32_t OutPort(uint32_t node, const Packet& packet);
  void Forward(SimTime now, uint32_t node, PacketIndex index);
  // The port has caught up and its link is busy.
  void Admit(SimTime now, uint32_t number, PacketIndex index);
  bool SharedBufferTakes(SimTime now, uint32_t owner, uint32_t bytes);
  void Mark(Port* port, Packet* packet);
  void Trim(PortKind kind, Packet* packet);
  void Enqueue(uint32_t number, PacketIndex index);
  void CatchUp(SimTime now, Port* port) {
    while (port->free_at_ps <= now.ps && port->queued != 0) LaunchNext(port);
  }
  void LaunchNext(Port* port);
  void Launch(Port* port, int64_t start_ps, PacketIndex index, uint32_t wire_bytes, QueueClass queue_class);
  bool TravelsSpecial(Port* port, int64_t start_ps, QueueClass queue_class, int64_t* arrival_ps);
  void Wake(uint32_t number, int64_t at_ps);
  void WakeNic(uint32_t number);
  bool OnWake(SimTime now, uint32_t number);
  void Drop(DropCause cause, PacketIndex index);
  std::string CheckQueues(PacketsAndBytes* queued) const;

  FabricPlan plan_;
  uint32_t hosts_;
  EventQueue* queue_;
  PacketArena* arena_;
  Routes routes_;
  std::vector<Port> ports_;
  std::vector<uint32_t> out_ports_;                 // [switch][destination]: the port, or kChooseSpine
  std::vector<uint32_t> shared_bytes_;              // a switch: what its data queues hold
  std::vector<std::vector<LinkFailure>> failures_;  // a port
  FabricCounters counters_;
};

}  // namespace forgive::sim

#endif  // FORGIVE_TESTBED_SIMULATOR_FABRIC_H_
