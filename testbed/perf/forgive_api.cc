// SPDX-License-Identifier: Apache-2.0
// Finds forgive.h's functions by name and wraps them.
#include "testbed/perf/forgive_api.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include "testbed/perf/error.h"

namespace forgive::perf {
namespace {

template <typename Function>
void Find(void* library, const char* name, Function& function) {
  function = reinterpret_cast<Function>(dlsym(library, name));
}

constexpr std::size_t kRangesPerCall = 4096;

}  // namespace

ForgiveApi::ForgiveApi(void* library) {
  if (library == nullptr) return;
  Find(library, "forgive_step_begin", step_begin_);
  Find(library, "forgive_step_end", step_end_);
  Find(library, "forgive_stats", stats_);
  Find(library, "forgive_step_stats", step_stats_);
  Find(library, "forgive_forgiven_ranges", ranges_);
  Find(library, "forgive_ledger_lost", ledger_lost_);
  Find(library, "forgive_last_error", last_error_);
}

std::string ForgiveApi::LastError() const { return last_error_ != nullptr ? last_error_() : "no text"; }

forgive_stats_t ForgiveApi::Stats() const {
  forgive_stats_t stats = {};
  stats.size = sizeof(stats);
  if (stats_(&stats) != FORGIVE_OK) throw RunError("forgive_stats failed: " + LastError());
  return stats;
}

forgive_step_stats_t ForgiveApi::StepStats(std::uint64_t step) const {
  forgive_step_stats_t stats = {};
  if (step_stats_ == nullptr || step_stats_(step, &stats) != FORGIVE_OK) {
    throw RunError(fmt::format("forgive_step_stats of step {} failed: {}", step, LastError()));
  }
  return stats;
}

std::vector<forgive_range_t> ForgiveApi::RangesFrom(std::uint64_t first) const {
  std::vector<forgive_range_t> ranges;
  for (;;) {
    const std::size_t had = ranges.size();
    ranges.resize(had + kRangesPerCall);
    const std::int64_t got = ranges_(first + had, ranges.data() + had, kRangesPerCall);
    if (got < 0 || got > static_cast<std::int64_t>(kRangesPerCall)) {
      throw RunError(fmt::format("forgive_forgiven_ranges failed ({}): {}", got, LastError()));
    }
    ranges.resize(had + static_cast<std::size_t>(got));
    if (got == 0) return ranges;
  }
}

std::vector<std::pair<const char*, std::uint64_t>> Fields(const forgive_stats_t& stats) {
#define FORGIVE_FIELD(name) \
  { #name, stats.name }
  return {FORGIVE_FIELD(api_version),
          FORGIVE_FIELD(steps),
          FORGIVE_FIELD(sent_bytes),
          FORGIVE_FIELD(sent_exempt_bytes),
          FORGIVE_FIELD(retransmitted_bytes),
          FORGIVE_FIELD(received_bytes),
          FORGIVE_FIELD(duplicate_bytes),
          FORGIVE_FIELD(forgiven_bytes),
          FORGIVE_FIELD(contributions_lost),
          FORGIVE_FIELD(late_bytes),
          FORGIVE_FIELD(packets_sent),
          FORGIVE_FIELD(packets_received),
          FORGIVE_FIELD(trims),
          FORGIVE_FIELD(marks),
          FORGIVE_FIELD(reports_sent),
          FORGIVE_FIELD(reports_received),
          FORGIVE_FIELD(decided_already_settled),
          FORGIVE_FIELD(decided_not_forgivable),
          FORGIVE_FIELD(decided_no_open_budget),
          FORGIVE_FIELD(decided_not_vested),
          FORGIVE_FIELD(decided_over_budget),
          FORGIVE_FIELD(decided_draw_refused),
          FORGIVE_FIELD(decided_forgiven),
          FORGIVE_FIELD(rate_cuts_mark),
          FORGIVE_FIELD(rate_cuts_trim),
          FORGIVE_FIELD(rate_cuts_timeout),
          FORGIVE_FIELD(signals_ignored),
          FORGIVE_FIELD(timeouts),
          FORGIVE_FIELD(segment_cuts),
          FORGIVE_FIELD(paths_given_up),
          FORGIVE_FIELD(paths_returned),
          FORGIVE_FIELD(lost_by_request),
          FORGIVE_FIELD(lost_by_rack),
          FORGIVE_FIELD(mode_changes),
          FORGIVE_FIELD(bad_tag),
          FORGIVE_FIELD(malformed),
          FORGIVE_FIELD(unknown_connection),
          FORGIVE_FIELD(replayed),
          FORGIVE_FIELD(bad_crc),
          FORGIVE_FIELD(out_of_window),
          FORGIVE_FIELD(socket_drops),
          FORGIVE_FIELD(not_posted_operator_latch),
          FORGIVE_FIELD(budget_violations)};
#undef FORGIVE_FIELD
}

}  // namespace forgive::perf
