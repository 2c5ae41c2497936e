// SPDX-License-Identifier: Apache-2.0
// Endpoints and messages of plain flows.
#include "testbed/simulator/flows.h"

#include <algorithm>
#include <map>

#include "testbed/simulator/policy.h"

namespace forgive::sim {

std::vector<Flow> PermutationOf(const FabricPlan& fabric, uint64_t bytes) {
  std::vector<Flow> flows;
  const uint32_t hosts = fabric.hosts();
  const uint32_t shift = fabric.leaves > 1 ? fabric.hosts_per_leaf : 1;
  for (uint32_t host = 0; host < hosts && hosts > 1; ++host) flows.push_back({host, (host + shift) % hosts, bytes});
  return flows;
}

std::vector<Flow> IncastOf(const FabricPlan& fabric, uint32_t fan_in, uint64_t bytes) {
  std::vector<uint32_t> sources;
  for (uint32_t slot = 0; slot < fabric.hosts_per_leaf; ++slot) {
    for (uint32_t leaf = 1; leaf < fabric.leaves; ++leaf) sources.push_back(leaf * fabric.hosts_per_leaf + slot);
  }
  for (uint32_t host = 1; host < fabric.hosts_per_leaf; ++host) sources.push_back(host);
  std::vector<Flow> flows;
  for (uint32_t i = 0; i < fan_in && i < sources.size(); ++i) flows.push_back({sources[i], 0, bytes});
  return flows;
}

void FlowSet::Build(const FabricPlan& fabric, Hosts* hosts) {
  hosts_ = hosts;
  first_channel_ = hosts->channels();
  ends_.resize(flows_.size());
  std::map<uint32_t, uint32_t> sends;
  std::map<uint32_t, uint32_t> receives;
  bool across = false;
  for (const Flow& flow : flows_) {
    ++sends[flow.source];
    ++receives[flow.destination];
    across = across || flow.source / fabric.hosts_per_leaf != flow.destination / fabric.hosts_per_leaf;
  }
  EndpointSpec spec;
  spec.job = job_;
  spec.kind = TrafficKind::kFlow;
  spec.steps = no_steps_;
  spec.message_is_flow = plan_.transport.ecmp_unit == EcmpUnit::kMessage;
  spec.last_hop_trims_count = plan_.transport.last_hop_trims_count;
  std::map<uint32_t, EndpointIndex> senders;
  std::map<uint32_t, EndpointIndex> receivers;
  for (const auto& [host, count] : sends) {
    spec.host = host;
    spec.sends = true;
    spec.config = TransportConfig(plan_, spec.kind, fabric, across, count, 1);
    senders[host] = hosts->AddEndpoint(spec);
  }
  for (const auto& [host, count] : receives) {
    spec.host = host;
    spec.sends = false;
    spec.config = TransportConfig(plan_, spec.kind, fabric, across, count, 1);
    receivers[host] = hosts->AddEndpoint(spec);
  }
  for (const Flow& flow : flows_) hosts->AddChannel(senders[flow.source], receivers[flow.destination]);
}

void FlowSet::Prepare(SimTime now) {
  for (size_t i = 0; i < flows_.size(); ++i) {
    ReceiveRequest request;
    request.cookie = i;
    request.capacity = flows_[i].bytes;
    FORGIVE_CHECK(hosts_->PostReceive(now, channel_of(i), request));
  }
}

void FlowSet::Begin(SimTime now) {
  begin_ = now;
  for (size_t i = 0; i < flows_.size(); ++i) hosts_->PostSend(now, channel_of(i), i, flows_[i].bytes);
}

void FlowSet::OnCompletion(SimTime now, const Completion& completion) {
  if (!completion.received) return;
  ends_[completion.cookie] = now;
  received_bytes_ += completion.bytes;
  ++received_;
}

Picoseconds FlowSet::time() const {
  Picoseconds longest{};
  for (size_t i = 0; i < flows_.size(); ++i) longest = std::max(longest, time_of(i));
  return longest;
}

}  // namespace forgive::sim
