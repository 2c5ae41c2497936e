// SPDX-License-Identifier: Apache-2.0
// Tests of go-back-N, the recovery of the specification's control experiment: its receiver, its sender and worlds.
#include <gtest/gtest.h>

#include <deque>
#include <string>

#include "sender_peer.h"
#include "transport/receiver.h"
#include "world.h"

namespace forgive::testing {
namespace {

Config GoBackN() {
  Config config = TestConfig();
  config.recovery = Recovery::kGoBackN;
  config.congestion_control = CongestionControlKind::kDcqcnPaper;
  return config;
}

// ---- The sender ----

struct Returning : Peer {
  Returning() : Peer(GoBackN()) {
    Post(4 * kPayload);
    Credit(1);
    sent = Drain();
    EXPECT_EQ(sent.size(), 4u);
  }
  // The receiver lacks what begins at rcv_nxt; `cause` is the packet that it dropped.
  std::vector<DataHeader> Ask(uint64_t rcv_nxt, const DataHeader& cause, bool trimmed) {
    Advance(Microseconds(100));
    report.rcv_nxt = rcv_nxt;
    report.trimmed = trimmed;
    report.trimmed_packet_number = static_cast<uint32_t>(cause.packet_number);
    report.requests[report.request_count++] = {rcv_nxt, cause.stream_offset + kPayload};
    Deliver();
    return Drain();
  }
  std::vector<DataHeader> sent;
};

TEST(GoBackNSender, SendsEverythingFromRcvNxtOnAgainInOrder) {
  Returning peer;
  const std::vector<DataHeader> again = peer.Ask(kPayload, peer.sent[1], true);
  ASSERT_EQ(again.size(), 3u);
  for (size_t i = 0; i < 3; ++i) EXPECT_EQ(again[i].stream_offset, (i + 1) * kPayload);
  EXPECT_EQ(peer.counters.rate_cuts_trim, 1u);
}

TEST(GoBackNSender, ReturnsOnceForAllThatWasSentBeforeTheReturnAndAgainForWhatWasSentSince) {
  Returning peer;
  const std::vector<DataHeader> again = peer.Ask(kPayload, peer.sent[1], true);
  EXPECT_EQ(peer.Ask(kPayload, peer.sent[2], false).size(), 0u);
  EXPECT_EQ(peer.Ask(kPayload, peer.sent[3], false).size(), 0u);
  EXPECT_EQ(peer.Ask(2 * kPayload, again[2], false).size(), 2u);
}

TEST(GoBackNSender, TakesAnOutOfOrderPacketForLossButNotForCongestion) {
  Returning peer;
  EXPECT_EQ(peer.Ask(kPayload, peer.sent[2], false).size(), 3u);
  EXPECT_EQ(peer.counters.rate_cuts_trim + peer.counters.rate_cuts_mark, 0u);
}

TEST(GoBackNSender, ReturnsOnATimeout) {
  Returning peer;
  peer.report.rcv_nxt = kPayload;
  peer.Deliver();
  peer.Advance(Milliseconds(50));
  peer.sender.OnDeadline(peer.now);
  EXPECT_EQ(peer.counters.timeouts, 1u);
  EXPECT_EQ(peer.Drain().size(), 3u);
}

// ---- The receiver ----

class GoBackNReceiver : public ::testing::Test {
 protected:
  void SetUp() override {
    ReceiveRequest request;
    request.buffer = memory.data();
    request.capacity = memory.size();
    ASSERT_TRUE(receiver.Post(request));
    ASSERT_TRUE(receiver.NextReport(kStart, &report));
  }
  DataHeader Segment(uint32_t index) {
    DataHeader header;
    header.payload_length = kPayload;
    header.connection_id = 77;
    header.stream_offset = index * kPayload;
    header.offset_in_message = index * kPayload;
    header.message_length = static_cast<uint32_t>(memory.size());
    header.packet_number = next_number++;
    EXPECT_TRUE(receiver.AcceptPacketNumber(header.packet_number));
    return header;
  }

  Counters counters;
  EventQueue events{1024};
  StepTable steps{4, Fraction{Fraction::kOne}, 1};
  std::vector<uint8_t> memory = std::vector<uint8_t>(8 * kPayload, 0xee);
  std::vector<uint8_t> payload = std::vector<uint8_t>(kPayload, 0x11);
  Receiver receiver{GoBackN(), kPayload, ConnectionHandle{5}, 77, &steps, &counters, &events};
  Report report;
  uint64_t next_number = 0;
};

TEST_F(GoBackNReceiver, DropsWhatIsOutOfOrderAndAsksFromRcvNxt) {
  receiver.OnData(kStart, Segment(0), payload.data(), false);
  const DataHeader ahead = Segment(2);
  receiver.OnData(kStart, ahead, payload.data(), false);
  EXPECT_EQ(receiver.rcv_nxt(), kPayload);
  EXPECT_EQ(memory[2 * kPayload], 0xee);
  EXPECT_EQ(counters.out_of_order, 1u);
  EXPECT_EQ(counters.out_of_order_bytes, kPayload);
  ASSERT_TRUE(receiver.NextReport(kStart, &report));
  EXPECT_FALSE(report.trimmed);
  ASSERT_EQ(report.request_count, 1u);
  EXPECT_EQ(report.requests[0], (Range{kPayload, 3 * kPayload}));
  EXPECT_EQ(report.trimmed_packet_number, ahead.packet_number);
  EXPECT_EQ(report.sack_count, 0u);
  receiver.OnData(kStart, Segment(1), payload.data(), false);
  EXPECT_EQ(receiver.rcv_nxt(), 2 * kPayload);
}

TEST_F(GoBackNReceiver, AsksFromRcvNxtForATrimWhereverItLies) {
  receiver.OnTrimmedHeader(kStart, Segment(3), false);
  ASSERT_TRUE(receiver.NextReport(kStart, &report));
  EXPECT_TRUE(report.trimmed);
  ASSERT_EQ(report.request_count, 1u);
  EXPECT_EQ(report.requests[0], (Range{0, 4 * kPayload}));
  receiver.OnTrimmedHeader(kStart, Segment(0), false);
  ASSERT_TRUE(receiver.NextReport(kStart, &report));
  EXPECT_EQ(report.requests[0], (Range{0, kPayload}));
  EXPECT_EQ(receiver.rcv_nxt(), 0u);
}

TEST_F(GoBackNReceiver, SettlesNoEndSlotAheadOfAHole) {
  receiver.OnTrimmedHeader(kStart, Segment(7), false);
  for (uint32_t i = 0; i < 7; ++i) receiver.OnData(kStart, Segment(i), payload.data(), false);
  EXPECT_EQ(receiver.rcv_nxt(), 7 * kPayload);
  EXPECT_EQ(receiver.completed_messages(), 0u);
  receiver.OnData(kStart, Segment(7), payload.data(), false);
  EXPECT_EQ(receiver.completed_messages(), 1u);
  EXPECT_TRUE(receiver.CheckAll());
}

// ---- Worlds ----

Config WorldConfig() {
  Config config;
  config.recovery = Recovery::kGoBackN;
  config.max_connections = 4;
  config.max_payload_bytes = 512;
  config.window_bytes = 16384;
  config.scoreboard_bytes = 65536;
  config.min_rto = Milliseconds(3);
  config.max_rto = Milliseconds(50);
  config.peer_timeout = Seconds(100);
  return config;
}

TEST(GoBackNWorld, RefusesAReceiveThatIsExemptEligible) {
  World world(2, WorldConfig(), 1);
  Link link;
  ASSERT_TRUE(ConnectPair(&world, 0, 1, &link));
  ReceiveRequest request;
  request.exempt_eligible = true;
  EXPECT_EQ(world.endpoint(1).Post(world.LocalNow(1), link.receiver, request), PostResult::kFailed);
  request.exempt_eligible = false;
  EXPECT_EQ(world.endpoint(1).Post(world.LocalNow(1), link.receiver, request), PostResult::kAccepted);
}

struct Transfer {
  std::vector<uint8_t> sent, received;
  bool arrived = false, acknowledged = false;
};

// Twenty messages; the faults stop after 60 ms.
void RunTransfers(uint64_t seed, Counters* total) {
  World world(2, WorldConfig(), seed);
  Link link;
  ASSERT_TRUE(ConnectPair(&world, 0, 1, &link));
  Draw plan(seed);
  std::deque<Transfer> transfers(20);
  world.on_event = [&](int, const Event& event) {
    ASSERT_NE(event.kind, Event::Kind::kForgiven);
    if (event.kind == Event::Kind::kReceived) transfers[event.cookie].arrived = true;
    if (event.kind == Event::Kind::kSent) transfers[event.cookie].acknowledged = true;
  };
  for (uint64_t i = 0; i < transfers.size(); ++i) {
    Transfer& transfer = transfers[i];
    transfer.sent.resize(plan.Below(40000) * plan.Below(2) + plan.Below(100));
    for (uint8_t& byte : transfer.sent) byte = static_cast<uint8_t>(plan.Next());
    transfer.received.assign(transfer.sent.size(), 0xee);
    ReceiveRequest receive;
    receive.cookie = i;
    receive.buffer = transfer.received.data();
    receive.capacity = transfer.received.size();
    ASSERT_EQ(world.endpoint(1).Post(world.LocalNow(1), link.receiver, receive), PostResult::kAccepted);
    const SendRequest send{i, transfer.sent.data(), static_cast<uint32_t>(transfer.sent.size())};
    ASSERT_EQ(world.endpoint(0).Post(world.LocalNow(0), link.sender, send), PostResult::kAccepted);
  }
  world.faults.trim = Fraction{static_cast<uint32_t>(plan.Below(150000))};
  world.faults.drop = Fraction{static_cast<uint32_t>(plan.Below(50000))};
  world.faults.duplicate = Fraction{static_cast<uint32_t>(plan.Below(50000))};
  world.faults.reorder = Fraction{static_cast<uint32_t>(plan.Below(50000))};
  const TimePoint faults_end = world.now() + Milliseconds(60);
  const TimePoint end = world.now() + Seconds(60);
  while (!transfers.back().acknowledged && world.Step(end)) {
    if (world.now() > faults_end) world.faults = Faults{};
  }
  for (const Transfer& transfer : transfers) {
    ASSERT_TRUE(transfer.arrived && transfer.acknowledged);
    ASSERT_EQ(transfer.sent, transfer.received);
  }
  total->lost_by_request += world.endpoint(0).counters().lost_by_request;
  total->timeouts += world.endpoint(0).counters().timeouts;
  total->out_of_order += world.endpoint(1).counters().out_of_order;
  total->trims += world.endpoint(1).counters().trims;
}

TEST(GoBackNWorld, DeliversEveryByteUnderTrimsDropsDuplicatesAndReordering) {
  Counters total;
  for (uint64_t seed = 1; seed <= 40; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    RunTransfers(seed, &total);
    if (HasFailure()) return;
  }
  EXPECT_GT(total.lost_by_request, 0u);
  EXPECT_GT(total.timeouts, 0u);
  EXPECT_GT(total.out_of_order, 0u);
  EXPECT_GT(total.trims, 0u);
}

}  // namespace
}  // namespace forgive::testing
