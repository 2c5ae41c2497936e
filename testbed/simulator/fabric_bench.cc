// SPDX-License-Identifier: Apache-2.0
// The bench's hosts: they send as fast as the NIC and the window let them, and answer each packet.
#include "testbed/simulator/fabric_bench.h"

#include <algorithm>
#include <ctime>
#include <numeric>

#include "transport/check.h"
#include "transport/draw.h"

namespace forgive::sim {
namespace {

constexpr uint32_t kAcknowledgement = 1u << 31;  // the bit that turns a flow's number into that of its answers
constexpr uint16_t kDataHeaderBytes = 56;
constexpr uint16_t kReportBytes = 88;

class Bench {
 public:
  Bench(const FabricPlan& plan, const std::vector<BenchFlow>& flows, uint32_t payload_bytes, uint32_t window_packets,
        uint64_t seed)
      : fabric_(plan, seed, &queue_, &arena_), payload_bytes_(payload_bytes), window_(window_packets) {
    flow_of_host_.resize(plan.hosts(), kNoFlow);
    for (const BenchFlow& flow : flows) {
      FORGIVE_CHECK(flow_of_host_[flow.source] == kNoFlow);  // one flow a source is enough here
      flow_of_host_[flow.source] = static_cast<uint32_t>(flows_.size());
      flows_.push_back({flow, 0});
    }
  }

  BenchResult Run() {
    for (const Flow& flow : flows_) SendMore(SimTime{}, flow.plan.source);
    SimTime now{};
    SimEvent event;
    while (queue_.Next(&now, &event)) {
      const Fabric::Outcome outcome = fabric_.OnEvent(now, event);
      if (outcome.delivered != kNoPacket) OnDelivered(now, outcome.delivered);
      if (outcome.nic_ready_host != Fabric::kNoHost) SendMore(now, outcome.nic_ready_host);
    }
    FORGIVE_CHECK(fabric_.CheckConservation().empty());
    BenchResult result;
    result.data_packets = delivered_;
    result.link_hops = fabric_.link_hops();
    result.events = queue_.fired();
    result.trims = fabric_.counters().trims_total();
    result.drops = fabric_.counters().drops_total();
    result.simulated_seconds = static_cast<double>(now.ps) / static_cast<double>(kPicosecondsPerSecond);
    return result;
  }

 private:
  static constexpr uint32_t kNoFlow = 0xffffffff;
  struct Flow {
    BenchFlow plan;  // packets: those still to send
    uint32_t unanswered;
  };

  void SendMore(SimTime now, uint32_t host) {
    const uint32_t number = flow_of_host_[host];
    if (number == kNoFlow) return;
    Flow& flow = flows_[number];
    while (flow.plan.packets > 0 && flow.unanswered < window_ && fabric_.HostMaySend(host)) {
      --flow.plan.packets;
      ++flow.unanswered;
      Send(now, host, flow.plan.destination, number, QueueClass::kData, kDataHeaderBytes);
    }
  }

  void OnDelivered(SimTime now, PacketIndex index) {
    const Packet packet = arena_[index];
    arena_.Release(index);
    if (packet.queue_class == QueueClass::kControl) {
      --flows_[packet.flow & ~kAcknowledgement].unanswered;
      SendMore(now, packet.destination);
      return;
    }
    ++delivered_;
    Send(now, packet.destination, packet.source, packet.flow | kAcknowledgement, QueueClass::kControl, kReportBytes);
  }

  void Send(SimTime now, uint32_t source, uint32_t destination, uint32_t flow, QueueClass queue_class,
            uint16_t header_bytes) {
    const PacketIndex index = arena_.Take();
    Packet& packet = arena_[index];
    packet.source = static_cast<uint16_t>(source);
    packet.destination = static_cast<uint16_t>(destination);
    packet.flow = flow;
    packet.queue_class = queue_class;
    packet.header_bytes = header_bytes;
    packet.payload_bytes = static_cast<uint16_t>(queue_class == QueueClass::kData ? payload_bytes_ : 0);
    fabric_.Send(now, index);
  }

  EventQueue queue_;
  PacketArena arena_;
  Fabric fabric_;
  uint32_t payload_bytes_;
  uint32_t window_;
  uint64_t delivered_ = 0;
  std::vector<Flow> flows_;
  std::vector<uint32_t> flow_of_host_;
};

double ThreadSeconds() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

}  // namespace

std::vector<BenchFlow> PermutationFlows(const FabricPlan& plan, uint64_t packets, uint64_t seed) {
  const uint32_t hosts = plan.hosts();
  // Leaf l's hosts send to leaf l + 1's, each leaf by a drawn order of its own.
  std::vector<BenchFlow> flows;
  Draw draw(seed);
  std::vector<uint32_t> order(plan.hosts_per_leaf);
  std::iota(order.begin(), order.end(), 0u);
  for (uint32_t leaf = 0; leaf < plan.leaves; ++leaf) {
    for (size_t i = order.size(); i > 1; --i) std::swap(order[i - 1], order[draw.Below(i)]);
    for (uint32_t i = 0; i < plan.hosts_per_leaf; ++i) {
      const uint32_t source = leaf * plan.hosts_per_leaf + i;
      const uint32_t destination = ((leaf + 1) * plan.hosts_per_leaf + order[i]) % hosts;
      if (source != destination) flows.push_back({source, destination, packets});
    }
  }
  return flows;
}

std::vector<BenchFlow> IncastFlows(const FabricPlan& plan, uint32_t fan_in, uint64_t packets) {
  std::vector<BenchFlow> flows;
  for (uint32_t i = 1; i <= fan_in && i < plan.hosts(); ++i) {
    const uint32_t source = i < plan.leaves ? i * plan.hosts_per_leaf : i % plan.hosts();
    const bool taken =
        std::any_of(flows.begin(), flows.end(), [&](const BenchFlow& f) { return f.source == source; });
    if (!taken && source != 0) flows.push_back({source, 0, packets});
  }
  return flows;
}

BenchResult BenchFabric(const FabricPlan& plan, const std::vector<BenchFlow>& flows, uint32_t payload_bytes,
                        uint32_t window_packets, uint64_t seed) {
  Bench bench(plan, flows, payload_bytes, window_packets, seed);
  const double begin = ThreadSeconds();
  BenchResult result = bench.Run();
  result.cpu_seconds = ThreadSeconds() - begin;
  return result;
}

}  // namespace forgive::sim
