// SPDX-License-Identifier: Apache-2.0
// The receiving half of a connection: scoreboard, placement, forgiveness and reports.
#ifndef FORGIVE_TRANSPORT_RECEIVER_H_
#define FORGIVE_TRANSPORT_RECEIVER_H_

#include <array>
#include <cstdint>
#include <utility>

#include "transport/config.h"
#include "transport/counters.h"
#include "transport/early_messages.h"
#include "transport/event.h"
#include "transport/message_table.h"
#include "transport/replay_window.h"
#include "transport/report_builder.h"
#include "transport/requests.h"
#include "transport/scoreboard.h"
#include "transport/step_table.h"
#include "transport/units.h"
#include "transport/wire.h"

namespace forgive {

// The receiver of one connection (seed: State per flow, at the receiver).
//
// Invariants: rcv_nxt never falls; a stream position that is Received or Forgiven stays so; payload is written only
// to positions that were neither, and never after the message completed; forgiven positions are zero in the buffer
// before a report says so; every counted position is unsettled and belongs to a message with a step.
class Receiver {
 public:
  // max_payload: a multiple of kUnitBytes, as the handshake agreed. connection_id: as the data carry it.
  Receiver(const Config& config, uint32_t max_payload, ConnectionHandle handle, uint64_t connection_id,
           StepTable* steps, Counters* counters, EventQueue* events);
  ~Receiver();  // closes
  bool has_memory() const {
    return scoreboard_.has_memory() && messages_.has_memory() && packet_numbers_.has_memory() &&
           reports_.has_memory() && early_.has_memory();
  }
  Receiver(const Receiver&) = delete;
  Receiver& operator=(const Receiver&) = delete;

  // Posts the next receive; its message number is posted_messages() - 1 afterwards. False: Config::max_messages
  // are posted and unfinished, or the receiver is closed.
  bool Post(const ReceiveRequest& request);

  // The full number of a packet whose low bits were parsed, for the tag; and whether it is new. Accept marks it:
  // call it once, after the tag was verified. False: a replay, or older than the window (the caller counts it).
  uint64_t ExpandPacketNumber(uint32_t low) const;
  bool AcceptPacketNumber(uint64_t number);

  // A data packet, tag verified and number accepted, whole. The CRC is verified here, before anything is settled;
  // a payload whose CRC is wrong may have been written to positions that are missing, and to no others.
  void OnData(TimePoint now, const DataHeader& header, const uint8_t* payload, bool ce);
  // The header of one whose payload was cut. Seed: OnTrimmedHeader.
  void OnTrimmedHeader(TimePoint now, const DataHeader& header, bool ce);
  // The packet that came before the newest post, if there is one, is taken as if it arrived at `now`; or dropped.
  // Call it right after the post: a report that advertises the credit says that the packet's place is free.
  void TakeEarly(TimePoint now, bool drop);
  // Experiments::early_close: what is missing of every posted forgivable message of an open step is forgiven now, or
  // with the message's first header. Counts as no decision.
  void GiveUp();
  // The peer asked for a sign of life: a report is due at once.
  void OnProbe();
  // True once after a probe, which says that reports may get lost: the next one had better take another path.
  bool TakeReportsLost() { return std::exchange(reports_lost_, false); }
  // The step table changed: a report is due if a flag that was reported differs now.
  void OnStepsChanged();

  // Fills the next report that is due (requests first, one per trimmed packet), all but connection_id, which is the
  // peer's. False: none is due at `now`.
  bool NextReport(TimePoint now, Report* out);
  // When a coalesced report becomes due; kNever if none waits. A moment in the past if one is due now.
  TimePoint report_deadline() const;
  void set_rtt(Nanoseconds rtt) { reports_.set_rtt(rtt); }

  // True if a posted receive is unfinished.
  bool HasUnfinished() const { return !closed_ && messages_.HasUnfinished(); }
  // True if the peer broke the contract: a message longer than its posted receive. Nothing is taken afterwards.
  bool failed() const { return failed_; }
  FailReason fail_reason() const { return failed_ ? FailReason::kTooLong : FailReason::kNone; }

  // Abandons what is posted: nothing is written to user memory afterwards, counted bytes leave their steps. What
  // arrives afterwards is answered by reports with `closing` set.
  void Close();
  bool closed() const { return closed_; }

  uint64_t rcv_nxt() const { return scoreboard_.base() * kUnitBytes; }
  uint32_t posted_messages() const { return messages_.posted(); }
  uint32_t completed_messages() const { return messages_.completed(); }
  const Scoreboard& scoreboard() const { return scoreboard_; }
  const MessageTable& messages() const { return messages_; }

  // Recounts everything and compares it with what is kept; costs the whole scoreboard. For tests.
  bool CheckAll() const;
  // What this connection adds to the outstanding bytes of a step, recounted from the scoreboard. For tests.
  uint64_t RecountOutstanding(uint64_t step) const;

 private:
  // Where a header's segment lies.
  struct Segment {
    ReceiveMessage* message = nullptr;  // nullptr: done, all of it is settled
    UnitRange payload;
    UnitRange all;         // payload and, of a message's last segment, the end slot
    uint64_t offset = 0;   // of its first byte in the message
    uint32_t bytes = 0;    // of payload
    uint32_t padding = 0;  // bytes of its last payload unit that are not payload
    uint32_t message_number = 0;
  };
  struct Flags {
    bool exempt_eligible = false;
    bool budget_exhausted = false;
    friend bool operator==(const Flags&, const Flags&) = default;
  };

  bool Locate(const DataHeader& header, Segment* out);
  uint64_t PayloadBytes(const Segment& segment, uint64_t units, bool has_last_unit) const;
  uint64_t BytesIn(const Segment& segment, UnitRange run) const;
  Range InMessage(const Segment& segment, UnitRange run) const;

  bool HoldsEarly(const DataHeader& header, const uint8_t* payload, bool ce);
  void CountArrival(const DataHeader& header, bool ce);
  uint8_t* PlaceOfAll(const Segment& segment) const;
  static uint32_t CheckPayload(const DataHeader& header, const uint8_t* payload, uint8_t* place);
  void SettleArrived(const Segment& segment, const uint8_t* payload);
  uint64_t TakeArrivedRun(const Segment& segment, UnitRange run, const uint8_t* payload);
  uint64_t CountedBytes(const Segment& segment, UnitRange run) const;

  Decision Decide(const Segment& segment, const Scoreboard::Missing& missing);
  bool CountOutstanding(const Segment& segment, uint64_t units);
  void ForgiveMissing(const Segment& segment, uint64_t bytes);
  void GiveUpMessage(uint32_t number);
  bool DropsOutOfOrder(const DataHeader& header, const Segment& segment, bool trimmed);
  bool OnlyTailMissing(const ReceiveMessage& message) const;
  void SettleEndSlot(const Segment& segment);
  void NameSettled(const Segment& segment);

  void AfterSettling(const Segment& segment);
  void Complete(uint32_t number);
  void NoteFlagChanges();
  Flags CurrentFlags() const;

  const uint32_t max_payload_;
  const bool payload_crc_;
  const bool gives_up_tails_;
  const bool go_back_n_;
  const bool sprayed_;  // the newest packet is the one that arrived last, else the one of the highest number
  const ConnectionHandle handle_;
  const uint64_t connection_id_;
  StepTable* const steps_;
  Counters* const counters_;
  EventQueue* const events_;

  Scoreboard scoreboard_;
  MessageTable messages_;
  ReplayWindow packet_numbers_;
  EarlyMessages early_;
  bool takes_early_ = false;  // while what came early is taken
  ReportBuilder reports_;
  bool failed_ = false;
  bool closed_ = false;
  bool closing_report_due_ = false;
  bool reports_lost_ = false;

  // What reports say.
  uint64_t received_bytes_ = 0;
  uint64_t ce_bytes_ = 0;
  bool last_ce_ = false;
  bool has_newest_ = false;
  uint64_t newest_packet_number_ = 0;
  uint32_t newest_timestamp_ = 0;
  bool has_step_start_ = false;
  uint32_t step_start_message_ = 0;
  uint64_t newest_step_ = 0;  // of the messages posted here, valid with has_step_start_
  Flags reported_flags_;
  uint64_t seen_step_changes_ = 0;
};

}  // namespace forgive

#endif  // FORGIVE_TRANSPORT_RECEIVER_H_
