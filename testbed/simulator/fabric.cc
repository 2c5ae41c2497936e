// SPDX-License-Identifier: Apache-2.0
// What happens to a packet at a NIC and at a switch; the road it takes most is the first one in each function.
#include "testbed/simulator/fabric.h"

#include <fmt/format.h>

#include <algorithm>

#include "transport/check.h"

namespace forgive::sim {
namespace {

constexpr uint32_t kNoPort = 0xffffffff;
constexpr uint32_t kChooseSpine = 0xfffffffe;

constexpr int Number(QueueClass queue_class) { return static_cast<int>(queue_class); }

int64_t SerializationPs(const Port& port, uint32_t bytes) {
  if (port.ps_per_byte != 0) return int64_t{bytes} * port.ps_per_byte;
  return SerializationTime(bytes, BitsPerSecond{port.rate}).value;
}

// Until when, and whether at all, a failure's end is something that routes can learn.
bool Ends(const LinkFailure& failure, Picoseconds detection) { return failure.until < kSimNever - detection; }

}  // namespace

Fabric::Fabric(const FabricPlan& plan, uint64_t seed, EventQueue* queue, PacketArena* arena)
    : plan_(plan),
      hosts_(plan.hosts()),
      queue_(queue),
      arena_(arena),
      routes_(plan, seed),
      shared_bytes_(plan.leaves + plan.spines) {
  FORGIVE_CHECK(plan.Validate().empty());
  MakePorts(seed);
  MakeOutPorts();
  failures_.resize(ports_.size());
  for (uint32_t i = 0; i < plan_.link_failures.size(); ++i) {
    const LinkFailure& failure = plan_.link_failures[i];
    for (uint32_t number : {UplinkPort(failure.leaf, failure.spine), DownlinkPort(failure.spine, failure.leaf)}) {
      failures_[number].push_back(failure);
      ports_[number].is_special = true;
    }
    const Picoseconds detection = plan_.failure_detection_delay;
    queue_->Schedule(failure.from + detection, {SimEvent::Kind::kLink, i, 1});
    if (Ends(failure, detection)) queue_->Schedule(failure.until + detection, {SimEvent::Kind::kLink, i, 0});
  }
}

void Fabric::MakePorts(uint64_t seed) {
  ports_.resize(DownlinkPort(plan_.spines, 0));
  for (uint32_t host = 0; host < hosts_; ++host) {
    const uint32_t leaf = routes_.leaf_of(host);
    MakePort(host, PortKind::kNic, host, hosts_ + leaf);
    MakePort(HostPort(host), PortKind::kLast, leaf, host);
  }
  for (uint32_t leaf = 0; leaf < plan_.leaves; ++leaf) {
    for (uint32_t spine = 0; spine < plan_.spines; ++spine) {
      MakePort(UplinkPort(leaf, spine), PortKind::kUp, leaf, hosts_ + plan_.leaves + spine);
      MakePort(DownlinkPort(spine, leaf), PortKind::kDown, plan_.leaves + spine, hosts_ + leaf);
    }
  }
  Draw draw(~seed);
  for (Port& port : ports_) port.draw = Draw(draw.Next());
}

void Fabric::MakeOutPorts() {
  for (uint32_t leaf = 0; leaf < plan_.leaves; ++leaf) {
    for (uint32_t host = 0; host < hosts_; ++host) {
      out_ports_.push_back(routes_.leaf_of(host) == leaf ? HostPort(host) : kChooseSpine);
    }
  }
  for (uint32_t spine = 0; spine < plan_.spines; ++spine) {
    for (uint32_t host = 0; host < hosts_; ++host) out_ports_.push_back(DownlinkPort(spine, routes_.leaf_of(host)));
  }
}

void Fabric::MakePort(uint32_t number, PortKind kind, uint32_t owner, uint32_t peer) {
  Port& port = ports_[number];
  const bool at_host = kind == PortKind::kNic || kind == PortKind::kLast;
  port.kind = kind;
  port.owner = owner;
  port.peer = peer;
  port.rate = (at_host ? plan_.host_link_rate : plan_.spine_link_rate).value;
  port.delay_ps = (at_host ? plan_.host_link_delay : plan_.spine_link_delay).value;
  constexpr uint64_t kBitsPs = 8 * static_cast<uint64_t>(kPicosecondsPerSecond);
  port.ps_per_byte = kBitsPs % port.rate == 0 ? static_cast<int32_t>(kBitsPs / port.rate) : 0;
  port.header_credit = kHeaderCreditBytes * plan_.header_queue_share_percent;
  port.is_special = kind == PortKind::kNic && plan_.nic_jitter.value > 0;
}

void Fabric::Send(SimTime now, PacketIndex index) {
  Packet& packet = (*arena_)[index];
  FORGIVE_CHECK(packet.source != packet.destination);
  FORGIVE_CHECK(packet.source < hosts_ && packet.destination < hosts_);
  FORGIVE_CHECK(packet.queue_class != QueueClass::kTrimmed);
  FORGIVE_CHECK(packet.job < kMaxJobs);
  packet.wire_bytes = WireBytes(packet);
  FORGIVE_CHECK(packet.wire_bytes != 0);
  counters_.in[Number(packet.queue_class)].Add(packet.wire_bytes);
  Port& port = ports_[packet.source];
  CatchUp(now, &port);
  if (port.free_at_ps <= now.ps) {
    Launch(&port, now.ps, index, packet.wire_bytes, packet.queue_class);
    return;
  }
  port.queues[Number(packet.queue_class)].Append(index, packet.wire_bytes);
  ++port.queued;
  WakeNic(packet.source);
}

Fabric::Outcome Fabric::OnEvent(SimTime now, const SimEvent& event) {
  if (event.kind == SimEvent::Kind::kArrival) return Arrive(now, event.object);
  if (event.kind == SimEvent::Kind::kPortFree) {
    return {kNoPacket, OnWake(now, event.object) ? event.object : kNoHost};
  }
  FORGIVE_CHECK(event.kind == SimEvent::Kind::kLink);
  const LinkFailure& failure = plan_.link_failures[event.object];
  routes_.Learn(failure.leaf, failure.spine, event.value != 0);
  return {};
}

// The first packet on a port's link arrives. The next one's memory is asked for: its own event is some way off.
inline Fabric::Outcome Fabric::Arrive(SimTime now, uint32_t number) {
  Port& from = ports_[number];
  const PacketIndex index = from.link.TakeFirst().packet;
  const uint32_t node = from.peer;
  const bool at_host = from.kind == PortKind::kLast;
  if (!from.link.empty()) {
    const Travelling& next = from.link.first();
    queue_->Schedule(SimTime{next.arrival_ps}, {SimEvent::Kind::kArrival, number, 0});
    from.link.Prefetch(4);
    arena_->Prefetch(next.packet);
    if (at_host) arena_->PrefetchHeader(next.packet);
  }
  if (!at_host) {
    Forward(now, node, index);
    return {};
  }
  const Packet& packet = (*arena_)[index];
  FORGIVE_CHECK(node == packet.destination);
  counters_.out[Number(packet.queue_class)].Add(packet.wire_bytes);
  return {index, kNoHost};
}

inline uint32_t Fabric::OutPort(uint32_t node, const Packet& packet) {
  const uint32_t number = out_ports_[(node - hosts_) * hosts_ + packet.destination];
  if (number != kChooseSpine) return number;
  const uint32_t leaf = node - hosts_;
  const uint32_t spine = routes_.SpineFor(leaf, packet);
  return spine == Routes::kNoSpine ? kNoPort : UplinkPort(leaf, spine);
}

inline void Fabric::Forward(SimTime now, uint32_t node, PacketIndex index) {
  const Packet& packet = (*arena_)[index];
  const uint32_t number = OutPort(node, packet);
  if (number == kNoPort) {
    Drop(DropCause::kNoRoute, index);
    return;
  }
  Port& port = ports_[number];
  CatchUp(now, &port);
  // Nothing is queued once the port has caught up with a moment at which its link is free.
  if (port.free_at_ps <= now.ps) {
    Launch(&port, now.ps, index, packet.wire_bytes, packet.queue_class);
  } else {
    Admit(now, number, index);
  }
}

void Fabric::Admit(SimTime now, uint32_t number, PacketIndex index) {
  Port& port = ports_[number];
  Packet& packet = (*arena_)[index];
  if (packet.queue_class == QueueClass::kData) {
    const bool fits = port.data().bytes() + packet.wire_bytes <= plan_.data_queue_bytes;
    if (fits && SharedBufferTakes(now, port.owner, packet.wire_bytes)) {
      Mark(&port, &packet);
      shared_bytes_[port.owner] += packet.wire_bytes;
      counters_.peak_shared_bytes = std::max(counters_.peak_shared_bytes, shared_bytes_[port.owner]);
      Enqueue(number, index);
      return;
    }
    if (!plan_.trims || packet.payload_bytes == 0) {
      Drop(DropCause::kDataQueue, index);
      return;
    }
    Trim(port.kind, &packet);
  }
  const bool control = packet.queue_class == QueueClass::kControl;
  const uint32_t limit = control ? plan_.control_queue_bytes : plan_.header_queue_bytes;
  if (port.queues[Number(packet.queue_class)].bytes() + packet.wire_bytes > limit) {
    Drop(control ? DropCause::kControlQueue : DropCause::kHeaderQueue, index);
    return;
  }
  Enqueue(number, index);
}

// The switch's other ports may not have caught up: their departures matter only when there seems to be no room.
inline bool Fabric::SharedBufferTakes(SimTime now, uint32_t owner, uint32_t bytes) {
  if (shared_bytes_[owner] + bytes <= plan_.shared_buffer_bytes) return true;
  if (owner < plan_.leaves) {
    for (uint32_t spine = 0; spine < plan_.spines; ++spine) CatchUp(now, &ports_[UplinkPort(owner, spine)]);
    for (uint32_t i = 0; i < plan_.hosts_per_leaf; ++i) {
      CatchUp(now, &ports_[HostPort(owner * plan_.hosts_per_leaf + i)]);
    }
  } else {
    for (uint32_t leaf = 0; leaf < plan_.leaves; ++leaf) {
      CatchUp(now, &ports_[DownlinkPort(owner - plan_.leaves, leaf)]);
    }
  }
  return shared_bytes_[owner] + bytes <= plan_.shared_buffer_bytes;
}

inline void Fabric::Mark(Port* port, Packet* packet) {
  const uint32_t found = port->data().bytes();
  if (found <= plan_.ecn_min_bytes) return;
  if (found < plan_.ecn_max_bytes) {
    const uint64_t span = plan_.ecn_max_bytes - plan_.ecn_min_bytes;
    const uint64_t chance = uint64_t{found - plan_.ecn_min_bytes} * plan_.ecn_probability_ppm;
    if (port->draw.Below(span * Fraction::kOne) >= chance) return;
  }
  if (!packet->ce) ++counters_.marks[packet->job];
  packet->ce = true;
}

void Fabric::Trim(PortKind kind, Packet* packet) {
  const uint32_t whole = packet->wire_bytes;
  packet->payload_bytes = 0;
  packet->queue_class = QueueClass::kTrimmed;
  packet->trimmed_at_last_hop = kind == PortKind::kLast;
  packet->wire_bytes = std::min(whole, plan_.trimmed_bytes == 0 ? WireBytes(*packet) : plan_.trimmed_bytes);
  static_assert(static_cast<int>(HopKind::kUp) == static_cast<int>(PortKind::kUp));
  static_assert(static_cast<int>(HopKind::kDown) == static_cast<int>(PortKind::kDown));
  static_assert(static_cast<int>(HopKind::kLast) == static_cast<int>(PortKind::kLast));
  ++counters_.trims[static_cast<size_t>(kind)][packet->job];
  counters_.trimmed_off_bytes[packet->job] += whole - packet->wire_bytes;
}

inline void Fabric::Enqueue(uint32_t number, PacketIndex index) {
  Port& port = ports_[number];
  const Packet& packet = (*arena_)[index];
  const int queue_class = Number(packet.queue_class);
  PortQueue& queue = port.queues[queue_class];
  queue.Append(index, packet.wire_bytes);
  ++port.queued;
  uint32_t& peak = counters_.peak_queue_bytes[queue_class];
  peak = std::max(peak, queue.bytes());
  if (port.wake_at_ps == kSimNever.ps) Wake(number, port.free_at_ps + port.delay_ps);
}

// Control first; trimmed headers next, while they have credit or no data waits; then data.
void Fabric::LaunchNext(Port* port) {
  const int64_t start = port->free_at_ps;
  QueueClass queue_class = QueueClass::kData;
  if (!port->control().empty()) {
    queue_class = QueueClass::kControl;
  } else if (!port->trimmed().empty()) {
    const uint32_t cost = port->trimmed().first().wire_bytes * (100 - plan_.header_queue_share_percent);
    if (port->data().empty()) {
      queue_class = QueueClass::kTrimmed;
    } else if (cost <= port->header_credit) {
      port->header_credit -= cost;
      queue_class = QueueClass::kTrimmed;
    }
  }
  const Waiting entry = port->queues[Number(queue_class)].TakeFirst();
  --port->queued;
  if (queue_class == QueueClass::kData) {
    const uint32_t share = plan_.header_queue_share_percent;
    port->header_credit = std::min(port->header_credit + entry.wire_bytes * share, kHeaderCreditBytes * share);
    if (port->kind != PortKind::kNic) shared_bytes_[port->owner] -= entry.wire_bytes;
  }
  Launch(port, start, entry.packet, entry.wire_bytes, queue_class);
}

inline void Fabric::Launch(Port* port, int64_t start_ps, PacketIndex index, uint32_t wire_bytes,
                           QueueClass queue_class) {
  port->free_at_ps = start_ps + SerializationPs(*port, wire_bytes);
  port->counters.bytes[Number(queue_class)] += wire_bytes;
  ++port->counters.packets[Number(queue_class)];
  int64_t arrival_ps = port->free_at_ps + port->delay_ps;
  if (port->is_special && !TravelsSpecial(port, start_ps, queue_class, &arrival_ps)) {
    Drop(DropCause::kLink, index);
    return;
  }
  if (port->link.empty()) {
    const auto number = static_cast<uint32_t>(port - ports_.data());
    queue_->Schedule(SimTime{arrival_ps}, {SimEvent::Kind::kArrival, number, 0});
  }
  port->link.Append({arrival_ps, index, wire_bytes});
}

// A link with failures or jitter: false when the packet is lost, else when it arrives. Lost is what was on the link,
// or leaving, at any time of a failure.
bool Fabric::TravelsSpecial(Port* port, int64_t start_ps, QueueClass queue_class, int64_t* arrival_ps) {
  if (port->kind == PortKind::kNic) {
    if (queue_class == QueueClass::kData) {
      *arrival_ps += static_cast<int64_t>(port->draw.Below(static_cast<uint64_t>(plan_.nic_jitter.value) + 1));
    }
    port->last_arrival_ps = std::max(port->last_arrival_ps, *arrival_ps);
    *arrival_ps = port->last_arrival_ps;
    return true;
  }
  for (const LinkFailure& failure : failures_[static_cast<size_t>(port - ports_.data())]) {
    if (failure.from.ps < *arrival_ps && start_ps < failure.until.ps) return false;
  }
  return true;
}

void Fabric::Wake(uint32_t number, int64_t at_ps) {
  ports_[number].wake_at_ps = at_ps;
  queue_->Schedule(SimTime{at_ps}, {SimEvent::Kind::kPortFree, number, 0});
}

// A NIC wakes when its last packet of data can begin to leave, at the earliest: then its host may bring more.
void Fabric::WakeNic(uint32_t number) {
  Port& port = ports_[number];
  int64_t at_ps = port.free_at_ps + port.delay_ps;
  if (!port.data().empty()) {
    port.wants_ready = true;
    const uint32_t before_last = port.data().bytes() - port.data().last().wire_bytes;
    at_ps = std::min(at_ps, port.free_at_ps + SerializationPs(port, before_last));
  }
  if (at_ps < port.wake_at_ps) Wake(number, at_ps);
}

// True if it is a NIC whose data has run dry.
bool Fabric::OnWake(SimTime now, uint32_t number) {
  Port& port = ports_[number];
  if (port.wake_at_ps != now.ps) return false;  // overtaken by an earlier one
  port.wake_at_ps = kSimNever.ps;
  CatchUp(now, &port);
  if (port.kind != PortKind::kNic) {
    if (port.queued != 0) Wake(number, port.free_at_ps + port.delay_ps);
    return false;
  }
  if (port.queued != 0) WakeNic(number);
  const bool ready = port.wants_ready && port.data().empty();
  if (ready) port.wants_ready = false;
  return ready;
}

void Fabric::Drop(DropCause cause, PacketIndex index) {
  const Packet& packet = (*arena_)[index];
  counters_.drops[static_cast<size_t>(cause)][Number(packet.queue_class)].Add(packet.wire_bytes);
  arena_->Release(index);
}

}  // namespace forgive::sim
