// SPDX-License-Identifier: Apache-2.0
// Coalescing of reports, the queue of requests and the choice of SACK ranges.
#include "transport/report_builder.h"

#include <algorithm>
#include <bit>

#include "transport/check.h"

namespace forgive {
namespace {

// A delay of a quarter of the RTT keeps the sender's clock of acknowledgements finer than its window.
constexpr int64_t kReportsPerRtt = 4;
// The ring of waiting requests holds a window of full packets, within these bounds.
constexpr uint64_t kMinWaitingTrims = 64;
constexpr uint64_t kMaxWaitingTrims = 4096;

Range Positions(UnitRange units) { return {units.begin * kUnitBytes, units.end * kUnitBytes}; }

}  // namespace

void SackHistory::Push(UnitRange run) {
  if (next_ != oldest_) {
    Entry& newest = at(next_ - 1);
    if (run.begin <= newest.run.end && newest.run.begin <= run.end) {
      newest.run = {std::min(run.begin, newest.run.begin), std::max(run.end, newest.run.end)};
      newest.reports_left = kRepeats;
      return;
    }
  }
  if (next_ - oldest_ == kEntries) ++oldest_;
  at(next_++) = Entry{run, kRepeats};
}

void SackHistory::Fill(const Scoreboard& scoreboard, Report* out) {
  out->sack_count = 0;
  for (uint64_t position = next_; position != oldest_ && out->sack_count < kMaxSackRanges;) {
    Entry& entry = at(--position);
    if (entry.reports_left == 0) continue;
    if (entry.run.end <= scoreboard.base()) {
      entry.reports_left = 0;
      continue;
    }
    FORGIVE_CHECK(entry.run.begin > scoreboard.base());
    entry.run = scoreboard.SettledRun(entry.run);
    const Range range = Positions(entry.run);
    bool named = false;
    for (uint32_t i = 0; i < out->sack_count && !named; ++i) named = out->sacks[i] == range;
    if (named) {
      entry.reports_left = 0;  // a newer entry stands for the same run
      continue;
    }
    --entry.reports_left;
    out->sacks[out->sack_count++] = range;
  }
  while (oldest_ != next_ && at(oldest_).reports_left == 0) ++oldest_;
  while (oldest_ != next_ && at(next_ - 1).reports_left == 0) --next_;
}

ReportBuilder::ReportBuilder(const Config& config, uint32_t max_payload)
    : every_packets_(std::max(config.report_every_packets, 1u)),
      max_delay_(config.max_report_delay),
      report_number_(config.experiments.first_number),
      trims_(std::clamp(std::bit_ceil(config.window_bytes / max_payload), kMinWaitingTrims, kMaxWaitingTrims)) {
  set_rtt(config.base_rtt.value != 0 ? config.base_rtt : config.initial_rtt);
}

void ReportBuilder::set_rtt(Nanoseconds rtt) { delay_ = std::min(rtt / kReportsPerRtt, max_delay_); }

void ReportBuilder::OnPacket(TimePoint now) {
  if (packets_++ == 0) first_packet_ = now;
}

void ReportBuilder::OnTrim(uint32_t packet_number, UnitRange segment, bool cut) {
  if (next_trim_ - first_trim_ == trims_.size()) {
    due_ = true;
    return;
  }
  trims_[next_trim_++ & (trims_.size() - 1)] = Trim{packet_number, segment, cut};
}

TimePoint ReportBuilder::deadline() const {
  if (due_ || first_trim_ != next_trim_ || packets_ >= every_packets_) return TimePoint{};
  return packets_ == 0 ? kNever : first_packet_ + delay_;
}

void ReportBuilder::Take(const Scoreboard& scoreboard, Report* out) {
  out->report_number = ++report_number_;
  out->request_count = 0;
  out->trimmed_packet_number = 0;
  out->trimmed = first_trim_ != next_trim_;
  // A trim's report says everything but the time of the newest whole packet: what waits for that waits on.
  if (out->trimmed) {
    TakeTrim(scoreboard, out);
  } else {
    packets_ = 0;
  }
  due_ = false;
  sacks_.Fill(scoreboard, out);
}

void ReportBuilder::TakeTrim(const Scoreboard& scoreboard, Report* out) {
  const Trim& trim = trims_[first_trim_++ & (trims_.size() - 1)];
  out->trimmed_packet_number = trim.packet_number;
  out->trimmed = trim.cut;
  UnitRange rest = trim.segment;
  UnitRange run;
  while (out->request_count < kMaxRequestRanges && scoreboard.NextMissing(rest, &run)) {
    out->requests[out->request_count++] = Positions(run);
    rest.begin = run.end;
  }
}

}  // namespace forgive
