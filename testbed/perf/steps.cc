// SPDX-License-Identifier: Apache-2.0
// Training-like steps with one all-reduce each, critical or not.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <thread>

#include "testbed/perf/checker.h"
#include "testbed/perf/error.h"
#include "testbed/perf/modes.h"
#include "testbed/perf/report.h"

namespace forgive::perf {
namespace {

using Clock = std::chrono::steady_clock;

// What a rank tells the others of its step; plain data.
struct StepReport {
  double allreduce_s = 0;
  double whole_s = 0;
  std::uint64_t expected = 0;
  std::uint64_t received = 0;
};

class Steps {
 public:
  Steps(Rank& rank, const Word& word)
      : rank_(rank), word_(word), options_(rank.options()), checker_(rank, word), stepping_(UsesSteps(rank, word)) {}

  int Run() {
    const Shape shape = ShapeFor(Collective::kAllReduce, options_.algorithm, rank_.ranks(), options_.step_bytes);
    schedule_ = std::make_shared<const Schedule>(shape);
    rank_.Connect({options_.algorithm == Algorithm::kDirect ? Topology::kAll : Topology::kRing}, shape.elements);
    values_ = rank_.ResultMemory(shape.elements);
    if (rank_.rank() == 0) {
      PrintHeader(rank_, word_);
      PrintStepHead();
    }
    WarmUp();
    for (int step = 1; step <= options_.steps; ++step) RunStep(static_cast<std::uint64_t>(step));
    return Report();
  }

 private:
  void WarmUp() {
    std::vector<Operation> operations;
    for (int i = 0; i < options_.warmup; ++i) {
      operations.push_back(rank_.Run(schedule_, values_));
      AddOwnStep(rank_, word_, &operations.back());
      operations.back().result = nullptr;
    }
    if (!operations.empty()) total_.outcome += checker_.Judge(operations);
  }

  StepPlan Plan(std::uint64_t step) {
    const bool critical = std::count(options_.critical.begin(), options_.critical.end(), step) > 0;
    StepPlan plan = PlanFor(rank_, word_, *schedule_, step, critical);
    if (options_.learn_expected) {
      plan.declared = 0;
      std::swap(plan.expected, learned_);  // the plugin knows what the last step brought, at first nothing
    }
    return plan;
  }

  void RunStep(std::uint64_t step) {
    const StepPlan plan = Plan(step);
    rank_.rendezvous().Barrier();
    const Clock::time_point start = Clock::now();
    std::this_thread::sleep_for(std::chrono::milliseconds(options_.compute_ms));
    const bool begun = stepping_ && rank_.BeginStep(plan);
    std::vector<Operation> operations;
    operations.push_back(rank_.Run(schedule_, values_));
    if (begun) operations.back().step = plan;
    AddOwnStep(rank_, word_, &operations.back());
    if (stepping_ && (!begun || !rank_.EndStep(step))) {
      throw RunError(
          fmt::format("step {}: the plugin has latched itself reliable: {}", step, rank_.api().LastError()));
    }
    const double whole_s = std::chrono::duration<double>(Clock::now() - start).count();
    StepResult result;
    result.step = step;
    result.critical = plan.critical;
    result.outcome = checker_.Judge(operations);
    Gather(operations.back(), whole_s, result);
    total_.outcome += result.outcome;
    if (rank_.rank() != 0) return;
    PrintStep(result, options_.check);
    total_.steps.push_back(result);
  }

  void Gather(const Operation& operation, double whole_s, StepResult& result) {
    StepReport mine;
    mine.allreduce_s = operation.seconds;
    mine.whole_s = whole_s;
    if (operation.step) {
      const forgive_step_stats_t stats = rank_.api().StepStats(operation.step->step);
      mine.expected = stats.expected;
      mine.received = stats.received;
    }
    StepReport slowest;
    for (const auto& part : rank_.rendezvous().AllGatherItems(std::vector<StepReport>{mine})) {
      slowest.allreduce_s = std::max(slowest.allreduce_s, part.at(0).allreduce_s);
      slowest.whole_s = std::max(slowest.whole_s, part.at(0).whole_s);
      result.expected += part.at(0).expected;
      result.received += part.at(0).received;
    }
    result.allreduce_ms = slowest.allreduce_s * 1e3;
    total_.total_s += slowest.whole_s;
  }

  int Report() {
    total_.outcome += checker_.CloseBooks();
    for (int rank = 0; rank < rank_.ranks(); ++rank) {
      total_.gradient_bytes += static_cast<std::uint64_t>(schedule_->ReceivedBytes(rank) * options_.steps);
    }
    if (rank_.api().has_ledger()) {
      std::vector<forgive_stats_t>& all = total_.per_rank.emplace();
      const std::vector<forgive_stats_t> mine = {rank_.api().Stats()};
      for (const auto& part : rank_.rendezvous().AllGatherItems(mine)) all.push_back(part.at(0));
    }
    if (rank_.rank() == 0) {
      PrintStepsSummary(total_, options_.check);
      if (!options_.json_file.empty()) WriteFile(options_.json_file, StepsJson(total_, options_.check));
    }
    const Outcome& outcome = total_.outcome;
    // In `all` mode replicas may differ: a loss in the all-gather phase is this mode's price, and the replay knows
    // it.
    const bool diverged = !outcome.ranks_identical && word_.eligible != Eligible::kAll;
    return outcome.wrong > 0 || outcome.budget_violations > 0 || diverged ? kExitCheckFailed : kExitOk;
  }

  Rank& rank_;
  const Word& word_;
  const Options& options_;
  Checker checker_;
  const bool stepping_;
  std::uint64_t learned_ = 0;
  std::shared_ptr<const Schedule> schedule_;
  float* values_ = nullptr;
  StepsResult total_;
};

}  // namespace

int RunSteps(Rank& rank, const Word& word) { return Steps(rank, word).Run(); }

}  // namespace forgive::perf
