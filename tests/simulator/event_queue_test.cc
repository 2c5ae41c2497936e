// SPDX-License-Identifier: Apache-2.0
// Tests of the event queue, against a sorted reference and for what it may not do.
#include "testbed/simulator/event_queue.h"

#include <gtest/gtest.h>

#include <map>
#include <utility>
#include <vector>

#include "allocation_hook.h"
#include "transport/draw.h"

namespace {

uint64_t allocations = 0;

}  // namespace

// Every allocation of this program is counted.
void forgive::OnAllocation() { ++allocations; }

namespace forgive::sim {
namespace {

constexpr int64_t kMicrosecond = 1'000'000;
constexpr int64_t kMillisecond = 1'000'000'000;

// The queue beside an ordered map of (time, order of scheduling).
class Compared {
 public:
  void Schedule(int64_t time) {
    const uint32_t number = next_number_++;
    queue_.Schedule(SimTime{time}, {SimEvent::Kind::kTimer, number, ~number});
    reference_.emplace(std::pair{time, number}, number);
  }

  // Takes an event from both. False when both are empty.
  bool Next() {
    SimTime time{};
    SimEvent event;
    const bool some = queue_.Next(&time, &event);
    EXPECT_EQ(some, !reference_.empty());
    if (!some || reference_.empty()) return false;
    const auto first = reference_.begin();
    EXPECT_EQ(time.ps, first->first.first);
    EXPECT_EQ(event.object, first->second);
    EXPECT_EQ(event.value, ~first->second);
    reference_.erase(first);
    EXPECT_EQ(queue_.size(), reference_.size());
    now_ = time.ps;
    return !testing::Test::HasFailure();
  }

  int64_t now() const { return now_; }
  size_t size() const { return reference_.size(); }
  const EventQueue& queue() const { return queue_; }

 private:
  EventQueue queue_;
  std::map<std::pair<int64_t, uint32_t>, uint32_t> reference_;
  uint32_t next_number_ = 0;
  int64_t now_ = 0;
};

// A delay of every kind that a simulation has, and of those between the wheels.
int64_t RandomDelay(Draw* draw) {
  switch (draw->Below(10)) {
    case 0:
      return 0;
    case 1:
      return static_cast<int64_t>(draw->Below(2000));
    case 2:
      return 83'040;
    case 3:
      return static_cast<int64_t>(draw->Below(200'000));
    case 4:
      return 5 * kMicrosecond + static_cast<int64_t>(draw->Below(90'000));
    case 5:
      return 12'500'000 + 20 * static_cast<int64_t>(draw->Below(4096));
    case 6:
      return static_cast<int64_t>(draw->Below(40 * kMicrosecond));
    case 7:
      return 5'376 * kMicrosecond;
    case 8:
      return static_cast<int64_t>(draw->Below(100 * kMillisecond));
    default:
      return static_cast<int64_t>(draw->Below(3000)) * kMillisecond;
  }
}

TEST(EventQueue, FiresAsASortedListWouldWhateverIsScheduled) {
  for (uint64_t seed = 1; seed <= 40; ++seed) {
    Draw draw(seed);
    Compared compared;
    const uint64_t standing = 1 + draw.Below(seed % 3 == 0 ? 2000 : 20);
    for (int i = 0; i < 20000; ++i) {
      const bool burst = draw.Below(200) == 0;
      while (compared.size() < standing || (burst && compared.size() < 2 * standing)) {
        compared.Schedule(compared.now() + RandomDelay(&draw));
      }
      ASSERT_TRUE(compared.Next()) << "seed " << seed << " event " << i;
    }
    while (compared.size() > 0) ASSERT_TRUE(compared.Next()) << "seed " << seed;
    EXPECT_TRUE(compared.queue().empty());
  }
}

TEST(EventQueue, KeepsTheOrderAmongEqualsScheduledFromFarAndFromNear) {
  for (int64_t target :
       {20 * kMicrosecond, 33 * kMicrosecond, 34 * kMillisecond, 70 * kMillisecond, 5000 * kMillisecond}) {
    Compared compared;
    compared.Schedule(target);
    // Steps towards the target, from each of which the target is scheduled once more.
    for (int64_t left = target; left > 0; left /= 3) compared.Schedule(target - left);
    for (;;) {
      const bool before = compared.now() < target;
      if (!compared.Next()) break;
      if (before && compared.now() <= target) compared.Schedule(target);
    }
    EXPECT_EQ(compared.size(), 0u);
    EXPECT_EQ(compared.now(), target);
  }
}

TEST(EventQueue, BringsTheFarNearInTimeWhileSomethingHappensAllTheTime) {
  Compared compared;
  Draw draw(5);
  compared.Schedule(0);
  // A tick every 10 us for 300 ms, so that the queue never jumps; every other one leaves something for later.
  int64_t tick = 0;
  for (int i = 0; i < 30000; ++i) {
    while (compared.now() < tick) ASSERT_TRUE(compared.Next());
    if (i % 2 == 0) compared.Schedule(tick + static_cast<int64_t>(draw.Below(250)) * kMillisecond);
    tick += 10 * kMicrosecond;
    compared.Schedule(tick);
  }
  while (compared.size() > 0) ASSERT_TRUE(compared.Next());
}

TEST(EventQueue, KeepsTheOrderOfThousandsWithinOneNanosecond) {
  Compared compared;
  Draw draw(7);
  for (int i = 0; i < 5000; ++i) compared.Schedule(kMillisecond + static_cast<int64_t>(draw.Below(1000)));
  for (int i = 0; i < 5000; ++i) ASSERT_TRUE(compared.Next());
  EXPECT_FALSE(compared.Next());
}

TEST(EventQueue, LetsAnEventScheduleAtItsOwnMomentAndFiresItAfterThoseThatStoodThere) {
  EventQueue queue;
  for (uint32_t i = 0; i < 3; ++i) queue.Schedule(SimTime{1000}, {SimEvent::Kind::kTimer, i, 0});
  std::vector<uint32_t> fired;
  SimTime time{};
  SimEvent event;
  while (queue.Next(&time, &event)) {
    EXPECT_EQ(time.ps, 1000);
    fired.push_back(event.object);
    if (event.object < 3) queue.Schedule(time, {SimEvent::Kind::kTimer, event.object + 10, 0});
  }
  EXPECT_EQ(fired, (std::vector<uint32_t>{0, 1, 2, 10, 11, 12}));
}

TEST(EventQueue, HoldsAnEventOfTheLastDayAndTheNextNanosecondAtOnce) {
  Compared compared;
  compared.Schedule(kSimNever.ps - 1);
  compared.Schedule(kSimNever.ps - 1);
  compared.Schedule(1000);
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(compared.Next());
  EXPECT_EQ(compared.now(), kSimNever.ps - 1);
  EXPECT_FALSE(compared.Next());
}

TEST(EventQueue, AllocatesNothingOnceItHasHeldAsMuch) {
  EventQueue queue;
  Draw draw(3);
  SimTime time{};
  SimEvent event;
  const auto turn = [&](int events) {
    for (int i = 0; i < events; ++i) {
      ASSERT_TRUE(queue.Next(&time, &event));
      queue.Schedule(time + Picoseconds{RandomDelay(&draw)}, event);
    }
  };
  for (uint32_t i = 0; i < 1000; ++i) queue.Schedule(SimTime{RandomDelay(&draw)}, {SimEvent::Kind::kTimer, i, 0});
  turn(300000);
  const uint64_t before = allocations;
  turn(300000);
  EXPECT_EQ(allocations, before);
  EXPECT_EQ(queue.fired(), 600000u);
}

TEST(EventQueueDeathTest, RefusesToScheduleIntoThePast) {
  EventQueue queue;
  SimTime time{};
  SimEvent event;
  queue.Schedule(SimTime{500}, {});
  ASSERT_TRUE(queue.Next(&time, &event));
  EXPECT_DEATH(queue.Schedule(SimTime{499}, {}), "time.ps >= now_");
}

TEST(Clock, RoundsASerializationTimeUpAndIsExactAt400Gigabits) {
  EXPECT_EQ(SerializationTime(4152, BitsPerSecond{400'000'000'000}).value, 83'040);
  EXPECT_EQ(SerializationTime(1, BitsPerSecond{3'000'000'000'000}).value, 3);  // 2.67
  EXPECT_EQ(SerializationTime(3, BitsPerSecond{3'000'000'000'000}).value, 8);
}

TEST(Clock, NeverShowsTheTransportTheFutureAndKeepsNever) {
  EXPECT_EQ(ToTimePoint(SimTime{1999}).ns, 1);
  EXPECT_EQ(FromTimePoint(TimePoint{7}).ps, 7000);
  EXPECT_EQ(FromTimePoint(kNever), kSimNever);
}

}  // namespace
}  // namespace forgive::sim
