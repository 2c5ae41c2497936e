// SPDX-License-Identifier: Apache-2.0
// A training job: what each rank computes, sends and waits for, step after step.
#ifndef FORGIVE_TESTBED_SIMULATOR_TRAINING_H_
#define FORGIVE_TESTBED_SIMULATOR_TRAINING_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "testbed/simulator/flows.h"
#include "testbed/simulator/host.h"
#include "testbed/simulator/plan.h"
#include "transport/step_table.h"

namespace forgive::sim {

// Ranks run on their own, coupled by what they receive alone: a rank goes on when its receives of a collective are
// whole, as ASTRA-sim's do.
//
// A stream of a ring runs on one connection a hop, in the order of its rounds. A stream of a direct all-reduce has a
// connection for each peer and phase, so that each of the seed's flows is the one message of a step on its
// connection.
class Training {
 public:
  Training(const JobPlan& plan, uint8_t job, uint64_t seed, EventQueue* queue, Metrics* metrics);

  void Build(const FabricPlan& fabric, Hosts* hosts);
  bool Owns(ChannelIndex channel) const { return channel >= first_channel_ && channel < end_channel_; }
  // Step 1 begins on every rank.
  void Begin(SimTime now);
  void OnCompletion(SimTime now, const Completion& completion);
  void OnCompute(SimTime now, uint32_t rank);
  // A round may have to be closed.
  void OnTimer(SimTime now, uint32_t rank, uint64_t step);

  bool done() const { return ranks_done_ == plan_.workload.ranks() && (burst_.empty() || burst_.done()); }
  SimTime begin() const { return begin_; }
  SimTime end() const { return end_; }  // of the last rank's last step
  const FlowSet& burst() const { return burst_; }
  uint64_t shed_bytes() const { return shed_bytes_; }
  // Payload bytes that its messages had, as posted: what receivers must settle.
  uint64_t posted_bytes() const { return posted_bytes_; }
  uint64_t marker_bytes() const { return marker_bytes_; }
  uint64_t step_of_slowest() const;

 private:
  enum class Phase : uint8_t { kStart, kCompute, kTensor, kTensorElsewhere, kSkew, kGradient, kLastCompute, kDone };

  // One stream of a ring at one rank.
  struct Ring {
    ChannelIndex in = 0;
    ChannelIndex out = 0;
    uint64_t received = 0;  // rounds that are whole, in order, since the run began
    uint64_t early = 0;     // bit i: round received + 1 + i is whole
    uint64_t base = 0;      // rounds of the collectives before
    uint32_t handled = 0;   // of the one that runs
    bool running = false;
  };
  // One stream of a direct all-reduce at one rank. Phase 0 reduces, phase 1 gathers.
  struct Direct {
    std::vector<ChannelIndex> in[2];  // by distance - 1
    std::vector<ChannelIndex> out[2];
    uint32_t received[2] = {};
    uint32_t sent[2] = {};
    int phase = 0;
    bool running = false;
  };
  // What a channel is for.
  struct Use {
    uint32_t source = 0;  // ranks
    uint32_t destination = 0;
    TrafficKind kind = TrafficKind::kTensor;
    uint32_t stream = 0;
    int phase = 0;        // of a direct stream
    uint64_t posted = 0;  // receives, since the run began
    uint64_t wanted = 0;
    uint64_t sent = 0;  // messages, since the run began
  };
  struct Rank {
    uint64_t step = 0;
    Phase phase = Phase::kStart;
    uint32_t tensor_done = 0;  // all-reduces of the step
    uint32_t streams_left = 0;
    uint32_t next_stream = 0;
    SimTime phase_begin{};
    uint64_t shed = 0;  // of the step
    Picoseconds longest_round{};
    std::unique_ptr<StepTable> steps;
    std::vector<Ring> tensor;
    std::vector<Ring> ring;
    std::vector<Direct> direct;
  };

  // Building: training_build.cc.
  uint32_t HostOf(uint32_t rank, const FabricPlan& fabric) const;
  uint32_t TensorPeer(uint32_t rank, uint32_t distance) const;
  uint32_t GradientPeer(uint32_t rank, uint32_t distance) const;
  EndpointIndex AddEndpoint(uint32_t rank, TrafficKind kind, bool sends, const FabricPlan& fabric);
  ChannelIndex AddChannel(const Use& use, EndpointIndex sender, EndpointIndex receiver);
  void BuildTensor(const FabricPlan& fabric);
  void BuildGradient(const FabricPlan& fabric);
  bool HasTensor() const;
  bool HasGradient() const { return plan_.workload.dp > 1; }

  // Steps.
  void BeginStep(SimTime now, uint32_t rank);
  void Compute(SimTime now, uint32_t rank, Phase phase);
  void BeginTensor(SimTime now, uint32_t rank);
  void EndTensor(SimTime now, uint32_t rank);
  void WaitForGradient(SimTime now, uint32_t rank);
  void BeginGradient(SimTime now, uint32_t rank);
  void EndGradient(SimTime now, uint32_t rank);
  void EndStep(SimTime now, uint32_t rank);
  void WantReceives(SimTime now, uint32_t rank);
  void ArmClose(SimTime now, uint32_t rank);
  void CloseRound(SimTime now, uint32_t rank);

  // Collectives: collectives.cc.
  void StartStreams(SimTime now, uint32_t rank, TrafficKind kind);
  void AdvanceRing(SimTime now, uint32_t rank, uint32_t stream, TrafficKind kind);
  void AdvanceDirect(SimTime now, uint32_t rank, uint32_t stream);
  void SendDirect(SimTime now, uint32_t rank, Direct* direct);
  void EndStream(SimTime now, uint32_t rank, TrafficKind kind);
  void OnReceived(SimTime now, const Completion& completion);
  void Send(SimTime now, ChannelIndex channel);
  void PostReceives(SimTime now, ChannelIndex channel);
  uint32_t ContributionsOf(const Use& use, uint64_t message) const;
  bool Reduces(const Use& use, uint64_t message) const;
  uint64_t BytesOf(const Use& use) const;
  uint64_t MessagesPerStep(const Use& use) const;
  uint32_t RoundsOf(TrafficKind kind) const;
  uint64_t ForgivableBytes() const;

  JobPlan plan_;
  uint8_t job_;
  uint64_t seed_;
  EventQueue* queue_;
  Metrics* metrics_;
  Hosts* hosts_ = nullptr;
  BitsPerSecond host_rate_{};
  std::vector<Rank> ranks_;
  std::vector<Use> uses_;  // by channel, from first_channel_
  ChannelIndex first_channel_ = 0;
  ChannelIndex end_channel_ = 0;
  StepTable no_steps_;  // of endpoints that carry no gradients
  FlowSet burst_;
  SimTime begin_{};
  SimTime end_{};
  uint32_t ranks_done_ = 0;
  uint64_t shed_bytes_ = 0;
  uint64_t posted_bytes_ = 0;
  uint64_t marker_bytes_ = 0;
};

}  // namespace forgive::sim

#endif  // FORGIVE_TESTBED_SIMULATOR_TRAINING_H_
