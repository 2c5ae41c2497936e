// SPDX-License-Identifier: Apache-2.0
// What the scoreboard keeps, forgets and counts.
#include "transport/scoreboard.h"

#include <gtest/gtest.h>

#include <set>

#include "transport/draw.h"

namespace forgive {
namespace {

constexpr uint64_t kSpanUnits = 256;
constexpr uint64_t kSpanBytes = kSpanUnits * kUnitBytes;

TEST(Scoreboard, CountsEveryUnitOfAFreshRangeAsMissing) {
  Scoreboard scoreboard(kSpanBytes);
  EXPECT_EQ(scoreboard.CountMissing({3, 200}), 197u);
}

TEST(Scoreboard, TellsTheMissingRunsOfARangeInOrder) {
  Scoreboard scoreboard(kSpanBytes);
  scoreboard.MarkReceived({10, 20});
  scoreboard.MarkReceived({60, 70});
  UnitRange run;
  ASSERT_TRUE(scoreboard.NextMissing({0, 80}, &run));
  EXPECT_EQ(run, (UnitRange{0, 10}));
  ASSERT_TRUE(scoreboard.NextMissing({10, 80}, &run));
  EXPECT_EQ(run, (UnitRange{20, 60}));
  ASSERT_TRUE(scoreboard.NextMissing({60, 80}, &run));
  EXPECT_EQ(run, (UnitRange{70, 80}));
  EXPECT_FALSE(scoreboard.NextMissing({60, 70}, &run));
}

TEST(Scoreboard, AdvancesOverWhatIsSettledAndStopsAtTheFirstHole) {
  Scoreboard scoreboard(kSpanBytes);
  scoreboard.MarkReceived({1, 40});
  EXPECT_EQ(scoreboard.Advance(), 0u);
  scoreboard.MarkForgiven({0, 1});
  EXPECT_EQ(scoreboard.Advance(), 40u);
}

TEST(Scoreboard, HoldsOneSpanFromBaseOnAndNoUnitMore) {
  Scoreboard scoreboard(kSpanBytes);
  scoreboard.MarkReceived({0, 7});
  scoreboard.Advance();
  EXPECT_TRUE(scoreboard.Holds({7, 7 + kSpanUnits}));
  EXPECT_FALSE(scoreboard.Holds({7, 8 + kSpanUnits}));
}

TEST(Scoreboard, ForgetsTheMarksOfAUnitThatSettles) {
  Scoreboard scoreboard(kSpanBytes);
  scoreboard.MarkRequested({4, 8});
  scoreboard.MarkCounted({4, 8});
  EXPECT_EQ(scoreboard.CountCounted({0, 64}), 4u);
  scoreboard.MarkReceived({5, 6});
  EXPECT_FALSE(scoreboard.IsRequested(5));
  EXPECT_FALSE(scoreboard.IsCounted(5));
  EXPECT_TRUE(scoreboard.IsRequested(6));
  EXPECT_EQ(scoreboard.CountCounted({0, 64}), 3u);
}

TEST(Scoreboard, NeverMarksASettledUnitAsRequestedOrCounted) {
  Scoreboard scoreboard(kSpanBytes);
  scoreboard.MarkReceived({5, 6});
  scoreboard.MarkRequested({4, 8});
  scoreboard.MarkCounted({4, 8});
  EXPECT_FALSE(scoreboard.IsRequested(5));
  EXPECT_FALSE(scoreboard.IsCounted(5));
  EXPECT_EQ(scoreboard.CountCounted({0, 64}), 3u);
}

TEST(Scoreboard, RemembersWhatWasForgivenForOneSpanBelowBase) {
  Scoreboard scoreboard(kSpanBytes);
  scoreboard.MarkForgiven({0, 3});
  scoreboard.Advance();
  EXPECT_EQ(scoreboard.CountForgiven({0, 8}), 3u);
  scoreboard.MarkReceived({3, 3 + kSpanUnits});
  scoreboard.Advance();
  EXPECT_EQ(scoreboard.CountForgiven({0, 8}), 0u);
  EXPECT_TRUE(scoreboard.CheckAll());
}

TEST(Scoreboard, TakesNoUnitOfLongAgoForTheForgivenOneThatUsesItsPlaceNow) {
  Scoreboard scoreboard(kSpanBytes);
  for (uint64_t begin = 0; begin < 2 * kSpanUnits; begin += kSpanUnits) {
    scoreboard.MarkReceived({begin, begin + kSpanUnits});
    scoreboard.Advance();
  }
  scoreboard.MarkForgiven({2 * kSpanUnits, 2 * kSpanUnits + 3});
  EXPECT_EQ(scoreboard.CountForgiven({2 * kSpanUnits, 2 * kSpanUnits + 8}), 3u);
  EXPECT_EQ(scoreboard.CountForgiven({0, 8}), 0u);
}

TEST(Scoreboard, WidensAKnownRunToAllThatIsSettledAroundIt) {
  Scoreboard scoreboard(kSpanBytes);
  scoreboard.MarkReceived({20, 130});
  EXPECT_EQ(scoreboard.SettledRun({64, 65}), (UnitRange{20, 130}));
  scoreboard.MarkReceived({1, 20});
  EXPECT_EQ(scoreboard.SettledRun({64, 65}), (UnitRange{1, 130}));
}

TEST(Scoreboard, KeepsARunThatFillsTheWholeSpanAboveAHole) {
  Scoreboard scoreboard(kSpanBytes);
  scoreboard.MarkReceived({0, 33});
  scoreboard.Advance();
  scoreboard.MarkReceived({34, 33 + kSpanUnits});
  EXPECT_EQ(scoreboard.SettledRun({40, 41}), (UnitRange{34, 33 + kSpanUnits}));
  EXPECT_EQ(scoreboard.CountMissing({33, 33 + kSpanUnits}), 1u);
}

// The same operations on sets of numbers.
struct Model {
  std::set<uint64_t> settled, forgiven, requested, counted;

  void Settle(uint64_t unit, bool forgive) {
    settled.insert(unit);
    if (forgive) forgiven.insert(unit);
    requested.erase(unit);
    counted.erase(unit);
  }
};

void ExpectEqual(const Scoreboard& scoreboard, const Model& model) {
  for (uint64_t unit = scoreboard.base(); unit < scoreboard.base() + scoreboard.span(); ++unit) {
    ASSERT_EQ(scoreboard.IsSettled(unit), model.settled.count(unit) == 1) << unit;
    ASSERT_EQ(scoreboard.IsForgiven(unit), model.forgiven.count(unit) == 1) << unit;
    ASSERT_EQ(scoreboard.IsRequested(unit), model.requested.count(unit) == 1) << unit;
    ASSERT_EQ(scoreboard.IsCounted(unit), model.counted.count(unit) == 1) << unit;
  }
}

TEST(Scoreboard, AgreesWithSetsOfNumbersThroughRandomOperations) {
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    Draw draw(seed);
    Scoreboard scoreboard(128 * kUnitBytes);
    Model model;
    for (int step = 0; step < 400; ++step) {
      const uint64_t begin = scoreboard.base() + draw.Below(draw.Below(3) == 0 ? scoreboard.span() : 8);
      UnitRange range{begin, begin + 1 + draw.Below(70)};
      if (!scoreboard.Holds(range)) range.end = scoreboard.base() + scoreboard.span();
      const uint64_t what = draw.Below(4);
      if (what == 0) scoreboard.MarkRequested(range);
      if (what == 1) scoreboard.MarkCounted(range);
      for (uint64_t unit = range.begin; unit < range.end; ++unit) {
        if (what == 0 && model.settled.count(unit) == 0) model.requested.insert(unit);
        if (what == 1 && model.settled.count(unit) == 0) model.counted.insert(unit);
      }
      UnitRange run;
      for (UnitRange rest = range; what >= 2 && scoreboard.NextMissing(rest, &run); rest.begin = run.end) {
        for (uint64_t unit = run.begin; unit < run.end; ++unit) {
          ASSERT_EQ(model.settled.count(unit), 0u);
          model.Settle(unit, what == 3);
        }
        what == 2 ? scoreboard.MarkReceived(run) : scoreboard.MarkForgiven(run);
      }
      uint64_t base = scoreboard.base();
      while (model.settled.count(base) == 1) ++base;
      ASSERT_EQ(scoreboard.Advance(), base) << "seed " << seed << " operation " << step;
      ASSERT_NO_FATAL_FAILURE(ExpectEqual(scoreboard, model)) << "seed " << seed << " operation " << step;
      ASSERT_TRUE(scoreboard.CheckAll());
    }
  }
}

}  // namespace
}  // namespace forgive
