// SPDX-License-Identifier: Apache-2.0
// Tests of whose turn it is, also against a model that searches instead of sorting.
#include "transport/turns.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <map>

#include "transport/draw.h"

namespace forgive {
namespace {

TEST(Turns, GivesTurnsInTheOrderOfTouching) {
  Turns turns(4);
  turns.Touch(2);
  turns.Touch(0);
  turns.Touch(2);
  ASSERT_EQ(turns.ready(), 2u);
  EXPECT_EQ(turns.front(), 2);
  turns.Rotate();
  EXPECT_EQ(turns.front(), 0);
  EXPECT_EQ(turns.ReadyAt(1), 2);
}

TEST(Turns, WakesASleeperAtItsMomentOrWhenItIsTouched) {
  Turns turns(4);
  turns.Touch(1);
  turns.Sleep(TimePoint{50});
  turns.Touch(3);
  turns.Sleep(TimePoint{40});
  EXPECT_EQ(turns.next_wake(), TimePoint{40});
  turns.Wake(TimePoint{39});
  EXPECT_FALSE(turns.HasReady());
  turns.Touch(3);
  EXPECT_EQ(turns.next_wake(), TimePoint{50});
  turns.Wake(TimePoint{50});
  EXPECT_EQ(turns.ready(), 2u);
  EXPECT_EQ(turns.next_wake(), kNever);
}

TEST(Turns, ForgetsASlotThatWaitsOrIsInTheMiddleOfTheReady) {
  Turns turns(4);
  for (uint16_t slot = 0; slot < 3; ++slot) turns.Touch(slot);
  turns.Forget(1);
  ASSERT_EQ(turns.ready(), 2u);
  EXPECT_EQ(turns.ReadyAt(0), 0);
  EXPECT_EQ(turns.ReadyAt(1), 2);
  turns.Sleep(TimePoint{10});
  turns.Forget(0);
  EXPECT_EQ(turns.next_wake(), kNever);
}

TEST(Turns, AgreesWithAModelOverARandomLife) {
  constexpr uint16_t kSlots = 23;
  Turns turns(kSlots);
  std::deque<uint16_t> ready;
  std::map<uint16_t, int64_t> waiting;
  Draw draw(5);
  int64_t now = 0;
  const auto touch = [&](uint16_t slot) {
    waiting.erase(slot);
    if (std::find(ready.begin(), ready.end(), slot) == ready.end()) ready.push_back(slot);
  };
  for (int round = 0; round < 20000; ++round) {
    const auto slot = static_cast<uint16_t>(draw.Below(kSlots));
    const uint64_t what = draw.Below(10);
    if (what < 4) {
      turns.Touch(slot);
      touch(slot);
    } else if (what < 8 && !ready.empty()) {
      // Multiples of 64 plus the slot: no two alike.
      const int64_t wake = (now / 64 + 1 + static_cast<int64_t>(draw.Below(1000))) * 64 + ready.front();
      turns.Sleep(TimePoint{wake});
      waiting[ready.front()] = wake;
      ready.pop_front();
    } else if (what == 8) {
      now += static_cast<int64_t>(draw.Below(5000));
      turns.Wake(TimePoint{now});
      std::map<int64_t, uint16_t> due;
      for (const auto& [sleeper, wake] : waiting) {
        if (wake <= now) due.emplace(wake, sleeper);
      }
      for (const auto& [wake, sleeper] : due) touch(sleeper);
    } else {
      turns.Forget(slot);
      waiting.erase(slot);
      std::erase(ready, slot);
    }
    ASSERT_EQ(turns.ready(), ready.size());
    for (uint32_t n = 0; n < turns.ready(); ++n) ASSERT_EQ(turns.ReadyAt(n), ready[n]);
    int64_t next = kNever.ns;
    for (const auto& [sleeper, wake] : waiting) next = std::min(next, wake);
    ASSERT_EQ(turns.next_wake().ns, next);
  }
}

}  // namespace
}  // namespace forgive
