// SPDX-License-Identifier: Apache-2.0
// Cuts a collective into loops, chunks and slices, and numbers its messages on every connection.
#include "testbed/perf/schedule.h"

#include <algorithm>
#include <stdexcept>

namespace forgive::perf {
namespace {

constexpr std::int64_t kKibibyte = 1024;
constexpr std::int64_t kStepBytes = 512 * kKibibyte;       // an eighth of the 4 MiB buffer
constexpr std::int64_t kLeastSliceBytes = 32 * kKibibyte;  // NCCL cuts no slice smaller
constexpr std::int64_t kSliceUnit = 16;                    // elements
constexpr std::int64_t kShardUnit = 4;                     // elements: 16 bytes

std::int64_t CeilDivide(std::int64_t value, std::int64_t by) { return (value + by - 1) / by; }
std::int64_t RoundUp(std::int64_t value, std::int64_t unit) { return CeilDivide(value, unit) * unit; }

// What only a bug here can cause; on in every build.
void Require(bool holds, const char* what) {
  if (!holds) throw std::logic_error(what);
}

bool IsSharded(Collective collective) {
  return collective == Collective::kReduceScatter || collective == Collective::kAllGather;
}

// Point to point posts shrink with the transfer, as NCCL's do.
std::int64_t PointToPointBytes(std::int64_t bytes) {
  if (bytes >= 1024 * kKibibyte) return 128 * kKibibyte;
  return bytes >= 256 * kKibibyte ? 64 * kKibibyte : 32 * kKibibyte;
}

}  // namespace

Posting PostingOf(const Shape& shape) {
  if (shape.collective == Collective::kSendRecv) {
    const std::int64_t bytes = PointToPointBytes(shape.elements * kElementBytes);
    return {BufferKind::kPool, bytes, 1, bytes, 1};
  }
  if (shape.protocol == Protocol::kLl) return {BufferKind::kLl, 64 * kKibibyte, 1, 64 * kKibibyte, 1};
  if (shape.collective == Collective::kBroadcast) return {BufferKind::kSimple, kStepBytes, 1, kStepBytes, 1};
  return {BufferKind::kSimple, 4 * kStepBytes, 2, 2 * kStepBytes, 2};
}

bool IsForgivable(Eligible eligible, Collective collective, Phase phase) {
  if (collective != Collective::kAllReduce && collective != Collective::kReduceScatter) return false;
  return eligible == Eligible::kAll || (eligible == Eligible::kReduce && phase == Phase::kReduce);
}

Schedule::Schedule(const Shape& shape)
    : shape_(shape),
      posting_(PostingOf(shape)),
      owners_(shape.collective == Collective::kBroadcast ? 1 : shape.ranks),
      chunk_elements_(posting_.chunk_bytes / kElementBytes),
      shard_elements_(shape.elements),
      loops_(0) {
  std::int64_t per_loop = chunk_elements_;
  if (IsSharded(shape.collective)) {
    Require(shape.elements % shape.ranks == 0, "shards must be equal");
    shard_elements_ = shape.elements / shape.ranks;
  } else if (shape.collective == Collective::kAllReduce) {
    if (shape.algorithm == Algorithm::kDirect) {
      shard_elements_ = RoundUp(CeilDivide(shape.elements, shape.ranks), kShardUnit);
    } else {
      per_loop = chunk_elements_ * shape.ranks;
    }
  }
  loops_ = CeilDivide(shard_elements_, per_loop);
}

int Schedule::Around(std::int64_t rank) const {
  const std::int64_t ranks = shape_.ranks;
  return static_cast<int>(((rank % ranks) + ranks) % ranks);
}

std::int64_t Schedule::FlowIndex(std::int64_t loop, int owner, int slice) const {
  const int place = owners_ == 1 ? 0 : owner;
  return (loop * owners_ + place) * posting_.slices + slice;
}

Interval Schedule::ChunkOf(std::int64_t loop, int owner) const {
  if (shape_.collective == Collective::kAllReduce && shape_.algorithm == Algorithm::kRing) {
    const std::int64_t start = loop * chunk_elements_ * shape_.ranks;
    const std::int64_t rest = shape_.elements - start;
    // The last loop shares what is left among all ranks.
    const std::int64_t chunk = std::min(chunk_elements_, RoundUp(CeilDivide(rest, shape_.ranks), 16 / kElementBytes));
    return {start + owner * chunk, std::clamp<std::int64_t>(rest - owner * chunk, 0, chunk)};
  }
  const bool shards = IsSharded(shape_.collective) || shape_.collective == Collective::kAllReduce;
  const std::int64_t begin = shards ? owner * shard_elements_ : 0;
  const std::int64_t end = std::min(begin + shard_elements_, shape_.elements);
  const std::int64_t first = begin + loop * chunk_elements_;
  return {first, std::clamp<std::int64_t>(end - first, 0, chunk_elements_)};
}

Flow Schedule::FlowAt(std::int64_t index) const {
  Flow flow;
  flow.slice = static_cast<int>(index % posting_.slices);
  const std::int64_t chunk_index = index / posting_.slices;
  flow.owner = owners_ == 1 ? shape_.root : static_cast<int>(chunk_index % owners_);
  flow.loop = chunk_index / owners_;
  const Interval chunk = ChunkOf(flow.loop, flow.owner);
  std::int64_t slice = chunk.count;
  if (posting_.slices > 1) {
    slice = std::max(CeilDivide(chunk.count, kSliceUnit * posting_.slices) * kSliceUnit,
                     kLeastSliceBytes / kElementBytes);
  }
  const std::int64_t skip = std::min(flow.slice * slice, chunk.count);
  flow.interval = {chunk.first + skip, std::min(slice, chunk.count - skip)};
  return flow;
}

std::int64_t Schedule::StepsPerLoop(int source, int destination) const {
  const int ranks = shape_.ranks;
  if (source == destination) return 0;
  if (shape_.collective == Collective::kSendRecv) return destination == Around(source + 1) ? 1 : 0;
  if (shape_.algorithm == Algorithm::kDirect) {
    if (shape_.collective == Collective::kBroadcast) return source == shape_.root ? 1 : 0;
    return shape_.collective == Collective::kAllReduce ? 2 : 1;
  }
  if (destination != Around(source + 1)) return 0;
  if (shape_.collective == Collective::kBroadcast) return destination == shape_.root ? 0 : 1;
  return shape_.collective == Collective::kAllReduce ? 2 * (ranks - 1) : ranks - 1;
}

std::int64_t Schedule::MessagesOn(int source, int destination) const {
  return loops_ * StepsPerLoop(source, destination) * posting_.slices;
}

Schedule::Step Schedule::StepAt(int source, int destination, std::int64_t step) const {
  const int ranks = shape_.ranks;
  switch (shape_.collective) {
    case Collective::kSendRecv:
      return {source, Phase::kMove, 1};
    case Collective::kBroadcast:
      return {shape_.root, Phase::kMove, 1};
    case Collective::kReduceScatter:
    case Collective::kAllReduce:
      if (shape_.algorithm == Algorithm::kDirect) {
        if (step == 0) return {destination, Phase::kReduce, 1};
        return {source, Phase::kGather, ranks};
      }
      // A chunk starts behind its owner and grows by one contribution a hop until it reaches the owner.
      if (step < ranks - 1) return {Around(destination - 2 - step), Phase::kReduce, static_cast<int>(step) + 1};
      return {Around(destination - (step - ranks + 2)), Phase::kGather, ranks};
    case Collective::kAllGather:
      if (shape_.algorithm == Algorithm::kDirect) return {source, Phase::kGather, 1};
      return {Around(destination - 1 - step), Phase::kGather, 1};
  }
  return {0, Phase::kMove, 1};
}

MessageFacts Schedule::MessageAt(int source, int destination, std::int64_t message) const {
  const std::int64_t steps = StepsPerLoop(source, destination);
  Require(message >= 0 && message < MessagesOn(source, destination), "no such message in the operation");
  const int slice = static_cast<int>(message % posting_.slices);
  const std::int64_t step_index = message / posting_.slices;
  const Step step = StepAt(source, destination, step_index % steps);
  const std::int64_t flow = FlowIndex(step_index / steps, step.owner, slice);
  return {flow, step.phase, step.contributions, FlowAt(flow).interval};
}

void Schedule::AppendHop(const Flow& flow, int source, int destination, std::int64_t step,
                         std::vector<Hop>& hops) const {
  const std::int64_t steps = StepsPerLoop(source, destination);
  const Step facts = StepAt(source, destination, step);
  Require(facts.owner == flow.owner, "a hop of another flow");
  hops.push_back({source, destination, (flow.loop * steps + step) * posting_.slices + flow.slice, facts.phase,
                  facts.contributions});
}

void Schedule::AppendRingHops(const Flow& flow, std::vector<Hop>& hops) const {
  const int ranks = shape_.ranks;
  const bool reduces = shape_.collective == Collective::kAllReduce || shape_.collective == Collective::kReduceScatter;
  std::int64_t step = 0;
  if (reduces) {
    for (int hop = 1; hop < ranks; ++hop, ++step) {
      AppendHop(flow, Around(flow.owner + hop), Around(flow.owner + hop + 1), step, hops);
    }
  }
  if (shape_.collective == Collective::kReduceScatter) return;
  for (int hop = 0; hop < ranks - 1; ++hop) {
    const std::int64_t at = shape_.collective == Collective::kBroadcast ? 0 : step + hop;
    AppendHop(flow, Around(flow.owner + hop), Around(flow.owner + hop + 1), at, hops);
  }
}

void Schedule::AppendDirectHops(const Flow& flow, std::vector<Hop>& hops) const {
  std::int64_t step = 0;
  if (shape_.collective == Collective::kAllReduce || shape_.collective == Collective::kReduceScatter) {
    for (int rank = 0; rank < shape_.ranks; ++rank) {
      if (rank != flow.owner) AppendHop(flow, rank, flow.owner, step, hops);
    }
    ++step;
  }
  if (shape_.collective == Collective::kReduceScatter) return;
  for (int rank = 0; rank < shape_.ranks; ++rank) {
    if (rank != flow.owner) AppendHop(flow, flow.owner, rank, step, hops);
  }
}

std::vector<Hop> Schedule::HopsOf(std::int64_t index) const {
  const Flow flow = FlowAt(index);
  std::vector<Hop> hops;
  if (shape_.collective == Collective::kSendRecv) {
    AppendHop(flow, flow.owner, Around(flow.owner + 1), 0, hops);
  } else if (shape_.algorithm == Algorithm::kDirect) {
    AppendDirectHops(flow, hops);
  } else {
    AppendRingHops(flow, hops);
  }
  return hops;
}

Interval Schedule::ResultOf(int rank) const {
  if (shape_.collective == Collective::kReduceScatter) return {rank * shard_elements_, shard_elements_};
  return {0, shape_.elements};
}

std::int64_t Schedule::ReceivedBytes(int rank) const {
  std::int64_t elements = 0;
  for (int source = 0; source < shape_.ranks; ++source) {
    for (std::int64_t message = 0; message < MessagesOn(source, rank); ++message) {
      elements += MessageAt(source, rank, message).interval.count;
    }
  }
  return elements * kElementBytes;
}

std::int64_t Schedule::ForgivableBytes(int rank, Eligible eligible) const {
  if (shape_.protocol != Protocol::kSimple) return 0;
  std::int64_t elements = 0;
  for (int source = 0; source < shape_.ranks; ++source) {
    for (std::int64_t message = 0; message < MessagesOn(source, rank); ++message) {
      const MessageFacts facts = MessageAt(source, rank, message);
      if (IsForgivable(eligible, shape_.collective, facts.phase)) elements += facts.interval.count;
    }
  }
  return elements * kElementBytes;
}

}  // namespace forgive::perf
