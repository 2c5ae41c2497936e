// SPDX-License-Identifier: Apache-2.0
// Tests of the RTT estimator and the retransmission timeout.
#include "transport/rtt.h"

#include <gtest/gtest.h>

namespace forgive {
namespace {

constexpr Nanoseconds kNoMinimum{1};

TEST(RttEstimator, TakesTheFirstSampleAsItIsWithHalfOfItAsVariation) {
  RttEstimator rtt(Milliseconds(7), kNoMinimum, Seconds(60));
  rtt.OnSample(Microseconds(100));
  EXPECT_EQ(rtt.smoothed(), Microseconds(100));
  EXPECT_EQ(rtt.variation(), Microseconds(50));
  EXPECT_EQ(rtt.rto(), Microseconds(300));
}

TEST(RttEstimator, FollowsRfc6298WithGainsOfAnEighthAndAQuarter) {
  RttEstimator rtt(Milliseconds(7), kNoMinimum, Seconds(60));
  rtt.OnSample(Nanoseconds{80000});
  rtt.OnSample(Nanoseconds{120000});
  // Variation 40000 + (|120000 - 80000| - 40000) / 4; smoothed 80000 + (120000 - 80000) / 8.
  EXPECT_EQ(rtt.variation(), (Nanoseconds{40000}));
  EXPECT_EQ(rtt.smoothed(), (Nanoseconds{85000}));
  rtt.OnSample(Nanoseconds{45000});
  // Variation 40000 + (|45000 - 85000| - 40000) / 4; smoothed 85000 - 40000 / 8.
  EXPECT_EQ(rtt.variation(), (Nanoseconds{40000}));
  EXPECT_EQ(rtt.smoothed(), (Nanoseconds{80000}));
  EXPECT_EQ(rtt.rto(), (Nanoseconds{240000}));
}

TEST(RttEstimator, ConvergesToAConstantRttWithoutARestOfRounding) {
  RttEstimator rtt(Milliseconds(7), kNoMinimum, Seconds(60));
  rtt.OnSample(Milliseconds(3));
  for (int i = 0; i < 500; ++i) rtt.OnSample(Nanoseconds{123456});
  EXPECT_NEAR(static_cast<double>(rtt.smoothed().value), 123456, 8);
  EXPECT_LT(rtt.variation().value, 8);
}

TEST(RttEstimator, StandsOnTheInitialRttUntilTheFirstSample) {
  RttEstimator rtt(Milliseconds(1), kNoMinimum, Seconds(60));
  EXPECT_FALSE(rtt.has_sample());
  EXPECT_EQ(rtt.smoothed(), Milliseconds(1));
  EXPECT_EQ(rtt.rto(), Milliseconds(3));
}

TEST(RttEstimator, KeepsTheTimeoutWithinItsLimits) {
  RttEstimator rtt(Milliseconds(1), Milliseconds(20), Milliseconds(100));
  rtt.OnSample(Microseconds(50));
  EXPECT_EQ(rtt.rto(), Milliseconds(20));
  rtt.OnSample(Seconds(1));
  EXPECT_EQ(rtt.rto(), Milliseconds(100));
}

TEST(RttEstimator, DoublesTheTimeoutWithEachBackOffUpToTheLimit) {
  RttEstimator rtt(Milliseconds(1), Milliseconds(20), Milliseconds(100));
  rtt.OnSample(Microseconds(50));
  EXPECT_EQ(rtt.rto(1), Milliseconds(40));
  EXPECT_EQ(rtt.rto(2), Milliseconds(80));
  EXPECT_EQ(rtt.rto(3), Milliseconds(100));
  EXPECT_EQ(rtt.rto(UINT32_MAX), Milliseconds(100));
}

TEST(RttEstimator, RemembersTheLeastSampleAndNotTheInitialRtt) {
  RttEstimator rtt(Microseconds(10), kNoMinimum, Seconds(60));
  rtt.OnSample(Microseconds(90));
  EXPECT_EQ(rtt.least(), Microseconds(90));
  rtt.OnSample(Microseconds(70));
  rtt.OnSample(Microseconds(80));
  EXPECT_EQ(rtt.least(), Microseconds(70));
}

TEST(RttEstimator, TakesASampleBelowTheWireClockAsOneTickOfIt) {
  RttEstimator rtt(Milliseconds(1), kNoMinimum, Seconds(60));
  rtt.OnSample(Nanoseconds{0});
  EXPECT_EQ(rtt.least(), (Nanoseconds{64}));
}

}  // namespace
}  // namespace forgive
