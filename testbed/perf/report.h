// SPDX-License-Identifier: Apache-2.0
// What a run says: nccl-tests' table, a line a step, and JSON.
#ifndef FORGIVE_TESTBED_PERF_REPORT_H_
#define FORGIVE_TESTBED_PERF_REPORT_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "testbed/perf/checker.h"
#include "testbed/perf/rank.h"

namespace forgive::perf {

// One size of a sweep. Bandwidths in 10^9 bytes a second, as nccl-tests counts.
struct SizeResult {
  std::int64_t bytes = 0;
  std::int64_t count = 0;
  int root = -1;
  double time_us = 0;
  Outcome outcome;
};

double AlgorithmBandwidth(const SizeResult& result);
double BusBandwidth(const SizeResult& result, Collective collective, int ranks);

// Lines that begin with #: what runs, and over what.
void PrintHeader(const Rank& rank, const Word& word);
void PrintTableHead();
void PrintSize(const SizeResult& result, const Options& options);
std::string SweepJson(const std::vector<SizeResult>& results, const Options& options);

// One step, summed over ranks; times in milliseconds, of the slowest rank.
struct StepResult {
  std::uint64_t step = 0;
  bool critical = false;
  double allreduce_ms = 0;
  std::uint64_t expected = 0;
  std::uint64_t received = 0;
  Outcome outcome;
};
void PrintStepHead();
void PrintStep(const StepResult& result, bool checked);

struct StepsResult {
  std::vector<StepResult> steps;  // rank 0's only
  double total_s = 0;
  std::uint64_t gradient_bytes = 0;
  Outcome outcome;
  std::optional<std::vector<forgive_stats_t>> per_rank;  // none: not FORGIVE
};
std::string StepsJson(const StepsResult& result, bool checked);
void PrintStepsSummary(const StepsResult& result, bool checked);

// Says by how much the ranks' results differ; nothing where they do not.
void PrintDivergence(const Outcome& outcome);

// Writes the text to a file. Throws RunError.
void WriteFile(const std::string& file, const std::string& text);

}  // namespace forgive::perf

#endif  // FORGIVE_TESTBED_PERF_REPORT_H_
