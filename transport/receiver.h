// SPDX-License-Identifier: Apache-2.0
// The receiving half of a connection: scoreboard, placement, forgiveness and reports.
#ifndef FORGIVE_TRANSPORT_RECEIVER_H_
#define FORGIVE_TRANSPORT_RECEIVER_H_

#include <array>
#include <cstdint>
#include <vector>

#include "transport/config.h"
#include "transport/counters.h"
#include "transport/event.h"
#include "transport/scoreboard.h"
#include "transport/step_table.h"
#include "transport/units.h"
#include "transport/wire.h"

namespace forgive {

struct ReceiveRequest {
  uint64_t cookie = 0;
  uint8_t* buffer = nullptr;  // may be nullptr only if capacity is 0, or in a simulator that wants no bytes
  uint64_t capacity = 0;      // bytes; the sent message may be shorter
  // The facts, decided at the post and fixed (protocol.md, Words). Without a step both are false.
  bool has_step = false;
  uint64_t step = 0;
  bool exempt_eligible = false;
  bool forgivable = false;
  uint32_t contributions = 1;  // ranks whose contribution is lost with each forgiven byte
};

// The receiver of one connection (seed: State per flow, at the receiver).
//
// Invariants: rcv_nxt never falls; a stream position that is Received or Forgiven stays so; payload is written only
// to positions that were neither, and never after the message completed; forgiven positions are zero in the buffer
// before a report says so; every counted position is unsettled and belongs to a message with a step.
class Receiver {
 public:
  Receiver(const Config& config, uint32_t max_payload, ConnectionHandle handle, uint64_t connection_id,
           StepTable* steps, Counters* counters, EventQueue* events);

  // Posts the next receive; its message number is posted_messages() - 1 afterwards. False: Config::max_messages
  // are posted and unfinished.
  bool Post(const ReceiveRequest& request);

  // The full number of a packet whose low bits were parsed, for the tag; and whether it is new. Accept marks it:
  // call it once, after the tag was verified. False: a replay, or older than the window.
  uint64_t ExpandPacketNumber(uint32_t low) const;
  bool AcceptPacketNumber(uint64_t number);

  // A data packet, tag verified and number accepted, whole. The CRC is verified here, before anything is settled.
  void OnData(TimePoint now, const DataHeader& header, const uint8_t* payload, bool ce);
  // The header of one whose payload was cut. Seed: OnTrimmedHeader.
  void OnTrimmedHeader(TimePoint now, const DataHeader& header, bool ce);
  // The peer asked for a sign of life: a report is due at once.
  void OnProbe() { report_due_ = true; }
  // The step table changed: a report is due if a flag that was reported differs now.
  void OnStepsChanged();

  // Fills the next report that is due (requests first, one per trimmed packet). False: none is due at `now`.
  bool NextReport(TimePoint now, Report* out);
  // When a coalesced report becomes due; kNever if none waits. A moment in the past if one is due now.
  TimePoint report_deadline() const;
  void set_rtt(Nanoseconds rtt) { rtt_ = rtt; }

  // True if a posted receive is unfinished.
  bool HasUnfinished() const { return completed_messages_ != posted_messages_; }
  // True if the peer broke the contract: a message longer than its posted receive.
  bool failed() const { return failed_; }
  FailReason fail_reason() const { return fail_reason_; }

  // Abandons what is posted: nothing is written to user memory afterwards, counted bytes leave their steps. What
  // arrives afterwards is answered by reports with `closing` set.
  void Close();
  bool closed() const { return closed_; }

  uint64_t rcv_nxt() const { return rcv_nxt_; }
  uint32_t posted_messages() const { return posted_messages_; }
  uint32_t completed_messages() const { return completed_messages_; }
  const Scoreboard& scoreboard() const { return scoreboard_; }

 private:
  // The implementation's own; see receiver.cc.
  uint64_t rcv_nxt_ = 0;
  uint32_t posted_messages_ = 0;
  uint32_t completed_messages_ = 0;  // 0 .. n-1, all of them whole
  bool report_due_ = false;
  bool failed_ = false;
  bool closed_ = false;
  FailReason fail_reason_ = FailReason::kNone;
  Nanoseconds rtt_{};
  Scoreboard scoreboard_;
};

}  // namespace forgive

#endif  // FORGIVE_TRANSPORT_RECEIVER_H_
