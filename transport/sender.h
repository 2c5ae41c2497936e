// SPDX-License-Identifier: Apache-2.0
// The sending half of a connection: segments, modes, pacing, congestion control and selective repeat.
#ifndef FORGIVE_TRANSPORT_SENDER_H_
#define FORGIVE_TRANSPORT_SENDER_H_

#include <array>
#include <cstdint>
#include <memory>

#include "transport/array.h"
#include "transport/black_hole.h"
#include "transport/config.h"
#include "transport/congestion_control.h"
#include "transport/counters.h"
#include "transport/event.h"
#include "transport/pacer.h"
#include "transport/path_health.h"
#include "transport/path_selection.h"
#include "transport/requests.h"
#include "transport/rtt.h"
#include "transport/sent_ranges.h"
#include "transport/units.h"
#include "transport/wire.h"

namespace forgive {

// Seed: cc_mode.
enum class Mode : uint8_t { kObeying, kExempt };

// Which report numbers were seen, over a sliding window: each report counts once.
class ReportWindow {
 public:
  // `first`: reports have higher numbers.
  explicit ReportWindow(uint64_t first) : newest_(first) {}

  uint64_t newest() const { return newest_; }
  // Marks it. False: seen before, or older than the window.
  bool Accept(uint64_t number);

 private:
  static constexpr uint64_t kReports = 1024;

  std::array<uint64_t, kReports / 64> seen_{};
  uint64_t newest_;
  bool any_ = false;
};

// The sender of one connection (seed: State per flow, at the sender).
//
// The mode. A report speaks for the messages [completed_messages, same_step_end). What it says holds for one RTO and
// until a later report speaks for them. A completed message keeps the last word said on it, so that the mark of a
// message's last packet does not cut the rate of a step that is exempt; budget-exhausted takes it back too.
//
// Loss. A segment is lost when a request names it (unless it was sent again after the packet whose trim made the
// request), when a packet of the same path that was sent more than the reorder window later has arrived (RACK), or
// by timeout. The reorder window is a quarter of the least RTT (RFC 8985), at most the smoothed one. All of it
// compares send times, so late polling loses nothing. The timeout runs from the oldest segment's last transmission
// or, if later, the path's last progress or the last timeout (RFC 6298, 5.3 and 5.6); it takes the flight that the
// oldest segment was part of, that is what was sent up to one smoothed RTT after it.
//
// Size. A path that swallows packets of a size that it took before makes segments smaller (transport/black_hole.h);
// what is sent again is cut anew then. They never grow again: a new connection's handshake tries the full size.
//
// Early messages. The next kEarlyMessages without a posted receive are sent at once where each is one packet, and
// wait at a receiver that keeps them. Until their credit comes they are parked: no timeout, RACK or window concerns
// them, and they are not sent again.
//
// Invariants: no other message is sent without a posted receive; bytes in flight are within the window, unless one
// segment alone is larger; nothing is sent beyond rcv_nxt + scoreboard_bytes; a completed message's buffer is not
// read.
class Sender {
 public:
  // max_payload and scoreboard_bytes as the handshake agreed; connection_id is the receiver's.
  Sender(const Config& config, uint32_t max_payload, uint64_t scoreboard_bytes, ConnectionHandle handle,
         uint64_t connection_id, Counters* counters, EventQueue* events);
  ~Sender();
  bool has_memory() const {
    return path_health_.has_memory() && ranges_.has_memory() && congestion_control_ != nullptr &&
           packets_.has_memory() && step_starts_.has_memory();
  }
  Sender(const Sender&) = delete;
  Sender& operator=(const Sender&) = delete;

  // Posts the next message. False: Config::max_messages are posted and not acknowledged.
  bool Post(const SendRequest& request);

  // The full number of a report, for its tag. OnReport ignores (and counts) one that is a replay.
  uint64_t ExpandReportNumber(uint32_t low) const;
  // A report with a verified tag and expanded number. Seed: OnReport, OnCongestionNotification,
  // OnRetransmissionRequest, in this order.
  // Returns whether the report was new: a replay is ignored and says nothing, not even that the peer lives.
  bool OnReport(TimePoint now, const Report& report);

  // The next data packet that may leave now: retransmissions first. Fills the header (CRC included where
  // configured) and the view of the user's buffer (header->payload_length bytes). False: window, pacer, credit or
  // nothing to send.
  bool NextPacket(TimePoint now, DataHeader* header, const uint8_t** payload);

  // Timers: RTO, congestion control. next_deadline also includes the moment when the pacer will let a packet go.
  void OnDeadline(TimePoint now);
  TimePoint next_deadline() const;

  // True once when a message has waited without credit for an RTO (with back-off), or packets time out again and
  // again: the caller sends a probe.
  bool TakeProbeDue(TimePoint now);

  bool HasUnfinished() const;
  // The peer closed before everything posted was completed, or answers although data do not reach it.
  bool failed() const;
  FailReason fail_reason() const;

  Nanoseconds smoothed_rtt() const;
  Nanoseconds rto() const;
  BitsPerSecond rate() const;      // 0: not limited
  Mode mode(TimePoint now) const;  // of the newest message sent
  uint64_t bytes_in_flight() const;

  uint64_t window_bytes() const;  // most bytes in flight, now

 private:
  // The packet that NextPacket would send next, whatever the pacer says.
  struct Candidate {
    bool lost = false;  // else never sent
    uint64_t index = 0;
    SegmentPlace place;
    uint32_t wire_bytes = 0;
  };
  // What is remembered of each of the last packets.
  struct SentPacket {
    uint32_t message = 0;  // low 32 bits
    uint16_t path = 0;
    uint16_t length : 15 = 0;  // payload bytes
    uint16_t echoed : 1 = 0;   // by a report: TakeEcho
  };

  bool MaySendNext() const;
  bool FindCandidate(Candidate* out) const;
  bool FitsWindow(uint32_t length) const;
  void RestartAtStep(TimePoint now);
  void Restart(TimePoint now, uint64_t message);
  void RunCongestionTimers(TimePoint now);
  void AfterCongestionControl(TimePoint now);
  void Signal(TimePoint now, CongestionSignal signal, uint64_t message);
  void SignalTrim(TimePoint now, uint64_t number);
  void TellAcknowledged(TimePoint now, const Report& report, Nanoseconds rtt, uint64_t message);
  BitsPerSecond PacingRate() const;

  void SkipGivenUp(TimePoint now, const Report& report);
  // `completed`: the full number of the report's completed_messages.
  bool IsConsistent(const Report& report, uint64_t completed) const;
  void ApplyFlags(TimePoint now, const Report& report, uint64_t completed);
  void ApplyCredit(TimePoint now, const Report& report, uint64_t completed);
  void ApplyMarks(TimePoint now, const Report& report);
  void ApplyAcknowledgements(TimePoint now, const Report& report, uint64_t completed);
  void ApplyNewest(TimePoint now, const Report& report);
  void ApplyRequests(TimePoint now, const Report& report);
  void CompleteMessages();
  // The message of a packet if it is remembered; false otherwise.
  bool RememberedPacket(uint64_t number, SentPacket* out) const;
  uint64_t MessageOfPacket(uint64_t number) const;
  uint64_t NewestMessage() const;

  bool IsExempt(TimePoint now, uint64_t message) const;
  void CountModeChange(TimePoint now);
  TimePoint TimeoutBase() const;
  TimePoint TimeoutBaseOf(uint16_t path) const;
  void UpdateTimeoutBase();
  TimePoint NextTimeout() const;
  bool TakeEcho(uint64_t number);
  uint16_t NextPath();
  void JudgeSilence(uint16_t path, TimePoint now);
  uint64_t GoBack(uint64_t packet_number);
  void OnTimeout(TimePoint now);
  void JudgePath(uint32_t length, Nanoseconds waited);
  void CutSegments();
  bool WaitsForCredit() const;
  void UpdateProbe(TimePoint now);

  const Config config_;
  const ConnectionHandle handle_;
  const uint64_t connection_id_;
  const uint64_t scoreboard_bytes_;
  Counters* const counters_;
  EventQueue* const events_;

  const uint16_t paths_;
  PathSelector path_selector_;
  PathHealth path_health_;
  BlackHoleDetector black_hole_;
  SentRanges ranges_;
  Pacer pacer_;
  RttEstimator rtt_;
  std::unique_ptr<CongestionControl> congestion_control_;
  const bool tells_acknowledged_;  // a window-based congestion control
  TimePoint congestion_deadline_ = kNever;
  CongestionControl::Cuts cuts_seen_;
  ReportWindow reports_;
  Array<SentPacket> packets_;  // a ring by packet number
  // At a message's residue: one more than the number of the last message there that begins a step.
  Array<uint64_t> step_starts_;

  uint64_t restarted_messages_ = 0;  // one more than the newest that began anew

  uint64_t next_packet_number_;
  TimePoint last_now_{};
  // From reports.
  bool any_report_ = false;
  TimePoint newest_report_time_{};
  uint64_t rcv_nxt_ = 0;
  uint64_t credit_;          // messages before it have a posted receive
  uint64_t peer_completed_;  // messages before it are whole at the receiver
  uint64_t ce_bytes_ = 0;
  bool newly_marked_ = false;   // the report at hand tells of new marks
  uint64_t returned_at_ = 0;    // go-back-N: the packet number at the last return
  uint64_t told_bytes_ = 0;     // arrived payload that congestion control was told of
  uint64_t told_ce_bytes_ = 0;  // the marked part of it
  bool any_newest_ = false;
  uint64_t newest_packet_ = 0;  // that arrived whole
  // Messages [exempt_begin_, exempt_end_) are Exempt while the newest report is younger than an RTO.
  uint64_t exempt_begin_ = 0;
  uint64_t exempt_end_ = 0;
  Mode last_mode_ = Mode::kObeying;
  // Timeout and probe.
  uint32_t backoff_ = 0;
  TimePoint last_timeout_;
  TimePoint timeout_base_ = kNever;  // with many paths: TimeoutBase
  TimePoint probe_at_ = kNever;
  uint32_t probe_backoff_ = 0;
  bool path_probe_due_ = false;  // the detector's question
  bool data_swallowed_ = false;
  bool peer_closed_ = false;
};

}  // namespace forgive

#endif  // FORGIVE_TRANSPORT_SENDER_H_
