// SPDX-License-Identifier: Apache-2.0
// What a receiver does with the header of a packet whose payload was cut: settle, request or forgive.
#include <cstring>

#include "transport/check.h"
#include "transport/inline.h"
#include "transport/receiver.h"

namespace forgive {

FORGIVE_APART FORGIVE_FLATTEN void Receiver::OnTrimmedHeader(TimePoint, const DataHeader& header, bool ce) {
  if (closed_) closing_report_due_ = true;
  if (closed_ || failed_) return;
  if (HoldsEarly(header, nullptr, ce)) return;
  Segment segment;
  if (!Locate(header, &segment)) return;
  ++counters_->trims;
  counters_->trimmed_bytes += header.payload_length;
  if (ce) ++counters_->marks;
  if (go_back_n_ && DropsOutOfOrder(header, segment, true)) return;
  SettleEndSlot(segment);
  const Scoreboard::Missing missing = scoreboard_.Survey(segment.payload);
  const Decision decision = Decide(segment, missing);
  ++counters_->decisions[static_cast<size_t>(decision)];
  if (segment.message != nullptr) AfterSettling(segment);
  const bool all_missing = missing.units == segment.all.length() && decision != Decision::kForgiven;
  if (!all_missing) NameSettled(segment);
  reports_.OnTrim(static_cast<uint32_t>(header.packet_number), segment.payload);
  NoteFlagChanges();
}

// Go-back-N: what does not begin at rcv_nxt, or has no payload, is dropped, and everything from rcv_nxt on asked for.
bool Receiver::DropsOutOfOrder(const DataHeader& header, const Segment& segment, bool trimmed) {
  if (segment.message == nullptr || segment.all.end <= scoreboard_.base()) return false;  // settled
  if (!trimmed && segment.all.begin <= scoreboard_.base()) return false;
  if (trimmed) {
    ++counters_->decisions[static_cast<size_t>(Decision::kNotForgivable)];
  } else {
    ++counters_->out_of_order;
    counters_->out_of_order_bytes += header.payload_length;
  }
  reports_.OnTrim(static_cast<uint32_t>(header.packet_number), {scoreboard_.base(), segment.all.end}, trimmed);
  return true;
}

// A valid header of the packet that carries it settles the end slot: there is nothing in it to arrive.
void Receiver::SettleEndSlot(const Segment& segment) {
  if (segment.message == nullptr || segment.all == segment.payload) return;
  const uint64_t slot = segment.payload.end;
  if (scoreboard_.IsSettled(slot)) return;
  scoreboard_.MarkReceived({slot, slot + 1});
  ++segment.message->settled_units;
}

// Seed: Receiver::OnTrimmedHeader, in its order, with the corrections 2 and 10 of protocol.md.
Decision Receiver::Decide(const Segment& segment, const Scoreboard::Missing& missing) {
  const bool counted = CountOutstanding(segment, missing.uncounted);
  if (missing.units == 0) return Decision::kAlreadySettled;

  const ReceiveMessage& message = *segment.message;
  const bool last_missing = segment.padding != 0 && !scoreboard_.IsSettled(segment.payload.end - 1);
  const uint64_t bytes = PayloadBytes(segment, missing.units, last_missing);
  Decision decision = Decision::kNotForgivable;
  if (message.forgivable) {
    decision = counted ? steps_->Decide(message.index, bytes, message.contributions) : Decision::kNoOpenBudget;
  }
  if (decision == Decision::kForgiven) {
    ForgiveMissing(segment, bytes);
  } else if (!missing.all_requested) {
    scoreboard_.MarkRequested(segment.payload);
  }
  return decision;
}

// Adds to outstanding what is missing and not counted yet (`units`), Requested or not. True if the message's step is
// open.
bool Receiver::CountOutstanding(const Segment& segment, uint64_t units) {
  if (segment.message == nullptr || !segment.message->exempt_eligible) return false;
  ReceiveMessage& message = *segment.message;
  uint64_t bytes = 0;
  if (units != 0) {
    const uint64_t last = segment.payload.end - 1;
    const bool has_last = segment.padding != 0 && !scoreboard_.IsSettled(last) && !scoreboard_.IsCounted(last);
    bytes = PayloadBytes(segment, units, has_last);
  }
  if (!steps_->CountTrimmed(message.index, bytes, message.contributions)) return false;
  message.counted_bytes += bytes;
  if (units != 0) scoreboard_.MarkCounted(segment.payload);
  return true;
}

// Zero-fills what is missing before anything says that it is settled.
void Receiver::ForgiveMissing(const Segment& segment, uint64_t bytes) {
  ReceiveMessage& message = *segment.message;
  uint64_t filled = 0;
  uint64_t counted = 0;
  UnitRange rest = segment.payload;
  UnitRange run;
  while (scoreboard_.NextMissing(rest, &run)) {
    const Range range = InMessage(segment, run);
    FORGIVE_CHECK(range.end <= message.length);
    if (message.buffer != nullptr) std::memset(message.buffer + range.begin, 0, range.length());
    counted += CountedBytes(segment, run);
    scoreboard_.MarkForgiven(run);
    message.settled_units += run.length();
    filled += range.length();
    Event event;
    event.kind = Event::Kind::kForgiven;
    event.connection = handle_;
    event.cookie = message.cookie;
    event.step = message.step;
    event.connection_id = connection_id_;
    event.message = segment.message_number;
    event.offset = static_cast<uint32_t>(range.begin);
    event.length = static_cast<uint32_t>(range.length());
    event.contributions = message.contributions;
    events_->Push(event);
    rest.begin = run.end;
  }
  FORGIVE_CHECK(filled == bytes);
  FORGIVE_CHECK(message.counted_bytes >= counted);
  steps_->Forgive(message.index, bytes, counted, message.contributions);
  message.counted_bytes -= counted;
  message.forgiven_bytes += bytes;
  counters_->forgiven_bytes += bytes;
  counters_->contributions_lost += bytes * message.contributions;
}

// ---- Experiments ----

void Receiver::GiveUp() {
  if (closed_ || failed_) return;
  for (uint32_t number = messages_.completed(); number != messages_.posted(); ++number) {
    ReceiveMessage& message = messages_.at(number);
    if (message.done || !message.forgivable || !steps_->IsOpen(message.index)) continue;
    message.given_up = true;
    if (!message.known) continue;
    GiveUpMessage(number);
    scoreboard_.Advance();
    if (message.settled_units == message.units()) Complete(number);
  }
  reports_.MakeDue();
  NoteFlagChanges();
}

// Forgives what is missing of a message that is known, unless it lies beyond what the scoreboard holds.
void Receiver::GiveUpMessage(uint32_t number) {
  ReceiveMessage& message = messages_.at(number);
  if (!steps_->IsOpen(message.index) || !scoreboard_.Holds({message.start, message.end()})) return;
  Segment segment;
  segment.message = &message;
  segment.message_number = number;
  segment.payload = {message.start, message.end() - 1};
  segment.all = {message.start, message.end()};
  segment.bytes = message.length;
  segment.padding = static_cast<uint32_t>(PayloadUnits(message.length) * kUnitBytes - message.length);
  SettleEndSlot(segment);
  const uint64_t missing_units = scoreboard_.CountMissing(segment.payload);
  if (missing_units == 0) return;
  ForgiveMissing(segment, PayloadBytes(segment, missing_units, !scoreboard_.IsSettled(segment.payload.end - 1)));
  reports_.OnSettled(segment.all);
  reports_.MakeDue();
}

bool Receiver::OnlyTailMissing(const ReceiveMessage& message) const {
  if (!message.forgivable || !steps_->IsOpen(message.index)) return false;
  const uint64_t missing = (message.units() - message.settled_units) * kUnitBytes;
  return missing <= steps_->account(message.index).p.Of(message.length);
}

}  // namespace forgive
