// SPDX-License-Identifier: Apache-2.0
// forgive.h's functions, looked up in a loaded plugin.
#ifndef FORGIVE_TESTBED_PERF_FORGIVE_API_H_
#define FORGIVE_TESTBED_PERF_FORGIVE_API_H_

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "plugin/forgive.h"

namespace forgive::perf {

// Absent functions (another plugin, TCP): the bool queries say so and the others must not be called.
class ForgiveApi {
 public:
  ForgiveApi() = default;
  explicit ForgiveApi(void* library);

  bool has_steps() const { return step_begin_ != nullptr && step_end_ != nullptr; }
  bool has_ledger() const { return ranges_ != nullptr && stats_ != nullptr; }

  int StepBegin(std::uint64_t step, bool critical, std::uint64_t expected) const {
    return step_begin_(step, critical ? 1 : 0, expected);
  }
  int StepEnd(std::uint64_t step) const { return step_end_(step); }
  std::string LastError() const;

  // Throws RunError if the plugin refuses.
  forgive_stats_t Stats() const;
  forgive_step_stats_t StepStats(std::uint64_t step) const;
  // Ledger lines from number `first` on. Throws RunError.
  std::vector<forgive_range_t> RangesFrom(std::uint64_t first) const;
  std::uint64_t LedgerLost() const { return ledger_lost_ != nullptr ? ledger_lost_() : 0; }

 private:
  int (*step_begin_)(std::uint64_t, int, std::uint64_t) = nullptr;
  int (*step_end_)(std::uint64_t) = nullptr;
  int (*stats_)(forgive_stats_t*) = nullptr;
  int (*step_stats_)(std::uint64_t, forgive_step_stats_t*) = nullptr;
  std::int64_t (*ranges_)(std::uint64_t, forgive_range_t*, std::uint64_t) = nullptr;
  std::uint64_t (*ledger_lost_)() = nullptr;
  const char* (*last_error_)() = nullptr;
};

// The counters by their names, in the order of the structure.
std::vector<std::pair<const char*, std::uint64_t>> Fields(const forgive_stats_t& stats);

}  // namespace forgive::perf

#endif  // FORGIVE_TESTBED_PERF_FORGIVE_API_H_
