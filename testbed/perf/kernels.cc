// SPDX-License-Identifier: Apache-2.0
// The ring's linear program, and the direct algorithms with one program a connection.
#include "testbed/perf/kernels.h"

#include <fmt/format.h>

#include <utility>

#include "testbed/perf/elements.h"
#include "testbed/perf/error.h"

namespace forgive::perf {
namespace {

// Slices a turn: between turns the lanes must get their share, or a slot that is ready waits for a copy.
constexpr int kSlicesPerTurn = 2;

void CheckCount(const ReceiveLane& lane, const Interval& interval) {
  if (lane.FrontCount() == interval.count) return;
  throw RunError(fmt::format("a message from rank {} has {} bytes, the schedule says {}", lane.peer(),
                             lane.FrontCount() * kElementBytes, interval.count * kElementBytes));
}

class RingKernel final : public Kernel {
 public:
  RingKernel(const Schedule& schedule, int rank, UserMemory memory, SendLane* next, ReceiveLane* previous)
      : posting_(schedule.posting()),
        memory_(memory),
        next_(next),
        previous_(previous),
        receives_(schedule.MessagesOn(previous->peer(), rank)),
        program_(RingProgram(schedule, rank)) {}

  void Begin() override {
    next_->Begin(posting_);
    previous_->Begin(posting_, receives_);
  }

  bool Run() override {
    bool moved = false;
    for (int turn = 0; turn < kSlicesPerTurn && !Done(); ++turn) {
      const RingOperation& operation = program_[at_];
      if (operation.receive && !previous_->Ready()) break;
      if (operation.send && !next_->CanFill()) break;
      Do(operation);
      ++at_;
      moved = true;
    }
    return moved;
  }

  bool Done() const override { return at_ == program_.size(); }

 private:
  void Do(const RingOperation& operation) {
    const Interval& interval = operation.interval;
    const float* const input = memory_.input + interval.first;
    float* const result = operation.store ? memory_.result + (interval.first - memory_.result_first) : nullptr;
    float* const slot = operation.send ? next_->Fill() : nullptr;
    if (operation.receive) CheckCount(*previous_, interval);
    if (operation.receive && operation.add_input) {
      AddElements(previous_->Front(), input, interval.count, slot, result);
    } else {
      CopyElements(operation.receive ? previous_->Front() : input, interval.count, slot, result);
    }
    if (operation.receive) previous_->Release();
    if (operation.send) next_->Post(interval.count);
  }

  const Posting posting_;
  const UserMemory memory_;
  SendLane* const next_;
  ReceiveLane* const previous_;
  const std::int64_t receives_;
  const std::vector<RingOperation> program_;
  std::size_t at_ = 0;
};

class DirectKernel final : public Kernel {
 public:
  DirectKernel(const Schedule& schedule, int rank, UserMemory memory, std::vector<SendLane*> sends,
               std::vector<ReceiveLane*> receives)
      : posting_(schedule.posting()),
        rank_(static_cast<std::size_t>(rank)),
        memory_(memory),
        sends_(std::move(sends)),
        receives_(std::move(receives)),
        program_(MakeDirectProgram(schedule, rank)),
        sent_(sends_.size(), 0),
        received_(receives_.size(), 0),
        parts_(receives_.size(), nullptr) {}

  void Begin() override {
    for (std::size_t peer = 0; peer < sends_.size(); ++peer) {
      if (sends_[peer] != nullptr) sends_[peer]->Begin(posting_);
      if (receives_[peer] != nullptr) {
        receives_[peer]->Begin(posting_, static_cast<std::int64_t>(program_.receives[peer].size()));
      }
    }
    for (const Interval& own : program_.own) {
      CopyElements(memory_.input + own.first, own.count, nullptr, ResultAt(own));
    }
  }

  bool Run() override {
    bool moved = false;
    for (std::size_t peer = 0; peer < sends_.size(); ++peer) moved = SendTo(peer) || moved;
    for (std::size_t peer = 0; peer < receives_.size(); ++peer) moved = StoreFrom(peer) || moved;
    return Reduce() || moved;
  }

  bool Done() const override {
    for (std::size_t peer = 0; peer < sends_.size(); ++peer) {
      if (sent_[peer] < program_.sends[peer].size() || received_[peer] < program_.receives[peer].size()) return false;
    }
    return reduced_ == static_cast<std::int64_t>(program_.groups.size());
  }

 private:
  float* ResultAt(const Interval& interval) const { return memory_.result + (interval.first - memory_.result_first); }

  bool SendTo(std::size_t peer) {
    if (sent_[peer] == program_.sends[peer].size() || !sends_[peer]->CanFill()) return false;
    const DirectSend& send = program_.sends[peer][sent_[peer]];
    if (send.group >= reduced_) return false;
    const float* const from = send.group < 0 ? memory_.input + send.interval.first : ResultAt(send.interval);
    CopyElements(from, send.interval.count, sends_[peer]->Fill(), nullptr);
    sends_[peer]->Post(send.interval.count);
    ++sent_[peer];
    return true;
  }

  bool StoreFrom(std::size_t peer) {
    if (received_[peer] == program_.receives[peer].size() || !receives_[peer]->Ready()) return false;
    const DirectReceive& receive = program_.receives[peer][received_[peer]];
    if (receive.group >= 0) return false;
    CheckCount(*receives_[peer], receive.interval);
    CopyElements(receives_[peer]->Front(), receive.interval.count, nullptr, ResultAt(receive.interval));
    receives_[peer]->Release();
    ++received_[peer];
    return true;
  }

  // Sums the next group once every peer's contribution waits in its slot.
  bool Reduce() {
    if (reduced_ == static_cast<std::int64_t>(program_.groups.size())) return false;
    for (std::size_t peer = 0; peer < receives_.size(); ++peer) {
      if (peer == rank_) continue;
      if (!receives_[peer]->Ready() || program_.receives[peer][received_[peer]].group != reduced_) return false;
    }
    const Interval interval = program_.groups[static_cast<std::size_t>(reduced_)];
    for (std::size_t rank = 0; rank < receives_.size(); ++rank) {
      if (rank != rank_) CheckCount(*receives_[rank], interval);
      parts_[rank] = rank == rank_ ? memory_.input + interval.first : receives_[rank]->Front();
    }
    SumElements(parts_, interval.count, ResultAt(interval));
    for (std::size_t rank = 0; rank < receives_.size(); ++rank) {
      if (rank == rank_) continue;
      receives_[rank]->Release();
      ++received_[rank];
    }
    ++reduced_;
    return true;
  }

  const Posting posting_;
  const std::size_t rank_;
  const UserMemory memory_;
  const std::vector<SendLane*> sends_;
  const std::vector<ReceiveLane*> receives_;
  const DirectProgram program_;
  std::vector<std::size_t> sent_;      // by peer: messages filled
  std::vector<std::size_t> received_;  // by peer: messages consumed
  std::vector<const float*> parts_;    // by rank: the contributions to the group at hand
  std::int64_t reduced_ = 0;           // groups done
};

}  // namespace

std::unique_ptr<Kernel> MakeRingKernel(const Schedule& schedule, int rank, UserMemory memory, SendLane* next,
                                       ReceiveLane* previous) {
  return std::make_unique<RingKernel>(schedule, rank, memory, next, previous);
}

std::unique_ptr<Kernel> MakeDirectKernel(const Schedule& schedule, int rank, UserMemory memory,
                                         std::vector<SendLane*> sends, std::vector<ReceiveLane*> receives) {
  return std::make_unique<DirectKernel>(schedule, rank, memory, std::move(sends), std::move(receives));
}

}  // namespace forgive::perf
