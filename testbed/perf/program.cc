// SPDX-License-Identifier: Apache-2.0
// Lists a rank's work in NCCL's order: send, receive-reduce-send, ..., receive-copy-send, ..., receive.
#include "testbed/perf/program.h"

namespace forgive::perf {
namespace {

// In an all-gather a rank's own part goes from its input to its result. A broadcast is in place at the root.
bool StoresOwn(const Shape& shape) { return shape.collective == Collective::kAllGather; }

// The chunk with which a rank starts a loop: its own, or the one that its neighbour behind it owns.
int FirstOwner(const Shape& shape, int rank) {
  if (shape.collective == Collective::kBroadcast) return shape.root;
  if (shape.collective == Collective::kAllGather) return rank;
  return (rank + shape.ranks - 1) % shape.ranks;
}

}  // namespace

std::vector<RingOperation> RingProgram(const Schedule& schedule, int rank) {
  const Shape& shape = schedule.shape();
  const int slices = schedule.posting().slices;
  const int previous = (rank + shape.ranks - 1) % shape.ranks;
  const int next = (rank + 1) % shape.ranks;
  const std::int64_t receives = schedule.MessagesOn(previous, rank) / (schedule.loops() * slices);
  const std::int64_t sends = schedule.MessagesOn(rank, next) / (schedule.loops() * slices);
  // In a broadcast the root receives nothing and the others send what they received in the same turn.
  const bool starts = shape.collective != Collective::kBroadcast || rank == shape.root;
  std::vector<RingOperation> program;
  for (std::int64_t loop = 0; loop < schedule.loops(); ++loop) {
    for (int slice = 0; starts && slice < slices; ++slice) {
      const Flow flow = schedule.FlowAt(schedule.FlowIndex(loop, FirstOwner(shape, rank), slice));
      program.push_back({flow.interval, false, false, StoresOwn(shape), true});
    }
    for (std::int64_t step = 0; step < receives; ++step) {
      for (int slice = 0; slice < slices; ++slice) {
        const MessageFacts facts = schedule.MessageAt(previous, rank, (loop * receives + step) * slices + slice);
        const bool reduces = facts.phase == Phase::kReduce;
        const bool owns = schedule.FlowAt(facts.flow).owner == rank;
        const bool sends_on = starts ? step + 1 < sends : sends > 0;
        program.push_back({facts.interval, true, reduces, !reduces || owns, sends_on});
      }
    }
  }
  return program;
}

DirectProgram MakeDirectProgram(const Schedule& schedule, int rank) {
  const Shape& shape = schedule.shape();
  const auto ranks = static_cast<std::size_t>(shape.ranks);
  DirectProgram program;
  program.sends.resize(ranks);
  program.receives.resize(ranks);
  const auto group_of = [&](std::int64_t flow_index) {
    const Flow flow = schedule.FlowAt(flow_index);
    return flow.loop * schedule.posting().slices + flow.slice;
  };
  for (int peer = 0; peer < shape.ranks; ++peer) {
    auto& sends = program.sends[static_cast<std::size_t>(peer)];
    auto& receives = program.receives[static_cast<std::size_t>(peer)];
    for (std::int64_t m = 0; m < schedule.MessagesOn(rank, peer); ++m) {
      const MessageFacts facts = schedule.MessageAt(rank, peer, m);
      const bool reduced = facts.phase == Phase::kGather && shape.collective == Collective::kAllReduce;
      sends.push_back({facts.interval, reduced ? group_of(facts.flow) : -1});
    }
    for (std::int64_t m = 0; m < schedule.MessagesOn(peer, rank); ++m) {
      const MessageFacts facts = schedule.MessageAt(peer, rank, m);
      receives.push_back({facts.interval, facts.phase == Phase::kReduce ? group_of(facts.flow) : -1});
    }
  }
  const bool reduces = shape.collective == Collective::kAllReduce || shape.collective == Collective::kReduceScatter;
  for (std::int64_t loop = 0; loop < schedule.loops(); ++loop) {
    for (int slice = 0; slice < schedule.posting().slices; ++slice) {
      if (!reduces && !StoresOwn(shape)) continue;
      const Interval interval = schedule.FlowAt(schedule.FlowIndex(loop, rank, slice)).interval;
      (reduces ? program.groups : program.own).push_back(interval);
    }
  }
  return program;
}

}  // namespace forgive::perf
