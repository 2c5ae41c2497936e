// SPDX-License-Identifier: Apache-2.0
// When a receiver reports, and which ranges the report names: requests, and what settled lately.
#ifndef FORGIVE_TRANSPORT_REPORT_BUILDER_H_
#define FORGIVE_TRANSPORT_REPORT_BUILDER_H_

#include <array>
#include <cstdint>

#include "transport/array.h"
#include "transport/config.h"
#include "transport/scoreboard.h"
#include "transport/units.h"
#include "transport/wire.h"

namespace forgive {

// Ranges above rcv_nxt that settled lately, newest first: the SACK ranges of the next reports.
class SackHistory {
 public:
  // `run` is settled and not empty; it is named in the next kRepeats reports.
  void Push(UnitRange run);
  // Writes at most kMaxSackRanges maximal settled runs above base, each once, and counts them as reported.
  void Fill(const Scoreboard& scoreboard, Report* out);

 private:
  static constexpr uint32_t kRepeats = 3;  // a report may be lost
  static constexpr uint32_t kEntries = 2 * kMaxSackRanges;

  struct Entry {
    UnitRange run;
    uint32_t reports_left = 0;
  };
  Entry& at(uint64_t position) { return entries_[position % kEntries]; }

  std::array<Entry, kEntries> entries_{};
  uint64_t oldest_ = 0;  // entries oldest_ .. next_ - 1 are kept
  uint64_t next_ = 0;
};

// Decides when a report leaves (protocol.md, Wire: Report). One per trimmed packet at once; others at once where
// somebody said so, else after some packets or some time.
class ReportBuilder {
 public:
  ReportBuilder(const Config& config, uint32_t max_payload);
  bool has_memory() const { return trims_.has_memory(); }

  // A whole data packet was handled.
  void OnPacket(TimePoint now);
  // A trimmed header of `segment` was handled: a report of its own, with what it then lacks as requests. If a
  // window's worth of them waits already, a plain report takes its place and the sender's timeout repairs.
  // `cut`: false for a whole packet that go-back-N dropped, which asks in the same way.
  void OnTrim(uint32_t packet_number, UnitRange segment, bool cut = true);
  void OnSettled(UnitRange run) { sacks_.Push(run); }
  void MakeDue() { due_ = true; }
  void set_rtt(Nanoseconds rtt);

  // kNever: nothing waits. The beginning of time: a report is due.
  TimePoint deadline() const;

  // Fills report_number, trimmed, trimmed_packet_number, the requests and the SACK ranges of a report that is due.
  void Take(const Scoreboard& scoreboard, Report* out);

 private:
  struct Trim {
    uint32_t packet_number = 0;
    UnitRange segment;
    bool cut = true;
  };
  void TakeTrim(const Scoreboard& scoreboard, Report* out);

  uint32_t every_packets_;
  Nanoseconds max_delay_;
  Nanoseconds delay_;
  bool due_ = false;
  uint32_t packets_ = 0;      // since the last report that was not a trim's
  TimePoint first_packet_{};  // when the first of them was handled
  uint64_t report_number_;    // of the last report
  Array<Trim> trims_;         // a ring: first_trim_ .. next_trim_ - 1 wait
  uint64_t first_trim_ = 0;
  uint64_t next_trim_ = 0;
  SackHistory sacks_;
};

}  // namespace forgive

#endif  // FORGIVE_TRANSPORT_REPORT_BUILDER_H_
