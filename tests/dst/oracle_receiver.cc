// SPDX-License-Identifier: Apache-2.0
// What a receiver must have done with a datagram, and what its reports may say.
#include <algorithm>
#include <cstring>

#include "oracle.h"

namespace forgive::dst {
namespace {

constexpr size_t kAround = 32;  // bytes before and behind a segment that are looked at with it

}  // namespace

uint64_t Oracle::BytesOf(const MessageState& message, uint64_t unit) {
  if (unit >= message.end_slot()) return 0;
  return std::min<uint64_t>(kUnitBytes, message.plan.length - (unit - message.start) * kUnitBytes);
}

uint64_t Oracle::CostOf(int host, const MessageState& message) const {
  return ConfigOf(host).budget_unit == BudgetUnit::kBytes ? 1 : message.contributions;
}

// ---- Posting and closing ----

void Oracle::OnReceivePosted(StreamState* stream, const ReceiveRequest& request) {
  const uint32_t number = stream->receives_posted++;
  MessageState& message = stream->messages[number];
  const int host = stream->receiver.host;
  message.account = request.has_step ? FindOpen(host, request.step) : nullptr;
  message.contributions = request.contributions;
  if (message.account != nullptr) {
    message.step = request.step;
    message.eligible = request.exempt_eligible;
    message.forgivable = request.exempt_eligible && request.forgivable;
    ++message.account->facts.messages;
  }
  TakeEarly(stream, number);
}

// What came before the receive that was posted now arrives with it.
void Oracle::TakeEarly(StreamState* stream, uint32_t number) {
  const auto found = stream->early.find(number);
  if (found == stream->early.end()) return;
  const Arrived arrived = found->second;
  stream->early.erase(found);
  journal_->Note("host %d takes what came early of message %u", stream->receiver.host, number);
  ApplyFate(stream, arrived, FateOf(stream, arrived));
}

void Oracle::AbandonReceives(StreamState* stream) {
  if (stream->abandoned) return;
  stream->abandoned = true;
  for (uint32_t n = stream->completed; n < stream->receives_posted; ++n) {
    MessageState& message = stream->messages[n];
    if (message.done || message.account == nullptr) continue;
    uint64_t counted = 0;
    for (uint64_t unit = message.start; unit < message.end_slot(); ++unit) {
      if ((stream->units[unit] & kCounted) != 0) counted += BytesOf(message, unit);
      stream->units[unit] &= static_cast<uint8_t>(~kCounted);
    }
    Uncount(stream, &message, counted);
    --message.account->facts.messages;
  }
  for (MessageState& message : stream->messages) {
    if (!message.told_received) GiveBack(message);
  }
  stream->forgiven.clear();
}

void Oracle::OnClosed(StreamState* stream, bool sends) {
  End& end = stream->end(sends);
  if (!sends && end.alive()) AbandonReceives(stream);
  end.state = EndState::kClosed;
}

// ---- A datagram of data ----

void Oracle::AfterData(const testing::Flight& flight) {
  DataHeader header;
  StreamState* stream = nullptr;
  if (flight.header_intact && ReadData(flight.bytes.data(), flight.bytes.size(), &header)) {
    stream = FindReceiverById(flight.to, header.connection_id);
  }
  Fate fate = Fate::kRefused;
  const Arrived arrived = {header, flight.bytes.size() == kDataHeaderBytes + header.payload_length,
                           flight.payload_intact, flight.ce};
  if (stream != nullptr && TakesNumber(stream, header.packet_number)) {
    stream->receiver.last_heard = world_->now();
    fate = FateOf(stream, arrived);
  }
  if (stream == nullptr) {
    const Counters& after = world_->endpoint(flight.to).counters();
    const bool nothing = after.packets_received == before_.packets_received && after.trims == before_.trims &&
                         after.reports_received == before_.reports_received && after.bad_crc == before_.bad_crc;
    if (!nothing) journal_->Fail("host %d took a packet that nobody sent it", flight.to);
    return;
  }
  journal_->Note("host %d <- data %llu of message %u [%u, +%u) %s%s", flight.to,
                 static_cast<unsigned long long>(header.packet_number), header.message_number,
                 header.offset_in_message, header.payload_length, arrived.whole ? "whole" : "trimmed",
                 fate == Fate::kRefused ? ", refused"
                 : fate == Fate::kEarly ? ", early"
                                        : "");
  ApplyFate(stream, arrived, fate);
}

void Oracle::ApplyFate(StreamState* stream, const Arrived& arrived, Fate fate) {
  const DataHeader& header = arrived.header;
  CheckFate(*stream, fate);
  if (fate == Fate::kEarly) {
    stream->early.emplace(header.message_number, arrived);
    ++(*tally_)[Count::kEarlyMessages];
  }
  if (fate == Fate::kTooLong) {
    stream->too_long = true;
    AbandonReceives(stream);
    return;
  }
  MessageState& message = stream->messages[header.message_number];
  if (fate == Fate::kWhole) ApplyWhole(stream, &message, header, arrived.ce);
  if (fate == Fate::kTrimmed) ApplyTrim(stream, &message, header);
  if (fate == Fate::kBadCrc || fate == Fate::kDropped) ForgetMissing(*stream, message, header);
  CheckTouched(*stream, message, header);
  if (message.account != nullptr) CheckAccount(stream->receiver.host, *message.account);
}

// Each packet number counts once, and only inside the window.
bool Oracle::TakesNumber(StreamState* stream, uint64_t number) {
  const uint32_t window = ConfigOf(stream->receiver.host).packet_number_window;
  const bool any = !stream->data_numbers.empty();
  if (any && number < stream->newest_data_number && stream->newest_data_number - number >= window) return false;
  if (number >= stream->data_numbers.size()) stream->data_numbers.resize(number + 64);
  if (stream->data_numbers[number]) return false;
  stream->data_numbers[number] = true;
  stream->newest_data_number = std::max(stream->newest_data_number, number);
  return true;
}

// Messages of the stream may be sent before their receives are posted.
bool Oracle::KeepsEarly(const StreamState& stream) const {
  return ConfigOf(stream.sender.host).early_messages && ConfigOf(stream.receiver.host).early_messages &&
         ConfigOf(stream.sender.host).recovery == Recovery::kSelectiveRepeat;
}

Oracle::Fate Oracle::FateOf(StreamState* stream, const Arrived& arrived) {
  const DataHeader& header = arrived.header;
  const Config& config = ConfigOf(stream->receiver.host);
  if (!stream->receiver.alive() || stream->too_long) return Fate::kRefused;
  const bool whole = arrived.whole;
  if (!whole && !config.fabric_trims) return Fate::kMalformed;
  if (header.message_number >= stream->receives_posted) {
    if (header.message_number >= stream->receives_posted + kEarlyMessages) return Fate::kMalformed;
    const bool all = header.payload_length == header.message_length && !stream->early.contains(header.message_number);
    return all ? Fate::kEarly : Fate::kOutOfWindow;
  }
  const MessageState& message = stream->messages[header.message_number];
  const uint64_t begin = header.stream_offset / kUnitBytes;
  const uint64_t payload_end = begin + (header.payload_length + kUnitBytes - 1) / kUnitBytes;
  const uint64_t end = payload_end + (header.carries_end() ? 1 : 0);
  if (end > stream->base + config.scoreboard_bytes / kUnitBytes) return Fate::kOutOfWindow;
  if (!message.done && message.plan.length > message.plan.capacity) return Fate::kTooLong;
  if (whole && !arrived.intact) return Fate::kBadCrc;
  if (config.recovery == Recovery::kGoBackN && !message.done && end > stream->base &&
      (!whole || begin > stream->base)) {
    return Fate::kDropped;
  }
  return whole ? Fate::kWhole : Fate::kTrimmed;
}

void Oracle::CheckFate(const StreamState& stream, Fate fate) {
  // It may have failed, and nobody was told yet.
  if (HoldsEvents(stream.receiver.host)) return;
  const Counters& after = world_->endpoint(stream.receiver.host).counters();
  const bool go_back_n = ConfigOf(stream.receiver.host).recovery == Recovery::kGoBackN;
  const uint64_t trims = after.trims - before_.trims;
  const std::tuple<const char*, uint64_t, bool> outcomes[] = {
      {"taken whole", after.packets_received - before_.packets_received, fate == Fate::kWhole},
      {"taken as a trim", go_back_n ? 0 : trims, fate == Fate::kTrimmed && !go_back_n},
      {"dropped for its checksum", after.bad_crc - before_.bad_crc, fate == Fate::kBadCrc},
      {"out of the window", after.out_of_window - before_.out_of_window, fate == Fate::kOutOfWindow},
  };
  for (const auto& [name, count, must] : outcomes) {
    if (count == (must ? 1 : 0)) continue;
    journal_->Fail("host %d: a packet was %s %llu times, must be %d", stream.receiver.host, name,
                   static_cast<unsigned long long>(count), must ? 1 : 0);
    return;
  }
  if (go_back_n && trims > 1) journal_->Fail("host %d: a trim counted twice", stream.receiver.host);
}

void Oracle::ApplyWhole(StreamState* stream, MessageState* message, const DataHeader& header, bool ce) {
  const Counters& after = world_->endpoint(stream->receiver.host).counters();
  if (after.packets_received == before_.packets_received) return;  // CheckFate knows why
  stream->received_bytes += header.payload_length;
  if (ce) stream->ce_bytes += header.payload_length;
  const uint64_t begin = header.stream_offset / kUnitBytes;
  const uint64_t end = begin + (header.payload_length + kUnitBytes - 1) / kUnitBytes + (header.carries_end() ? 1 : 0);
  const uint64_t fresh = Settle(stream, message, begin, end, kReceived);
  const uint64_t counted = after.received_bytes - before_.received_bytes;
  if (counted != fresh) {
    journal_->Fail("host %d counts %llu bytes as received, %llu were", stream->receiver.host,
                   static_cast<unsigned long long>(counted), static_cast<unsigned long long>(fresh));
  }
}

void Oracle::ApplyTrim(StreamState* stream, MessageState* message, const DataHeader& header) {
  const Counters& after = world_->endpoint(stream->receiver.host).counters();
  if (after.trims == before_.trims) return;
  const uint64_t begin = header.stream_offset / kUnitBytes;
  const uint64_t end = begin + (header.payload_length + kUnitBytes - 1) / kUnitBytes;
  stream->trimmed.push_back({header.packet_number, begin, end});
  uint64_t missing = 0;
  const bool was_done = message->done;
  for (uint64_t unit = begin; unit < end; ++unit) {
    if ((stream->units[unit] & kSettled) == 0) missing += BytesOf(*message, unit);
  }
  bool open = false;
  if (!was_done) open = CountTrimmed(stream, message, begin, end);
  bool forgiven = false;
  if (!ExpectDecision(*stream, *message, missing, open, &forgiven)) return;
  if (forgiven) Settle(stream, message, begin, end, kForgiven);
  if (header.carries_end() && !was_done) Settle(stream, message, end, end + 1, kReceived);
}

// Seed: outstanding counts distinct trimmed bytes neither arrived nor forgiven. True if the step is open.
bool Oracle::CountTrimmed(StreamState* stream, MessageState* message, uint64_t begin, uint64_t end) {
  if (!message->eligible) return false;
  StepAccount& facts = message->account->facts;
  if (!facts.open) return false;
  for (uint64_t unit = begin; unit < end; ++unit) {
    if ((stream->units[unit] & (kSettled | kCounted)) != 0) continue;
    stream->units[unit] |= kCounted;
    facts.outstanding += BytesOf(*message, unit);
    facts.outstanding_charge += BytesOf(*message, unit) * CostOf(stream->receiver.host, *message);
  }
  return true;
}

// Compares the decision's counter with the seed's rules. False: no decision can be followed.
bool Oracle::ExpectDecision(const StreamState& stream, const MessageState& message, uint64_t missing, bool open,
                            bool* forgiven) {
  const int host = stream.receiver.host;
  const Counters& after = world_->endpoint(host).counters();
  int made = -1;
  uint64_t decisions = 0;
  for (size_t i = 0; i < kDecisions; ++i) {
    decisions += after.decisions[i] - before_.decisions[i];
    if (after.decisions[i] != before_.decisions[i]) made = static_cast<int>(i);
  }
  Decision must = Decision::kForgiven;
  if (missing == 0) {
    must = Decision::kAlreadySettled;
  } else if (!message.forgivable) {
    must = Decision::kNotForgivable;
  } else if (!open) {
    must = Decision::kNoOpenBudget;
  } else {
    const StepAccount& facts = message.account->facts;
    const uint128 charged = uint128{facts.charged} + uint128{missing} * CostOf(host, message);
    const uint128 arrived = uint128{facts.received} + facts.forgiven + missing;
    if (charged * Fraction::kOne > arrived * facts.p.ppm) {
      must = Decision::kNotVested;
    } else if (charged > facts.budget) {
      must = Decision::kOverBudget;
    }
  }
  const uint32_t chance = ConfigOf(host).forgiveness_probability.ppm;
  const bool drawn =
      must == Decision::kForgiven && made == static_cast<int>(Decision::kDrawRefused) && chance != Fraction::kOne;
  const bool luck = made == static_cast<int>(Decision::kForgiven) && must == Decision::kForgiven && chance != 0;
  const bool right = must == Decision::kForgiven ? drawn || luck : made == static_cast<int>(must);
  if (decisions != 1 || !right) {
    journal_->Fail("host %d: %llu decisions, the last %d; must be one, %d, for %llu missing bytes", host,
                   static_cast<unsigned long long>(decisions), made, static_cast<int>(must),
                   static_cast<unsigned long long>(missing));
    return false;
  }
  *forgiven = made == static_cast<int>(Decision::kForgiven);
  return true;
}

void Oracle::Uncount(StreamState* stream, MessageState* message, uint64_t bytes) {
  if (bytes == 0) return;
  StepAccount& facts = message->account->facts;
  facts.outstanding -= bytes;
  facts.outstanding_charge -= bytes * CostOf(stream->receiver.host, *message);
}

// What is missing of [begin, end) becomes Received or Forgiven. Returns its payload bytes.
uint64_t Oracle::Settle(StreamState* stream, MessageState* message, uint64_t begin, uint64_t end, uint8_t how) {
  uint64_t fresh = 0;
  uint64_t counted = 0;
  bool extends = false;  // the last line in the ledger is this decision's
  for (uint64_t unit = begin; unit < end; ++unit) {
    uint8_t& state = stream->units[unit];
    if ((state & kSettled) != 0) continue;
    const uint64_t bytes = BytesOf(*message, unit);
    if ((state & kCounted) != 0) counted += bytes;
    state = how;
    ++message->settled_units;
    ++progress_;
    fresh += bytes;
    if (bytes == 0) continue;
    const uint64_t offset = (unit - message->start) * kUnitBytes;
    if (how == kReceived) {
      std::memcpy(ExpectedOf(*message) + offset, message->sent + offset, bytes);
      continue;
    }
    std::memset(ExpectedOf(*message) + offset, 0, bytes);
    const auto number = static_cast<uint32_t>(message - stream->messages.data());
    if (extends && stream->forgiven.back().offset + stream->forgiven.back().length == offset) {
      stream->forgiven.back().length += static_cast<uint32_t>(bytes);
    } else {
      Event line;
      line.step = message->step;
      line.message = number;
      line.offset = static_cast<uint32_t>(offset);
      line.length = static_cast<uint32_t>(bytes);
      line.contributions = message->contributions;
      stream->forgiven.push_back(line);
      extends = true;
    }
  }
  Uncount(stream, message, counted);
  if (message->forgivable && fresh != 0) {
    StepAccount& facts = message->account->facts;
    facts.settled += fresh;
    if (how == kForgiven) {
      facts.forgiven += fresh;
      facts.charged += fresh * CostOf(stream->receiver.host, *message);
      facts.contributions_lost += fresh * message->contributions;
    } else if (facts.open) {
      facts.received += fresh;
    }
  }
  if (!message->done && message->settled_units == message->units + 1) {
    message->done = true;
    if (message->account != nullptr) --message->account->facts.messages;
  }
  while (stream->completed < stream->receives_posted && stream->messages[stream->completed].done) ++stream->completed;
  while (stream->base < stream->units.size() && (stream->units[stream->base] & kSettled) != 0) ++stream->base;
  return fresh;
}

// A payload is copied while its checksum is computed: what was missing and is still missing afterwards may hold
// anything, until it arrives or is forgiven.
void Oracle::ForgetMissing(const StreamState& stream, const MessageState& message, const DataHeader& header) {
  if (message.told_received) return;
  const uint64_t begin = header.stream_offset / kUnitBytes;
  const uint64_t end = begin + (header.payload_length + kUnitBytes - 1) / kUnitBytes;
  for (uint64_t unit = begin; unit < end; ++unit) {
    if ((stream.units[unit] & kSettled) != 0) continue;
    const uint64_t offset = (unit - message.start) * kUnitBytes;
    std::memcpy(ExpectedOf(message) + offset, BufferOf(message) + offset, BytesOf(message, unit));
  }
}

// The bytes that the packet could have written, and some around them.
void Oracle::CheckTouched(const StreamState&, const MessageState& message, const DataHeader& header) {
  const size_t begin = message.buffer + header.offset_in_message - kAround;
  const size_t end =
      message.buffer + std::min(header.offset_in_message + header.payload_length, message.plan.capacity) + kAround;
  if (begin < end && std::memcmp(arena_.get() + begin, expected_.get() + begin, end - begin) != 0) CheckMemory();
}

// ---- Events ----

void Oracle::OnForgiven(int host, const Event& event) {
  StreamState* const stream = FindReceiverById(host, event.connection_id);
  if (stream == nullptr) {
    journal_->Fail("host %d forgives on a connection that it does not have", host);
    return;
  }
  journal_->Note("host %d forgives message %u [%u, +%u) on step %llu", host, event.message, event.offset,
                 event.length, static_cast<unsigned long long>(event.step));
  if (stream->forgiven.empty()) {
    if (stream->receiver.state == EndState::kOpen && !stream->abandoned)
      journal_->Fail("host %d: a line in the ledger too many", host);
    return;
  }
  const Event& must = stream->forgiven.front();
  const uint32_t message = event.message - static_cast<uint32_t>(plan_->first_number);
  if (event.step != must.step || message != must.message || event.offset != must.offset ||
      event.length != must.length || event.contributions != must.contributions) {
    journal_->Fail("host %d: the ledger says message %u [%u, +%u), must be message %u [%u, +%u)", host, message,
                   event.offset, event.length, must.message, must.offset, must.length);
  }
  stream->forgiven.pop_front();
}

void Oracle::OnReceived(int host, const Event& event) {
  StreamState& stream = streams_[event.cookie >> 32];
  MessageState& message = stream.messages[static_cast<uint32_t>(event.cookie)];
  if (stream.receiver.host != host || stream.receiver.life != life(host) || !message.done || message.told_received ||
      event.size != message.plan.length || stream.receiver.state != EndState::kOpen) {
    journal_->Fail("host %d: message %llu is told as received with %llu bytes; it has %u, done %d, told %d", host,
                   static_cast<unsigned long long>(event.cookie), static_cast<unsigned long long>(event.size),
                   message.plan.length, message.done, message.told_received);
    return;
  }
  message.told_received = true;
  CountWrap(static_cast<uint32_t>(event.cookie), Count::kMessageNumberWraps);
  ++(*tally_)[Count::kMessages];
  (*tally_)[Count::kBytes] += message.plan.length;
  if (std::memcmp(BufferOf(message), ExpectedOf(message), message.plan.capacity) != 0) CheckMemory();
  GiveBack(message);
}

// ---- Reports ----

void Oracle::CheckReport(StreamState* stream, const Transmit& transmit) {
  Report report;
  const int host = stream->receiver.host;
  if (!ReadReport(transmit.header.data(), transmit.header_length, &report)) {
    journal_->Fail("host %d writes a report that nobody can read", host);
    return;
  }
  journal_->Note("host %d reports %llu: rcv_nxt %llu, whole %u, credit %u%s%s%s%s", host,
                 static_cast<unsigned long long>(report.report_number),
                 static_cast<unsigned long long>(report.rcv_nxt), report.completed_messages, report.posted_messages,
                 report.exempt_eligible ? ", eligible" : "", report.budget_exhausted ? ", exhausted" : "",
                 report.trimmed ? ", trimmed" : "", report.closing ? ", closing" : "");
  CountWrap(report.report_number, Count::kReportNumberWraps);
  if (stream->receiver.state == EndState::kClosed) {
    if (!report.closing) journal_->Fail("host %d: a closed receiver does not say so", host);
    return;
  }
  if (HoldsEvents(host) || stream->receiver.state != EndState::kOpen) {
    stream->trims_overflow = true;  // what is told of now is not noted
    return;
  }
  const std::tuple<const char*, uint64_t, uint64_t> facts[] = {
      {"rcv_nxt", report.rcv_nxt, stream->base * kUnitBytes},
      {"completed messages", report.completed_messages, stream->completed},
      {"credit", report.posted_messages, stream->receives_posted},
      {"received bytes", report.received_bytes, stream->received_bytes},
      {"marked bytes", report.ce_bytes, stream->ce_bytes},
      {"closing", report.closing, 0},
  };
  for (const auto& [name, value, right] : facts) {
    if (value == right) continue;
    journal_->Fail("host %d reports %s %llu, must be %llu", host, name, static_cast<unsigned long long>(value),
                   static_cast<unsigned long long>(right));
    return;
  }
  CheckReportRanges(*stream, report);
  CheckFlags(*stream, report);
  CheckTrimReport(stream, report);
}

void Oracle::CheckReportRanges(const StreamState& stream, const Report& report) {
  for (uint32_t i = 0; i < report.sack_count; ++i) {
    for (uint64_t unit = report.sacks[i].begin / kUnitBytes; unit < report.sacks[i].end / kUnitBytes; ++unit) {
      if (unit < stream.units.size() && (stream.units[unit] & kSettled) != 0) continue;
      journal_->Fail("host %d: a report acknowledges what is neither received nor forgiven", stream.receiver.host);
      return;
    }
  }
  for (uint32_t i = 0; i < report.request_count; ++i) {
    for (uint64_t unit = report.requests[i].begin / kUnitBytes; unit < report.requests[i].end / kUnitBytes; ++unit) {
      if (unit < stream.units.size() && (stream.units[unit] & kSettled) == 0) continue;
      journal_->Fail("host %d: a report requests what is settled", stream.receiver.host);
      return;
    }
  }
}

// Each trimmed header makes a report of its own, in order, that requests what is missing of it then.
void Oracle::CheckTrimReport(StreamState* stream, const Report& report) {
  if (ConfigOf(stream->receiver.host).recovery == Recovery::kGoBackN) return;
  constexpr size_t kSurelyKept = 60;  // the transport keeps at least so many apart
  stream->trims_overflow = stream->trims_overflow || stream->trimmed.size() > kSurelyKept;
  if (!report.trimmed) {
    if (!stream->trimmed.empty() && !stream->trims_overflow) {
      journal_->Fail("host %d reports nothing of a trim", stream->receiver.host);
    }
    stream->trimmed.clear();
    stream->trims_overflow = false;
    return;
  }
  if (stream->trims_overflow) return;
  if (stream->trimmed.empty() || stream->trimmed.front().number != report.trimmed_packet_number) {
    journal_->Fail("host %d reports a trim of packet %u that it has no reason to", stream->receiver.host,
                   report.trimmed_packet_number);
    return;
  }
  const StreamState::Trimmed trim = stream->trimmed.front();
  stream->trimmed.pop_front();
  uint64_t missing = 0;
  uint64_t requested = 0;
  for (uint64_t unit = trim.begin; unit < trim.end; ++unit) missing += (stream->units[unit] & kSettled) == 0 ? 1 : 0;
  for (uint32_t i = 0; i < report.request_count; ++i) {
    if (report.requests[i].begin < trim.begin * kUnitBytes || report.requests[i].end > trim.end * kUnitBytes) {
      journal_->Fail("host %d requests what was not trimmed", stream->receiver.host);
    }
    requested += report.requests[i].length() / kUnitBytes;
  }
  if (requested != missing && report.request_count != kMaxRequestRanges) {
    journal_->Fail("host %d requests %llu of %llu missing units of a trim", stream->receiver.host,
                   static_cast<unsigned long long>(requested), static_cast<unsigned long long>(missing));
  }
}

// Seed: Receiver::Flags, of the first message that is not complete.
void Oracle::CheckFlags(const StreamState& stream, const Report& report) {
  bool eligible = false;
  bool exhausted = false;
  uint32_t end = stream.completed;
  if (stream.completed < stream.receives_posted) {
    const MessageState& first = stream.messages[stream.completed];
    if (first.eligible) {
      const StepAccount& facts = first.account->facts;
      eligible = facts.open && facts.p.ppm != 0;
      testing::World::Host& at = world_->host(stream.receiver.host);
      Endpoint::ConnectionFacts connection;
      at.endpoint->Facts(world_->LocalNow(stream.receiver.host), stream.receiver.handle, &connection);
      const uint64_t packet = connection.max_payload * CostOf(stream.receiver.host, first);
      exhausted = eligible && facts.charged + facts.outstanding_charge + packet > facts.budget;
    }
    while (end < stream.receives_posted && stream.messages[end].account == first.account &&
           stream.messages[end].eligible == first.eligible) {
      ++end;
    }
  }
  if (report.budget_exhausted) ++(*tally_)[Count::kExhaustedReports];
  if (report.exempt_eligible != eligible || report.budget_exhausted != exhausted || report.same_step_end != end) {
    journal_->Fail("host %d reports eligible %d exhausted %d up to %u, must be %d %d up to %u", stream.receiver.host,
                   report.exempt_eligible, report.budget_exhausted, report.same_step_end, eligible, exhausted, end);
  }
}

}  // namespace forgive::dst
