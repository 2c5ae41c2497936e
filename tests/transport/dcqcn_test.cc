// SPDX-License-Identifier: Apache-2.0
// Tests of DCQCN's two parameter sets, against values computed by hand and against plain models.
#include "transport/dcqcn.h"

#include <gtest/gtest.h>

#include <cmath>

#include "transport/draw.h"

namespace forgive {
namespace {

constexpr TimePoint kStart{5000000000};
constexpr uint64_t kSeedLine = 400000000000;  // the seed's
constexpr uint64_t kPaperLine = 40000000000;  // SIGCOMM'15's
constexpr CongestionSignal kMark = CongestionSignal::kMark;

// alpha's rounding down adds up to at most 256 of 2^32, and half of alpha is taken off a rate of at most the line's.
constexpr double kRounding = 400e9 * 256 / 4294967296.0 / 2;

TimePoint At(int64_t microseconds) { return kStart + Microseconds(microseconds); }

Config ConfigFor(uint64_t line) {
  Config config;
  config.link_rate = {line};
  config.base_rtt = Microseconds(70);
  config.window_bytes = 3500000;
  return config;
}

// ---- astra ----

TEST(DcqcnAstra, CutsAtTheDecreaseTickThatFollowsTheFirstNotification) {
  DcqcnAstra astra(ConfigFor(kSeedLine));
  astra.OnSignal(At(0), kMark);
  astra.OnDeadline(At(4) - Nanoseconds{1});
  EXPECT_EQ(astra.current_rate().value, kSeedLine);
  EXPECT_EQ(astra.next_deadline(), At(4));
  astra.OnDeadline(At(4));
  // alpha = (255/256)^4 = 4228250625 / 2^32; 400e9 (1 - alpha/2) = 400e9 - 196893262909.4
  EXPECT_EQ(astra.alpha(), 4228250625u);
  EXPECT_EQ(astra.current_rate().value, kSeedLine - 196893262909);
  EXPECT_EQ(astra.target_rate().value, kSeedLine);
  EXPECT_EQ(astra.cuts().mark, 1u);
}

TEST(DcqcnAstra, FollowsTheHandComputedTrajectory) {
  DcqcnAstra astra(ConfigFor(kSeedLine));
  astra.OnSignal(At(0), kMark);
  astra.OnDeadline(At(4));
  const uint64_t first = astra.current_rate().value;
  // A notification at 10 us counts at the alpha tick of 11 us and at the decrease tick of 12 us.
  astra.OnSignal(At(10), kMark);
  astra.OnDeadline(At(12));
  // alpha: six ticks without, one with, one without.
  double alpha = std::pow(255.0 / 256, 4 + 6);
  alpha = alpha * 255 / 256 + 1.0 / 256;
  alpha = alpha * 255 / 256;
  const double second = static_cast<double>(first) * (1 - alpha / 2);
  EXPECT_NEAR(static_cast<double>(astra.current_rate().value), second, kRounding);
  EXPECT_EQ(astra.target_rate().value, kSeedLine);  // no increase since the last cut: the target stays
  // The increase timer began anew with the cut.
  astra.OnDeadline(At(911));
  EXPECT_NEAR(static_cast<double>(astra.current_rate().value), second, kRounding);
  astra.OnDeadline(At(912));
  const double third = (second + 400e9) / 2;
  EXPECT_NEAR(static_cast<double>(astra.current_rate().value), third, kRounding);
  // A cut after an increase takes the rate as target. It falls on 1000 us, a multiple of 4; alpha has long decayed.
  astra.OnSignal(At(996), kMark);
  astra.OnDeadline(At(1000));
  EXPECT_NEAR(static_cast<double>(astra.target_rate().value), third, kRounding);
  alpha *= std::pow(255.0 / 256, 996 - 12);
  alpha = alpha * 255 / 256 + 1.0 / 256;
  alpha *= std::pow(255.0 / 256, 3);
  const double fourth = third * (1 - alpha / 2);
  EXPECT_NEAR(static_cast<double>(astra.current_rate().value), fourth, kRounding);
  // Half way; then the target rises by 200 Mbit/s; then by 400 Mbit/s each time.
  astra.OnDeadline(At(1000 + 900));
  const double fifth = (fourth + third) / 2;
  EXPECT_NEAR(static_cast<double>(astra.current_rate().value), fifth, kRounding);
  astra.OnDeadline(At(1000 + 1800));
  const double sixth = (fifth + third + 200e6) / 2;
  EXPECT_NEAR(static_cast<double>(astra.current_rate().value), sixth, kRounding);
  astra.OnDeadline(At(1000 + 2700));
  EXPECT_NEAR(static_cast<double>(astra.current_rate().value), (sixth + third + 600e6) / 2, kRounding);
  EXPECT_NEAR(static_cast<double>(astra.target_rate().value), third + 600e6, kRounding);
  EXPECT_EQ(astra.cuts().mark, 3u);
}

// The same algorithm as an event loop that stops at every microsecond, in floating point.
class AstraModel {
 public:
  void Tick(int64_t us, bool notified) {
    if (started_) {
      const int64_t since = us - start_;
      if (since > 0) {
        alpha_ = alpha_ * 255 / 256 + (alpha_notified_ ? 1.0 / 256 : 0);
        alpha_notified_ = false;
        if (cut_at_ >= 0 && us > cut_at_ && (us - cut_at_) % 900 == 0) Increase();
        if (since % 4 == 0 && decrease_notified_) Cut(us);
      }
    }
    if (!notified) return;
    if (!started_) {
      started_ = true;
      start_ = us;
      alpha_ = 1;
    } else {
      alpha_notified_ = true;
    }
    decrease_notified_ = true;
  }
  double rate_ = 400e9;
  double target_ = 400e9;

 private:
  void Cut(int64_t us) {
    if (stage_ != 0) target_ = rate_;
    rate_ = std::max(400e6, rate_ * (1 - alpha_ / 2));
    stage_ = 0;
    cut_at_ = us;
    decrease_notified_ = false;
  }
  void Increase() {
    if (stage_ == 1) target_ += 200e6;
    if (stage_ > 1) target_ += 400e6;
    target_ = std::min(target_, 400e9);
    rate_ = (rate_ + target_) / 2;
    ++stage_;
  }
  bool started_ = false, alpha_notified_ = false, decrease_notified_ = false;
  double alpha_ = 1;
  int64_t start_ = 0, cut_at_ = -1;
  int stage_ = 0;
};

TEST(DcqcnAstra, AgreesWithAModelThatTicksEveryMicrosecondHoweverRarelyItIsAsked) {
  for (uint64_t seed = 0; seed < 100; ++seed) {
    Draw draw(seed);
    AstraModel model;
    DcqcnAstra astra(ConfigFor(kSeedLine));
    const uint64_t mean_gap = 1 + draw.Below(2000);
    int64_t next_signal = 0;
    for (int64_t us = 0; us < 30000; ++us) {
      const bool notified = us == next_signal;
      if (notified) next_signal = us + 1 + static_cast<int64_t>(draw.Below(2 * mean_gap));
      model.Tick(us, notified);
      if (notified) astra.OnSignal(At(us), kMark);
      if (draw.Below(3 * mean_gap) != 0 && us != 29999) continue;
      astra.OnDeadline(At(us));
      ASSERT_NEAR(static_cast<double>(astra.current_rate().value), model.rate_, model.rate_ * 1e-5)
          << "seed " << seed << " at " << us << " us";
      ASSERT_NEAR(static_cast<double>(astra.target_rate().value), model.target_, model.target_ * 1e-5);
    }
  }
}

TEST(DcqcnAstra, EndsInTheSameStateWhetherPolledAtEveryTickOrOnlyAtSignals) {
  Draw draw(3);
  DcqcnAstra eager(ConfigFor(kSeedLine)), late(ConfigFor(kSeedLine));
  TimePoint now = kStart;
  for (int i = 0; i < 300; ++i) {
    const TimePoint next = now + Nanoseconds{static_cast<int64_t>(1 + draw.Below(i % 10 == 0 ? 30000000 : 30000))};
    for (; now < next; now = now + Nanoseconds{500}) eager.OnDeadline(now);
    now = next;
    const CongestionSignal signal = draw.Below(20) == 0 ? CongestionSignal::kTimeout : kMark;
    eager.OnSignal(now, signal);
    late.OnSignal(now, signal);
    ASSERT_EQ(eager.alpha(), late.alpha()) << i;
    ASSERT_EQ(eager.current_rate(), late.current_rate()) << i;
    ASSERT_EQ(eager.target_rate(), late.target_rate()) << i;
    ASSERT_EQ(eager.window_bytes(), late.window_bytes());
    ASSERT_EQ(eager.next_deadline(), late.next_deadline());
  }
  EXPECT_EQ(eager.cuts().mark, late.cuts().mark);
}

TEST(DcqcnAstra, CutsOnceADecreaseIntervalHoweverManyNotifications) {
  DcqcnAstra astra(ConfigFor(kSeedLine));
  for (int64_t ns = 0; ns < 40000; ns += 10) astra.OnSignal(kStart + Nanoseconds{ns}, kMark);
  astra.OnDeadline(At(100));
  EXPECT_EQ(astra.cuts().mark, 10u);
}

TEST(DcqcnAstra, NamesTheSignalThatCameFirstAsTheCutsCause) {
  DcqcnAstra astra(ConfigFor(kSeedLine));
  astra.OnSignal(At(0), CongestionSignal::kTrim);
  astra.OnSignal(At(1), kMark);
  astra.OnDeadline(At(4));
  EXPECT_EQ(astra.cuts().trim, 1u);
  EXPECT_EQ(astra.cuts().mark, 0u);
  astra.OnSignal(At(5), kMark);
  astra.OnSignal(At(6), CongestionSignal::kTrim);
  astra.OnDeadline(At(8));
  EXPECT_EQ(astra.cuts().trim, 1u);
  EXPECT_EQ(astra.cuts().mark, 1u);
}

TEST(DcqcnAstra, NeverFallsBelowAThousandthOfTheLineRate) {
  DcqcnAstra astra(ConfigFor(kSeedLine));
  for (int64_t us = 0; us < 1000; ++us) astra.OnSignal(At(us), kMark);
  EXPECT_EQ(astra.current_rate().value, 400000000u);
}

TEST(DcqcnAstra, ScalesTheWindowWithTheRate) {
  DcqcnAstra astra(ConfigFor(kSeedLine));
  EXPECT_EQ(astra.window_bytes(), 3500000u);
  for (int64_t us = 0; us < 1000; ++us) astra.OnSignal(At(us), kMark);
  EXPECT_EQ(astra.window_bytes(), 3500u);
}

TEST(DcqcnAstra, ReturnsToTheLineRateAndThenNeedsNoTimer) {
  DcqcnAstra astra(ConfigFor(kSeedLine));
  for (int64_t us = 0; us < 200; ++us) astra.OnSignal(At(us), kMark);
  ASSERT_LT(astra.current_rate().value, kSeedLine / 100);
  ASSERT_NE(astra.next_deadline(), kNever);
  astra.OnDeadline(At(2000000));
  EXPECT_EQ(astra.current_rate().value, kSeedLine);
  EXPECT_EQ(astra.next_deadline(), kNever);
}

TEST(DcqcnAstra, RunsTheSameCourseAtAnotherRttAndRate) {
  Config slow = ConfigFor(kSeedLine / 1000);
  slow.base_rtt = Microseconds(70) * 71;
  DcqcnAstra fast_one(ConfigFor(kSeedLine)), slow_one(slow);
  Draw draw(5);
  int64_t us = 0;
  for (int i = 0; i < 200; ++i) {
    us += static_cast<int64_t>(draw.Below(1500));
    fast_one.OnSignal(At(us), kMark);
    slow_one.OnSignal(kStart + Microseconds(us) * 71, kMark);
    ASSERT_EQ(fast_one.alpha(), slow_one.alpha());
    ASSERT_NEAR(static_cast<double>(fast_one.current_rate().value) / 1000,
                static_cast<double>(slow_one.current_rate().value), 2000);
  }
}

TEST(DcqcnAstra, CutsByHalfAtOnceOnATimeoutAndKeepsAlpha) {
  DcqcnAstra astra(ConfigFor(kSeedLine));
  astra.OnSignal(At(0), kMark);
  astra.OnDeadline(At(4));
  const uint64_t before = astra.current_rate().value;
  astra.OnSignal(At(1000), CongestionSignal::kTimeout);  // after one increase
  EXPECT_EQ(astra.cuts().timeout, 1u);
  EXPECT_EQ(astra.current_rate().value, (before + kSeedLine + 1) / 2 - (before + kSeedLine + 1) / 2 / 2);
  // 1,000 ticks without a notification.
  EXPECT_NEAR(static_cast<double>(astra.alpha()), std::pow(255.0 / 256, 1000) * 4294967296.0, 256);
}

TEST(DcqcnAstra, BeginsAnewAtLineRateWithARestart) {
  DcqcnAstra astra(ConfigFor(kSeedLine));
  for (int64_t us = 0; us < 100; ++us) astra.OnSignal(At(us), CongestionSignal::kTrim);
  astra.Restart(At(100));
  const uint64_t trims = astra.cuts().trim;
  EXPECT_EQ(astra.current_rate().value, kSeedLine);
  EXPECT_EQ(astra.window_bytes(), 3500000u);
  astra.OnDeadline(At(5000));  // a cut that was pending does not come
  EXPECT_EQ(astra.current_rate().value, kSeedLine);
  astra.OnSignal(At(5001), kMark);
  astra.OnDeadline(At(5005));
  EXPECT_EQ(astra.current_rate().value, kSeedLine - 196893262909);  // like the first cut of a fresh flow
  EXPECT_EQ(astra.cuts().mark, 1u);
  EXPECT_EQ(astra.cuts().trim, trims);
}

TEST(Dcqcn, IsUnpacedAtLineRateWhereTheLinkRateIsNotKnown) {
  Config config = ConfigFor(kSeedLine);
  config.link_rate = {};
  config.assumed_link_rate = {25000000000};
  DcqcnAstra astra(config);
  EXPECT_EQ(astra.rate().value, 0u);
  astra.OnSignal(At(0), kMark);
  astra.OnDeadline(At(4));
  EXPECT_EQ(astra.rate().value, astra.current_rate().value);
  EXPECT_LT(astra.rate().value, 25000000000u);
}

// ---- paper ----

TEST(DcqcnPaper, FollowsTheHandComputedTrajectoryByTimer) {
  DcqcnPaper paper(ConfigFor(kPaperLine));
  paper.OnSignal(At(0), kMark);
  EXPECT_EQ(paper.current_rate().value, 20000000000u);  // alpha 1: by half, at once
  EXPECT_EQ(paper.target_rate().value, 40000000000u);
  EXPECT_EQ(paper.alpha(), Dcqcn::kAlphaOne);
  paper.OnDeadline(At(54));
  EXPECT_EQ(paper.current_rate().value, 20000000000u);
  // Fast recovery: half of the way, each 55 us, five times.
  const uint64_t expected[] = {30000000000, 35000000000, 37500000000, 38750000000, 39375000000};
  for (int i = 0; i < 5; ++i) {
    paper.OnDeadline(At(55 * (i + 1)));
    EXPECT_EQ(paper.current_rate().value, expected[i]) << i;
  }
  // A second cut at 300 us: alpha was 1 and decayed at 55, 110, 165, 220 and 275 us.
  const double alpha = std::pow(255.0 / 256, 5);
  paper.OnSignal(At(300), kMark);
  const double second = 39375e6 * (1 - alpha / 2);
  EXPECT_NEAR(static_cast<double>(paper.current_rate().value), second, 50);
  EXPECT_EQ(paper.target_rate().value, 39375000000u);
  EXPECT_NEAR(static_cast<double>(paper.alpha()), (alpha * 255 / 256 + 1.0 / 256) * 4294967296.0, 10);
  // After five recoveries the target rises by 40 Mbit/s at each timer.
  paper.OnDeadline(At(300 + 5 * 55));
  EXPECT_EQ(paper.target_rate().value, 39375000000u);
  paper.OnDeadline(At(300 + 6 * 55));
  EXPECT_EQ(paper.target_rate().value, 39415000000u);
  paper.OnDeadline(At(300 + 7 * 55));
  EXPECT_EQ(paper.target_rate().value, 39455000000u);
  double rate = second;
  for (int i = 0; i < 5; ++i) rate = (rate + 39375e6) / 2;
  rate = (rate + 39415e6) / 2;
  rate = (rate + 39455e6) / 2;
  EXPECT_NEAR(static_cast<double>(paper.current_rate().value), rate, 50);
}

TEST(DcqcnPaper, CutsOnceANotificationInterval) {
  DcqcnPaper paper(ConfigFor(kPaperLine));
  for (int64_t us = 0; us < 500; ++us) paper.OnSignal(At(us), kMark);
  EXPECT_EQ(paper.cuts().mark, 10u);
}

TEST(DcqcnPaper, CountsTenMegabytesAtFortyGigabitsAsOneIncrease) {
  DcqcnPaper paper(ConfigFor(kPaperLine));
  paper.OnSignal(At(0), kMark);
  paper.OnSent(At(1), 9999999);
  EXPECT_EQ(paper.current_rate().value, 20000000000u);
  paper.OnSent(At(2), 1);
  EXPECT_EQ(paper.current_rate().value, 30000000000u);
}

TEST(DcqcnPaper, IncreasesFasterOnceTimerAndByteCounterBothPassedFiveStages) {
  Config config = ConfigFor(kPaperLine);
  DcqcnPaper paper(config);
  // Two cuts, so that there is room above the target.
  paper.OnSignal(At(0), kMark);
  paper.OnSignal(At(54), kMark);
  ASSERT_EQ(paper.target_rate().value, 20000000000u);
  for (int i = 0; i < 5; ++i) paper.OnSent(At(55), 10000000);
  EXPECT_EQ(paper.target_rate().value, 20000000000u);
  paper.OnSent(At(56), 10000000);  // the sixth: additive, as the timer has not passed five
  EXPECT_EQ(paper.target_rate().value, 20040000000u);
  paper.OnDeadline(At(54 + 5 * 55));  // five timers, each additive
  EXPECT_EQ(paper.target_rate().value, 20240000000u);
  paper.OnDeadline(At(54 + 6 * 55));  // hyper
  EXPECT_EQ(paper.target_rate().value, 20640000000u);
}

TEST(DcqcnPaper, IgnoresTheByteCounterUntilACut) {
  DcqcnPaper paper(ConfigFor(kPaperLine));
  paper.OnSent(At(0), 9999999);
  paper.OnSignal(At(0), kMark);
  paper.OnSent(At(1), 9999999);
  EXPECT_EQ(paper.current_rate().value, 20000000000u);
}

TEST(DcqcnPaper, EndsInTheSameStateWhetherPolledOftenOrOnlyAtSignals) {
  Draw draw(9);
  DcqcnPaper eager(ConfigFor(kPaperLine)), late(ConfigFor(kPaperLine));
  TimePoint now = kStart;
  for (int i = 0; i < 300; ++i) {
    const TimePoint next = now + Nanoseconds{static_cast<int64_t>(1 + draw.Below(i % 10 == 0 ? 30000000 : 300000))};
    for (; now < next; now = now + Nanoseconds{5000}) {
      eager.OnDeadline(now);
      if (draw.Below(20) != 0) continue;
      eager.OnSent(now, 3000000);
      late.OnSent(now, 3000000);
    }
    now = next;
    const CongestionSignal signal = draw.Below(20) == 0 ? CongestionSignal::kTimeout : CongestionSignal::kTrim;
    eager.OnSignal(now, signal);
    late.OnSignal(now, signal);
    eager.OnSent(now, 3000000);
    late.OnSent(now, 3000000);
    ASSERT_EQ(eager.alpha(), late.alpha()) << i;
    ASSERT_EQ(eager.current_rate(), late.current_rate()) << i;
    ASSERT_EQ(eager.target_rate(), late.target_rate()) << i;
  }
  EXPECT_GT(late.cuts().timeout, 0u);
}

TEST(DcqcnPaper, NeverFallsBelowAThousandthAndReturnsToTheLineRate) {
  DcqcnPaper paper(ConfigFor(kPaperLine));
  for (int64_t us = 0; us < 2000; us += 50) paper.OnSignal(At(us), kMark);
  EXPECT_EQ(paper.current_rate().value, 40000000u);
  paper.OnDeadline(At(2000 + 55 * 1100));
  EXPECT_EQ(paper.current_rate().value, kPaperLine);
  EXPECT_EQ(paper.next_deadline(), kNever);
}

TEST(DcqcnPaper, KeepsTheWindow) {
  DcqcnPaper paper(ConfigFor(kPaperLine));
  for (int64_t us = 0; us < 2000; us += 50) paper.OnSignal(At(us), kMark);
  EXPECT_EQ(paper.window_bytes(), 3500000u);
}

TEST(DcqcnPaper, ObeysTheFirstNotificationAfterARestartAtOnce) {
  DcqcnPaper paper(ConfigFor(kPaperLine));
  paper.OnSignal(At(0), kMark);
  paper.Restart(At(1));
  EXPECT_EQ(paper.current_rate().value, kPaperLine);
  paper.OnSignal(At(2), kMark);
  EXPECT_EQ(paper.current_rate().value, kPaperLine / 2);
  EXPECT_EQ(paper.cuts().mark, 2u);
}

}  // namespace
}  // namespace forgive
