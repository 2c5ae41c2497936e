// SPDX-License-Identifier: Apache-2.0
// Plain flows: one message each on a connection of its own, begun together. Bursts and patterns are made of them.
#ifndef FORGIVE_TESTBED_SIMULATOR_FLOWS_H_
#define FORGIVE_TESTBED_SIMULATOR_FLOWS_H_

#include <cstdint>
#include <vector>

#include "testbed/simulator/host.h"
#include "testbed/simulator/plan.h"

namespace forgive::sim {

struct Flow {
  uint32_t source = 0;  // hosts
  uint32_t destination = 0;
  uint64_t bytes = 0;
};

// Every host sends to one of another leaf where there is one, and hears from one.
std::vector<Flow> PermutationOf(const FabricPlan& fabric, uint64_t bytes);
// `fan_in` hosts into host 0: of other leaves first.
std::vector<Flow> IncastOf(const FabricPlan& fabric, uint32_t fan_in, uint64_t bytes);

class FlowSet {
 public:
  FlowSet(const JobPlan& plan, uint8_t job, std::vector<Flow> flows, StepTable* no_steps)
      : plan_(plan), job_(job), flows_(std::move(flows)), no_steps_(no_steps) {}

  // Adds endpoints and channels; posts nothing.
  void Build(const FabricPlan& fabric, Hosts* hosts);
  bool Owns(ChannelIndex channel) const {
    return channel >= first_channel_ && channel - first_channel_ < flows_.size();
  }
  // Posts the receives: credit must be there when the flows begin.
  void Prepare(SimTime now);
  void Begin(SimTime now);
  void OnCompletion(SimTime now, const Completion& completion);
  bool empty() const { return flows_.empty(); }
  bool done() const { return received_ == flows_.size(); }
  const std::vector<Flow>& flows() const { return flows_; }
  // When it was whole at its receiver.
  Picoseconds time_of(size_t flow) const { return ends_[flow] - begin_; }
  Picoseconds time() const;
  ChannelIndex channel_of(size_t flow) const { return first_channel_ + static_cast<ChannelIndex>(flow); }
  uint64_t received_bytes() const { return received_bytes_; }

 private:
  JobPlan plan_;
  uint8_t job_;
  std::vector<Flow> flows_;
  StepTable* no_steps_;
  Hosts* hosts_ = nullptr;
  ChannelIndex first_channel_ = 0;
  SimTime begin_{};
  std::vector<SimTime> ends_;
  size_t received_ = 0;
  uint64_t received_bytes_ = 0;
};

}  // namespace forgive::sim

#endif  // FORGIVE_TESTBED_SIMULATOR_FLOWS_H_
