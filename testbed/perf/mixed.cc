// SPDX-License-Identifier: Apache-2.0
// The mixed-traffic scenario: what may be forgiven and what may not share the same connections.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <thread>

#include "testbed/perf/checker.h"
#include "testbed/perf/error.h"
#include "testbed/perf/modes.h"
#include "testbed/perf/report.h"

namespace forgive::perf {
namespace {

constexpr int kRounds = 4;
constexpr std::chrono::seconds kPostWait(10);
constexpr std::int64_t kOneLoopBytesPerRank = 256 << 10;

class Mixed {
 public:
  Mixed(Rank& rank, const Word& word)
      : rank_(rank), word_(word), options_(rank.options()), checker_(rank, word), stepping_(UsesSteps(rank, word)) {}

  int Run() {
    const std::int64_t bytes = options_.step_bytes;
    const Shape largest = ShapeFor(Collective::kAllReduce, Algorithm::kRing, rank_.ranks(), bytes);
    ShapeFor(Collective::kAllGather, Algorithm::kRing, rank_.ranks(), bytes / 8);  // refuses what is too small
    rank_.Connect({Topology::kRing, Topology::kPointToPoint}, largest.elements);
    values_ = rank_.ResultMemory(largest.elements);
    if (rank_.rank() == 0) {
      PrintHeader(rank_, word_);
      if (!stepping_) fmt::print("# no steps: the plugin has none, or FORGIVE_GRADIENT_TRAFFIC is not all\n");
    }
    for (int round = 0; round < kRounds; ++round) {
      OutsideSteps(bytes >> round);
      StepWithAllReduce(bytes >> round, round % 2 == 1);
    }
    if (stepping_) {
      BeginWhileOpen(bytes / 2);
      BeginWhilePosted(bytes / 4);
      StepWithAllReduce(bytes, false);
      AllGatherInsideStep(std::min(bytes, rank_.ranks() * kOneLoopBytesPerRank));
    }
    OutsideSteps(bytes / 8);
    return Report();
  }

 private:
  std::shared_ptr<const Schedule> ScheduleFor(Collective collective, Protocol protocol, std::int64_t bytes) const {
    Shape shape = ShapeFor(collective, Algorithm::kRing, rank_.ranks(), bytes);
    shape.protocol = protocol;
    shape.root = 1 % shape.ranks;
    return std::make_shared<const Schedule>(shape);
  }

  void OutsideSteps(std::int64_t bytes) {
    One("broadcast", Collective::kBroadcast, Protocol::kSimple, bytes);
    One("all-gather", Collective::kAllGather, Protocol::kSimple, bytes);
    One("point to point", Collective::kSendRecv, Protocol::kSimple, bytes);
    One("LL all-gather", Collective::kAllGather, Protocol::kLl, bytes / 4);
    One("LL all-reduce", Collective::kAllReduce, Protocol::kLl, bytes / 4);
    One("all-reduce, no step", Collective::kAllReduce, Protocol::kSimple, bytes);
  }

  void One(const char* what, Collective collective, Protocol protocol, std::int64_t bytes) {
    Judge(what, rank_.Run(ScheduleFor(collective, protocol, bytes), values_));
  }

  void StepWithAllReduce(std::int64_t bytes, bool critical) {
    const auto schedule = ScheduleFor(Collective::kAllReduce, Protocol::kSimple, bytes);
    const StepPlan plan = PlanFor(rank_, word_, *schedule, next_step_++, critical);
    if (stepping_ && !rank_.BeginStep(plan)) Fault("forgive_step_begin says latched in a proper step");
    Operation operation = rank_.Run(schedule, values_);
    if (stepping_) operation.step = plan;
    if (stepping_ && !rank_.EndStep(plan.step)) Fault("forgive_step_end says latched after a proper step");
    Judge("all-reduce in a step", std::move(operation));
  }

  void BeginWhileOpen(std::int64_t bytes) {
    const auto schedule = ScheduleFor(Collective::kAllReduce, Protocol::kSimple, bytes);
    const StepPlan plan = PlanFor(rank_, word_, *schedule, next_step_++, false);
    if (!rank_.BeginStep(plan)) Fault("forgive_step_begin says latched in a proper step");
    Expect("forgive_step_begin while a step is open", rank_.api().StepBegin(next_step_++, false, plan.declared),
           FORGIVE_ERROR_STEP_OPEN);
    Operation operation = rank_.Run(schedule, values_);
    operation.step = plan;
    if (!rank_.EndStep(plan.step)) Fault("forgive_step_end says latched after a proper step");
    Expect("forgive_step_end of a closed step", rank_.api().StepEnd(plan.step), FORGIVE_ERROR_STEP_OPEN);
    Judge("all-reduce in a step", std::move(operation));
  }

  // The root of a broadcast waits until all others have posted receives and tried to begin a step.
  void BeginWhilePosted(std::int64_t bytes) {
    const auto schedule = ScheduleFor(Collective::kBroadcast, Protocol::kSimple, bytes);
    const std::uint64_t step = next_step_++;
    if (rank_.rank() != schedule->shape().root) {
      rank_.Start(schedule, values_);
      const auto deadline = std::chrono::steady_clock::now() + kPostWait;
      while (rank_.posted_receives() == 0) {
        if (std::chrono::steady_clock::now() > deadline) throw RunError("no receive was posted within 10 s");
        rank_.rendezvous().CheckPeers();
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
      }
      Expect("forgive_step_begin while receives are posted", rank_.api().StepBegin(step, false, 1 << 20),
             FORGIVE_ERROR_RECEIVES_POSTED);
    }
    rank_.rendezvous().Barrier();
    if (rank_.rank() == schedule->shape().root) rank_.Start(schedule, values_);
    Judge("broadcast, begin refused", rank_.Finish());
  }

  // The operator's word broken: the plugin can only see it at the end of the step, by the count of messages. The
  // schedule brings no forgivable byte, so the step is declared with a budget of none.
  void AllGatherInsideStep(std::int64_t bytes) {
    const auto schedule = ScheduleFor(Collective::kAllGather, Protocol::kSimple, bytes);
    const StepPlan plan = PlanFor(rank_, word_, *schedule, next_step_++, false);
    if (!rank_.BeginStep(plan)) Fault("forgive_step_begin says latched in a proper step");
    Operation operation = rank_.Run(schedule, values_);
    operation.step = plan;
    // Where NCCL says what it is, it shifts no phase and breaks no promise.
    const bool proved = options_.proof != Proof::kWord;
    Expect("forgive_step_end after an all-gather in the step", rank_.api().StepEnd(plan.step),
           proved ? FORGIVE_OK : FORGIVE_ERROR_LATCHED);
    Judge("all-gather in a step", std::move(operation));
    if (proved) return;
    Expect("forgive_step_begin after the latch", rank_.api().StepBegin(next_step_++, false, 1 << 20),
           FORGIVE_ERROR_LATCHED);
  }

  void Expect(const char* call, int got, int wanted) {
    if (got != wanted) Fault(fmt::format("{} returns {}, it must return {}", call, got, wanted));
  }

  void Fault(const std::string& text) {
    ++faults_;
    std::fprintf(stderr, "forgive_perf: wrong: rank %d: %s\n", rank_.rank(), text.c_str());
  }

  void Judge(const char* what, Operation operation) {
    const Outcome outcome = checker_.Judge(std::span<const Operation>(&operation, 1));
    total_ += outcome;
    if (rank_.rank() != 0) return;
    fmt::print(" {:<26}{:>12} B {:>12} B forgiven{:>9} wrong\n", what,
               operation.schedule->shape().elements * kElementBytes, outcome.forgiven_bytes, outcome.wrong);
    std::fflush(stdout);
  }

  int Report() {
    total_ += checker_.CloseBooks();
    for (const auto& part : rank_.rendezvous().AllGatherItems(std::vector<std::uint64_t>{faults_})) {
      total_.wrong += part.at(0);
    }
    const bool failed = total_.wrong > 0 || total_.budget_violations > 0 ||
                        (!total_.ranks_identical && word_.eligible != Eligible::kAll);
    if (rank_.rank() == 0) {
      fmt::print("# mixed: wrong {}, budget violations {}, ranks identical: {}, forgiven {} B: {}\n", total_.wrong,
                 total_.budget_violations, total_.ranks_identical ? "yes" : "no", total_.forgiven_bytes,
                 failed ? "FAILED" : "OK");
    }
    return failed ? kExitCheckFailed : kExitOk;
  }

  Rank& rank_;
  const Word& word_;
  const Options& options_;
  Checker checker_;
  const bool stepping_;
  std::uint64_t next_step_ = 1;
  std::uint64_t faults_ = 0;
  float* values_ = nullptr;
  Outcome total_;
};

}  // namespace

int RunMixed(Rank& rank, const Word& word) { return Mixed(rank, word).Run(); }

}  // namespace forgive::perf
