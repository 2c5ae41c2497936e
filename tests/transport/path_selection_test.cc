// SPDX-License-Identifier: Apache-2.0
// Tests of spraying: which path a packet takes, and that losses are judged path by path.
#include "transport/path_selection.h"

#include <gtest/gtest.h>

#include <set>

#include "sender_peer.h"

namespace forgive::testing {
namespace {

TEST(PathSelector, TakesOnePathWhereNothingIsSprayed) {
  PathSelector selector(PathPolicy::kSingle, 1, 7);
  for (int i = 0; i < 10; ++i) EXPECT_EQ(selector.Next(), 0);
}

TEST(PathSelector, TakesEveryPathInTurnFromAStartThatTheSeedChooses) {
  std::set<uint16_t> starts;
  for (uint64_t seed = 0; seed < 40; ++seed) {
    PathSelector selector(PathPolicy::kOblivious, 5, seed);
    const uint16_t start = selector.Next();
    starts.insert(start);
    for (int i = 1; i < 20; ++i) {
      selector.OnArrived(start, false);  // what arrives changes nothing
      ASSERT_EQ(selector.Next(), (start + i) % 5) << "seed " << seed;
    }
  }
  EXPECT_EQ(starts.size(), 5u);
}

TEST(PathSelector, UsesAPathAgainOnceForEachUnmarkedArrivalTheOldestFirst) {
  PathSelector selector(PathPolicy::kReps, 100, 3);
  const uint16_t start = selector.Next();
  selector.OnArrived(7, false);
  selector.OnArrived(8, true);
  selector.OnArrived(9, false);
  selector.OnArrived(9, false);
  EXPECT_EQ(selector.Next(), 7);
  EXPECT_EQ(selector.Next(), 9);
  EXPECT_EQ(selector.Next(), 9);
  EXPECT_EQ(selector.Next(), (start + 1) % 100);  // none waits: in turn
  EXPECT_EQ(selector.Next(), (start + 2) % 100);
}

TEST(PathSelector, KeepsTheNewestEightPathsThatWait) {
  PathSelector selector(PathPolicy::kReps, 100, 3);
  for (uint16_t path = 10; path < 20; ++path) selector.OnArrived(path, false);
  for (uint16_t path = 12; path < 20; ++path) EXPECT_EQ(selector.Next(), path);
}

// ---- A sender that sprays ----

Config Sprayed(PathPolicy policy, uint32_t paths = 4) {
  Config config = TestConfig();
  config.path_policy = policy;
  config.paths = paths;
  return config;
}

// Two messages of four segments each, the second one a millisecond after the first.
struct Sprayer : Peer {
  explicit Sprayer(PathPolicy policy) : Peer(Sprayed(policy)) {
    Post(4 * kPayload);
    Credit(2);
    sent = Drain();
    Advance(Milliseconds(1));
    Post(4 * kPayload);
    for (const DataHeader& header : Drain()) sent.push_back(header);
    EXPECT_EQ(sent.size(), 8u);
    Advance(Microseconds(70));
  }
  void Echo(size_t packet) {
    SetNewest(sent[packet]);
    Deliver();
  }
  std::vector<DataHeader> sent;
};

TEST(SprayingSender, WritesTheChosenPathIntoEachPacket) {
  Sprayer sprayer(PathPolicy::kOblivious);
  for (size_t i = 0; i < 8; ++i) EXPECT_EQ(sprayer.sent[i].path, (sprayer.sent[0].path + i) % 4);
}

TEST(SprayingSender, TakesForLostOnlyWhatWasSentBeforeOnTheSamePath) {
  Sprayer sprayer(PathPolicy::kOblivious);
  sprayer.Echo(4);  // the path of packet 0
  EXPECT_EQ(sprayer.counters.lost_by_rack, 1u);
  const std::vector<DataHeader> again = sprayer.Drain();
  ASSERT_EQ(again.size(), 1u);
  EXPECT_EQ(again[0].stream_offset, sprayer.sent[0].stream_offset);
}

TEST(SprayingSender, HearsOfEachPacketOnceThoughANewerOneOfAnotherPathCameFirst) {
  Sprayer sprayer(PathPolicy::kOblivious);
  sprayer.Echo(6);
  EXPECT_EQ(sprayer.counters.lost_by_rack, 1u);
  sprayer.Echo(5);
  EXPECT_EQ(sprayer.counters.lost_by_rack, 2u);
  const Nanoseconds smoothed = sprayer.sender.smoothed_rtt();
  sprayer.Advance(Milliseconds(5));
  sprayer.Echo(5);  // repeated by a report of other news
  EXPECT_EQ(sprayer.sender.smoothed_rtt(), smoothed);
}

TEST(SprayingSender, SendsAgainOnThePathOfAnUnmarkedArrivalButNotOfAMarkedOne) {
  Sprayer fresh(PathPolicy::kReps);
  fresh.report.ce_bytes = kPayload;
  fresh.Echo(5);
  fresh.Echo(6);
  fresh.Echo(7);
  const std::vector<DataHeader> again = fresh.Drain();  // packets 1, 2 and 3 of the first message are lost
  ASSERT_EQ(again.size(), 3u);
  EXPECT_EQ(again[0].path, fresh.sent[6].path);
  EXPECT_EQ(again[1].path, fresh.sent[7].path);
  EXPECT_EQ(again[2].path, (fresh.sent[7].path + 1) % 4);  // none waits: in turn
}

TEST(SprayingSender, RecyclesNoPathByAReportThatATrimCaused) {
  Sprayer sprayer(PathPolicy::kReps);
  sprayer.SetNewest(sprayer.sent[6]);
  sprayer.Trim(sprayer.sent[7], true);
  sprayer.Deliver();
  const std::vector<DataHeader> again = sprayer.Drain();
  ASSERT_EQ(again.size(), 1u);
  EXPECT_EQ(again[0].path, (sprayer.sent[7].path + 1) % 4);  // in turn, not packet 6's
}

TEST(SprayingSender, TimesOutAtTheSameMomentAsASenderWithOnePath) {
  for (const uint32_t paths : {1u, 4u, kMaxPaths}) {
    Peer peer(Sprayed(PathPolicy::kOblivious, paths));
    peer.Post(8 * kPayload);
    peer.Credit(1);
    const std::vector<DataHeader> sent = peer.Drain();
    const TimePoint last = peer.now;
    ASSERT_EQ(sent.size(), 8u);
    while (peer.counters.timeouts == 0) {
      ASSERT_LE(peer.sender.next_deadline(), last + peer.sender.rto());
      peer.now = std::max(peer.now + Nanoseconds{1}, peer.sender.next_deadline());
      peer.sender.OnDeadline(peer.now);
      if (peer.counters.timeouts != 0) break;
      peer.Drain();
    }
    EXPECT_EQ(peer.now, last + Milliseconds(20)) << paths;
  }
}

TEST(SprayingSender, ProgressOnOnePathDoesNotHoldBackTheTimeoutOfAnother) {
  Peer peer(Sprayed(PathPolicy::kOblivious));
  peer.Post(4 * kPayload);
  peer.Credit(1);
  const std::vector<DataHeader> sent = peer.Drain();
  const TimePoint start = peer.now;
  peer.Advance(Milliseconds(10));
  peer.AddSack(sent[1].stream_offset, sent[1].stream_offset + kPayload);
  peer.Deliver();
  while (peer.counters.timeouts == 0 && peer.now < start + Seconds(1)) {
    peer.now = std::max(peer.now + Nanoseconds{1}, peer.sender.next_deadline());
    peer.sender.OnDeadline(peer.now);
  }
  EXPECT_EQ(peer.now, start + Milliseconds(20));
  EXPECT_EQ(peer.Drain().size(), 3u);
}

TEST(SprayingSender, WakesNobodyForTheTimeoutOfWhatWasAcknowledgedLongAgo) {
  Peer peer(Sprayed(PathPolicy::kOblivious));
  peer.Post(kPayload);
  peer.Credit(2);
  const std::vector<DataHeader> sent = peer.Drain();
  ASSERT_EQ(sent.size(), 1u);
  peer.SetNewest(sent[0]);
  peer.report.rcv_nxt = kPayload + kUnitBytes;
  peer.report.completed_messages = 1;
  peer.Deliver();
  ASSERT_EQ(peer.sender.next_deadline(), kNever);
  peer.now = peer.now + Seconds(1);
  peer.Post(kPayload);
  ASSERT_EQ(peer.Drain().size(), 1u);
  EXPECT_EQ(peer.sender.next_deadline(), peer.now + peer.sender.rto());
}

TEST(SprayingSender, WakesNobodyOnceMoreForATimeoutThatHasFired) {
  Peer peer(Sprayed(PathPolicy::kOblivious));
  peer.Post(8 * kPayload);
  peer.Credit(1);
  ASSERT_EQ(peer.Drain().size(), 8u);
  peer.now = peer.now + Milliseconds(20);
  peer.sender.OnDeadline(peer.now);
  ASSERT_EQ(peer.counters.timeouts, 1u);
  ASSERT_EQ(peer.Drain().size(), 8u);
  EXPECT_GT(peer.sender.next_deadline(), peer.now);
}

}  // namespace
}  // namespace forgive::testing
