// SPDX-License-Identifier: Apache-2.0
// The fabric's books, checked by counting what is in its queues one by one.
#include <fmt/format.h>

#include "testbed/simulator/fabric.h"

namespace forgive::sim {
namespace {

PacketsAndBytes Sum(const std::array<PacketsAndBytes, kQueueClasses>& classes) {
  PacketsAndBytes sum;
  for (const PacketsAndBytes& one : classes) {
    sum.packets += one.packets;
    sum.bytes += one.bytes;
  }
  return sum;
}

}  // namespace

uint64_t Fabric::link_hops() const {
  uint64_t hops = 0;
  for (const Port& port : ports_) {
    for (uint64_t packets : port.counters.packets) hops += packets;
  }
  return hops;
}

PacketsAndBytes Fabric::in_flight() const {
  PacketsAndBytes sum;
  for (const Port& port : ports_) {
    for (uint32_t i = 0; i < port.link.size(); ++i) sum.Add(port.link.at(i).wire_bytes);
  }
  return sum;
}

// Limits hold for a switch's queues; a NIC holds what its host has given it.
std::string Fabric::CheckQueues(PacketsAndBytes* queued) const {
  const std::array<uint32_t, kQueueClasses> limits = {plan_.control_queue_bytes, plan_.header_queue_bytes,
                                                      plan_.data_queue_bytes};
  std::vector<uint64_t> shared(shared_bytes_.size());
  for (size_t number = 0; number < ports_.size(); ++number) {
    const Port& port = ports_[number];
    const uint64_t before = queued->packets;
    for (size_t i = 0; i < kQueueClasses; ++i) {
      const PortQueue& queue = port.queues[i];
      const uint64_t bytes = queue.CountBytes();
      queued->packets += queue.size();
      queued->bytes += bytes;
      if (bytes != queue.bytes()) {
        return fmt::format("port {} queue {}: {} bytes queued, {} counted", number, i, bytes, queue.bytes());
      }
      if (port.kind == PortKind::kNic) continue;
      if (bytes > limits[i]) return fmt::format("port {} queue {}: {} bytes, limit {}", number, i, bytes, limits[i]);
      if (i == static_cast<size_t>(QueueClass::kData)) shared[port.owner] += bytes;
    }
    if (queued->packets - before != port.queued) {
      return fmt::format("port {}: {} packets queued, {} counted", number, queued->packets - before, port.queued);
    }
    if (port.queued != 0 && port.wake_at_ps > port.free_at_ps + port.delay_ps) {
      return fmt::format("port {}: something is queued and no wake stands", number);
    }
  }
  for (size_t i = 0; i < shared.size(); ++i) {
    if (shared[i] != shared_bytes_[i] || shared[i] > plan_.shared_buffer_bytes) {
      return fmt::format("switch {}: {} bytes in its data queues, {} counted, limit {}", i, shared[i],
                         shared_bytes_[i], plan_.shared_buffer_bytes);
    }
  }
  return "";
}

std::string Fabric::CheckConservation() const {
  PacketsAndBytes queued;
  const std::string problem = CheckQueues(&queued);
  if (!problem.empty()) return problem;
  const PacketsAndBytes in = Sum(counters_.in);
  const PacketsAndBytes out = Sum(counters_.out);
  PacketsAndBytes dropped;
  for (const auto& cause : counters_.drops) {
    dropped.packets += Sum(cause).packets;
    dropped.bytes += Sum(cause).bytes;
  }
  uint64_t trimmed_off = 0;
  for (uint64_t bytes : counters_.trimmed_off_bytes) trimmed_off += bytes;
  const PacketsAndBytes travelling = in_flight();
  if (in.packets != out.packets + queued.packets + travelling.packets + dropped.packets) {
    return fmt::format("packets: {} in, but {} out, {} queued, {} on links, {} dropped", in.packets, out.packets,
                       queued.packets, travelling.packets, dropped.packets);
  }
  if (in.bytes != out.bytes + queued.bytes + travelling.bytes + dropped.bytes + trimmed_off) {
    return fmt::format("bytes: {} in, but {} out, {} queued, {} on links, {} dropped, {} trimmed off", in.bytes,
                       out.bytes, queued.bytes, travelling.bytes, dropped.bytes, trimmed_off);
  }
  return "";
}

}  // namespace forgive::sim
