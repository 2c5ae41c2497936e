// SPDX-License-Identifier: Apache-2.0
// Tests of which paths a spraying sender leaves, when it tries them again, and when it takes them back.
#include "transport/path_health.h"

#include <gtest/gtest.h>

#include <set>

#include "sender_peer.h"

namespace forgive::testing {
namespace {

TimePoint At(int64_t ms) { return TimePoint{} + Milliseconds(ms); }

// Three timeouts at 10, 20 and 30 ms, without anything in between.
bool Silence(PathHealth* health, uint16_t path) {
  EXPECT_FALSE(health->OnTimeout(path, At(10), At(1)));
  EXPECT_FALSE(health->OnTimeout(path, At(20), At(1)));
  return health->OnTimeout(path, At(30), At(1));
}

TEST(PathHealth, LeavesAPathAfterThreeTimeoutsBetweenWhichNothingCameThrough) {
  PathHealth health(4);
  EXPECT_TRUE(Silence(&health, 2));
  EXPECT_EQ(health.given_up(), 1u);
  for (uint16_t path = 0; path < 4; ++path) EXPECT_EQ(health.MayTake(path, At(1)), path != 2);
  EXPECT_FALSE(health.OnTimeout(2, At(40), At(1)));  // once
  EXPECT_EQ(health.given_up(), 1u);
}

TEST(PathHealth, KeepsAPathByWhichSomethingCameThroughBetweenTimeouts) {
  PathHealth health(4);
  for (int64_t ms = 10; ms < 1000; ms += 10) {
    EXPECT_FALSE(health.OnTimeout(2, At(ms), At(ms / 20 * 20 - 5)));  // every other time
  }
  EXPECT_EQ(health.given_up(), 0u);
}

TEST(PathHealth, TriesAPathThatItLeftEverMoreSeldom) {
  PathHealth health(2);
  ASSERT_TRUE(Silence(&health, 1));
  uint32_t rest = PathHealth::kFirstRest;
  for (int tries = 0; tries < 8; ++tries) {
    for (uint32_t turn = 1; turn < rest; ++turn) ASSERT_FALSE(health.MayTake(1, At(1))) << tries << " " << turn;
    ASSERT_TRUE(health.MayTake(1, At(1))) << tries;
    rest = std::min(2 * rest, PathHealth::kLongestRest);
  }
}

TEST(PathHealth, TakesAPathBackBySomethingThatCameThroughSinceItsLastTimeoutAndByNothingOlder) {
  PathHealth health(2);
  ASSERT_TRUE(Silence(&health, 1));
  EXPECT_FALSE(health.MayTake(1, At(30)));
  EXPECT_TRUE(health.MayTake(1, At(31)));
  EXPECT_EQ(health.given_up(), 0u);
  EXPECT_FALSE(health.OnTimeout(1, At(50), At(31)));  // counted anew
  EXPECT_FALSE(health.OnTimeout(1, At(60), At(31)));
  EXPECT_TRUE(health.OnTimeout(1, At(70), At(31)));
}

TEST(PathHealth, BlamesNoPathWhereAllOfThemAreSilent) {
  PathHealth health(3);
  EXPECT_TRUE(Silence(&health, 0));
  EXPECT_TRUE(Silence(&health, 1));
  EXPECT_EQ(health.given_up(), 2u);
  EXPECT_FALSE(Silence(&health, 2));
  EXPECT_EQ(health.given_up(), 0u);
  for (uint16_t path = 0; path < 3; ++path) EXPECT_TRUE(health.MayTake(path, At(1)));
}

// ---- A sender ----

constexpr uint32_t kSegments = 4000;

// A long message over four paths. Each millisecond the peer tells all that came.
struct LongMessage : Peer {
  static Config Sprayed(PathPolicy policy) {
    Config config = TestConfig();
    config.path_policy = policy;
    config.paths = 4;
    return config;
  }
  explicit LongMessage(PathPolicy policy) : Peer(Sprayed(policy)) {
    memory.resize(kSegments * kPayload);
    Post(kSegments * kPayload);
    Credit(1);
  }

  // A millisecond, in which `dead` loses everything. Returns how many packets left by path 3.
  uint64_t Turn(const std::set<uint16_t>& dead) {
    uint64_t by_path_3 = 0;
    for (const DataHeader& header : Drain()) {
      if (header.path == 3) ++by_path_3;
      ++packets;
      if (dead.contains(header.path)) continue;
      got[header.stream_offset / kPayload] = true;
      SetNewest(header);
    }
    Advance(Milliseconds(1));
    uint32_t next = static_cast<uint32_t>(report.rcv_nxt / kPayload);
    while (got[next]) ++next;
    report.rcv_nxt = uint64_t{next} * kPayload;
    do {  // as many reports as the ranges need
      while (report.sack_count < kMaxSackRanges && next < kSegments) {
        while (next < kSegments && !got[next]) ++next;
        const uint32_t begin = next;
        while (next < kSegments && got[next]) ++next;
        if (begin != next) AddSack(uint64_t{begin} * kPayload, uint64_t{next} * kPayload);
      }
      Deliver();
    } while (next < kSegments);
    sender.OnDeadline(now);
    return by_path_3;
  }

  std::vector<bool> got = std::vector<bool>(kSegments + 1);
  uint64_t packets = 0;
};

TEST(SprayingSender, LeavesADeadPathAndTakesItBackWhenItLives) {
  for (const PathPolicy policy : {PathPolicy::kOblivious, PathPolicy::kReps}) {
    LongMessage job(policy);
    int turns = 0;
    for (; turns < 500 && job.counters.paths_given_up == 0; ++turns) job.Turn({3});
    ASSERT_EQ(job.counters.paths_given_up, 1u);
    // From now on only tries leave by it.
    const uint64_t packets = job.packets;
    uint64_t by_dead_path = 0;
    while (turns < 1000 && job.packets < packets + 1500) {
      by_dead_path += job.Turn({3});
      ++turns;
    }
    ASSERT_GE(job.packets, packets + 1500);
    EXPECT_LE(by_dead_path, 1 + 1500 / 4 / PathHealth::kFirstRest);
    EXPECT_EQ(job.counters.paths_returned, 0u);
    for (; turns < 2000 && job.counters.paths_returned == 0; ++turns) job.Turn({});
    EXPECT_EQ(job.counters.paths_returned, 1u);
    uint64_t by_path = 0;
    for (int i = 0; i < 5; ++i) by_path += job.Turn({});
    EXPECT_GT(by_path, 40u);  // of what is left of the message
  }
}

TEST(SprayingSender, GoesOnByEveryPathAfterAllOfThemWereSilent) {
  LongMessage job(PathPolicy::kOblivious);
  job.Turn({});
  for (int i = 0; i < 3000; ++i) job.Turn({0, 1, 2, 3});
  EXPECT_GT(job.counters.timeouts, 4u);
  EXPECT_EQ(job.counters.paths_given_up, job.counters.paths_returned);
  uint64_t by_path = 0;
  for (int i = 0; i < 300 && !job.got[kSegments - 1]; ++i) by_path += job.Turn({});
  EXPECT_TRUE(job.got[kSegments - 1]);
  EXPECT_GT(by_path, kSegments / 8);
}

}  // namespace
}  // namespace forgive::testing
