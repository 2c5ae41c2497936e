// SPDX-License-Identifier: Apache-2.0
// What becomes of a packet on its way.
#include "network.h"

#include <algorithm>
#include <cstring>

#include "allocations.h"
#include "transport/crc32c.h"

namespace forgive::dst {
namespace {

constexpr size_t kBurst = 4;

}  // namespace

void Network::Begin(const Plan* plan) {
  plan_ = plan;
  faults_ = true;
  renumbered_.clear();
}

const Spell* Network::Active(Spell::Kind kind, int host) const {
  for (const Spell& each : plan_->spells) {
    if (each.kind == kind && Active(each, host)) return &each;
  }
  return nullptr;
}

bool Network::Active(const Spell& spell, int host) const {
  return faults_ && spell.host == host && spell.begin <= world_->now() && world_->now() < spell.end;
}

size_t Network::LargestDatagram() const {
  const bool shrunk = world_->now() >= plan_->shrinks_at;
  return std::min(plan_->largest_datagram_bytes, shrunk ? plan_->shrinks_to_bytes : SIZE_MAX);
}

void Network::Carry(int from, const Transmit& transmit) {
  Packet packet;
  packet.from = from;
  packet.to = transmit.destination.bytes[0] - 1;
  packet.data = transmit.packet_class == PacketClass::kData;
  packet.path = transmit.path;
  packet.payload = packet.data ? transmit.payload_length : 0;
  std::memcpy(packet_.data(), transmit.header.data(), transmit.header_length);
  if (transmit.payload_length != 0) {
    std::memcpy(packet_.data() + transmit.header_length, transmit.payload, transmit.payload_length);
  }
  packet.bytes = packet_.data();
  packet.length = transmit.header_length + transmit.payload_length;
  if (packet.to < 0 || packet.to >= world_->size()) return;
  packet.rail = packet.path % plan_->configs[static_cast<size_t>(from)].rails;
  if (transmit.destination != testing::World::AddressOf(packet.to, packet.rail)) {
    journal_->Fail("host %d sends by path %u to another rail's address", from, packet.path);
  }
  if (packet.data) {
    StreamState* const stream = oracle_->FindSender(from, transmit.connection);
    if (stream == nullptr) return;
    DataHeader header;
    ParseDataHeader(packet.bytes, packet.length, &header);
    packet.again = header.stream_offset < stream->highest_position;
    stream->highest_position = std::max(stream->highest_position, header.stream_offset + 1);
    if (stream->plan.resegments && stream->has_keys) {
      Resegment(stream, transmit, packet);
      return;
    }
  } else if (packet.bytes[1] == static_cast<uint8_t>(PacketType::kReport)) {
    StreamState* const stream =
        oracle_->FindSenderById(packet.to, PeekConnectionId(PacketType::kReport, packet.bytes));
    if (stream != nullptr && stream->plan.resegments && stream->has_keys) Translate(stream, &packet);
  }
  Send(packet);
}

// ---- Another sender's way to cut ----

Network::Renumbered& Network::RenumberedOf(const StreamState* stream) {
  for (auto& [of, renumbered] : renumbered_) {
    if (of == stream) return renumbered;
  }
  return renumbered_.emplace_back(stream, Renumbered{}).second;
}

// A retransmission may have other boundaries than the first transmission: it may begin earlier, in what was received
// or forgiven, and end earlier, the rest in a packet of its own.
void Network::Resegment(StreamState* stream, const Transmit& transmit, Packet packet) {
  DataHeader header;
  ParseDataHeader(packet_.data(), packet.length, &header);
  const uint64_t original = header.packet_number;
  const uint8_t* const message = transmit.payload - header.offset_in_message;
  Endpoint::ConnectionFacts facts;
  world_->endpoint(packet.from).Facts(world_->LocalNow(packet.from), transmit.connection, &facts);
  uint32_t begin = header.offset_in_message;
  const uint32_t end = begin + header.payload_length;
  // No other sender would make it larger than what the path passes.
  const size_t largest = std::min<size_t>(facts.max_payload, LargestDatagram() - kDataHeaderBytes);
  const uint32_t room =
      largest > header.payload_length ? static_cast<uint32_t>(largest - header.payload_length) / kUnitBytes : 0;
  if (packet.again && header.payload_length != 0 && Below(2) == 0) {
    begin -= kUnitBytes * static_cast<uint32_t>(Below(1 + std::min(room, begin / kUnitBytes)));
  }
  const uint64_t message_begin = header.stream_offset - header.offset_in_message;
  uint32_t next = begin;
  do {
    uint32_t piece_end = end;
    if (end - next > kUnitBytes && Below(3) == 0) {
      piece_end = next + kUnitBytes * (1 + static_cast<uint32_t>(Below((end - next - 1) / kUnitBytes)));
    }
    DataHeader piece = header;
    piece.offset_in_message = next;
    piece.stream_offset = message_begin + next;
    piece.payload_length = static_cast<uint16_t>(piece_end - next);
    Renumbered& renumbered = RenumberedOf(stream);
    piece.packet_number = plan_->first_number + renumbered.originals.size();
    renumbered.originals.push_back(original);
    if (header.payload_crc32c != 0) piece.payload_crc32c = Crc32c(message + next, piece.payload_length);
    const size_t header_length = WriteDataHeader(piece, &stream->keys.to_receiver, piece_.data());
    if (piece.payload_length != 0) std::memcpy(piece_.data() + header_length, message + next, piece.payload_length);
    packet.bytes = piece_.data();
    packet.payload = piece.payload_length;
    packet.length = header_length + piece.payload_length;
    if (piece.payload_length != header.payload_length) ++(*tally_)[Count::kResegmented];
    Send(packet);
    next = piece_end;
  } while (next != end);
}

// The report's packet numbers become the sender's own again.
void Network::Translate(StreamState* stream, Packet* packet) {
  Report report;
  if (!ParseReport(packet->bytes, packet->length, &report)) return;
  const std::vector<uint64_t>& originals = RenumberedOf(stream).originals;
  const auto first = static_cast<uint32_t>(plan_->first_number);
  report.report_number = plan_->first_number + (static_cast<uint32_t>(report.report_number) - first);
  for (uint32_t* number : {&report.newest_packet_number, &report.trimmed_packet_number}) {
    if (*number - first < originals.size()) *number = static_cast<uint32_t>(originals[*number - first]);
  }
  packet->length = WriteReport(report, &stream->keys.to_sender, packet_.data());
}

// ---- Fates ----

void Network::Send(const Packet& packet) {
  Tally& tally = *tally_;
  if (packet.length > LargestDatagram()) {
    ++tally[Count::kTooLargeForPath];
    return;
  }
  if (Active(Spell::Kind::kBlackout, packet.from) != nullptr || Chance(plan_->rates.drop)) {
    ++tally[Count::kDrops];
    return;
  }
  for (const Spell& spell : plan_->spells) {
    if (spell.kind != Spell::Kind::kRailLoss || spell.amount != packet.rail) continue;
    if (Active(spell, packet.from)) return;
  }
  const Spell* const loss = Active(Spell::Kind::kPathLoss, packet.from);
  if (packet.data && loss != nullptr && packet.path % 4 == loss->amount) {
    ++tally[Count::kPathLosses];
    return;
  }
  Copy(packet);
  if (Chance(plan_->rates.duplicate)) {
    ++tally[Count::kDuplicates];
    Copy(packet);
  }
  if (Chance(plan_->rates.forge)) Forge(packet);
  if (Chance(plan_->rates.replay)) Replay(packet);
}

TimePoint Network::Arrival(const Packet& packet) {
  const Rates& rates = plan_->rates;
  TimePoint arrival = world_->now() + rates.delay + rates.path_skew * (packet.path % 8);
  // Headers and reports overtake the data.
  if (!packet.data) arrival = world_->now() + rates.delay / 2;
  if (Chance(rates.reorder)) {
    arrival =
        arrival + Nanoseconds{static_cast<int64_t>(Below(static_cast<uint64_t>(rates.reorder_delay.value) + 1))};
    ++(*tally_)[Count::kReordered];
  }
  const Spell* const spell = Active(Spell::Kind::kDelay, packet.from);
  if (spell != nullptr) arrival = arrival + Nanoseconds{static_cast<int64_t>(spell->amount)};
  return arrival;
}

void Network::Copy(const Packet& packet) {
  testing::Flight* const flight = world_->NewFlight(packet.from, packet.to);
  flight->source = testing::World::AddressOf(packet.from, packet.rail);
  flight->bytes.assign(packet.bytes, packet.bytes + packet.length);
  TimePoint arrival = Arrival(packet);
  if (Trim(packet, flight)) {
    if (Below(2) == 0) arrival = Earlier(arrival, world_->now() + plan_->rates.delay / 2);
  } else if (Chance(plan_->rates.corrupt)) {
    const size_t at = Below(flight->bytes.size());
    const bool payload = packet.data && at >= kDataHeaderBytes;
    if (!payload || plan_->configs[0].payload_crc) {
      flight->bytes[at] ^= static_cast<uint8_t>(1 + Below(255));
      (payload ? flight->payload_intact : flight->header_intact) = false;
      ++(*tally_)[payload ? Count::kCorruptPayloads : Count::kCorruptHeaders];
    }
  }
  if (packet.data && (Chance(plan_->rates.mark) || Active(Spell::Kind::kMarks, packet.from) != nullptr)) {
    flight->ce = true;
    ++(*tally_)[Count::kMarks];
  }
  world_->Launch(arrival);
}

bool Network::Trim(const Packet& packet, testing::Flight* flight) {
  if (packet.payload == 0 || !faults_) return false;
  const bool storm = Active(Spell::Kind::kTrims, packet.from) != nullptr;
  if (!Chance(plan_->rates.trim) && !(storm && Below(8) != 0)) return false;
  size_t left = Below(3) == 0 ? Below(packet.payload) : 0;
  ++(*tally_)[Count::kTrims];
  if (packet.again) ++(*tally_)[Count::kTrimsOfRetransmissions];
  if (left != 0 && Below(2) == 0) {  // by the next switch too
    left = Below(left);
    ++(*tally_)[Count::kTrimsAgain];
  }
  flight->bytes.resize(kDataHeaderBytes + left);
  return true;
}

// ---- An attacker, who cannot make a tag ----

void Network::Forge(const Packet& packet) {
  testing::Flight* const flight = world_->NewFlight(packet.from, packet.to);
  std::vector<uint8_t>& bytes = flight->bytes;
  bytes.assign(packet.bytes, packet.bytes + packet.length);
  const size_t tagged = packet.data ? kDataHeaderBytes : bytes.size();
  flight->header_intact = false;
  switch (Below(6)) {
    case 0:  // a field that it would like otherwise
      bytes[2 + Below(tagged - 2)] ^= static_cast<uint8_t>(1 + Below(255));
      break;
    case 1:  // the same, and cut
      bytes[2 + Below(tagged - 2)] ^= static_cast<uint8_t>(1u << Below(8));
      bytes.resize(tagged);
      break;
    case 2: {  // noise behind a connection id
      const size_t length = 16 + Below(150);
      bytes.resize(length);
      bytes[1] = static_cast<uint8_t>(Below(9));
      for (size_t i = 16; i < length; ++i) bytes[i] = static_cast<uint8_t>(Below(256));
      break;
    }
    case 3:  // less than a header
      bytes.resize(Below(std::min<size_t>(tagged, kControlBytes)));
      break;
    case 4:  // to somebody else
      flight->to = static_cast<int>(Below(static_cast<uint64_t>(world_->size())));
      if (flight->to == packet.to) bytes[tagged - 1] ^= 1;
      break;
    default:  // longer than it says
      bytes.push_back(static_cast<uint8_t>(Below(256)));
      if (!packet.data && bytes[1] == static_cast<uint8_t>(PacketType::kConnect)) bytes[tagged - 1] ^= 1;
      break;
  }
  if (Below(2) == 0) flight->source = testing::World::AddressOf(100);
  ++(*tally_)[Count::kForgeries];
  world_->Launch(Arrival(packet));
}

// What it saw, once more and later, whole or cut.
void Network::Replay(const Packet& packet) {
  testing::Flight* const flight = world_->NewFlight(packet.from, packet.to);
  flight->source = testing::World::AddressOf(packet.from, packet.rail);
  flight->bytes.assign(packet.bytes, packet.bytes + packet.length);
  if (packet.payload != 0 && Below(2) == 0) {
    flight->bytes.resize(kDataHeaderBytes);
    ++(*tally_)[Count::kReplayedTrims];
  }
  ++(*tally_)[Count::kReplays];
  world_->Launch(Arrival(packet) + Nanoseconds{static_cast<int64_t>(Below(3000000))});
}

// ---- Arrival ----

void Network::Deliver(const testing::Flight& flight) {
  const Datagram datagram{flight.source, flight.bytes.data(), flight.bytes.size(), flight.ce};
  std::array<Datagram, kBurst> burst;
  const bool alone = plan_->burst_packets == 1 || !plan_->configs[0].tags || Below(4) != 0;
  if (!alone) MakeBurst(flight, datagram, burst);
  Endpoint& endpoint = world_->endpoint(flight.to);
  const TimePoint now = world_->LocalNow(flight.to);
  oracle_->BeforeDatagrams(flight.to);
  const uint64_t allocations = Allocations();
  if (alone) {
    endpoint.OnDatagram(now, datagram);
  } else {
    endpoint.OnDatagrams(now, burst);
  }
  const uint8_t type = flight.bytes.size() > 1 ? flight.bytes[1] : 0;
  const bool handshake =
      type == static_cast<uint8_t>(PacketType::kConnect) || type == static_cast<uint8_t>(PacketType::kConnectReply);
  if (Allocations() != allocations && !handshake) {
    journal_->Fail("host %d: memory was allocated for a datagram of type %d", flight.to, type);
  }
  oracle_->AfterDatagrams(flight, alone ? 1 : kBurst);
}

// It comes together with copies of itself, and with what looks like it.
void Network::MakeBurst(const testing::Flight& flight, const Datagram& datagram, std::span<Datagram> burst) {
  const size_t place = Below(burst.size());
  const size_t tagged = flight.bytes.size() > kDataHeaderBytes ? kDataHeaderBytes : flight.bytes.size();
  for (size_t n = 0; n < burst.size(); ++n) {
    burst[n] = datagram;
    // Of what is spoiled already only copies: another change might undo it.
    if (n == place || (n > place && Below(2) == 0) || tagged == 0 || !flight.header_intact) continue;
    std::vector<uint8_t>& junk = junk_[n > place ? n - 1 : n];
    junk = flight.bytes;
    const bool data = junk[1] == static_cast<uint8_t>(PacketType::kData);
    junk[Below(data ? tagged : junk.size())] ^= 0x40;
    burst[n].bytes = junk.data();
  }
}

}  // namespace forgive::dst
