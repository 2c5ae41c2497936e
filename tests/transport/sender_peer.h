// SPDX-License-Identifier: Apache-2.0
// A sender under test with its clock, and the reports of its peer made by hand.
#ifndef FORGIVE_TESTS_TRANSPORT_SENDER_PEER_H_
#define FORGIVE_TESTS_TRANSPORT_SENDER_PEER_H_

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "transport/sender.h"

namespace forgive::testing {

inline constexpr uint32_t kPayload = 1024;
inline constexpr uint32_t kOverhead = 100;
inline constexpr TimePoint kStart{7000000000};

inline Config TestConfig() {
  Config config;
  config.payload_crc = false;
  config.early_messages = false;  // these tests say when there is credit (early_messages_test.cc: without)
  config.window_bytes = 1 << 20;
  config.max_messages = 16;
  config.congestion_control = CongestionControlKind::kNone;
  config.packet_overhead_bytes = kOverhead;
  config.pacing_burst_bytes = 4 * (kPayload + kOverhead);
  config.min_rto = Milliseconds(20);
  config.max_rto = Milliseconds(200);
  config.base_rtt = Microseconds(70);
  return config;
}

// A sender, its clock and the reports of its peer. Reports have rising numbers unless a test sets one.
struct Peer {
  explicit Peer(const Config& config = TestConfig(), uint64_t scoreboard = 256 * kPayload,
                uint32_t payload = kPayload)
      : sender(config, payload, scoreboard, ConnectionHandle{5}, 77, &counters, &events), memory(1 << 20) {
    for (size_t i = 0; i < memory.size(); ++i) memory[i] = static_cast<uint8_t>(i * 31);
    report.report_number = 1;
  }

  void Post(uint32_t length) { ASSERT_TRUE(sender.Post({1000 + posted++, memory.data(), length})); }

  // Everything that may leave now.
  std::vector<DataHeader> Drain() {
    std::vector<DataHeader> out;
    DataHeader header;
    const uint8_t* payload = nullptr;
    while (sender.NextPacket(now, &header, &payload)) out.push_back(header);
    return out;
  }

  // The state of the peer, as the next report says it.
  Report report;
  void Deliver() {
    Report sent = report;
    sender.OnReport(now, sent);
    ++report.report_number;
    report.trimmed = false;
    report.request_count = 0;
    report.sack_count = 0;
  }
  void Credit(uint32_t messages) {
    report.posted_messages = messages;
    Deliver();
  }
  // The packet arrived whole: it is the newest one. rcv_nxt and the SACK ranges are the test's.
  void SetNewest(const DataHeader& header) {
    report.has_newest = true;
    report.newest_packet_number = static_cast<uint32_t>(header.packet_number);
    report.newest_timestamp = header.send_timestamp;
  }
  void AddSack(uint64_t begin, uint64_t end) { report.sacks[report.sack_count++] = {begin, end}; }
  void Trim(const DataHeader& header, bool request) {
    report.trimmed = true;
    report.trimmed_packet_number = static_cast<uint32_t>(header.packet_number);
    if (request) {
      report.requests[report.request_count++] = {header.stream_offset, header.stream_offset + header.payload_length};
    }
  }
  void Exempt(uint32_t end, bool exhausted = false) {
    report.exempt_eligible = true;
    report.budget_exhausted = exhausted;
    report.same_step_end = end;
  }
  void Advance(Nanoseconds by) { now = now + by; }
  // Polls as an engine does, at the sender's own deadlines.
  void RunUntil(TimePoint end) {
    while (sender.next_deadline() <= end) {
      now = std::max(now + Nanoseconds{1}, sender.next_deadline());
      sender.OnDeadline(now);
    }
    now = end;
  }
  std::vector<uint64_t> SentCookies() {
    std::vector<uint64_t> cookies;
    Event event;
    while (events.Pop(&event)) {
      EXPECT_EQ(event.kind, Event::Kind::kSent);
      EXPECT_EQ(event.connection.value, 5u);
      cookies.push_back(event.cookie);
    }
    return cookies;
  }

  Counters counters;
  EventQueue events{1024};
  Sender sender;
  std::vector<uint8_t> memory;
  TimePoint now = kStart;
  uint64_t posted = 0;
};

}  // namespace forgive::testing

#endif  // FORGIVE_TESTS_TRANSPORT_SENDER_PEER_H_
