// SPDX-License-Identifier: Apache-2.0
// The sender against a plain receiver over a network that trims, drops, duplicates and reorders, from many seeds.
#include <gtest/gtest.h>

#include <map>
#include <vector>

#include "transport/draw.h"
#include "transport/sender.h"

namespace forgive {
namespace {

constexpr TimePoint kStart{123456789};

// A receiver that remembers each 16-byte unit of the stream, and nothing clever.
class PlainReceiver {
 public:
  explicit PlainReceiver(Draw* draw) : draw_(draw) {}

  // What the sender will be asked to send, in order.
  void AddMessage(uint32_t length) {
    begins_.push_back(settled_.size());
    lengths_.push_back(length);
    settled_.resize(settled_.size() + (length + 15) / 16 + 1);
  }
  uint64_t StreamBegin(uint32_t message) const { return begins_[message] * 16; }
  uint32_t length(uint32_t message) const { return lengths_[message]; }
  uint32_t messages() const { return static_cast<uint32_t>(lengths_.size()); }
  uint64_t rcv_nxt() const { return front_ * 16; }
  uint32_t completed() const { return completed_; }
  uint32_t posted = 0;

  // `early`: it waited for its receive, and says nothing of the RTT.
  void OnData(const DataHeader& header, bool mark, bool early = false) {
    Settle(header);
    report_.received_bytes += header.payload_length;
    if (mark) report_.ce_bytes += header.payload_length;
    if (!early && (!report_.has_newest || header.packet_number > newest_)) {
      newest_ = header.packet_number;
      report_.has_newest = true;
      report_.newest_packet_number = static_cast<uint32_t>(header.packet_number);
      report_.newest_timestamp = header.send_timestamp;
    }
  }
  // Forgives or requests.
  Report OnTrim(const DataHeader& header) {
    const uint64_t begin = header.stream_offset / 16;
    const bool whole = settled_[begin];
    if (draw_->Below(3) == 0) Settle(header);
    Report report = NextReport();
    report.trimmed = true;
    report.trimmed_packet_number = static_cast<uint32_t>(header.packet_number);
    if (!whole && !settled_[begin]) {
      report.requests[report.request_count++] = {begin * 16,
                                                 begin * 16 + 16 + (header.payload_length + 15) / 16 * 16};
      if (!header.carries_end()) report.requests[0].end -= 16;
    }
    return report;
  }
  Report NextReport() {
    Report report = report_;
    report.report_number = ++numbers_;
    report.rcv_nxt = rcv_nxt();
    report.completed_messages = completed_;
    report.posted_messages = posted;
    report.exempt_eligible = draw_->Below(2) == 0;
    report.budget_exhausted = draw_->Below(2) == 0;
    report.same_step_end = completed_ + static_cast<uint32_t>(draw_->Below(posted - completed_ + 1));
    report.has_step_start = posted != 0;
    report.step_start_message = posted == 0 ? 0 : (posted - 1) / 3 * 3;
    // Some of the settled runs above rcv_nxt.
    uint64_t unit = front_;
    while (unit < settled_.size() && report.sack_count < kMaxSackRanges) {
      while (unit < settled_.size() && !settled_[unit]) ++unit;
      const uint64_t begin = unit;
      while (unit < settled_.size() && settled_[unit]) ++unit;
      if (unit != begin && draw_->Below(4) != 0) report.sacks[report.sack_count++] = {begin * 16, unit * 16};
    }
    return report;
  }

 private:
  void Settle(const DataHeader& header) {
    uint64_t units = (header.payload_length + 15u) / 16;
    if (header.carries_end()) ++units;
    for (uint64_t i = 0; i < units; ++i) settled_[header.stream_offset / 16 + i] = true;
    while (front_ < settled_.size() && settled_[front_]) ++front_;
    while (completed_ < lengths_.size() && begins_[completed_] + (lengths_[completed_] + 15) / 16 + 1 <= front_) {
      ++completed_;
    }
  }

  Draw* draw_;
  std::vector<uint64_t> begins_;  // units
  std::vector<uint32_t> lengths_;
  std::vector<bool> settled_;
  uint64_t front_ = 0;
  uint32_t completed_ = 0;
  uint64_t numbers_ = 0;
  uint64_t newest_ = 0;
  Report report_;
};

class RandomWorld {
 public:
  explicit RandomWorld(uint64_t seed)
      : draw_(seed),
        config_(MakeConfig()),
        payload_(static_cast<uint32_t>(16 * (1 + draw_.Below(64)))),
        scoreboard_(payload_ * (2 + draw_.Below(100)) + 32),
        receiver_(&draw_),
        sender_(config_, payload_, scoreboard_, ConnectionHandle{1}, 9, &counters_, &events_),
        memory_(1 << 20) {
    const uint32_t count = static_cast<uint32_t>(1 + draw_.Below(40));
    for (uint32_t i = 0; i < count; ++i) {
      const uint64_t most = draw_.Below(4) == 0 ? 20 : 30 * payload_;
      receiver_.AddMessage(static_cast<uint32_t>(draw_.Below(5) == 0 ? 0 : draw_.Below(most)));
    }
  }

  void Run() {
    drop_ = {static_cast<uint32_t>(draw_.Below(200000))};
    trim_ = {static_cast<uint32_t>(draw_.Below(300000))};
    const TimePoint faults_end = kStart + Milliseconds(40);
    const TimePoint end = faults_end + Seconds(30);
    for (int steps = 0; !Finished(); ++steps) {
      ASSERT_LT(steps, 2000000);
      ASSERT_LT(now_, end) << "not finished long after the faults stopped";
      if (now_ >= faults_end) drop_ = trim_ = {0};
      Post();
      ASSERT_NO_FATAL_FAILURE(Transmit());
      TimePoint next = Earlier(sender_.next_deadline(), next_post_);
      if (!network_.empty()) next = Earlier(next, network_.begin()->first);
      ASSERT_NE(next, kNever) << "nothing will ever happen";
      now_ = std::max(now_ + Nanoseconds{1}, next);
      // An engine that was scheduled late now and then.
      if (draw_.Below(100) == 0) now_ = now_ + Nanoseconds{static_cast<int64_t>(draw_.Below(3000000))};
      Deliver();
      sender_.OnDeadline(now_);
      if (sender_.TakeProbeDue(now_)) SendReport(receiver_.NextReport());
      ASSERT_NO_FATAL_FAILURE(DrainEvents());
    }
    EXPECT_EQ(receiver_.completed(), receiver_.messages());
    EXPECT_EQ(sender_.bytes_in_flight(), 0u);
    EXPECT_FALSE(sender_.failed());
    EXPECT_EQ(counters_.malformed, 0u);
    uint64_t total = 0;
    for (uint32_t i = 0; i < receiver_.messages(); ++i) total += receiver_.length(i);
    EXPECT_EQ(counters_.sent_bytes - counters_.retransmitted_bytes, total);
    EXPECT_LE(counters_.sent_exempt_bytes, counters_.sent_bytes);
  }

  uint64_t retransmitted() const { return counters_.retransmitted_bytes; }
  uint64_t early_taken() const { return early_taken_; }
  const Counters& counters() const { return counters_; }

 private:
  Config MakeConfig() {
    Config config;
    config.payload_crc = false;
    config.max_messages = 1u << draw_.Below(5);
    config.early_messages = draw_.Below(2) == 0;
    config.window_bytes = 1 + draw_.Below(100000);
    config.link_rate = {draw_.Below(2) * 1000000000};
    config.congestion_control = static_cast<CongestionControlKind>(draw_.Below(4));
    config.congestion_restart = draw_.Below(2) == 0 ? CongestionRestart::kAtStep : CongestionRestart::kOff;
    config.rto_backoff = draw_.Below(2) == 0;
    config.min_rto = Milliseconds(1);
    config.max_rto = Milliseconds(50);
    config.initial_rtt = Microseconds(100);
    return config;
  }

  bool Finished() const { return next_message_ == receiver_.messages() && !sender_.HasUnfinished(); }

  void Post() {
    // Receives are posted at their own pace, at most max_messages ahead.
    if (now_ >= next_post_) {
      const uint32_t room = receiver_.completed() + config_.max_messages - receiver_.posted;
      const uint32_t left = receiver_.messages() - receiver_.posted;
      receiver_.posted += static_cast<uint32_t>(draw_.Below(std::min(room, left) + 1));
      TakeEarly();
      SendReport(receiver_.NextReport());
      next_post_ = receiver_.posted == receiver_.messages()
                       ? kNever
                       : now_ + Nanoseconds{static_cast<int64_t>(1 + draw_.Below(2000000))};
    }
    while (next_message_ < receiver_.messages() &&
           sender_.Post({next_message_, memory_.data(), receiver_.length(next_message_)})) {
      ++next_message_;
    }
  }

  void Transmit() {
    DataHeader header;
    const uint8_t* payload = nullptr;
    while (sender_.NextPacket(now_, &header, &payload)) {
      ASSERT_EQ(header.packet_number, packets_++);
      const bool early = config_.early_messages && header.payload_length == header.message_length;
      ASSERT_LT(header.message_number, credit_known_ + (early ? kEarlyMessages : 0)) << "no receive is posted";
      ASSERT_EQ(header.message_length, receiver_.length(header.message_number));
      ASSERT_EQ(header.stream_offset, receiver_.StreamBegin(header.message_number) + header.offset_in_message);
      ASSERT_EQ(header.offset_in_message % payload_, 0u);
      ASSERT_LE(header.payload_length, payload_);
      ASSERT_EQ(payload, memory_.data() + header.offset_in_message);
      const uint64_t end = header.stream_offset + header.payload_length + (header.carries_end() ? 16 : 0);
      ASSERT_LE(end, rcv_nxt_known_ + scoreboard_) << "beyond the scoreboard";
      const uint64_t window = sender_.window_bytes();
      ASSERT_LE(window, config_.window_bytes);
      ASSERT_TRUE(sender_.bytes_in_flight() <= window || sender_.bytes_in_flight() == header.payload_length);
      ASSERT_GE(header.message_number, receiver_known_completed_) << "a completed message's buffer was read";
      if (draw_(drop_)) continue;
      const int copies = draw_.Below(20) == 0 ? 2 : 1;
      const bool trimmed = draw_(trim_);
      for (int i = 0; i < copies; ++i) {
        network_.emplace(Arrival(), Packet{true, trimmed, header, {}});
      }
    }
  }

  TimePoint Arrival() {
    const int64_t late = draw_.Below(10) == 0 ? static_cast<int64_t>(draw_.Below(300000)) : 0;
    return now_ + Microseconds(30) + Nanoseconds{late};
  }

  void SendReport(const Report& report) {
    if (draw_(drop_)) return;
    const int copies = draw_.Below(20) == 0 ? 2 : 1;
    for (int i = 0; i < copies; ++i) network_.emplace(Arrival(), Packet{false, false, {}, report});
  }

  void Deliver() {
    while (!network_.empty() && network_.begin()->first <= now_) {
      const Packet packet = network_.begin()->second;
      network_.erase(network_.begin());
      if (!packet.data) {
        sender_.OnReport(now_, packet.report);
        credit_known_ = std::max(credit_known_, packet.report.posted_messages);
        rcv_nxt_known_ = std::max(rcv_nxt_known_, packet.report.rcv_nxt);
        receiver_known_completed_ = std::max(receiver_known_completed_, packet.report.completed_messages);
      } else if (packet.header.message_number >= receiver_.posted) {
        early_.emplace(packet.header.message_number, packet);
        ASSERT_LE(early_.size(), kEarlyMessages);
      } else if (packet.trimmed) {
        SendReport(receiver_.OnTrim(packet.header));
      } else {
        receiver_.OnData(packet.header, draw_.Below(10) == 0);
        if (draw_.Below(3) == 0 || packet.header.carries_end()) SendReport(receiver_.NextReport());
      }
    }
  }

  // What came before its receive was posted, and has it now.
  void TakeEarly() {
    while (!early_.empty() && early_.begin()->first < receiver_.posted) {
      const Packet& packet = early_.begin()->second;
      if (packet.trimmed) {
        SendReport(receiver_.OnTrim(packet.header));
      } else {
        receiver_.OnData(packet.header, draw_.Below(10) == 0, true);
        early_taken_ += 1;
      }
      early_.erase(early_.begin());
    }
  }

  void DrainEvents() {
    Event event;
    while (events_.Pop(&event)) {
      ASSERT_EQ(event.kind, Event::Kind::kSent);
      ASSERT_EQ(event.cookie, sent_++);
      ASSERT_LE(sent_, receiver_.completed()) << "sent before it is whole at the receiver";
    }
  }

  struct Packet {
    bool data;
    bool trimmed;
    DataHeader header;
    Report report;
  };

  Draw draw_;
  Config config_;
  uint32_t payload_;
  uint64_t scoreboard_;
  PlainReceiver receiver_;
  Counters counters_;
  EventQueue events_{1024};
  Sender sender_;
  std::vector<uint8_t> memory_;
  std::multimap<TimePoint, Packet> network_;
  std::map<uint32_t, Packet> early_;  // by message
  uint64_t early_taken_ = 0;
  Fraction drop_, trim_;
  TimePoint now_ = kStart;
  TimePoint next_post_ = kStart;
  uint32_t next_message_ = 0;
  uint64_t packets_ = 0;
  uint64_t sent_ = 0;
  uint32_t credit_known_ = 0;
  uint64_t rcv_nxt_known_ = 0;
  uint32_t receiver_known_completed_ = 0;
};

TEST(SenderRandom, DeliversEverythingWithinItsLimitsOnceTheFaultsStop) {
  uint64_t retransmitted = 0, requests = 0, rack = 0, timeouts = 0, changes = 0, ignored = 0, early = 0;
  for (uint64_t seed = 0; seed < 1500; ++seed) {
    SCOPED_TRACE(seed);
    RandomWorld world(seed);
    ASSERT_NO_FATAL_FAILURE(world.Run());
    retransmitted += world.retransmitted();
    requests += world.counters().lost_by_request;
    rack += world.counters().lost_by_rack;
    timeouts += world.counters().timeouts;
    changes += world.counters().mode_changes;
    ignored += world.counters().signals_ignored;
    early += world.early_taken();
  }
  // The worlds did exercise every road of loss and both modes.
  EXPECT_GT(retransmitted, 0u);
  EXPECT_GT(early, 0u);
  EXPECT_GT(requests, 0u);
  EXPECT_GT(rack, 0u);
  EXPECT_GT(timeouts, 0u);
  EXPECT_GT(changes, 0u);
  EXPECT_GT(ignored, 0u);
}

}  // namespace
}  // namespace forgive
