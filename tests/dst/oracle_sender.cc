// SPDX-License-Identifier: Apache-2.0
// What a sender may send, when it may ignore congestion, and why a connection may fail.
#include <algorithm>
#include <cstring>

#include "oracle.h"
#include "transport/wire_layout.h"

namespace forgive::dst {

// The world sees the handshake, so that it can cut segments anew under the connection's own keys.
void Oracle::LearnHandshake(int host, const Transmit& transmit) {
  Connect connect;
  ConnectReply reply;
  if (ParseConnect(transmit.header.data(), transmit.header_length + transmit.payload_length, &connect)) {
    StreamState* const stream = FindSender(host, transmit.connection);
    if (stream == nullptr) return;
    stream->sender.id = connect.connection_id;
    stream->connector_nonce = connect.nonce;
  } else if (ParseConnectReply(transmit.header.data(), transmit.header_length, &reply)) {
    for (StreamState& each : streams_) {
      if (each.sender.id != reply.connection_id || each.receiver.host != host) continue;
      each.keys = DeriveKeys(each.ticket.secret, each.connector_nonce, reply.nonce);
      each.has_keys = true;
      // Messages may come before the application is told of the connection.
      if (reply.status == ConnectStatus::kAccepted) each.receiver.id = reply.peer_connection_id;
    }
  }
}

// ---- What leaves ----

// The line's rate always holds, also for retransmissions and for exempt flows.
bool Oracle::KeepsPace(StreamState* stream, uint32_t payload, uint32_t max_payload) {
  const Config& config = ConfigOf(stream->sender.host);
  if (config.link_rate.value == 0) return true;
  const TimePoint now = world_->LocalNow(stream->sender.host);
  const auto elapsed = static_cast<uint64_t>((now - stream->paced_at).value);
  const uint128 earned = uint128{elapsed} * config.link_rate.value;
  constexpr uint128 kBitsPerByte = uint128{8} * 1000000000;
  stream->paced_bits -= std::min(stream->paced_bits, earned);
  stream->paced_bits += (payload + config.packet_overhead_bytes) * kBitsPerByte;
  stream->paced_at = now;
  const uint32_t largest = max_payload + config.packet_overhead_bytes;
  return stream->paced_bits <= std::max(config.pacing_burst_bytes, largest) * kBitsPerByte;
}

void Oracle::CheckData(StreamState* stream, const Transmit& transmit) {
  DataHeader header;
  const int host = stream->sender.host;
  // The payload is elsewhere: the header is read as if it had been cut.
  if (!ReadData(transmit.header.data(), transmit.header_length, &header) ||
      header.message_number >= stream->sends_posted) {
    journal_->Fail("host %d sends a message that was not posted", host);
    return;
  }
  const MessageState& message = stream->messages[header.message_number];
  journal_->Note("host %d -> data %llu of message %u [%u, +%u) path %u", host,
                 static_cast<unsigned long long>(header.packet_number), header.message_number,
                 header.offset_in_message, header.payload_length, transmit.path);
  const Config& config = ConfigOf(host);
  Endpoint::ConnectionFacts facts;
  world_->endpoint(host).Facts(world_->LocalNow(host), stream->sender.handle, &facts);
  const uint64_t begin = header.stream_offset / kUnitBytes;
  const uint64_t end = begin + (header.payload_length + kUnitBytes - 1) / kUnitBytes + (header.carries_end() ? 1 : 0);
  const uint32_t paths = config.path_policy == PathPolicy::kSingle ? 1 : config.paths;
  const uint64_t reach = std::min(config.scoreboard_bytes, ConfigOf(stream->receiver.host).scoreboard_bytes);
  const bool early = KeepsEarly(*stream) && header.message_number < stream->credit + kEarlyMessages &&
                     header.payload_length == header.message_length;
  const std::pair<const char*, bool> rules[] = {
      {"of a connection that is not open", stream->sender.state == EndState::kOpen},
      {"of a message that has no posted receive", header.message_number < stream->credit || early},
      {"of a message that was acknowledged", !message.told_sent},
      {"from beside the message's buffer",
       transmit.payload_length == 0 || transmit.payload == message.sent + header.offset_in_message},
      {"with a wrong place", begin == message.start + header.offset_in_message / kUnitBytes &&
                                 header.message_length == message.plan.length},
      {"larger than agreed", header.payload_length <= facts.max_payload},
      {"with a packet number out of order", header.packet_number == stream->next_data_number},
      {"on a path that it does not have", transmit.path < paths && header.path == transmit.path},
      {"beyond what the peer can hold", end * kUnitBytes <= stream->rcv_nxt_heard + reach},
      {"faster than its link", KeepsPace(stream, header.payload_length, facts.max_payload)},
      {"beyond its window", facts.bytes_in_flight <= std::max<uint64_t>(config.window_bytes, header.payload_length)},
  };
  for (const auto& [name, kept] : rules) {
    if (!kept) journal_->Fail("host %d sends data %s", host, name);
  }
  CountWrap(header.packet_number, Count::kPacketNumberWraps);
  if (header.send_timestamp < stream->newest_timestamp) ++(*tally_)[Count::kTimestampWraps];
  stream->newest_timestamp = header.send_timestamp;
  ++stream->next_data_number;
  stream->newest_begun = std::max(stream->newest_begun, header.message_number);
  stream->any_begun = true;
  if (plan_->burst_packets == 1) CheckSender(stream);  // else it has sent the rest of the burst already
}

// ---- Reports ----

void Oracle::AfterReport(const testing::Flight& flight, const Report& report, uint64_t burst) {
  StreamState* const stream = FindSenderById(flight.to, report.connection_id);
  if (stream == nullptr || !stream->sender.alive()) return;
  const Counters& after = world_->endpoint(flight.to).counters();
  // It may be connected and nobody knows yet, as its events wait.
  if (stream->sender.state == EndState::kConnecting && after.reports_received == before_.reports_received) return;
  const uint64_t number = report.report_number;
  if (number >= stream->report_numbers.size()) stream->report_numbers.resize(number + 64);
  constexpr uint64_t kWindow = 1024;
  const bool fresh = !stream->report_numbers[number] && number + kWindow > stream->newest_report_number;
  stream->report_numbers[number] = true;
  if (burst == 1 && after.malformed != before_.malformed) {
    journal_->Fail("host %d calls a genuine report malformed", flight.to);
  }
  if (!fresh) {
    if (after.lost_by_request != before_.lost_by_request || after.signals_ignored != before_.signals_ignored ||
        after.notifications != before_.notifications) {
      journal_->Fail("host %d obeys a report for the second time", flight.to);
    }
    return;
  }
  stream->sender.last_heard = world_->now();
  const bool could_ignore = std::any_of(stream->messages.begin(), stream->messages.end(),
                                        [](const MessageState& message) { return message.exempt; });
  const bool newest = number > stream->newest_report_number;
  if (newest) {
    stream->newest_report_number = number;
    TakeWords(stream, report);
  }
  const bool can_ignore = std::any_of(stream->messages.begin(), stream->messages.end(),
                                      [](const MessageState& message) { return message.exempt; });
  if (after.signals_ignored != before_.signals_ignored && !could_ignore && !can_ignore) {
    journal_->Fail("host %d ignores congestion, though no report exempts it", flight.to);
  }
  // Of a mark and a trim that the newest report says nothing is exempt of, it obeys.
  if (after.signals_ignored != before_.signals_ignored && !can_ignore) {
    journal_->Fail("host %d ignores congestion after it has read that it must obey", flight.to);
  }
  CheckSignals(*stream, report, newest);
  stream->credit = std::max(stream->credit, report.posted_messages);
  stream->ce_heard = std::max(stream->ce_heard, report.ce_bytes);
  stream->rcv_nxt_heard = std::max(stream->rcv_nxt_heard, report.rcv_nxt);
  stream->heard_closing = stream->heard_closing || report.closing;
}

// Seed: an eligible flow's sender ignores marks and trims. Here where nothing that was sent is anything but exempt.
void Oracle::CheckSignals(const StreamState& stream, const Report& report, bool newest) {
  if (!newest || !stream.word_is_exempt || !stream.any_begun || report.completed_messages != 0) return;
  if (stream.newest_begun >= report.same_step_end || stream.sender.state != EndState::kOpen) return;
  const Counters& after = world_->endpoint(stream.sender.host).counters();
  const uint64_t signals = (report.ce_bytes > stream.ce_heard ? 1 : 0) + (report.trimmed ? 1 : 0);
  if (after.signals_ignored - before_.signals_ignored == signals) return;
  journal_->Fail("host %d is exempt and ignored %llu of %llu signals", stream.sender.host,
                 static_cast<unsigned long long>(after.signals_ignored - before_.signals_ignored),
                 static_cast<unsigned long long>(signals));
}

// Seed: Sender::OnReport. The flags speak for the messages [completed, same_step_end).
void Oracle::TakeWords(StreamState* stream, const Report& report) {
  stream->newest_report_time = world_->LocalNow(stream->sender.host);
  stream->newest_report_begin = report.completed_messages;
  const bool speaks = report.exempt_eligible && report.same_step_end > report.completed_messages;
  stream->word_is_exempt = speaks && !report.budget_exhausted;
  for (uint32_t n = 0; n < stream->messages.size(); ++n) {
    bool& exempt = stream->messages[n].exempt;
    if (speaks && report.budget_exhausted) {
      exempt = false;
    } else if (n >= report.completed_messages) {
      exempt = speaks && n < report.same_step_end;
    }
  }
}

void Oracle::CheckSender(StreamState* stream) {
  const int host = stream->sender.host;
  if (stream->heard_closing && stream->HasUnfinished(true) && !HoldsEvents(host)) {
    journal_->Fail("host %d has read that its peer closed, and does not fail", host);
  }
  Endpoint::ConnectionFacts facts;
  const TimePoint now = world_->LocalNow(host);
  if (!world_->endpoint(host).Facts(now, stream->sender.handle, &facts) || HoldsEvents(host)) return;
  CheckRoundTrip(*stream, facts.smoothed_rtt);
  const MessageState& newest = stream->messages[stream->newest_begun];
  const Config& config = ConfigOf(host);
  const Nanoseconds age = now - stream->newest_report_time;
  if (facts.exempt && (!stream->any_begun || !newest.exempt)) {
    journal_->Fail("host %d ignores congestion for message %u, of which no report says so", host,
                   stream->newest_begun);
  } else if (facts.exempt && age >= config.max_rto) {
    journal_->Fail("host %d ignores congestion though it has heard nothing for a timeout", host);
  } else if (!facts.exempt && stream->any_begun && newest.exempt && stream->word_is_exempt && age < config.min_rto &&
             stream->newest_begun >= stream->newest_report_begin) {
    journal_->Fail("host %d obeys congestion for message %u, which is exempt", host, stream->newest_begun);
  }
}

// Nothing is faster than the links, and nothing takes longer than the connection is old.
void Oracle::CheckRoundTrip(const StreamState& stream, Nanoseconds rtt) {
  const int host = stream.sender.host;
  const Nanoseconds first = ConfigOf(host).initial_rtt;
  constexpr Nanoseconds kRounding{4 * FORGIVE_TIMESTAMP_UNIT_NS};
  const bool stood = std::any_of(plan_->spells.begin(), plan_->spells.end(), [host](const Spell& spell) {
    return spell.kind == Spell::Kind::kStill && spell.host == host;
  });
  const Nanoseconds least = stood ? Nanoseconds{0} : std::min(first, plan_->rates.delay * 3 / 2) - kRounding;
  const Nanoseconds most = std::max(first, world_->LocalNow(host) - stream.made_at) + kRounding;
  if (rtt >= least && rtt <= most) return;
  journal_->Fail("host %d believes in a round trip of %lld ns, must be from %lld to %lld", host,
                 static_cast<long long>(rtt.value), static_cast<long long>(least.value),
                 static_cast<long long>(most.value));
}

// ---- Events ----

void Oracle::OnSent(int host, const Event& event) {
  StreamState& stream = streams_[event.cookie >> 32];
  const auto number = static_cast<uint32_t>(event.cookie);
  MessageState& message = stream.messages[number];
  if (stream.sender.host != host || stream.sender.life != life(host) || number != stream.told_sent || !message.done ||
      stream.sender.state != EndState::kOpen) {
    journal_->Fail("host %d: message %u is told as sent; %u were before it, done %d", host, number, stream.told_sent,
                   message.done);
    return;
  }
  message.told_sent = true;
  ++stream.told_sent;
}

void Oracle::OnFailed(int host, const Event& event) {
  for (StreamState& each : streams_) {
    for (const bool sends : {true, false}) {
      End& end = each.end(sends);
      if (end.host != host || end.life != life(host) || end.handle != event.connection || !end.alive()) continue;
      journal_->Note("host %d: a stream fails, %s, reason %d", host, sends ? "sending" : "receiving",
                     static_cast<int>(event.reason));
      CheckFailReason(each, sends, event.reason);
      if (!sends) AbandonReceives(&each);
      end.state = EndState::kFailed;
      return;
    }
  }
  journal_->Fail("host %d: a connection fails that is not alive", host);
}

void Oracle::CheckFailReason(const StreamState& stream, bool sends, FailReason reason) {
  const End& end = stream.end(sends);
  const End& peer = stream.end(!sends);
  const Nanoseconds silence = world_->now() - end.last_heard;
  bool right = false;
  switch (reason) {
    case FailReason::kPeerSilent:
      // A jump of the clock may add to the silence; the probes that it takes cost real time all the same.
      right = silence >= ConfigOf(end.host).peer_timeout / 4;
      ++(*tally_)[Count::kSilentPeers];
      break;
    case FailReason::kNoAnswer:
      right = end.state == EndState::kConnecting;
      break;
    case FailReason::kReset:
      right = !peer.alive();
      break;
    case FailReason::kTooLong:
      right = stream.too_long;
      ++(*tally_)[Count::kTooLong];
      break;
    default:
      break;
  }
  if (!right || !plan_->can_fail) {
    journal_->Fail("host %d: a connection fails for reason %d without cause; silence of %lld ns", end.host,
                   static_cast<int>(reason), static_cast<long long>(silence.value));
  }
}

void Oracle::AddTally(int host) {
  const Counters& counters = world_->endpoint(host).counters();
  Tally& tally = *tally_;
  for (size_t i = 0; i < kDecisions; ++i) {
    tally.counts[static_cast<size_t>(Count::kAlreadySettled) + i] += counters.decisions[i];
  }
  const std::pair<Count, uint64_t> counts[] = {
      {Count::kForgivenBytes, counters.forgiven_bytes},   {Count::kLateBytes, counters.late_bytes},
      {Count::kDuplicateBytes, counters.duplicate_bytes}, {Count::kLostByRequest, counters.lost_by_request},
      {Count::kLostByRack, counters.lost_by_rack},        {Count::kTimeouts, counters.timeouts},
      {Count::kSegmentCuts, counters.segment_cuts},       {Count::kGoBackNDrops, counters.out_of_order},
      {Count::kSignalsIgnored, counters.signals_ignored}, {Count::kRateCutsByMark, counters.rate_cuts_mark},
      {Count::kRateCutsByTrim, counters.rate_cuts_trim},  {Count::kModeChanges, counters.mode_changes},
      {Count::kEventsFull, counters.events_full},         {Count::kPathsGivenUp, counters.paths_given_up},
      {Count::kPathsReturned, counters.paths_returned},
  };
  for (const auto& [count, value] : counts) tally[count] += value;
}

}  // namespace forgive::dst
