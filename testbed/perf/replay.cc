// SPDX-License-Identifier: Apache-2.0
// Replays lossy flows hop by hop and compares results with them.
#include "testbed/perf/replay.h"

#include <algorithm>
#include <cstring>
#include <map>

namespace forgive::perf {
namespace {

// What one rank holds of a flow during the replay.
struct Register {
  std::vector<float> values;
  std::vector<std::uint16_t> contributions;  // ranks whose values are in each element
};

bool HoldsResult(const Shape& shape, const Flow& flow, int rank) {
  if (shape.collective == Collective::kReduceScatter) return rank == flow.owner;
  if (shape.collective == Collective::kSendRecv) return rank == (flow.owner + 1) % shape.ranks;
  return true;
}

class FlowReplay {
 public:
  FlowReplay(const Schedule& schedule, const Inputs& inputs, std::int64_t rotation, std::int64_t flow)
      : schedule_(schedule), inputs_(inputs), rotation_(rotation), index_(flow), flow_(schedule.FlowAt(flow)) {}

  const Flow& flow() const { return flow_; }
  std::uint64_t contributions_lost() const { return lost_; }

  // Runs all hops over the elements that any loss touches, and returns what `rank` ends with.
  Patch Run(std::span<const Loss> losses, int rank) {
    FindTouched(losses);
    Start();
    for (const Hop& hop : schedule_.HopsOf(index_)) {
      Register message = registers_[static_cast<std::size_t>(hop.source)];
      for (const Loss& loss : losses) {
        if (loss.source == hop.source && loss.destination == hop.destination && loss.message == hop.message) {
          Erase(loss, message);
        }
      }
      Deliver(hop, message);
    }
    return {first_, std::move(registers_[static_cast<std::size_t>(rank)].values)};
  }

 private:
  void FindTouched(std::span<const Loss> losses) {
    std::int64_t begin = flow_.interval.count;
    std::int64_t end = 0;
    for (const Loss& loss : losses) {
      begin = std::min(begin, loss.offset / kElementBytes);
      end = std::max(end, (loss.offset + loss.length + kElementBytes - 1) / kElementBytes);
    }
    end = std::min(end, flow_.interval.count);
    begin = std::min(begin, end);
    first_ = flow_.interval.first + begin;
    count_ = end - begin;
  }

  void Start() {
    const Shape& shape = schedule_.shape();
    const bool reduces = shape.collective == Collective::kAllReduce || shape.collective == Collective::kReduceScatter;
    registers_.resize(static_cast<std::size_t>(shape.ranks));
    for (int rank = 0; rank < shape.ranks; ++rank) {
      Register& held = registers_[static_cast<std::size_t>(rank)];
      held.values.assign(static_cast<std::size_t>(count_), 0.0F);
      held.contributions.assign(static_cast<std::size_t>(count_), 0);
      if (!reduces && rank != flow_.owner) continue;
      inputs_.Write(rank, rotation_, {first_, count_}, held.values.data());
      std::fill(held.contributions.begin(), held.contributions.end(), std::uint16_t{1});
    }
  }

  void Erase(const Loss& loss, Register& message) {
    const std::int64_t skipped = (first_ - flow_.interval.first) * kElementBytes;
    const std::int64_t begin = std::max<std::int64_t>(loss.offset - skipped, 0);
    const std::int64_t end = std::min(loss.offset + loss.length - skipped, count_ * kElementBytes);
    if (begin >= end) return;
    std::memset(reinterpret_cast<char*>(message.values.data()) + begin, 0, static_cast<std::size_t>(end - begin));
    for (std::int64_t i = begin / kElementBytes; i < (end + kElementBytes - 1) / kElementBytes; ++i) {
      std::uint16_t& contributions = message.contributions[static_cast<std::size_t>(i)];
      lost_ += static_cast<std::uint64_t>(contributions) * kElementBytes;
      contributions = 0;
    }
  }

  void Deliver(const Hop& hop, Register& message) {
    Register& held = registers_[static_cast<std::size_t>(hop.destination)];
    if (hop.phase != Phase::kReduce) {
      held = std::move(message);
      return;
    }
    for (std::size_t i = 0; i < held.values.size(); ++i) {
      held.values[i] += message.values[i];
      held.contributions[i] = static_cast<std::uint16_t>(held.contributions[i] + message.contributions[i]);
    }
  }

  const Schedule& schedule_;
  const Inputs& inputs_;
  const std::int64_t rotation_;
  const std::int64_t index_;
  const Flow flow_;
  std::int64_t first_ = 0;
  std::int64_t count_ = 0;
  std::vector<Register> registers_;
  std::uint64_t lost_ = 0;
};

// Counts the elements that differ, and notes the first.
void Compare(const float* got, const float* want, std::int64_t first, std::int64_t count, Verdict& verdict) {
  if (std::memcmp(got, want, static_cast<std::size_t>(count) * sizeof(float)) == 0) return;
  for (std::int64_t i = 0; i < count; ++i) {
    if (std::memcmp(got + i, want + i, sizeof(float)) == 0) continue;
    if (verdict.wrong++ == 0) {
      verdict.first_element = first + i;
      verdict.value = got[i];
      verdict.replayed = want[i];
    }
  }
}

void ComparePlain(const PlainStretch& stretch, Interval part, std::int64_t rotation, const float* got,
                  Verdict& verdict) {
  const std::int64_t begin = std::max(part.first, stretch.interval.first);
  const std::int64_t end = std::min(part.first + part.count, stretch.interval.first + stretch.interval.count);
  for (std::int64_t at = begin; at < end;) {
    const std::int64_t place = (at + rotation) % Inputs::kPeriod;
    const std::int64_t count = std::min(end - at, Inputs::kPeriod);
    Compare(got + (at - part.first), stretch.table + place, at, count, verdict);
    at += count;
  }
}

}  // namespace

Replayed Replay(const Schedule& schedule, const Inputs& inputs, std::int64_t rotation, std::span<const Loss> losses,
                int rank) {
  std::map<std::int64_t, std::vector<Loss>> by_flow;
  for (const Loss& loss : losses) {
    by_flow[schedule.MessageAt(loss.source, loss.destination, loss.message).flow].push_back(loss);
  }
  Replayed replayed;
  for (const auto& [flow, flow_losses] : by_flow) {
    FlowReplay replay(schedule, inputs, rotation, flow);
    Patch patch = replay.Run(flow_losses, rank);
    replayed.contributions_lost += replay.contributions_lost();
    if (HoldsResult(schedule.shape(), replay.flow(), rank) && !patch.values.empty()) {
      replayed.patches.push_back(std::move(patch));
    }
  }
  std::sort(replayed.patches.begin(), replayed.patches.end(),
            [](const Patch& a, const Patch& b) { return a.first < b.first; });
  return replayed;
}

Verdict Verify(const Schedule& schedule, const Inputs& inputs, std::int64_t rotation, int rank, const float* result,
               std::span<const Patch> patches) {
  Verdict verdict;
  const Interval whole = schedule.ResultOf(rank);
  const std::vector<PlainStretch> stretches = PlainResult(schedule, inputs, rank);
  std::int64_t at = whole.first;
  const auto plain_up_to = [&](std::int64_t end) {
    for (const PlainStretch& stretch : stretches) {
      ComparePlain(stretch, {at, end - at}, rotation, result + (at - whole.first), verdict);
    }
    at = end;
  };
  for (const Patch& patch : patches) {
    plain_up_to(patch.first);
    const auto count = static_cast<std::int64_t>(patch.values.size());
    Compare(result + (at - whole.first), patch.values.data(), at, count, verdict);
    at += count;
  }
  plain_up_to(whole.first + whole.count);
  return verdict;
}

std::uint64_t HashOf(const float* values, std::int64_t count) {
  constexpr std::uint64_t kOdd = 0x9E3779B97F4A7C15U;
  std::uint64_t lanes[4] = {1, 2, 3, 4};
  const auto* const bytes = reinterpret_cast<const unsigned char*>(values);
  const auto size = static_cast<std::size_t>(count) * sizeof(float);
  std::size_t at = 0;
  for (; at + 32 <= size; at += 32) {
    for (std::size_t lane = 0; lane < 4; ++lane) {
      std::uint64_t word = 0;
      std::memcpy(&word, bytes + at + 8 * lane, 8);
      lanes[lane] = (lanes[lane] ^ word) * kOdd;
      lanes[lane] ^= lanes[lane] >> 29;
    }
  }
  std::uint64_t hash = size;
  for (; at < size; ++at) hash = (hash ^ bytes[at]) * kOdd;
  for (const std::uint64_t lane : lanes) {
    hash = (hash ^ lane) * kOdd;
    hash ^= hash >> 31;
  }
  return hash;
}

}  // namespace forgive::perf
