// SPDX-License-Identifier: Apache-2.0
// The loss budget of a step: what it is, when it vests, and what charges it.
#include "transport/step_table.h"

#include <gtest/gtest.h>

namespace forgive {
namespace {

constexpr Fraction kTenth{100000};
constexpr Fraction kAlways{Fraction::kOne};

StepPlan Plan(uint64_t step, Fraction p, uint64_t expected) {
  StepPlan plan;
  plan.step = step;
  plan.p = p;
  plan.expected_bytes = expected;
  return plan;
}

// A table with step 1 open and one message posted in it.
struct OneStep {
  explicit OneStep(uint64_t expected, Fraction p = kTenth, Fraction probability = kAlways)
      : table(8, probability, 1) {
    EXPECT_EQ(table.Begin(Plan(1, p, expected)), StepResult::kOk);
    index = table.FindOpen(1);
    table.AddMessage(index);
  }
  // Counts and decides a trim of `bytes` new bytes; charges it if that is the decision.
  Decision Trim(uint64_t bytes) {
    EXPECT_TRUE(table.CountTrimmed(index, bytes));
    const Decision decision = table.Decide(index, bytes);
    if (decision == Decision::kForgiven) table.Forgive(index, bytes, bytes, 1);
    return decision;
  }
  const StepAccount& account() { return table.account(index); }

  StepTable table;
  StepIndex index;
};

TEST(StepTable, SizesTheBudgetAsTheFloorOfPTimesExpected) {
  OneStep step(99999, Fraction{5000});
  EXPECT_EQ(step.account().budget, 499u);
}

TEST(StepTable, RefusesASecondStepWhileOneIsOpenUnlessTheyMayOverlap) {
  StepTable table(8, kAlways, 1);
  EXPECT_EQ(table.Begin(Plan(1, kTenth, 100)), StepResult::kOk);
  EXPECT_EQ(table.Begin(Plan(2, kTenth, 100)), StepResult::kStepOpen);
  EXPECT_EQ(table.Begin(Plan(2, kTenth, 100), true), StepResult::kOk);
  EXPECT_TRUE(table.FindOpen(1).has_value());
  EXPECT_TRUE(table.FindOpen(2).has_value());
}

TEST(StepTable, RefusesAStepNumberThatDoesNotRise) {
  StepTable table(8, kAlways, 1);
  EXPECT_EQ(table.Begin(Plan(5, kTenth, 100)), StepResult::kOk);
  EXPECT_EQ(table.End(5), StepResult::kOk);
  EXPECT_EQ(table.Begin(Plan(5, kTenth, 100)), StepResult::kNotRising);
  EXPECT_EQ(table.Begin(Plan(4, kTenth, 100)), StepResult::kNotRising);
}

TEST(StepTable, RefusesToEndAStepThatIsNotOpen) {
  StepTable table(8, kAlways, 1);
  EXPECT_EQ(table.End(1), StepResult::kNotOpen);
  EXPECT_EQ(table.Begin(Plan(1, kTenth, 100)), StepResult::kOk);
  EXPECT_EQ(table.End(1), StepResult::kOk);
  EXPECT_EQ(table.End(1), StepResult::kNotOpen);
}

TEST(StepTable, SaysFullOnlyWhileEveryEntryIsOpenOrHasUnfinishedMessages) {
  StepTable table(2, kAlways, 1);
  EXPECT_EQ(table.Begin(Plan(1, kTenth, 100)), StepResult::kOk);
  const StepIndex first = table.FindOpen(1);
  table.AddMessage(first);
  EXPECT_EQ(table.End(1), StepResult::kOk);
  EXPECT_EQ(table.Begin(Plan(2, kTenth, 100)), StepResult::kOk);
  EXPECT_EQ(table.Begin(Plan(3, kTenth, 100), true), StepResult::kTableFull);
  table.RemoveMessage(first);
  EXPECT_EQ(table.Begin(Plan(3, kTenth, 100), true), StepResult::kOk);
}

TEST(StepTable, KeepsTheAccountOfADoneStepReadableUntilItsEntryIsNeeded) {
  StepTable table(2, kAlways, 1);
  for (uint64_t step = 1; step <= 3; ++step) {
    EXPECT_EQ(table.Begin(Plan(step, kTenth, 100 * step)), StepResult::kOk);
    EXPECT_EQ(table.End(step), StepResult::kOk);
  }
  EXPECT_EQ(table.Find(1), nullptr);
  ASSERT_NE(table.Find(2), nullptr);
  EXPECT_EQ(table.Find(2)->expected, 200u);
  ASSERT_NE(table.Find(3), nullptr);
  EXPECT_FALSE(table.Find(3)->open);
}

TEST(StepTable, ForgivesNothingBeforeAnythingArrived) {
  OneStep step(1000000);
  EXPECT_EQ(step.Trim(16), Decision::kNotVested);
}

TEST(StepTable, VestsExactlyAtThePFractionOfWhatArrivedOrIsForgiven) {
  OneStep step(1000000);
  step.table.CountReceived(step.index, 899);
  EXPECT_EQ(step.Trim(100), Decision::kNotVested);  // 100 > 0.1 * 999
  step.table.CountReceived(step.index, 1);
  EXPECT_EQ(step.table.Decide(step.index, 100), Decision::kForgiven);  // 100 <= 0.1 * 1000
}

TEST(StepTable, RefusesWhatVestedButExceedsTheBudget) {
  OneStep step(1000);  // budget 100, but more arrives than was predicted
  step.table.CountReceived(step.index, 100000);
  EXPECT_EQ(step.Trim(101), Decision::kOverBudget);
  EXPECT_EQ(step.Trim(100), Decision::kForgiven);
  EXPECT_EQ(step.account().forgiven, 100u);
  EXPECT_EQ(step.Trim(1), Decision::kOverBudget);
}

TEST(StepTable, ForgivesNothingWhereNothingIsExpected) {
  OneStep step(0);
  step.table.CountReceived(step.index, 100000);
  EXPECT_EQ(step.Trim(1), Decision::kOverBudget);
}

TEST(StepTable, ForgivesNothingWhenPIsZero) {
  OneStep step(1000000, Fraction{0});
  step.table.CountReceived(step.index, 100000);
  EXPECT_EQ(step.Trim(1), Decision::kNotVested);
}

TEST(StepTable, RefusesByTheDrawWhenTheForgivenessProbabilityIsZeroAndChargesNothing) {
  OneStep step(1000000, kTenth, Fraction{0});
  step.table.CountReceived(step.index, 100000);
  EXPECT_EQ(step.Trim(16), Decision::kDrawRefused);
  EXPECT_EQ(step.account().forgiven, 0u);
  EXPECT_EQ(step.account().outstanding, 16u);
}

TEST(StepTable, DrawsAboutTheForgivenessProbabilityOfTheRangesThatVested) {
  OneStep step(1000000000, kTenth, Fraction{250000});
  step.table.CountReceived(step.index, 100000000);
  int forgiven = 0;
  for (int i = 0; i < 10000; ++i) forgiven += step.table.Decide(step.index, 16) == Decision::kForgiven ? 1 : 0;
  EXPECT_GT(forgiven, 2300);
  EXPECT_LT(forgiven, 2700);
}

TEST(StepTable, DrawsOnlyForRangesThatVestedSoThatRefusalsDoNotShiftTheStream) {
  OneStep with_refusals(1000000, kTenth, Fraction{500000});
  OneStep without(1000000, kTenth, Fraction{500000});
  with_refusals.table.CountReceived(with_refusals.index, 100000);
  without.table.CountReceived(without.index, 100000);
  for (int i = 0; i < 100; ++i) {
    EXPECT_EQ(with_refusals.table.Decide(with_refusals.index, 50000), Decision::kNotVested);
    EXPECT_EQ(with_refusals.table.Decide(with_refusals.index, 16), without.table.Decide(without.index, 16));
  }
}

TEST(StepTable, IsExhaustedWhileForgivenAndOutstandingAndOnePacketExceedTheBudget) {
  OneStep step(100000);  // budget 10,000
  step.table.CountReceived(step.index, 90000);
  EXPECT_FALSE(step.table.Exhausted(step.index, 4096));
  step.table.CountTrimmed(step.index, 5904);
  EXPECT_FALSE(step.table.Exhausted(step.index, 4096));  // exactly the budget
  step.table.CountTrimmed(step.index, 1);
  EXPECT_TRUE(step.table.Exhausted(step.index, 4096));
  EXPECT_FALSE(step.table.Exhausted(step.index, 1024));  // a connection with smaller packets
  step.table.UncountTrimmed(step.index, 1);
  EXPECT_FALSE(step.table.Exhausted(step.index, 4096));
}

TEST(StepTable, SaysOfAnAccountByItselfWhatItSaysOfItsEntry) {
  OneStep step(100000);
  step.table.CountReceived(step.index, 90000);
  step.table.CountTrimmed(step.index, 5904);
  const StepAccount account = step.table.account(step.index);
  EXPECT_FALSE(Exhausted(account, 4096));
  EXPECT_TRUE(Exhausted(account, 4097));
  StepAccount closed = account;
  closed.open = false;
  EXPECT_TRUE(Exhausted(closed, 16));
}

TEST(StepTable, RaisesChangesWheneverTheExhaustedFlagOfSomePacketSizeFlips) {
  OneStep step(100000);
  const uint32_t sizes[] = {16, 1024, 1456, 4096};
  for (int i = 0; i < 800; ++i) {
    bool before[4];
    for (int s = 0; s < 4; ++s) before[s] = step.table.Exhausted(step.index, sizes[s]);
    const uint64_t changes = step.table.changes();
    step.table.CountTrimmed(step.index, 16);
    for (int s = 0; s < 4; ++s) {
      if (step.table.Exhausted(step.index, sizes[s]) != before[s]) {
        EXPECT_GT(step.table.changes(), changes) << sizes[s];
      }
    }
  }
}

TEST(StepTable, DoesNotRaiseChangesWhileEveryFlagIsFarFromFlipping) {
  OneStep step(1000000);  // budget 100,000
  const uint64_t changes = step.table.changes();
  step.table.CountTrimmed(step.index, 50000);
  step.table.UncountTrimmed(step.index, 50000);
  EXPECT_EQ(step.table.changes(), changes);
}

TEST(StepTable, CountsNothingAsOutstandingAfterTheStepClosed) {
  OneStep step(1000000);
  EXPECT_EQ(step.table.End(1), StepResult::kOk);
  EXPECT_FALSE(step.table.CountTrimmed(step.index, 16));
  EXPECT_EQ(step.account().outstanding, 0u);
  EXPECT_EQ(step.table.Decide(step.index, 16), Decision::kNoOpenBudget);
  EXPECT_TRUE(step.table.Exhausted(step.index, 16));
}

TEST(StepTable, ExpectsWhatTheLastClosedStepSettledEvenAfterItClosed) {
  OneStep step(1000000);
  step.table.CountReceived(step.index, 4000);
  EXPECT_EQ(step.Trim(400), Decision::kForgiven);
  EXPECT_EQ(step.table.End(1), StepResult::kOk);
  step.table.CountReceived(step.index, 600);
  EXPECT_EQ(step.account().received, 4000u);
  step.table.RemoveMessage(step.index);
  EXPECT_EQ(step.table.Begin(Plan(2, kTenth, 0)), StepResult::kOk);
  EXPECT_EQ(step.table.Find(2)->expected, 5000u);
}

TEST(StepTable, ExpectsNothingBeforeAnyStepClosed) {
  StepTable table(4, kAlways, 1);
  EXPECT_EQ(table.Begin(Plan(1, kTenth, 0)), StepResult::kOk);
  EXPECT_EQ(table.Find(1)->budget, 0u);
}

TEST(StepTable, SumsContributionsLostAsBytesTimesContributions) {
  OneStep step(1000000);
  step.table.CountReceived(step.index, 100000);
  step.table.CountTrimmed(step.index, 32);
  step.table.Forgive(step.index, 32, 32, 5);
  EXPECT_EQ(step.account().contributions_lost, 160u);
}

// A byte of the third hop takes three ranks' contributions with it.
struct OneStepOfContributions : OneStep {
  explicit OneStepOfContributions(uint64_t expected) : OneStep(1) {
    table = StepTable(8, kAlways, 1, {}, BudgetUnit::kContributions);
    EXPECT_EQ(table.Begin(Plan(1, kTenth, expected)), StepResult::kOk);
    index = table.FindOpen(1);
    table.AddMessage(index, 3);
  }
  Decision Trim(uint64_t bytes, uint32_t contributions) {
    EXPECT_TRUE(table.CountTrimmed(index, bytes, contributions));
    const Decision decision = table.Decide(index, bytes, contributions);
    if (decision == Decision::kForgiven) table.Forgive(index, bytes, bytes, contributions);
    return decision;
  }
};

TEST(StepTableOfContributions, ChargesEachByteTheRanksWhoseContributionGoesWithIt) {
  OneStepOfContributions step(1000);  // budget 100
  step.table.CountReceived(step.index, 1000000);
  EXPECT_EQ(step.Trim(34, 3), Decision::kOverBudget);
  step.table.UncountTrimmed(step.index, 34, 3);
  EXPECT_EQ(step.Trim(33, 3), Decision::kForgiven);
  EXPECT_EQ(step.account().charged, 99u);
  EXPECT_EQ(step.account().forgiven, 33u);
  EXPECT_EQ(step.Trim(1, 1), Decision::kForgiven);
  EXPECT_EQ(step.Trim(1, 1), Decision::kOverBudget);
}

TEST(StepTableOfContributions, VestsByBytesThatArrived) {
  OneStepOfContributions step(1000000);
  step.table.CountReceived(step.index, 2899);
  EXPECT_EQ(step.Trim(100, 3), Decision::kNotVested);  // 300 > 0.1 * 2999
  step.table.CountReceived(step.index, 1);
  EXPECT_EQ(step.Trim(100, 3), Decision::kForgiven);  // 300 = 0.1 * 3000
}

TEST(StepTableOfContributions, IsExhaustedByWhatOutstandingBytesWouldCost) {
  OneStepOfContributions step(100000);  // budget 10,000
  const uint64_t changes = step.table.changes();
  step.table.CountTrimmed(step.index, 2000, 3);
  EXPECT_GT(step.table.changes(), changes);
  EXPECT_FALSE(step.table.Exhausted(step.index, 1333, 3));  // 6,000 + 3,999
  EXPECT_TRUE(step.table.Exhausted(step.index, 1334, 3));
  EXPECT_FALSE(step.table.Exhausted(step.index, 4000, 1));
  step.table.UncountTrimmed(step.index, 2000, 3);
  EXPECT_EQ(step.account().outstanding_charge, 0u);
}

TEST(StepTableDeathTest, DiesWhenMoreLeavesOutstandingThanWasCounted) {
  OneStep step(1000000);
  step.table.CountTrimmed(step.index, 16);
  EXPECT_DEATH(step.table.UncountTrimmed(step.index, 17), "counted_bytes <= account.outstanding");
}

TEST(StepTableDeathTest, DiesWhenSomethingIsForgivenBeyondWhatVested) {
  OneStep step(1000000);
  step.table.CountTrimmed(step.index, 16);
  EXPECT_DEATH(step.table.Forgive(step.index, 16, 16, 1), "check failed");
}

TEST(StepTableDeathTest, DiesWhenTheLastMessageLeavesOutstandingBytesBehind) {
  OneStep step(1000000);
  step.table.CountTrimmed(step.index, 16);
  EXPECT_DEATH(step.table.RemoveMessage(step.index), "outstanding == 0");
}

}  // namespace
}  // namespace forgive
