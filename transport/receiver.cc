// SPDX-License-Identifier: Apache-2.0
// What a receiver does with whole and with trimmed data packets, and what its reports say.
#include "transport/receiver.h"

#include <algorithm>
#include <cstring>

#include "transport/check.h"
#include "transport/crc32c.h"
#include "transport/inline.h"

namespace forgive {
namespace {

// A packet makes at most a ledger line for every second unit, and completes one message.
static_assert(kMaxPayloadBytes / kUnitBytes / 2 + 2 <= EventQueue::kReserve);

}  // namespace

Receiver::Receiver(const Config& config, uint32_t max_payload, ConnectionHandle handle, uint64_t connection_id,
                   StepTable* steps, Counters* counters, EventQueue* events)
    : max_payload_(max_payload),
      payload_crc_(config.payload_crc),
      gives_up_tails_(config.experiments.gives_up_tails),
      go_back_n_(config.recovery == Recovery::kGoBackN),
      sprayed_(config.path_policy != PathPolicy::kSingle),
      handle_(handle),
      connection_id_(connection_id),
      steps_(steps),
      counters_(counters),
      events_(events),
      scoreboard_(config.scoreboard_bytes),
      messages_(config.max_messages, static_cast<uint32_t>(config.experiments.first_number)),
      packet_numbers_(config.packet_number_window, config.experiments.first_number),
      early_(KeepsEarlyMessages(config)),
      reports_(config, max_payload),
      seen_step_changes_(steps->changes()) {
  FORGIVE_CHECK(max_payload > 0);
  FORGIVE_CHECK(max_payload <= kMaxPayloadBytes);
  FORGIVE_CHECK(max_payload % kUnitBytes == 0);
}

Receiver::~Receiver() { Close(); }

bool Receiver::Post(const ReceiveRequest& request) {
  if (closed_ || messages_.Full()) return false;
  const StepIndex index = request.has_step ? steps_->FindOpen(request.step) : StepIndex{};
  if (index.has_value()) {
    steps_->AddMessage(index, request.contributions);
    if (!has_step_start_ || request.step != newest_step_) {
      has_step_start_ = true;
      step_start_message_ = messages_.posted();
      newest_step_ = request.step;
    }
  }
  messages_.Post(request, index);
  reports_.MakeDue();
  return true;
}

uint64_t Receiver::ExpandPacketNumber(uint32_t low) const { return ExpandNumber(packet_numbers_.newest(), low); }

bool Receiver::AcceptPacketNumber(uint64_t number) { return packet_numbers_.Accept(number); }

void Receiver::OnProbe() {
  reports_.MakeDue();
  reports_lost_ = true;
  closing_report_due_ = closed_;
}

// ---- Where a segment lies ----

// False: the packet is not taken, and was counted.
bool Receiver::Locate(const DataHeader& header, Segment* out) {
  const uint64_t segment_end = uint64_t{header.offset_in_message} + header.payload_length;
  const bool carries_end = segment_end == header.message_length;
  const bool whole_units = header.payload_length % kUnitBytes == 0 && header.payload_length != 0;
  if (header.payload_length > max_payload_ || segment_end > header.message_length || (!carries_end && !whole_units) ||
      header.stream_offset % kUnitBytes != 0 || header.offset_in_message % kUnitBytes != 0 ||
      header.stream_offset < header.offset_in_message) {
    ++counters_->malformed;
    return false;
  }
  const uint64_t begin = header.stream_offset / kUnitBytes;
  const uint64_t payload_units = PayloadUnits(header.payload_length);
  out->payload = {begin, begin + payload_units};
  out->all = {begin, begin + payload_units + (carries_end ? 1 : 0)};
  out->offset = header.offset_in_message;
  out->bytes = header.payload_length;
  out->padding = static_cast<uint32_t>(payload_units * kUnitBytes - header.payload_length);
  out->message_number = header.message_number;
  if (!scoreboard_.Holds(out->all)) {
    ++counters_->out_of_window;
    return false;
  }
  const uint64_t start = (header.stream_offset - header.offset_in_message) / kUnitBytes;
  switch (messages_.Learn(header.message_number, start, header.message_length, out->all.end, &out->message)) {
    case MessageTable::Verdict::kLive:
      return true;
    case MessageTable::Verdict::kDone:
      out->message = nullptr;
      return true;
    case MessageTable::Verdict::kMalformed:
      ++counters_->malformed;
      return false;
    case MessageTable::Verdict::kTooLong:
      failed_ = true;
      return false;
  }
  return false;
}

// The payload bytes in `units` units of the segment: all whole but its last one.
uint64_t Receiver::PayloadBytes(const Segment& segment, uint64_t units, bool has_last_unit) const {
  return units * kUnitBytes - (has_last_unit ? segment.padding : 0);
}

// The payload bytes in a run of the segment, which may hold its end slot.
uint64_t Receiver::BytesIn(const Segment& segment, UnitRange run) const {
  const uint64_t end = std::min(run.end, segment.payload.end);
  if (end <= run.begin) return 0;
  return PayloadBytes(segment, end - run.begin, end == segment.payload.end);
}

// The same as a range of bytes in the message.
Range Receiver::InMessage(const Segment& segment, UnitRange run) const {
  const uint64_t begin = segment.offset + (run.begin - segment.payload.begin) * kUnitBytes;
  return {begin, begin + BytesIn(segment, run)};
}

// ---- A whole packet ----

FORGIVE_FLATTEN void Receiver::OnData(TimePoint now, const DataHeader& header, const uint8_t* payload, bool ce) {
  if (closed_) closing_report_due_ = true;
  if (closed_ || failed_) return;
  if (HoldsEarly(header, payload, ce)) return;
  Segment segment;
  if (!Locate(header, &segment)) return;
  uint8_t* const place = payload_crc_ ? PlaceOfAll(segment) : nullptr;
  if (payload_crc_ && CheckPayload(header, payload, place) != header.payload_crc32c) {
    ++counters_->bad_crc;
    return;
  }
  if (go_back_n_ && DropsOutOfOrder(header, segment, false)) return;
  CountArrival(header, ce);
  SettleArrived(segment, place == nullptr ? payload : nullptr);
  if (segment.message != nullptr) AfterSettling(segment);
  NameSettled(segment);
  reports_.OnPacket(now);
  NoteFlagChanges();
}

// Where the segment's payload goes if all of it is missing and will be taken; else nullptr.
uint8_t* Receiver::PlaceOfAll(const Segment& segment) const {
  if (segment.message == nullptr || segment.message->buffer == nullptr || segment.bytes == 0 || go_back_n_) {
    return nullptr;
  }
  UnitRange run;
  if (!scoreboard_.NextMissing(segment.payload, &run) || run != segment.payload) return nullptr;
  FORGIVE_CHECK(segment.offset + segment.bytes <= segment.message->length);
  return segment.message->buffer + segment.offset;
}

// The payload's CRC32C. With a place, the payload is copied there in the same pass, which touches it once: what is
// there counts for nothing until it is settled, and if the CRC is wrong the right bytes or zeros will overwrite it.
uint32_t Receiver::CheckPayload(const DataHeader& header, const uint8_t* payload, uint8_t* place) {
  return place == nullptr ? Crc32c(payload, header.payload_length)
                          : Crc32cCopy(payload, header.payload_length, place);
}

void Receiver::CountArrival(const DataHeader& header, bool ce) {
  ++counters_->packets_received;
  received_bytes_ += header.payload_length;
  if (ce) {
    ++counters_->marks;
    ce_bytes_ += header.payload_length;
  }
  if (ce != last_ce_) reports_.MakeDue();
  last_ce_ = ce;
  if (takes_early_) return;  // how long it waited for its receive is no part of the RTT
  if (has_newest_ && header.packet_number < newest_packet_number_ && !sprayed_) return;
  has_newest_ = true;
  newest_packet_number_ = header.packet_number;
  newest_timestamp_ = header.send_timestamp;
}

// Places what is missing of the segment, and discards the rest: it is there, or was forgiven. `payload`: nullptr
// where it is placed already.
void Receiver::SettleArrived(const Segment& segment, const uint8_t* payload) {
  uint64_t arrived = 0;
  UnitRange rest = segment.all;
  UnitRange run;
  while (segment.message != nullptr && scoreboard_.NextMissing(rest, &run)) {
    arrived += TakeArrivedRun(segment, run, payload);
    rest.begin = run.end;
  }
  counters_->received_bytes += arrived;
  if (arrived == segment.bytes) return;
  // Forgiven before this packet came, as it forgives nothing.
  const uint64_t late_units = scoreboard_.CountForgiven(segment.payload);
  const bool last_unit_late = late_units != 0 && scoreboard_.IsForgiven(segment.payload.end - 1);
  const uint64_t late = PayloadBytes(segment, late_units, last_unit_late);
  counters_->late_bytes += late;
  counters_->duplicate_bytes += segment.bytes - arrived - late;
}

// Returns the payload bytes in the run, which is missing.
uint64_t Receiver::TakeArrivedRun(const Segment& segment, UnitRange run, const uint8_t* payload) {
  ReceiveMessage& message = *segment.message;
  const bool whole = run == segment.all;  // the common case
  const Range range = whole ? Range{segment.offset, segment.offset + segment.bytes} : InMessage(segment, run);
  const uint64_t bytes = range.length();
  FORGIVE_CHECK(range.end <= message.length);
  if (payload != nullptr && message.buffer != nullptr && bytes != 0) {
    std::memcpy(message.buffer + range.begin, payload + (range.begin - segment.offset), bytes);
  }
  const uint64_t counted = CountedBytes(segment, run);
  scoreboard_.MarkReceived(run);
  message.settled_units += run.length();
  if (message.forgivable) steps_->CountReceived(message.index, bytes);
  if (counted != 0) {
    message.counted_bytes -= counted;
    steps_->UncountTrimmed(message.index, counted, message.contributions);
  }
  return bytes;
}

// The payload bytes of the run that are in outstanding.
uint64_t Receiver::CountedBytes(const Segment& segment, UnitRange run) const {
  if (segment.message->counted_bytes == 0) return 0;
  const uint64_t last = segment.payload.end - 1;
  const bool has_last = run.begin <= last && last < run.end && scoreboard_.IsCounted(last);
  return PayloadBytes(segment, scoreboard_.CountCounted(run), has_last);
}

// ---- Before its receive is posted ----

// True: the packet came before its receive; it waits for it, or was dropped and counted.
bool Receiver::HoldsEarly(const DataHeader& header, const uint8_t* payload, bool ce) {
  if (!early_.Concerns(header.message_number, messages_.posted())) return false;
  if (header.payload_length > max_payload_) {
    ++counters_->malformed;
  } else if (!early_.Hold(header, payload, ce)) {
    ++counters_->out_of_window;
  }
  return true;
}

void Receiver::TakeEarly(TimePoint now, bool drop) {
  EarlyMessages::Packet* const packet = early_.Find(messages_.posted() - 1);
  if (packet == nullptr) return;
  packet->held = false;
  if (drop) {
    ++counters_->events_full;
    return;
  }
  takes_early_ = true;
  if (packet->trimmed) {
    OnTrimmedHeader(now, packet->header, packet->ce);
  } else {
    OnData(now, packet->header, packet->payload.data(), packet->ce);
  }
  takes_early_ = false;
}

// ---- After either ----

void Receiver::AfterSettling(const Segment& segment) {
  const ReceiveMessage& message = *segment.message;
  if (!message.done && (message.given_up || (gives_up_tails_ && OnlyTailMissing(message)))) {
    GiveUpMessage(segment.message_number);
  }
  scoreboard_.Advance();
  FORGIVE_CHECK(message.settled_units <= message.units());
  if (!message.done && message.settled_units == message.units()) Complete(segment.message_number);
}

FORGIVE_RARE void Receiver::Complete(uint32_t number) {
  ReceiveMessage& message = messages_.at(number);
  FORGIVE_CHECK(message.counted_bytes == 0);
  message.done = true;
  message.buffer = nullptr;
  if (message.has_step) steps_->RemoveMessage(message.index);
  Event event;
  event.kind = Event::Kind::kReceived;
  event.connection = handle_;
  event.cookie = message.cookie;
  event.size = message.length;
  event.step = message.step;
  event.connection_id = connection_id_;
  event.message = number;
  events_->Push(event);
  messages_.AdvanceCompleted();
  reports_.MakeDue();
}

// What of the segment is settled above rcv_nxt goes into the next reports, again if it is a duplicate: the sender
// does not know of it, or it would not have sent it.
void Receiver::NameSettled(const Segment& segment) {
  UnitRange rest = segment.all;
  if (rest.end <= scoreboard_.base()) return;
  rest.begin = std::max(rest.begin, scoreboard_.base());
  while (!rest.empty()) {
    UnitRange missing{rest.end, rest.end};
    scoreboard_.NextMissing(rest, &missing);
    if (missing.begin != rest.begin) reports_.OnSettled({rest.begin, missing.begin});
    rest.begin = missing.end;
  }
}

// ---- Reports ----

Receiver::Flags Receiver::CurrentFlags() const {
  Flags flags;
  if (!messages_.HasUnfinished()) return flags;
  const ReceiveMessage& first = messages_.at(messages_.completed());
  if (!first.exempt_eligible) return flags;
  const StepAccount& account = steps_->account(first.index);
  flags.exempt_eligible = account.open && account.p.ppm != 0;
  flags.budget_exhausted = flags.exempt_eligible && steps_->Exhausted(first.index, max_payload_, first.contributions);
  return flags;
}

FORGIVE_RARE void Receiver::OnStepsChanged() {
  seen_step_changes_ = steps_->changes();
  if (!closed_ && CurrentFlags() != reported_flags_) reports_.MakeDue();
}

void Receiver::NoteFlagChanges() {
  if (steps_->changes() != seen_step_changes_) OnStepsChanged();
}

TimePoint Receiver::report_deadline() const {
  if (closed_) return closing_report_due_ ? TimePoint{} : kNever;
  return reports_.deadline();
}

bool Receiver::NextReport(TimePoint now, Report* out) {
  if (report_deadline() > now) return false;
  reports_.Take(scoreboard_, out);
  Flags flags;
  if (closed_) {
    closing_report_due_ = false;
    out->trimmed = false;
    out->request_count = 0;
  } else {
    flags = CurrentFlags();
    reported_flags_ = flags;
  }
  out->connection_id = 0;
  out->exempt_eligible = flags.exempt_eligible;
  out->budget_exhausted = flags.budget_exhausted;
  out->closing = closed_;
  out->has_newest = has_newest_ && !out->trimmed;
  out->has_step_start = has_step_start_;
  out->completed_messages = messages_.completed();
  out->rcv_nxt = rcv_nxt();
  out->posted_messages = messages_.posted();
  out->same_step_end = messages_.same_step_end();
  out->step_start_message = step_start_message_;
  out->newest_packet_number = static_cast<uint32_t>(newest_packet_number_);
  out->newest_timestamp = newest_timestamp_;
  out->received_bytes = received_bytes_;
  out->ce_bytes = ce_bytes_;
  return true;
}

// ---- Close and verification ----

void Receiver::Close() {
  if (closed_) return;
  closed_ = true;
  closing_report_due_ = true;
  for (uint32_t number = messages_.completed(); number != messages_.posted(); ++number) {
    ReceiveMessage& message = messages_.at(number);
    message.buffer = nullptr;
    if (message.done || !message.has_step) continue;
    if (message.counted_bytes != 0) {
      steps_->UncountTrimmed(message.index, message.counted_bytes, message.contributions);
    }
    message.counted_bytes = 0;
    steps_->RemoveMessage(message.index);
  }
}

bool Receiver::CheckAll() const {
  if (!scoreboard_.CheckAll()) return false;
  if (closed_) return true;
  for (uint32_t number = messages_.completed(); number != messages_.posted(); ++number) {
    const ReceiveMessage& message = messages_.at(number);
    if (!message.known) continue;
    const UnitRange all{message.start, message.end()};
    uint64_t settled = 0;
    uint64_t counted = 0;
    for (uint64_t unit = all.begin; unit < all.end; ++unit) {
      settled += scoreboard_.IsSettled(unit) ? 1 : 0;
      if (!scoreboard_.IsCounted(unit)) continue;
      if (unit + 1 == all.end) return false;  // an end slot counts in no counter
      counted += std::min<uint64_t>(kUnitBytes, message.length - (unit - all.begin) * kUnitBytes);
    }
    if (settled != message.settled_units || counted != message.counted_bytes) return false;
    if (message.done != (settled == all.length())) return false;
  }
  return true;
}

uint64_t Receiver::RecountOutstanding(uint64_t step) const {
  uint64_t bytes = 0;
  for (uint32_t number = messages_.completed(); !closed_ && number != messages_.posted(); ++number) {
    const ReceiveMessage& message = messages_.at(number);
    if (!message.known || !message.has_step || message.step != step) continue;
    for (uint64_t unit = message.start; unit + 1 < message.end(); ++unit) {
      if (!scoreboard_.IsCounted(unit)) continue;
      bytes += std::min<uint64_t>(kUnitBytes, message.length - (unit - message.start) * kUnitBytes);
    }
  }
  return bytes;
}

}  // namespace forgive
