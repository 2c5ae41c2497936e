// SPDX-License-Identifier: Apache-2.0
// The names of what is counted.
#include "journal.h"

namespace forgive::dst {
namespace {

// clang-format off
constexpr const char* kNames[] = {
    "schedules", "packets", "datagrams", "connections", "messages", "bytes", "forgiven_bytes", "trims",
    "trims_of_retransmissions", "trims_again", "drops", "duplicates", "reordered", "marks", "corrupt_headers",
    "corrupt_payloads", "forgeries", "replays", "replayed_trims", "resegmented", "too_large_for_path",
    "path_losses", "rail_losses", "blackouts", "delay_spikes", "mark_storms", "stalls", "clock_jumps", "clock_stops",
    "packet_number_wraps", "report_number_wraps", "message_number_wraps", "timestamp_wraps", "event_holds",
    "events_full", "deaths", "restarts", "closes", "too_long", "steps_begun", "steps_ended", "predicted_budgets",
    "already_settled", "not_forgivable", "no_open_budget", "not_vested", "over_budget", "draw_refused", "forgiven",
    "late_bytes", "duplicate_bytes", "lost_by_request", "lost_by_rack", "timeouts", "segment_cuts", "paths_given_up",
    "paths_returned", "go_back_n_drops", "early_messages", "signals_ignored", "rate_cuts_by_mark",
    "rate_cuts_by_trim", "mode_changes", "exhausted_reports", "probes", "silent_peers", "digest",
};
// clang-format on
static_assert(sizeof kNames / sizeof kNames[0] == kCounts);

}  // namespace

const char* NameOf(Count count) { return kNames[static_cast<size_t>(count)]; }

}  // namespace forgive::dst
