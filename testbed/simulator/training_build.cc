// SPDX-License-Identifier: Apache-2.0
// Where a job's ranks stand, and the connections that its collectives use.
#include "testbed/simulator/policy.h"
#include "testbed/simulator/training.h"

namespace forgive::sim {
namespace {

constexpr uint32_t kMostPosted = 64;

std::vector<Flow> BurstFlows(const WorkloadPlan& workload, const FabricPlan& fabric) {
  const auto host = [&](uint32_t rank) {
    return rank / workload.ranks_per_leaf * fabric.hosts_per_leaf + workload.first_host +
           rank % workload.ranks_per_leaf;
  };
  std::vector<Flow> flows;
  for (uint32_t peer = 1; peer <= workload.burst_flows; ++peer) {
    const uint32_t source = (workload.burst_rank + peer * workload.tp) % workload.ranks();
    flows.push_back({host(source), host(workload.burst_rank), workload.burst_bytes});
  }
  return flows;
}

}  // namespace

Training::Training(const JobPlan& plan, uint8_t job, uint64_t seed, EventQueue* queue, Metrics* metrics)
    : plan_(plan),
      job_(job),
      seed_(seed),
      queue_(queue),
      metrics_(metrics),
      no_steps_(1, {0}, 0),
      burst_(plan, job, {}, nullptr) {}

uint32_t Training::HostOf(uint32_t rank, const FabricPlan& fabric) const {
  const WorkloadPlan& workload = plan_.workload;
  return rank / workload.ranks_per_leaf * fabric.hosts_per_leaf + workload.first_host +
         rank % workload.ranks_per_leaf;
}

uint32_t Training::TensorPeer(uint32_t rank, uint32_t distance) const {
  const uint32_t tp = plan_.workload.tp;
  return rank / tp * tp + (rank % tp + distance) % tp;
}

uint32_t Training::GradientPeer(uint32_t rank, uint32_t distance) const {
  return (rank + distance * plan_.workload.tp) % plan_.workload.ranks();
}

bool Training::HasTensor() const {
  const WorkloadPlan& workload = plan_.workload;
  return workload.tp > 1 && workload.tp_on_fabric && workload.tp_all_reduces != 0;
}

void Training::Build(const FabricPlan& fabric, Hosts* hosts) {
  const WorkloadPlan& workload = plan_.workload;
  hosts_ = hosts;
  host_rate_ = fabric.host_link_rate;
  metrics_->AddJob(workload.ranks(), workload.steps);
  ranks_.resize(workload.ranks());
  first_channel_ = hosts->channels();
  if (HasTensor()) BuildTensor(fabric);
  if (HasGradient()) BuildGradient(fabric);
  if (workload.burst_flows != 0) {
    burst_ = FlowSet(plan_, job_, BurstFlows(workload, fabric), &no_steps_);
    burst_.Build(fabric, hosts);
  }
  end_channel_ = hosts->channels();
}

EndpointIndex Training::AddEndpoint(uint32_t rank, TrafficKind kind, bool sends, const FabricPlan& fabric) {
  const WorkloadPlan& workload = plan_.workload;
  const bool gradient = kind == TrafficKind::kGradient;
  const bool ring = !gradient || workload.dp_algorithm == Algorithm::kRing;
  const uint32_t streams = gradient ? workload.dp_stream_count() : workload.tp_streams;
  const uint32_t channels = ring ? streams : streams * 2 * (workload.dp - 1);
  bool across = false;
  const uint32_t group = gradient ? workload.dp : workload.tp;
  for (uint32_t distance = 1; distance < group; ++distance) {
    const uint32_t peer = gradient ? GradientPeer(rank, distance) : TensorPeer(rank, distance);
    across = across || HostOf(peer, fabric) / fabric.hosts_per_leaf != HostOf(rank, fabric) / fabric.hosts_per_leaf;
  }
  EndpointSpec spec;
  spec.host = HostOf(rank, fabric);
  spec.job = job_;
  spec.kind = kind;
  spec.sends = sends;
  spec.rank = rank;
  spec.config = TransportConfig(plan_, kind, fabric, across, channels, ring ? kMostPosted : 1);
  spec.steps = gradient && !sends ? ranks_[rank].steps.get() : &no_steps_;
  spec.message_is_flow = plan_.transport.ecmp_unit == EcmpUnit::kMessage;
  spec.last_hop_trims_count = plan_.transport.last_hop_trims_count;
  return hosts_->AddEndpoint(spec);
}

ChannelIndex Training::AddChannel(const Use& use, EndpointIndex sender, EndpointIndex receiver) {
  uses_.push_back(use);
  return hosts_->AddChannel(sender, receiver);
}

void Training::BuildTensor(const FabricPlan& fabric) {
  const uint32_t ranks = plan_.workload.ranks();
  std::vector<EndpointIndex> senders;
  std::vector<EndpointIndex> receivers;
  for (uint32_t rank = 0; rank < ranks; ++rank) {
    senders.push_back(AddEndpoint(rank, TrafficKind::kTensor, true, fabric));
    receivers.push_back(AddEndpoint(rank, TrafficKind::kTensor, false, fabric));
    ranks_[rank].tensor.resize(plan_.workload.tp_streams);
  }
  for (uint32_t rank = 0; rank < ranks; ++rank) {
    const uint32_t next = TensorPeer(rank, 1);
    for (uint32_t stream = 0; stream < plan_.workload.tp_streams; ++stream) {
      Use use;
      use.source = rank;
      use.destination = next;
      use.stream = stream;
      const ChannelIndex channel = AddChannel(use, senders[rank], receivers[next]);
      ranks_[rank].tensor[stream].out = channel;
      ranks_[next].tensor[stream].in = channel;
    }
  }
}

void Training::BuildGradient(const FabricPlan& fabric) {
  const WorkloadPlan& workload = plan_.workload;
  std::vector<EndpointIndex> senders;
  std::vector<EndpointIndex> receivers;
  const uint32_t streams = workload.dp_stream_count();
  const bool ring = workload.dp_algorithm == Algorithm::kRing;
  for (uint32_t index = 0; index < workload.ranks(); ++index) {
    Rank& rank = ranks_[index];
    senders.push_back(AddEndpoint(index, TrafficKind::kGradient, true, fabric));
    const Config config = hosts_->spec(senders.back()).config;
    const uint64_t draws = Draw(seed_ ^ (uint64_t{job_} << 32 | index)).Next();
    rank.steps = std::make_unique<StepTable>(config.max_steps, config.forgiveness_probability, draws,
                                             config.experiments, config.budget_unit);
    receivers.push_back(AddEndpoint(index, TrafficKind::kGradient, false, fabric));
    if (ring) {
      rank.ring.resize(streams);
    } else {
      rank.direct.resize(streams);
    }
  }
  for (uint32_t index = 0; index < workload.ranks(); ++index) {
    for (uint32_t stream = 0; stream < streams; ++stream) {
      for (uint32_t distance = 1; distance < (ring ? 2 : workload.dp); ++distance) {
        for (int phase = 0; phase < (ring ? 1 : 2); ++phase) {
          Use use;
          use.source = index;
          use.destination = GradientPeer(index, distance);
          use.kind = TrafficKind::kGradient;
          use.stream = stream;
          use.phase = phase;
          const ChannelIndex channel = AddChannel(use, senders[index], receivers[use.destination]);
          if (ring) {
            ranks_[index].ring[stream].out = channel;
            ranks_[use.destination].ring[stream].in = channel;
          } else {
            ranks_[index].direct[stream].out[phase].push_back(channel);
            ranks_[use.destination].direct[stream].in[phase].push_back(channel);
          }
        }
      }
    }
  }
}

}  // namespace forgive::sim
