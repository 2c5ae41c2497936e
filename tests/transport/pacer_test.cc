// SPDX-License-Identifier: Apache-2.0
// Tests of the pacer.
#include "transport/pacer.h"

#include <gtest/gtest.h>

#include "transport/draw.h"

namespace forgive {
namespace {

constexpr TimePoint kStart{1000000000};
constexpr uint32_t kPacket = 1000;

// Sends packets as early as the pacer lets them go and returns when the last one left.
TimePoint SendPackets(Pacer* pacer, TimePoint now, int packets) {
  for (int i = 0; i < packets; ++i) {
    now = std::max(now, pacer->NextTime(kPacket));
    EXPECT_TRUE(pacer->MaySend(now, kPacket));
    pacer->OnSent(kPacket);
  }
  return now;
}

TEST(Pacer, LetsTheBurstGoAtOnceAndNoPacketMore) {
  Pacer pacer(4 * kPacket, kPacket);
  pacer.SetRate(kStart, {8000000});
  for (int i = 0; i < 4; ++i) {
    ASSERT_TRUE(pacer.MaySend(kStart, kPacket));
    pacer.OnSent(kPacket);
  }
  EXPECT_FALSE(pacer.MaySend(kStart, kPacket));
}

TEST(Pacer, SaysExactlyWhenTheNextPacketMayLeave) {
  Pacer pacer(kPacket, kPacket);
  pacer.SetRate(kStart, {8000000});  // 1,000 bytes a millisecond
  pacer.MaySend(kStart, kPacket);
  pacer.OnSent(kPacket);
  const TimePoint next = pacer.NextTime(kPacket);
  EXPECT_EQ(next, kStart + Milliseconds(1));
  EXPECT_FALSE(pacer.MaySend(next - Nanoseconds{1}, kPacket));
  EXPECT_TRUE(pacer.MaySend(next, kPacket));
}

TEST(Pacer, DoesNotDriftAtARateThatDividesNothing) {
  Pacer pacer(kPacket, kPacket);
  const BitsPerSecond rate{399999999977};  // a prime
  pacer.SetRate(kStart, rate);
  const int packets = 1000000;
  // Asking in between at odd moments must not change anything either.
  TimePoint now = kStart;
  Draw draw(7);
  for (int i = 0; i < packets; ++i) {
    const TimePoint next = pacer.NextTime(kPacket);
    for (int j = 0; j < 2 && now < next; ++j) {
      now = now + Nanoseconds{static_cast<int64_t>(draw.Below(5))};
      pacer.MaySend(std::min(now, next), kPacket);
    }
    now = std::max(now, pacer.NextTime(kPacket));
    ASSERT_TRUE(pacer.MaySend(now, kPacket));
    pacer.OnSent(kPacket);
  }
  // All but the first, which the full bucket paid for; a packet's moment rounds up to a nanosecond, the sum does not.
  // A bucket of one packet that is asked later than it is full loses that time: at most 4 ns a packet here.
  const Nanoseconds ideal = TransmissionTime(uint64_t{kPacket} * (packets - 1), rate);
  EXPECT_GE(now - kStart, ideal);
  EXPECT_LE(now - kStart, ideal + Nanoseconds{5 * packets});
}

TEST(Pacer, CatchesUpWithinTheBurstWhenItIsAskedLate) {
  Pacer pacer(16 * kPacket, kPacket);
  const BitsPerSecond rate{3333333331};
  pacer.SetRate(kStart, rate);
  TimePoint now = SendPackets(&pacer, kStart, 16);
  // 100,000 packets, asked only every 20 us, in which some 8 packets are earned.
  int sent = 0;
  while (sent < 100000) {
    now = now + Microseconds(20);
    while (pacer.MaySend(now, kPacket)) {
      pacer.OnSent(kPacket);
      ++sent;
    }
  }
  const Nanoseconds ideal = TransmissionTime(uint64_t{kPacket} * 100000, rate);
  EXPECT_GE(now - kStart, ideal);
  EXPECT_LE(now - kStart, ideal + Microseconds(40));
}

TEST(Pacer, NeverExceedsRateTimesTimePlusBurstOverAnyChangeOfRate) {
  Draw draw(11);
  Pacer pacer(5 * kPacket, kPacket);
  TimePoint now = kStart;
  BitsPerSecond rate{1000000000};
  pacer.SetRate(now, rate);
  uint128 allowed = uint128{5 * kPacket} * 8 * 1000000000;  // bits x 1e9
  uint128 sent = 0;
  for (int i = 0; i < 200000; ++i) {
    const int64_t step = static_cast<int64_t>(draw.Below(3000));
    now = now + Nanoseconds{step};
    allowed += uint128{static_cast<uint64_t>(step)} * rate.value;
    if (draw.Below(50) == 0) {
      rate = {1 + draw.Below(100000000000)};
      pacer.SetRate(now, rate);
    }
    const uint32_t bytes = static_cast<uint32_t>(1 + draw.Below(kPacket));
    while (pacer.MaySend(now, bytes)) {
      pacer.OnSent(bytes);
      sent += uint128{bytes} * 8 * 1000000000;
    }
    ASSERT_TRUE(sent <= allowed) << i;
  }
  EXPECT_TRUE(sent > 0);
}

TEST(Pacer, LetsEverythingGoWithoutARate) {
  Pacer pacer(kPacket, kPacket);
  for (int i = 0; i < 1000; ++i) {
    ASSERT_TRUE(pacer.MaySend(kStart, kPacket));
    pacer.OnSent(kPacket);
  }
}

TEST(Pacer, LetsAPacketLargerThanTheBurstPass) {
  Pacer pacer(10, kPacket);
  pacer.SetRate(kStart, {8000000});
  EXPECT_EQ(SendPackets(&pacer, kStart, 3), kStart + Milliseconds(2));
}

TEST(Pacer, EarnsNoMoreThanTheBurstByIdlingForAnHour) {
  Pacer pacer(3 * kPacket, kPacket);
  pacer.SetRate(kStart, {400000000000});
  SendPackets(&pacer, kStart, 3);
  const TimePoint later = kStart + Seconds(3600);
  for (int i = 0; i < 3; ++i) {
    ASSERT_TRUE(pacer.MaySend(later, kPacket));
    pacer.OnSent(kPacket);
  }
  EXPECT_FALSE(pacer.MaySend(later, kPacket));
}

}  // namespace
}  // namespace forgive
