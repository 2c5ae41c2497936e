// SPDX-License-Identifier: Apache-2.0
// Tests of a sender whose segments become smaller, as the path swallows longer ones.
#include "sender_peer.h"

namespace forgive {
namespace {

using namespace testing;  // NOLINT: the fixture's names

constexpr uint32_t kLarge = 4096;

// Everything vanishes, and the peer answers, until segments become smaller.
void LoseUntilTheCut(Peer* peer) {
  const uint64_t cuts = peer->counters.segment_cuts;
  for (int round = 0; round < 20 && peer->counters.segment_cuts == cuts; ++round) {
    peer->Deliver();
    peer->now = std::max(peer->now, peer->sender.next_deadline());
    peer->sender.OnDeadline(peer->now);
    if (peer->counters.segment_cuts == cuts) peer->Drain();
  }
  Event event;
  while (peer->events.Pop(&event)) EXPECT_EQ(event.kind, Event::Kind::kSegmentsCut);
}

TEST(SenderBlackHole, CutsAllOfAFullWindowAnewThoughEverythingWasOutstanding) {
  Config config = TestConfig();
  config.window_bytes = 256 * kLarge;
  Peer peer(config, 256 * kLarge, kLarge);
  peer.Post(255 * kLarge);
  peer.Credit(1);
  ASSERT_EQ(peer.Drain().size(), 255u);
  LoseUntilTheCut(&peer);
  LoseUntilTheCut(&peer);
  ASSERT_EQ(peer.counters.segment_cuts, 2u);
  uint64_t position = 0;
  for (const DataHeader& header : peer.Drain()) {
    EXPECT_EQ(header.stream_offset, position);
    EXPECT_LE(header.payload_length, 1168u);
    position += header.payload_length;
  }
  EXPECT_EQ(position, uint64_t{255} * kLarge);
  peer.report.rcv_nxt = position + kUnitBytes;
  peer.report.completed_messages = 1;
  peer.Deliver();
  EXPECT_EQ(peer.SentCookies(), std::vector<uint64_t>{1000});
}

TEST(SenderBlackHole, SendsNoFurtherAheadThanItHasRecordsForOnceSegmentsAreSmall) {
  Config config = TestConfig();
  config.window_bytes = 16 * kLarge;
  Peer peer(config, 256 * kLarge, kLarge);
  peer.Post(255 * kLarge);
  peer.Credit(1);
  peer.Drain();
  LoseUntilTheCut(&peer);
  LoseUntilTheCut(&peer);
  // The first segment is missing, whatever else arrives: records stay until it has come.
  uint64_t end = 0;
  uint64_t segments = 0;
  for (auto packets = peer.Drain(); !packets.empty(); packets = peer.Drain()) {
    for (const DataHeader& header : packets) {
      end = std::max(end, header.stream_offset + header.payload_length);
      ++segments;
    }
    peer.AddSack(1168, end);
    peer.Deliver();
  }
  EXPECT_GT(segments, 255u) << "fewer segments are ahead than before the cut";
  EXPECT_LT(end, 250u * kLarge) << "nothing held it back: this proves nothing";
  peer.report.rcv_nxt = end;
  peer.Deliver();
  EXPECT_FALSE(peer.Drain().empty());
}

TEST(SenderBlackHole, BacksOffAnewOnceSegmentsAreSmaller) {
  Peer peer(TestConfig(), 256 * kLarge, kLarge);
  const Nanoseconds rto = peer.sender.rto();
  peer.Post(4 * kLarge);
  peer.Credit(1);
  peer.Drain();
  LoseUntilTheCut(&peer);
  ASSERT_EQ(peer.counters.segment_cuts, 1u);
  EXPECT_EQ(peer.sender.rto(), rto);
}

TEST(SenderBlackHole, WhatWasAcknowledgedBeforeTheFirstTimeoutAcquitsNothing) {
  Config config = TestConfig();
  Peer peer(config, 256 * kLarge, kLarge);
  peer.Post(2 * kLarge);
  peer.Post(16);
  peer.Credit(2);
  const auto packets = peer.Drain();
  ASSERT_EQ(packets.size(), 3u);
  peer.report.rcv_nxt = kLarge;
  peer.Deliver();
  uint64_t timeouts = 0;
  for (; timeouts < 20 && peer.counters.segment_cuts == 0; ++timeouts) {
    // The small message arrives behind the hole.
    if (timeouts == BlackHoleDetector::kRounds - 1) {
      peer.AddSack(packets[2].stream_offset, packets[2].stream_offset + 2 * kUnitBytes);
    }
    peer.Deliver();
    peer.now = std::max(peer.now, peer.sender.next_deadline());
    peer.sender.OnDeadline(peer.now);
    if (peer.counters.segment_cuts == 0) peer.Drain();
  }
  EXPECT_EQ(timeouts, BlackHoleDetector::kRounds + 1);
}

}  // namespace
}  // namespace forgive
