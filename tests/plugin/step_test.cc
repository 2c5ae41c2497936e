// SPDX-License-Identifier: Apache-2.0
// Steps by the operator's word: what is forgiven, how much, and what the accounts say.
#include <gtest/gtest.h>

#include <cstdlib>
#include <map>

#include "ring_steps.h"

namespace forgive::testing {
namespace {

TEST(PluginSteps, ForgivesTrimsOfTheReducePhaseWithinTheBudgetAndKeepsTheLedger) {
  RunPlugin(kWord + kTrims, [](const Net& net, const Interface& forgive) {
    RingConnection ring = MakeRing(net);
    ASSERT_EQ(forgive.begin(1, 0, 8 << 20), FORGIVE_OK) << forgive.last_error();
    const uint64_t forgiven = AllReduce(net, forgive, &ring, 4, kPosted, 0);
    ASSERT_EQ(forgive.end(1), FORGIVE_OK) << forgive.last_error();
    EXPECT_GT(forgiven, 0u);
    for (const forgive_range_t& line : Ledger(forgive)) {
      EXPECT_LT(line.message % 4, 2u) << "an all-gather slice was forgiven";
      EXPECT_EQ(line.contributions, 1u);
      EXPECT_EQ(line.step, 1u);
    }
    forgive_step_stats_t step{};
    ASSERT_EQ(forgive.step_stats(1, &step), FORGIVE_OK);
    EXPECT_EQ(step.forgiven, forgiven);
    EXPECT_EQ(step.contributions_lost, forgiven);
    EXPECT_EQ(step.expected, uint64_t{8} << 20);
    EXPECT_EQ(step.budget, (uint64_t{8} << 20) / 10);
    EXPECT_LE(step.forgiven, step.budget);
    EXPECT_LE(step.forgiven * 9, step.received);
    EXPECT_EQ(step.received + step.forgiven, uint64_t{8} << 20);
    EXPECT_EQ(step.settled, uint64_t{8} << 20);
    EXPECT_EQ(step.outstanding, 0u);
    EXPECT_EQ(step.open, 0u);
    EXPECT_EQ(step.budget_violations, 0u);
    EXPECT_GT(step.trims, 0u);
    EXPECT_GE(step.end_ns, step.begin_ns);
    EXPECT_EQ(forgive.lost(), 0u);
  });
}

TEST(PluginSteps, ForgivesBothPhasesWhereAllIsEligibleAndCountsEveryRankOfAFinalValue) {
  RunPlugin(kWord + kTrims + Variables{{"FORGIVE_ELIGIBLE", "all"}, {"FORGIVE_GRADIENT_RANKS", "4"}},
            [](const Net& net, const Interface& forgive) {
              RingConnection ring = MakeRing(net);
              ASSERT_EQ(forgive.begin(1, 0, 16 << 20), FORGIVE_OK);
              EXPECT_GT(AllReduce(net, forgive, &ring, 4, kPosted, 0), 0u);
              EXPECT_EQ(forgive.end(1), FORGIVE_OK) << forgive.last_error();
              std::map<uint32_t, uint64_t> bytes;
              for (const forgive_range_t& line : Ledger(forgive)) {
                EXPECT_EQ(line.contributions, line.message % 4 < 2 ? 1u : 4u);
                bytes[line.message % 4 < 2 ? 0 : 1] += line.length;
              }
              EXPECT_GT(bytes[0], 0u);
              EXPECT_GT(bytes[1], 0u);
            });
}

TEST(PluginSteps, ForgivesNothingOutsideAStepOrWithoutTheOperatorsWord) {
  const auto body = [](const Net& net, const Interface& forgive) {
    RingConnection ring = MakeRing(net);
    EXPECT_EQ(AllReduce(net, forgive, &ring, 2, kPosted, 0), 0u);
    ASSERT_EQ(forgive.begin(1, 0, 4 << 20), FORGIVE_OK);
    const char* word = std::getenv("FORGIVE_GRADIENT_TRAFFIC");
    if (word == nullptr) {
      EXPECT_EQ(AllReduce(net, forgive, &ring, 2, kPosted, 8), 0u);
    }
    EXPECT_EQ(forgive.end(1), FORGIVE_OK);
    EXPECT_EQ(AllReduce(net, forgive, &ring, 2, kPosted, word == nullptr ? 16 : 8), 0u);
  };
  RunPlugin(kTrims, body);
  RunPlugin(kWord + kTrims, body);
}

TEST(PluginSteps, ForgivesNothingWhereTheProbabilityOfForgivingIsZeroButStaysExempt) {
  RunPlugin(kWord + kTrims + Variables{{"FORGIVE_P", "0"}}, [](const Net& net, const Interface& forgive) {
    RingConnection ring = MakeRing(net);
    ASSERT_EQ(forgive.begin(1, 0, 8 << 20), FORGIVE_OK);
    EXPECT_EQ(AllReduce(net, forgive, &ring, 4, kPosted, 0), 0u);
    EXPECT_EQ(forgive.end(1), FORGIVE_OK);
    forgive_stats_t totals{};
    totals.size = sizeof(totals);
    EXPECT_TRUE(
        PollUntil([&] { return forgive.stats(&totals) == FORGIVE_OK && totals.decided_draw_refused > 0; }, 10));
    EXPECT_GT(totals.sent_exempt_bytes, 0u);
    EXPECT_EQ(totals.forgiven_bytes, 0u);
  });
}

TEST(PluginSteps, LearnsTheExpectedBytesFromTheLastStep) {
  RunPlugin(kWord, [](const Net& net, const Interface& forgive) {
    RingConnection ring = MakeRing(net);
    ASSERT_EQ(forgive.begin(1, 0, 0), FORGIVE_OK);
    AllReduce(net, forgive, &ring, 1, 1000, 0);
    ASSERT_EQ(forgive.end(1), FORGIVE_OK);
    ASSERT_EQ(forgive.begin(2, 1, 0), FORGIVE_OK);
    forgive_step_stats_t step{};
    ASSERT_EQ(forgive.step_stats(2, &step), FORGIVE_OK);
    EXPECT_EQ(step.expected, 2000u);  // two reduce-scatter slices: what was sent, not what was posted
    EXPECT_EQ(step.budget, 10u);
    EXPECT_EQ(step.critical, 1u);
    EXPECT_EQ(step.open, 1u);
    EXPECT_EQ(forgive.end(2), FORGIVE_OK);
  });
}

}  // namespace
}  // namespace forgive::testing
