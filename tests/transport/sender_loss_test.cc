// SPDX-License-Identifier: Apache-2.0
// Tests of the sender's loss recovery, pacing and probes.
#include "sender_peer.h"

namespace forgive {
namespace {

using namespace testing;  // NOLINT: the fixture's names

// ---- Loss ----

TEST(Sender, RepeatsWhatARequestNamesBeforeNewData) {
  Config config = TestConfig();
  config.window_bytes = 4 * kPayload;
  Peer peer(config);
  peer.Post(100 * kPayload);
  peer.Credit(1);
  const auto packets = peer.Drain();
  peer.report.rcv_nxt = kPayload;
  peer.Trim(packets[2], true);
  peer.Deliver();
  const auto again = peer.Drain();
  ASSERT_EQ(again.size(), 2u);
  EXPECT_EQ(again[0].stream_offset, 2 * kPayload);
  EXPECT_GT(again[0].packet_number, packets[3].packet_number);
  EXPECT_EQ(again[1].stream_offset, 4 * kPayload);
  EXPECT_EQ(peer.counters.lost_by_request, 1u);
  EXPECT_EQ(peer.counters.retransmitted_bytes, kPayload);
}

TEST(Sender, RepeatsLostSegmentsInStreamOrder) {
  Peer peer;
  peer.Post(8 * kPayload);
  peer.Credit(1);
  const auto packets = peer.Drain();
  for (int i : {5, 1, 3}) {
    peer.Trim(packets[static_cast<size_t>(i)], true);
    peer.Deliver();
  }
  const auto again = peer.Drain();
  ASSERT_EQ(again.size(), 3u);
  EXPECT_EQ(again[0].stream_offset, kPayload);
  EXPECT_EQ(again[1].stream_offset, 3 * kPayload);
  EXPECT_EQ(again[2].stream_offset, 5 * kPayload);
}

TEST(Sender, IgnoresARequestThatIsOlderThanTheLastRetransmission) {
  Peer peer;
  peer.Post(2 * kPayload);
  peer.Credit(1);
  const auto first = peer.Drain();
  peer.Trim(first[0], true);
  peer.Deliver();
  const auto second = peer.Drain();
  peer.Trim(first[0], true);
  peer.Deliver();
  EXPECT_TRUE(peer.Drain().empty());
  peer.Trim(second[0], true);
  peer.Deliver();
  EXPECT_EQ(peer.Drain().size(), 1u);
  EXPECT_EQ(peer.counters.lost_by_request, 2u);
}

TEST(Sender, TakesASegmentForLostOnceAPacketSentWellLaterArrived) {
  Peer peer;
  peer.Post(3 * kPayload);
  peer.Credit(1);
  std::vector<DataHeader> packets;
  for (int i = 0; i < 3; ++i) {
    DataHeader header;
    const uint8_t* payload = nullptr;
    ASSERT_TRUE(peer.sender.NextPacket(peer.now, &header, &payload));
    packets.push_back(header);
    peer.Advance(Microseconds(20));
  }
  // The RTT is 40 us: the reorder window is 10 us.
  peer.SetNewest(packets[1]);
  peer.AddSack(kPayload, 2 * kPayload);
  peer.Deliver();
  EXPECT_EQ(peer.counters.lost_by_rack, 1u);
  const auto again = peer.Drain();
  ASSERT_EQ(again.size(), 1u);
  EXPECT_EQ(again[0].stream_offset, 0u);
}

TEST(Sender, TakesNoSegmentForLostThatWasSentWithinTheReorderWindow) {
  Peer peer;
  peer.Post(2 * kPayload);
  peer.Credit(1);
  DataHeader first, second;
  const uint8_t* payload = nullptr;
  ASSERT_TRUE(peer.sender.NextPacket(peer.now, &first, &payload));
  peer.Advance(Microseconds(10));
  ASSERT_TRUE(peer.sender.NextPacket(peer.now, &second, &payload));
  peer.Advance(Microseconds(100));  // a reorder window of 25 us
  peer.SetNewest(second);
  peer.AddSack(kPayload, 2 * kPayload + 16);
  peer.Deliver();
  EXPECT_EQ(peer.counters.lost_by_rack, 0u);
}

TEST(Sender, TakesNoPacketOfABurstForLostThoughTheWireClockIsCoarserThanTheBurst) {
  Peer peer;
  peer.now = TimePoint{kStart.ns / 64 * 64 + 10};
  peer.Post(2 * kPayload);
  peer.Credit(1);
  const auto packets = peer.Drain();
  peer.Advance(Nanoseconds{64 + 53});  // the round trip is one unit of that clock, the reorder window 16 ns
  peer.SetNewest(packets[1]);
  peer.AddSack(kPayload, 2 * kPayload + 16);
  peer.Deliver();
  EXPECT_EQ(peer.counters.lost_by_rack, 0u);
}

TEST(Sender, LearnsNoTimeFromAReportThatATrimCaused) {
  Peer peer;
  peer.Post(4 * kPayload);
  peer.Credit(1);
  const Nanoseconds before = peer.sender.smoothed_rtt();
  DataHeader first, last;
  const uint8_t* payload = nullptr;
  ASSERT_TRUE(peer.sender.NextPacket(peer.now, &first, &payload));
  peer.Advance(Milliseconds(5));
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(peer.sender.NextPacket(peer.now, &last, &payload));
  peer.Advance(Milliseconds(5));
  peer.SetNewest(last);
  peer.Trim(last, false);
  peer.Deliver();
  EXPECT_EQ(peer.sender.smoothed_rtt(), before);
  EXPECT_EQ(peer.counters.lost_by_rack, 0u);
  peer.Deliver();  // the same, not by a trim
  EXPECT_EQ(peer.sender.smoothed_rtt(), Milliseconds(5));
  EXPECT_EQ(peer.counters.lost_by_rack, 1u);
}

TEST(Sender, MeasuresAPacketsRoundTripOnce) {
  Peer peer;
  peer.Post(kPayload);
  peer.Post(kPayload);
  peer.Credit(1);
  const auto packets = peer.Drain();
  peer.Advance(Microseconds(640));
  peer.SetNewest(packets[0]);
  peer.Deliver();
  EXPECT_EQ(peer.sender.smoothed_rtt(), Microseconds(640));
  peer.Advance(Seconds(1));
  peer.Deliver();
  EXPECT_EQ(peer.sender.smoothed_rtt(), Microseconds(640));
}

TEST(Sender, LosesTheWholeFlightAfterATimeoutAndCountsOne) {
  Peer peer;
  peer.Post(4 * kPayload);
  peer.Credit(1);
  DataHeader header;
  const uint8_t* payload = nullptr;
  for (int i = 0; i < 4; ++i) {
    ASSERT_TRUE(peer.sender.NextPacket(peer.now, &header, &payload));
    peer.Advance(Microseconds(10));
  }
  const TimePoint due = kStart + peer.sender.rto();
  EXPECT_EQ(peer.sender.next_deadline(), due);
  peer.now = due - Nanoseconds{1};
  peer.sender.OnDeadline(peer.now);
  EXPECT_TRUE(peer.Drain().empty());
  peer.now = due;
  peer.sender.OnDeadline(peer.now);
  EXPECT_EQ(peer.Drain().size(), 4u);
  EXPECT_EQ(peer.counters.timeouts, 1u);
}

TEST(Sender, WaitsAFullBackedOffTimeoutAfterATimeoutForWhatWasSentLater) {
  Peer peer;
  peer.Post(kPayload);
  peer.Post(kPayload);
  peer.Credit(1);
  const auto first = peer.Drain();
  peer.Advance(Milliseconds(5));  // well over one smoothed RTT
  peer.Credit(2);
  peer.Drain();
  peer.now = kStart + Milliseconds(20);
  peer.sender.OnDeadline(peer.now);
  const auto again = peer.Drain();
  ASSERT_EQ(again.size(), 1u);
  EXPECT_EQ(again[0].stream_offset, 0u);
  EXPECT_EQ(peer.sender.next_deadline(), peer.now + Milliseconds(40));
}

// A window sent over many RTTs while nothing came back: its last packets need no timeout each.
TEST(Sender, LosesAtATimeoutAllThatHasWaitedAsLong) {
  Peer peer;
  for (uint32_t i = 0; i < 8; ++i) {
    peer.Post(kPayload);
    peer.Credit(i + 1);
    EXPECT_EQ(peer.Drain().size(), 1u);
    peer.Advance(Milliseconds(2));  // well over one smoothed RTT
  }
  peer.now = kStart + Milliseconds(20);
  peer.sender.OnDeadline(peer.now);
  EXPECT_EQ(peer.Drain().size(), 1u);
  peer.now = peer.now + Milliseconds(40);
  peer.sender.OnDeadline(peer.now);
  EXPECT_EQ(peer.Drain().size(), 8u);
  EXPECT_EQ(peer.counters.timeouts, 2u);
}

TEST(Sender, RunsTheTimeoutFromTheLastProgress) {
  Peer peer;
  peer.Post(4 * kPayload);
  peer.Credit(1);
  peer.Drain();
  peer.Advance(Milliseconds(15));
  peer.report.rcv_nxt = kPayload;
  peer.Deliver();
  EXPECT_EQ(peer.sender.next_deadline(), peer.now + peer.sender.rto());
}

TEST(Sender, BacksOffUntilSomethingNewIsAcknowledged) {
  Peer peer;
  peer.Post(2 * kPayload);
  peer.Credit(1);
  peer.Drain();
  const Nanoseconds base = peer.sender.rto();
  for (int i = 0; i < 6; ++i) {
    EXPECT_EQ(peer.sender.rto(), std::min(base * (1 << i), Milliseconds(200)));
    peer.now = peer.sender.next_deadline();
    peer.sender.OnDeadline(peer.now);
    ASSERT_EQ(peer.Drain().size(), 2u);
  }
  EXPECT_EQ(peer.counters.timeouts, 6u);
  peer.report.rcv_nxt = kPayload;
  peer.Deliver();
  EXPECT_EQ(peer.sender.rto(), base);
}

TEST(Sender, DoesNotBackOffWhereConfiguredSo) {
  Config config = TestConfig();
  config.rto_backoff = false;
  Peer peer(config);
  peer.Post(kPayload);
  peer.Credit(1);
  peer.Drain();
  const Nanoseconds base = peer.sender.rto();
  for (int i = 0; i < 3; ++i) {
    peer.RunUntil(peer.sender.next_deadline());
    peer.Drain();
  }
  EXPECT_EQ(peer.sender.rto(), base);
}

TEST(Sender, DoesNotRepeatWhatWasAcknowledgedWhileItWaited) {
  Peer peer;
  peer.Post(4 * kPayload);
  peer.Credit(1);
  peer.Drain();
  peer.now = peer.sender.next_deadline();
  peer.sender.OnDeadline(peer.now);
  peer.report.rcv_nxt = 3 * kPayload;
  peer.Deliver();
  EXPECT_EQ(peer.Drain().size(), 1u);
  EXPECT_EQ(peer.counters.retransmitted_bytes, kPayload);
}

// ---- Pacing ----

TEST(Sender, PacesWireBytesAtTheLinkRate) {
  Config config = TestConfig();
  config.link_rate = {8 * (kPayload + kOverhead) * 1000};  // a packet a millisecond
  Peer peer(config);
  peer.Post(100 * kPayload);
  peer.Credit(1);
  EXPECT_EQ(peer.Drain().size(), 4u);  // the burst
  EXPECT_EQ(peer.sender.next_deadline(), peer.now + Milliseconds(1));
  peer.Advance(Milliseconds(1) - Nanoseconds{1});
  EXPECT_TRUE(peer.Drain().empty());
  peer.Advance(Nanoseconds{1});
  EXPECT_EQ(peer.Drain().size(), 1u);
}

TEST(Sender, PacesRetransmissionsLikeNewData) {
  Config config = TestConfig();
  config.link_rate = {8 * (kPayload + kOverhead) * 1000};
  Peer peer(config);
  peer.Post(4 * kPayload);
  peer.Credit(1);
  const auto packets = peer.Drain();
  ASSERT_EQ(packets.size(), 4u);
  peer.Trim(packets[0], true);
  peer.Deliver();
  EXPECT_TRUE(peer.Drain().empty());
  peer.Advance(Milliseconds(1));
  EXPECT_EQ(peer.Drain().size(), 1u);
}

TEST(Sender, IsUnpacedWhereNoLinkRateIsKnown) {
  Peer peer;
  peer.Post(200 * kPayload);
  peer.Credit(1);
  EXPECT_EQ(peer.sender.rate().value, 0u);
  EXPECT_LE(peer.sender.next_deadline(), peer.now);
  EXPECT_EQ(peer.Drain().size(), 200u);
}

// ---- Probes ----

TEST(Sender, AsksForAProbeAfterAnRtoWithoutCreditAndBacksOff) {
  Peer peer;
  peer.Post(16);
  peer.Drain();
  EXPECT_FALSE(peer.sender.TakeProbeDue(peer.now));
  Nanoseconds wait = peer.sender.rto();
  for (int i = 0; i < 5; ++i) {
    EXPECT_EQ(peer.sender.next_deadline(), peer.now + wait);
    peer.now = peer.sender.next_deadline();
    EXPECT_TRUE(peer.sender.TakeProbeDue(peer.now));
    EXPECT_FALSE(peer.sender.TakeProbeDue(peer.now));
    wait = std::min(wait * 2, Milliseconds(200));
  }
  peer.Post(16);
  peer.Credit(1);
  EXPECT_EQ(peer.Drain().size(), 1u);
  // The next wait begins without back-off.
  peer.report.rcv_nxt = 32;
  peer.Deliver();
  EXPECT_EQ(peer.sender.next_deadline(), peer.now + peer.sender.rto());
}

TEST(Sender, AsksForNoProbeWhileSomethingIsInFlight) {
  Peer peer;
  peer.Post(0);  // even a packet without payload
  peer.Post(16);
  peer.Credit(1);
  peer.Drain();
  peer.Advance(Seconds(5));
  EXPECT_FALSE(peer.sender.TakeProbeDue(peer.now));
}

TEST(Sender, AsksForNoProbeWithNothingToSend) {
  Peer peer;
  peer.Credit(1);
  peer.Advance(Seconds(5));
  EXPECT_FALSE(peer.sender.TakeProbeDue(peer.now));
  EXPECT_EQ(peer.sender.next_deadline(), kNever);
}

}  // namespace
}  // namespace forgive
