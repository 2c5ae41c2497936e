// SPDX-License-Identifier: Apache-2.0
// The sweep over sizes: warm-up, timed iterations in batches, the exact check after each batch.
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <limits>

#include "testbed/perf/checker.h"
#include "testbed/perf/error.h"
#include "testbed/perf/modes.h"
#include "testbed/perf/report.h"

namespace forgive::perf {
namespace {

// Iterations run back to back as long as all their results fit here; then they are checked, outside the timed part.
// Small enough that results are still in the caches as they are for nccl-tests, which overwrites one buffer.
constexpr std::int64_t kBatchBytes = 8 << 20;

class Sweep {
 public:
  Sweep(Rank& rank, const Word& word)
      : rank_(rank), word_(word), options_(rank.options()), checker_(rank, word), stepping_(Steps()) {}

  int Run() {
    std::vector<std::int64_t> sizes;
    for (std::int64_t bytes = options_.first_bytes; bytes <= options_.last_bytes; bytes *= options_.factor) {
      sizes.push_back(bytes);
    }
    const Shape largest = ShapeOf(sizes.back());
    ShapeOf(sizes.front());  // refuses what is too small before anything is set up
    rank_.Connect({TopologyOf()}, largest.elements);
    if (rank_.rank() == 0) {
      PrintHeader(rank_, word_);
      PrintTableHead();
    }
    for (const std::int64_t bytes : sizes) RunSize(bytes);
    return Report();
  }

 private:
  bool Steps() const {
    const bool gradient =
        options_.collective == Collective::kAllReduce || options_.collective == Collective::kReduceScatter;
    return gradient && UsesSteps(rank_, word_);
  }

  Topology TopologyOf() const {
    if (options_.collective == Collective::kSendRecv) return Topology::kPointToPoint;
    return options_.algorithm == Algorithm::kDirect ? Topology::kAll : Topology::kRing;
  }

  Shape ShapeOf(std::int64_t bytes) const {
    return ShapeFor(options_.collective, options_.algorithm, rank_.ranks(), bytes);
  }

  void RunSize(std::int64_t bytes) {
    const Shape shape = ShapeOf(bytes);
    const auto schedule = std::make_shared<const Schedule>(shape);
    const std::int64_t result_count = schedule->ResultOf(rank_.rank()).count;
    const std::int64_t result_bytes = std::max<std::int64_t>(1, result_count * kElementBytes);
    const int batch = static_cast<int>(std::clamp<std::int64_t>(kBatchBytes / result_bytes, 1, options_.iterations));
    float* const results = rank_.ResultMemory(batch * result_count);

    std::vector<Operation> operations;
    for (int i = 0; i < options_.warmup; ++i) {
      operations.push_back(rank_.Run(schedule, results));
      AddOwnStep(rank_, word_, &operations.back());
      operations.back().result = nullptr;
    }
    SizeResult size;
    size.outcome += checker_.Judge(operations);
    double seconds = 0;
    for (int done = 0; done < options_.iterations;) {
      operations.clear();
      rank_.rendezvous().Barrier();
      const int count = std::min(batch, options_.iterations - done);
      for (int i = 0; i < count; ++i) {
        operations.push_back(RunIteration(schedule, results + i * result_count));
        seconds += operations.back().seconds;
      }
      done += count;
      size.outcome += checker_.Judge(operations);
    }
    size.outcome += checker_.CloseBooks();
    size.bytes = shape.elements * kElementBytes;
    const bool sharded =
        options_.collective == Collective::kReduceScatter || options_.collective == Collective::kAllGather;
    size.count = sharded ? shape.elements / shape.ranks : shape.elements;
    size.root = options_.collective == Collective::kBroadcast ? shape.root : -1;
    size.time_us = Slowest(seconds) / options_.iterations * 1e6;
    if (rank_.rank() == 0) PrintSize(size, options_);
    results_.push_back(size);
  }

  Operation RunIteration(const std::shared_ptr<const Schedule>& schedule, float* result) {
    if (!stepping_) {
      Operation operation = rank_.Run(schedule, result);
      AddOwnStep(rank_, word_, &operation);
      return operation;
    }
    const StepPlan plan = PlanFor(rank_, word_, *schedule, next_step_++, false);
    const bool begun = rank_.BeginStep(plan);
    Operation operation = rank_.Run(schedule, result);
    if (begun) operation.step = plan;
    if (!begun || !rank_.EndStep(plan.step)) {
      // Said once; what follows is reliable, and the check goes on.
      stepping_ = false;
      if (rank_.rank() == 0) fmt::print("# steps end here: {}\n", rank_.api().LastError());
    }
    return operation;
  }

  double Slowest(double seconds) {
    double slowest = 0;
    for (const auto& part : rank_.rendezvous().AllGatherItems(std::vector<double>{seconds})) {
      slowest = std::max(slowest, part.at(0));
    }
    return slowest;
  }

  int Report() {
    Outcome total;
    for (const SizeResult& size : results_) total += size.outcome;
    // In `all` mode replicas may differ: a loss in the all-gather phase does that, and the replay knows it.
    const bool diverged = !total.ranks_identical && word_.eligible != Eligible::kAll;
    const bool failed = total.wrong > 0 || total.budget_violations > 0 || diverged;
    if (rank_.rank() == 0) {
      if (!options_.json_file.empty()) WriteFile(options_.json_file, SweepJson(results_, options_));
      if (options_.check) {
        fmt::print("# wrong {}, budget violations {}, ranks identical: {}, forgiven {} B in {} ledger lines: {}\n",
                   total.wrong, total.budget_violations, total.ranks_identical ? "yes" : "no", total.forgiven_bytes,
                   checker_.ledger_lines(), failed ? "FAILED" : "OK");
        PrintDivergence(total);
      }
    }
    return failed ? kExitCheckFailed : kExitOk;
  }

  Rank& rank_;
  const Word& word_;
  const Options& options_;
  Checker checker_;
  bool stepping_;
  std::uint64_t next_step_ = 1;
  std::vector<SizeResult> results_;
};

}  // namespace

Shape ShapeFor(Collective collective, Algorithm algorithm, int ranks, std::int64_t bytes) {
  Shape shape;
  shape.collective = collective;
  shape.algorithm = algorithm;
  shape.ranks = ranks;
  shape.elements = bytes / kElementBytes;
  if (collective == Collective::kReduceScatter || collective == Collective::kAllGather) {
    shape.elements = shape.elements / ranks * ranks;
    if (shape.elements == 0) {
      throw UsageError(
          fmt::format("{} bytes are less than one float32 for each of {} ranks: give a larger size", bytes, ranks));
    }
  }
  return shape;
}

bool UsesSteps(const Rank& rank, const Word& word) {
  return rank.api().has_steps() && word.gradient_traffic && !word.by_operation;
}

void AddOwnStep(const Rank& rank, const Word& word, Operation* operation) {
  const Shape& shape = operation->schedule->shape();
  const bool gradient = shape.collective == Collective::kAllReduce || shape.collective == Collective::kReduceScatter;
  const Proof proof = rank.options().proof;
  const bool told = proof == Proof::kProfiler || proof == Proof::kNccl;
  if (!word.by_operation || !word.gradient_traffic || !gradient || !told || !rank.api().has_steps()) return;
  // Every operation of this process is one collective of the profiler's, which counts from 1.
  const std::uint64_t step = operation->number + 1;
  const bool listed = std::count(word.critical.begin(), word.critical.end(), step) > 0;
  operation->step = PlanFor(rank, word, *operation->schedule, step, !word.detector_lists_steps || listed);
}

StepPlan PlanFor(const Rank& rank, const Word& word, const Schedule& schedule, std::uint64_t step, bool critical) {
  StepPlan plan;
  plan.step = step;
  plan.critical = critical;
  plan.expected = static_cast<std::uint64_t>(schedule.ForgivableBytes(rank.rank(), word.eligible));
  // 0 would mean "as in the last step"; a budget of one byte's share is none.
  plan.declared = std::max<std::uint64_t>(plan.expected, 1);
  return plan;
}

int RunSweep(Rank& rank, const Word& word) { return Sweep(rank, word).Run(); }

}  // namespace forgive::perf
