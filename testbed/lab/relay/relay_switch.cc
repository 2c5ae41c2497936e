// SPDX-License-Identifier: Apache-2.0
// The trimming switch of the user-space relay: queues, marks, cuts and delays, with time as an argument.
#include "testbed/lab/relay/relay_switch.h"

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <limits>
#include <utility>

#include "dataplane/relay_layout.h"
#include "transport/wire_layout.h"

namespace forgive::lab {
namespace {

constexpr int64_t kNever = std::numeric_limits<int64_t>::max();
constexpr size_t kPrefixBytes = sizeof(forgive_relay_prefix);
constexpr size_t kHeaderBytes = sizeof(forgive_data_header);
// What a packet takes on an Ethernet besides the UDP payload: UDP, IPv4, Ethernet, preamble, checksum and gap.
constexpr int64_t kFrameOverheadBytes = 8 + 20 + 14 + 24;
// How much the header class may send at once after a pause, at its share of the link.
constexpr int64_t kHeaderBurstBytes = 6000;
constexpr size_t kSpareBuffers = 4096;

uint32_t BigEndian32(const uint8_t* bytes) {
  return uint32_t{bytes[0]} << 24 | uint32_t{bytes[1]} << 16 | uint32_t{bytes[2]} << 8 | bytes[3];
}
uint64_t BigEndian64(const uint8_t* bytes) { return uint64_t{BigEndian32(bytes)} << 32 | BigEndian32(bytes + 4); }
uint32_t BigEndian16(const uint8_t* bytes) { return uint32_t{bytes[0]} << 8 | bytes[1]; }

// SplitMix64: the same marks from the same seed and the same arrivals.
uint64_t NextRandom(uint64_t* state) {
  *state += 0x9e3779b97f4a7c15u;
  uint64_t z = *state;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return z ^ (z >> 31);
}

}  // namespace

RelaySwitch::RelaySwitch(const RelayParameters& parameters)
    : parameters_(parameters),
      link_bits_per_second_(static_cast<double>(parameters.rate_mbps) * 1e6),
      random_(parameters.seed) {}

int64_t RelaySwitch::WireBytes(const Packet& packet) {
  return static_cast<int64_t>(packet.bytes.size() - kPrefixBytes) + kFrameOverheadBytes;
}

int64_t RelaySwitch::Duration(int64_t bytes, double bits_per_second) {
  return static_cast<int64_t>(static_cast<double>(bytes) * 8e9 / bits_per_second);
}

RelaySwitch::Kind RelaySwitch::KindOf(const Packet& packet) {
  const uint8_t* payload = packet.bytes.data() + kPrefixBytes;
  const size_t length = packet.bytes.size() - kPrefixBytes;
  if (length < 8 || payload[0] != FORGIVE_WIRE_VERSION) return Kind::kOther;
  // A frame that is not longer than a cut one is not cut: it goes with the headers.
  return payload[1] == FORGIVE_TYPE_DATA && length > kHeaderBytes ? Kind::kData : Kind::kControl;
}

std::vector<uint8_t> RelaySwitch::Storage(const uint8_t* bytes, size_t length) {
  std::vector<uint8_t> storage;
  if (!spare_.empty()) {
    storage = std::move(spare_.back());
    spare_.pop_back();
  }
  storage.assign(bytes, bytes + length);
  return storage;
}

// ---- From the sender to the port ----

void RelaySwitch::Arrive(int64_t now_ns, const RelayAddress& source, const uint8_t* bytes, size_t length) {
  forgive_relay_prefix prefix{};
  if (length >= kPrefixBytes) std::memcpy(&prefix, bytes, kPrefixBytes);
  if (prefix.magic[0] != FORGIVE_RELAY_MAGIC_0 || prefix.magic[1] != FORGIVE_RELAY_MAGIC_1 ||
      prefix.magic[2] != FORGIVE_RELAY_MAGIC_2) {
    ++counters_.foreign;
    return;
  }
  Packet packet;
  std::memcpy(packet.to.data(), prefix.address, packet.to.size());
  std::memcpy(prefix.address, source.data(), source.size());
  prefix.flags = 0;
  packet.bytes = Storage(bytes, length);
  std::memcpy(packet.bytes.data(), &prefix, kPrefixBytes);

  Uplink& uplink = uplinks_[source];
  const double rate = link_bits_per_second_ * parameters_.uplink_share;
  uplink.busy_until_ns = std::max(uplink.busy_until_ns, now_ns) + Duration(WireBytes(packet), rate);
  // A quarter of the round trip on either side of the port, in each direction.
  packet.at_ns = uplink.busy_until_ns + parameters_.rtt_us * 1000 / 4;
  uplink.line.push_back(std::move(packet));
}

void RelaySwitch::Advance(int64_t now_ns) {
  // In the order of the events' own times, so that a late look finds the queues as they would have been.
  while (true) {
    Uplink* uplink = nullptr;
    int64_t arrival_ns = kNever;
    for (auto& [address, candidate] : uplinks_) {
      if (candidate.line.empty() || candidate.line.front().at_ns >= arrival_ns) continue;
      uplink = &candidate;
      arrival_ns = candidate.line.front().at_ns;
    }
    Port* port = nullptr;
    bool from_headers = false;
    int64_t start_ns = kNever;
    for (auto& [address, candidate] : ports_) {
      bool headers = false;
      const int64_t candidate_ns = NextStart(candidate, &headers);
      if (candidate_ns >= start_ns) continue;
      port = &candidate;
      from_headers = headers;
      start_ns = candidate_ns;
    }
    if (std::min(arrival_ns, start_ns) > now_ns) break;
    if (arrival_ns <= start_ns) {
      Packet packet = std::move(uplink->line.front());
      uplink->line.pop_front();
      ReachPort(std::move(packet));
    } else {
      SendFrom(*port, from_headers, start_ns);
    }
  }
  for (auto& [address, port] : ports_) {
    while (!port.line.empty() && port.line.front().at_ns <= now_ns) {
      due_.push_back(std::move(port.line.front()));
      port.line.pop_front();
    }
  }
}

void RelaySwitch::ReachPort(Packet packet) {
  Port& port = ports_[packet.to];
  const int64_t arrived_ns = packet.at_ns;
  port.busy_until_ns = std::max(port.busy_until_ns, arrived_ns);
  Enqueue(port, std::move(packet));
}

// ---- At the port ----

bool RelaySwitch::Marks(int64_t backlog_bytes) {
  if (backlog_bytes <= parameters_.ecn_min_bytes) return false;
  if (backlog_bytes > parameters_.ecn_max_bytes) return true;
  const double share = static_cast<double>(backlog_bytes - parameters_.ecn_min_bytes) /
                       static_cast<double>(parameters_.ecn_max_bytes - parameters_.ecn_min_bytes);
  const double draw = static_cast<double>(NextRandom(&random_) >> 11) * 0x1p-53;
  return draw < share * parameters_.ecn_probability;
}

// Cuts a data packet to its header and records it.
void RelaySwitch::Cut(Packet* packet) {
  const uint8_t* header = packet->bytes.data() + kPrefixBytes;
  RelayTrim trim;
  trim.connection_id = BigEndian64(header + offsetof(forgive_data_header, connection_id));
  trim.message = BigEndian32(header + offsetof(forgive_data_header, message_number));
  trim.offset = BigEndian32(header + offsetof(forgive_data_header, offset_in_message));
  trim.length = BigEndian16(header + offsetof(forgive_data_header, payload_length));
  packet->bytes.resize(kPrefixBytes + kHeaderBytes);
  trims_.push_back(trim);
}

void RelaySwitch::Enqueue(Port& port, Packet packet) {
  const Kind kind = KindOf(packet);
  const int64_t backlog = port.data_bytes;
  if (kind == Kind::kOther && backlog + WireBytes(packet) > parameters_.queue_bytes) {
    ++counters_.dropped;
    spare_.push_back(std::move(packet.bytes));
    return;
  }
  const bool full = backlog + WireBytes(packet) > parameters_.trim_threshold_bytes;
  if (kind == Kind::kOther || (kind == Kind::kData && !full)) {
    if (kind == Kind::kData && Marks(backlog)) {
      packet.bytes[offsetof(forgive_relay_prefix, flags)] |= FORGIVE_RELAY_CE;
      ++counters_.marked;
    }
    ++(kind == Kind::kData ? counters_.whole : counters_.other);
    port.data_bytes += WireBytes(packet);
    port.data.push_back(std::move(packet));
    return;
  }
  const size_t length_after = kind == Kind::kData ? kPrefixBytes + kHeaderBytes : packet.bytes.size();
  const int64_t charged = static_cast<int64_t>(length_after - kPrefixBytes) + kFrameOverheadBytes;
  if (port.header_bytes + charged > parameters_.header_queue_bytes) {
    ++counters_.header_dropped;
    return;
  }
  if (kind == Kind::kData) {
    Cut(&packet);
    ++counters_.trimmed;
  } else {
    ++counters_.control;
  }
  port.header_bytes += charged;
  port.headers.push_back(std::move(packet));
}

int64_t RelaySwitch::NextStart(const Port& port, bool* from_headers) const {
  const int64_t headers_ns = port.headers.empty() ? kNever : std::max(port.busy_until_ns, port.headers_allowed_ns);
  const int64_t data_ns = port.data.empty() ? kNever : port.busy_until_ns;
  *from_headers = headers_ns <= data_ns;  // strict priority, as far as its share lets it
  return std::min(headers_ns, data_ns);
}

void RelaySwitch::SendFrom(Port& port, bool from_headers, int64_t start_ns) {
  std::deque<Packet>& queue = from_headers ? port.headers : port.data;
  Packet packet = std::move(queue.front());
  queue.pop_front();
  const int64_t bytes = WireBytes(packet);
  (from_headers ? port.header_bytes : port.data_bytes) -= bytes;
  port.busy_until_ns = start_ns + Duration(bytes, link_bits_per_second_);
  if (from_headers) {
    const double share = link_bits_per_second_ * parameters_.header_share;
    port.headers_allowed_ns =
        std::max(port.headers_allowed_ns, start_ns - Duration(kHeaderBurstBytes, share)) + Duration(bytes, share);
  }
  packet.at_ns = port.busy_until_ns + parameters_.rtt_us * 1000 / 4;
  port.line.push_back(std::move(packet));
}

// ---- Out ----

bool RelaySwitch::NextDelivery(RelayAddress* to, std::vector<uint8_t>* bytes) {
  if (due_.empty()) return false;
  if (spare_.size() < kSpareBuffers && bytes->capacity() != 0) spare_.push_back(std::move(*bytes));
  *to = due_.front().to;
  *bytes = std::move(due_.front().bytes);
  due_.pop_front();
  return true;
}

bool RelaySwitch::NextTrim(RelayTrim* out) {
  if (trims_.empty()) return false;
  *out = trims_.front();
  trims_.pop_front();
  return true;
}

int64_t RelaySwitch::next_deadline_ns() const {
  if (!due_.empty()) return 0;
  int64_t next = kNever;
  for (const auto& [address, uplink] : uplinks_) {
    if (!uplink.line.empty()) next = std::min(next, uplink.line.front().at_ns);
  }
  for (const auto& [address, port] : ports_) {
    bool from_headers = false;
    next = std::min(next, NextStart(port, &from_headers));
    if (!port.line.empty()) next = std::min(next, port.line.front().at_ns);
  }
  return next;
}

}  // namespace forgive::lab
