// SPDX-License-Identifier: Apache-2.0
// Tests of NSCC: each quadrant, fast increase and quick adapt against values computed by hand, and what a sender
// tells.
#include "transport/nscc.h"

#include <gtest/gtest.h>

#include "sender_peer.h"
#include "transport/draw.h"

namespace forgive::testing {
namespace {

constexpr uint64_t kMss = 4096;
constexpr uint64_t kEta = 614;  // 0.15 x 4096 = 614.4

TimePoint At(int64_t microseconds) { return kStart + Microseconds(microseconds); }

// The specification's reference network: 100 Gbit/s, 12 us, so a BDP of 150,000 bytes and a = 1. Then the target is
// 9 us, the largest window 225,000, fair 5 x 4096 = 20480 and the proportional gain 4 x 4096 / 12000 bytes a ns.
Config Reference() {
  Config config;
  config.link_rate = {100000000000};
  config.base_rtt = Microseconds(12);
  config.window_bytes = 1 << 30;
  config.max_payload_bytes = kMss;
  return config;
}

CongestionControl::Acknowledged Arrived(uint64_t bytes, Nanoseconds delay, bool marked = false) {
  return {bytes, delay, marked, 50000};
}

// At half of its largest window: 112,500 bytes.
Nscc Half() {
  Nscc nscc(Reference());
  nscc.OnSignal(At(0), CongestionSignal::kTimeout);
  return nscc;
}

TEST(Nscc, HasTheLargestWindowAndTheTargetOfItsNetwork) {
  EXPECT_EQ(Nscc(Reference()).largest_window_bytes(), 225000u);
  EXPECT_EQ(Nscc(Reference()).window_bytes(), 225000u);
  EXPECT_EQ(Nscc(Reference()).target_delay(), Microseconds(9));
  Config seed = Reference();
  seed.link_rate = {400000000000};
  seed.base_rtt = Microseconds(70);
  EXPECT_EQ(Nscc(seed).largest_window_bytes(), 5250000u);
  EXPECT_EQ(Nscc(seed).target_delay(), Nanoseconds{52500});
  seed.fabric_trims = false;
  EXPECT_EQ(Nscc(seed).target_delay(), Microseconds(70));
}

// ---- The four quadrants ----

TEST(Nscc, RaisesTheWindowByTheFairIncreaseWithoutAMarkAtOrAboveTheTarget) {
  Nscc nscc = Half();
  nscc.OnAcknowledged(At(1), Arrived(8 * kMss, Microseconds(9)));
  // 20480 x 32768 / 112500 = 5965.2
  EXPECT_EQ(nscc.window_bytes(), 112500 + 5965 + kEta);
}

TEST(Nscc, RaisesTheWindowInProportionToTheDistanceFromTheTargetBelowIt) {
  Nscc nscc = Half();
  nscc.OnAcknowledged(At(1), Arrived(8 * kMss, Microseconds(4)));
  // 4 x 4096 / 12000 x 32768 x 5000 = 223696213.3; / 112500 = 1988.4
  EXPECT_EQ(nscc.window_bytes(), 112500 + 1988 + kEta);
}

// Lets the average delay arrive at 18 us, twice the target, by marked acknowledgements of a byte. The first cut comes
// while it rises.
Nscc WithAverageDelayOf18us() {
  Nscc nscc = Half();
  for (int i = 0; i < 2000; ++i) nscc.OnAcknowledged(At(100), Arrived(1, Microseconds(18), true));
  EXPECT_EQ(nscc.average_delay(), Microseconds(18));
  EXPECT_EQ(nscc.cuts().mark, 1u);
  return nscc;
}

TEST(Nscc, CutsOnceAnRttByTheAveragesExcessWithAMarkAtOrAboveTheTarget) {
  Nscc nscc = WithAverageDelayOf18us();
  const uint64_t before = nscc.window_bytes();
  nscc.OnAcknowledged(At(112) - Nanoseconds{1}, Arrived(1, Microseconds(18), true));
  EXPECT_EQ(nscc.window_bytes(), before);
  nscc.OnAcknowledged(At(112), Arrived(1, Microseconds(18), true));
  // 1 - 0.8 (18 - 9) / 18 = 0.6
  EXPECT_EQ(nscc.window_bytes(), before - before * 2 / 5 + kEta);
  EXPECT_EQ(nscc.cuts().mark, 2u);
}

TEST(Nscc, CutsByHalfAtMost) {
  Nscc nscc = Half();
  for (int i = 0; i < 2000; ++i) nscc.OnAcknowledged(At(100), Arrived(1, Milliseconds(1), true));
  const uint64_t before = nscc.window_bytes();
  nscc.OnAcknowledged(At(112), Arrived(1, Milliseconds(1), true));
  EXPECT_EQ(nscc.window_bytes(), before - before / 2 + kEta);
}

TEST(Nscc, CutsNothingWithAMarkWhileTheAverageIsBelowTheTarget) {
  Nscc nscc = Half();
  nscc.OnAcknowledged(At(1), Arrived(1, Microseconds(18), true));
  EXPECT_EQ(nscc.window_bytes(), 112500 + kEta);
  EXPECT_EQ(nscc.average_delay(), Nanoseconds{225});  // 18000 / 80
  EXPECT_EQ(nscc.cuts().mark, 0u);
}

TEST(Nscc, LeavesTheWindowWithAMarkBelowTheTarget) {
  Nscc nscc = WithAverageDelayOf18us();
  const uint64_t before = nscc.window_bytes();
  nscc.OnAcknowledged(At(111), Arrived(20000, Microseconds(8), true));
  EXPECT_EQ(nscc.window_bytes(), before);
  nscc.OnAcknowledged(At(200), Arrived(20000, Microseconds(8), true));
  EXPECT_EQ(nscc.window_bytes(), before + kEta);
  EXPECT_EQ(nscc.cuts().mark, 1u);
}

// ---- Increases ----

TEST(Nscc, AppliesIncreasesEveryEightSegmentsOrRtt) {
  Nscc nscc = Half();
  nscc.OnAcknowledged(At(1), Arrived(1, Microseconds(9)));  // applies itself, and eta
  const uint64_t before = nscc.window_bytes();
  nscc.OnAcknowledged(At(2), Arrived(8 * kMss - 1, Microseconds(9)));
  EXPECT_EQ(nscc.window_bytes(), before);
  nscc.OnAcknowledged(At(2), Arrived(1, Microseconds(9)));
  const uint64_t second = before + 20480 * 32768 / before;
  EXPECT_EQ(nscc.window_bytes(), second);
  nscc.OnAcknowledged(At(13), Arrived(1000, Microseconds(9)));  // eta's RTT is over, the increase's is not
  EXPECT_EQ(nscc.window_bytes(), second);
  nscc.OnAcknowledged(At(14), Arrived(1000, Microseconds(9)));
  EXPECT_EQ(nscc.window_bytes(), second + 20480 * 2000 / second + kEta);
}

TEST(Nscc, RaisesTheWindowFastAfterAWholeWindowWithoutDelayUntilThereIsSome) {
  Nscc nscc = Half();
  nscc.OnAcknowledged(At(1), Arrived(112000, Nanoseconds{500}));
  // 16384 / 12000 x 8500 x 112000 / 112500 = 11553.8
  const uint64_t window = 112500 + 11553 + kEta;
  ASSERT_EQ(nscc.window_bytes(), window);
  const uint64_t rest = window - 112000;
  nscc.OnAcknowledged(At(2), Arrived(rest, Nanoseconds{500}));  // a whole window, not more: not yet
  ASSERT_EQ(nscc.window_bytes(), window);
  nscc.OnAcknowledged(At(2), Arrived(4000, Nanoseconds{999}));
  EXPECT_EQ(nscc.window_bytes(), window + 1000);
  nscc.OnAcknowledged(At(2), Arrived(4000, Microseconds(1)));
  nscc.OnAcknowledged(At(2), Arrived(4000, Nanoseconds{500}));
  EXPECT_EQ(nscc.window_bytes(), window + 1000);
}

TEST(Nscc, EndsAFastIncreaseWithAMarkOrATrim) {
  for (const bool mark : {true, false}) {
    Nscc nscc = Half();
    nscc.OnAcknowledged(At(1), Arrived(112501, Nanoseconds{0}));
    const uint64_t fast = 112500 + 112501 / 4 + kEta;
    ASSERT_EQ(nscc.window_bytes(), fast);
    if (mark) {
      nscc.OnAcknowledged(At(2), Arrived(1000, Nanoseconds{0}, true));
    } else {
      nscc.OnTrim(At(2), 0, 50000);
    }
    nscc.OnAcknowledged(At(2), Arrived(4000, Nanoseconds{0}));
    EXPECT_EQ(nscc.window_bytes(), fast) << mark;
  }
}

// ---- Trims and timeouts ----

TEST(Nscc, TakesTheBytesOfATrimOffTheWindow) {
  Nscc nscc(Reference());
  nscc.OnTrim(At(0), 4096, 225000);
  nscc.OnTrim(At(0), 100, 220000);
  EXPECT_EQ(nscc.window_bytes(), 225000u - 4096 - 100);
  EXPECT_EQ(nscc.cuts().trim, 2u);
}

TEST(Nscc, AdaptsToWhatArrivedWhereTooLittleDidAndIgnoresDecreasesForWhatWasInFlight) {
  Nscc nscc(Reference());
  nscc.OnTrim(At(0), 4096, 225000);                             // the period: 12 + 9 us
  nscc.OnAcknowledged(At(5), Arrived(10000, Microseconds(9)));  // 10000 < 225000 / 8
  nscc.OnTrim(At(21) - Nanoseconds{1}, 4096, 60000);
  EXPECT_GT(nscc.window_bytes(), 200000u);
  nscc.OnTrim(At(21), 4096, 50000);
  EXPECT_EQ(nscc.window_bytes(), 10000u);
  EXPECT_EQ(nscc.cuts().trim, 3u);
  nscc.OnTrim(At(22), 45903, 40000);  // the last but one of the 50000 bytes
  nscc.OnTrim(At(22), 4096, 40000);
  EXPECT_EQ(nscc.window_bytes(), 10000u);
  nscc.OnTrim(At(22), 4096, 40000);
  EXPECT_EQ(nscc.window_bytes(), 10000u - 4096);
}

TEST(Nscc, AdaptsAtTheFirstAcknowledgementAfterThePeriodToo) {
  Nscc nscc(Reference());
  nscc.OnTrim(At(0), 4096, 225000);
  nscc.OnAcknowledged(At(30), Arrived(28124, Microseconds(9)));
  EXPECT_EQ(nscc.window_bytes(), 28124 + 20480ull * 28124 / 28124 + kEta);
}

TEST(Nscc, DoesNotAdaptWhereAnEighthOfTheLargestWindowArrivedOrNothingWasTrimmed) {
  Nscc enough(Reference());
  enough.OnTrim(At(0), 4096, 225000);
  enough.OnAcknowledged(At(30), Arrived(28125, Microseconds(9)));
  EXPECT_GT(enough.window_bytes(), 200000u);
  Nscc untrimmed(Reference());
  untrimmed.OnAcknowledged(At(0), Arrived(1000, Microseconds(9)));
  untrimmed.OnAcknowledged(At(30), Arrived(1000, Microseconds(9)));
  untrimmed.OnTrim(At(60), 4096, 50000);
  EXPECT_EQ(untrimmed.window_bytes(), 225000u - 4096);
}

TEST(Nscc, IgnoresMarksForWhatWasInFlightAtAQuickAdapt) {
  Nscc nscc = WithAverageDelayOf18us();
  nscc.OnTrim(At(112), 0, 50000);
  nscc.OnTrim(At(140), 0, 50000);  // adapts
  const uint64_t adapted = nscc.window_bytes();
  ASSERT_EQ(adapted, kMss);
  nscc.OnAcknowledged(At(150), Arrived(50000, Microseconds(18), true));
  EXPECT_EQ(nscc.cuts().mark, 1u);
  nscc.OnAcknowledged(At(150), Arrived(1, Microseconds(18), true));
  EXPECT_EQ(nscc.cuts().mark, 2u);
}

TEST(Nscc, HalvesTheWindowOnATimeoutAndNamesIt) {
  Nscc nscc(Reference());
  nscc.OnSignal(At(0), CongestionSignal::kTimeout);
  EXPECT_EQ(nscc.window_bytes(), 112500u);
  EXPECT_EQ(nscc.cuts().timeout, 1u);
}

// ---- Bounds ----

TEST(Nscc, KeepsTheWindowBetweenASegmentAndOneAndAHalfBdpWhateverItHears) {
  for (const uint64_t memory : {uint64_t{1} << 30, uint64_t{100000}}) {
    Config config = Reference();
    config.window_bytes = memory;
    Nscc nscc(config);
    const uint64_t largest = std::min<uint64_t>(memory, 225000);
    Draw draw(memory);
    uint64_t least_seen = largest, most_seen = 0;
    TimePoint now = kStart;
    for (int i = 0; i < 20000; ++i) {
      const bool bad = i / 1000 % 2 != 0;
      now = now + Nanoseconds{static_cast<int64_t>(draw.Below(3000))};
      const uint64_t bytes = draw.Below(20000);
      if (bad && draw.Below(3) == 0) nscc.OnTrim(now, bytes, draw.Below(300000));
      nscc.OnAcknowledged(now, {bytes, Nanoseconds{static_cast<int64_t>(draw.Below(bad ? 60000 : 3000))}, bad, 1000});
      ASSERT_GE(nscc.window_bytes(), kMss);
      ASSERT_LE(nscc.window_bytes(), largest);
      least_seen = std::min(least_seen, nscc.window_bytes());
      most_seen = std::max(most_seen, nscc.window_bytes());
    }
    EXPECT_EQ(least_seen, kMss);
    EXPECT_EQ(most_seen, largest);
  }
}

TEST(Nscc, FollowsALeastRttThatFalls) {
  Config config = Reference();
  config.base_rtt = {};
  config.initial_rtt = Milliseconds(1);
  Nscc nscc(config);
  ASSERT_EQ(nscc.window_bytes(), 18750000u);
  nscc.set_base_rtt(Microseconds(12));
  EXPECT_EQ(nscc.window_bytes(), 225000u);
  nscc.set_base_rtt(Microseconds(24));  // the first sample may exceed the guess
  EXPECT_EQ(nscc.window_bytes(), 450000u);
  nscc.OnSignal(At(0), CongestionSignal::kTimeout);
  nscc.set_base_rtt(Microseconds(23));
  EXPECT_EQ(nscc.window_bytes(), 225000u);
}

TEST(Nscc, BeginsAnewAtItsLargestWindowWithARestart) {
  Nscc nscc = WithAverageDelayOf18us();
  nscc.OnTrim(At(110), 4096, 50000);
  nscc.Restart(At(120));
  EXPECT_EQ(nscc.window_bytes(), 225000u);
  EXPECT_EQ(nscc.average_delay(), Nanoseconds{0});
  nscc.OnTrim(At(150), 4096, 50000);  // a trim before the restart arms no quick adapt
  EXPECT_EQ(nscc.window_bytes(), 225000u - 4096);
}

// ---- What a sender tells ----

// A sender on the reference network, with segments of kPayload bytes, beside a control that is told by hand.
struct Pair : Peer {
  Pair() : Peer(SenderConfig(), 2048 * kPayload), model(ModelConfig()) {}
  static Config SenderConfig() {
    Config config = TestConfig();
    config.congestion_control = CongestionControlKind::kNscc;
    config.congestion_restart = CongestionRestart::kOff;
    config.link_rate = {100000000000};
    config.base_rtt = Microseconds(12);
    config.pacing_burst_bytes = 1 << 20;
    return config;
  }
  static Config ModelConfig() {
    Config config = SenderConfig();
    config.max_payload_bytes = kPayload;
    return config;
  }
  // Sends a window of one message and halves it by a timeout, so that it can grow.
  std::vector<DataHeader> SendHalf() {
    Post(1 << 20);
    Credit(1);
    std::vector<DataHeader> sent = Drain();
    Advance(Milliseconds(21));
    sender.OnDeadline(now);
    model.OnSignal(now, CongestionSignal::kTimeout);
    EXPECT_EQ(counters.timeouts, 1u);
    EXPECT_EQ(sender.window_bytes(), model.window_bytes());
    report.rcv_nxt = 0;
    return Drain();
  }
  Nscc model;
};

TEST(NsccSender, TellsWhatArrivedWithTheNewestPacketsDelay) {
  Pair pair;
  const std::vector<DataHeader> sent = pair.SendHalf();
  ASSERT_GE(sent.size(), 20u);
  pair.Advance(Microseconds(12) + Nanoseconds{6400});
  pair.SetNewest(sent[15]);
  pair.report.received_bytes = 16 * kPayload;
  const uint64_t flight = pair.sender.bytes_in_flight();
  const Nanoseconds rtt = SinceTimestamp(pair.now, sent[15].send_timestamp);
  pair.Deliver();
  pair.model.OnAcknowledged(pair.now, {16 * kPayload, rtt - Microseconds(12), false, flight});
  EXPECT_EQ(pair.sender.window_bytes(), pair.model.window_bytes());
  EXPECT_GT(pair.sender.window_bytes(), 112500u);
  // The same news again, and news of an older packet, say nothing.
  const uint64_t window = pair.sender.window_bytes();
  pair.Advance(Microseconds(50));
  pair.Deliver();
  EXPECT_EQ(pair.sender.window_bytes(), window);
}

TEST(NsccSender, TellsMarkedAndUnmarkedBytesApart) {
  Pair pair;
  const std::vector<DataHeader> sent = pair.SendHalf();
  for (size_t i = 0; i < 40; ++i) {
    pair.Advance(Microseconds(100));
    pair.SetNewest(sent[i]);
    pair.report.received_bytes += kPayload + (i % 3) * 16;
    pair.report.ce_bytes += (i % 3) * 16;
    const uint64_t flight = pair.sender.bytes_in_flight();
    const Nanoseconds delay = SinceTimestamp(pair.now, sent[i].send_timestamp) - Microseconds(12);
    pair.Deliver();
    pair.model.OnAcknowledged(pair.now, {kPayload, delay, false, flight});
    if (i % 3 != 0) pair.model.OnAcknowledged(pair.now, {(i % 3) * 16, delay, true, flight});
    ASSERT_EQ(pair.sender.window_bytes(), pair.model.window_bytes()) << i;
  }
  EXPECT_GT(pair.model.cuts().mark, 0u);
  EXPECT_EQ(pair.counters.rate_cuts_mark, pair.model.cuts().mark);
}

TEST(NsccSender, TellsNothingByAReportThatATrimCausedButItsBytes) {
  Pair pair;
  const std::vector<DataHeader> sent = pair.SendHalf();
  pair.Advance(Microseconds(20));
  pair.SetNewest(sent[9]);
  pair.report.received_bytes = 10 * kPayload;
  pair.Trim(sent[10], true);
  const uint64_t before = pair.sender.window_bytes();
  pair.Deliver();
  EXPECT_EQ(pair.sender.window_bytes(), before - kPayload);
  EXPECT_EQ(pair.counters.rate_cuts_trim, 1u);
  // The next report that no trim caused brings what had arrived by then too.
  pair.model.OnTrim(pair.now, kPayload, 0);
  pair.Advance(Microseconds(1));
  pair.SetNewest(sent[11]);
  pair.report.received_bytes = 11 * kPayload;
  const Nanoseconds delay = SinceTimestamp(pair.now, sent[11].send_timestamp) - Microseconds(12);
  pair.Deliver();
  pair.model.OnAcknowledged(pair.now, {11 * kPayload, delay, false, 0});
  EXPECT_EQ(pair.sender.window_bytes(), pair.model.window_bytes());
}

TEST(NsccSender, IgnoresMarksAndTrimsWhileExemptAndGrowsOn) {
  Pair pair;
  const std::vector<DataHeader> sent = pair.SendHalf();
  pair.Exempt(1);
  uint64_t window = pair.sender.window_bytes();
  for (size_t i = 0; i < 40; ++i) {
    pair.Advance(Microseconds(100));
    pair.SetNewest(sent[2 * i]);
    pair.report.received_bytes += kPayload;
    pair.report.ce_bytes += kPayload;
    pair.Deliver();
    ASSERT_GT(pair.sender.window_bytes(), window) << i;
    window = pair.sender.window_bytes();
    pair.Trim(sent[2 * i + 1], true);
    pair.Deliver();
    ASSERT_EQ(pair.sender.window_bytes(), window) << i;
  }
  EXPECT_EQ(pair.counters.rate_cuts_mark + pair.counters.rate_cuts_trim, 0u);
  EXPECT_EQ(pair.counters.signals_ignored, 80u);
}

}  // namespace
}  // namespace forgive::testing
