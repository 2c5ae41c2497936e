// SPDX-License-Identifier: Apache-2.0
// Tests of the policies: what each gives up, and what it never does.
#include "testbed/simulator/policy.h"

#include <gtest/gtest.h>

#include "small_plan.h"
#include "testbed/simulator/results.h"
#include "testbed/simulator/run.h"

namespace forgive::sim {
namespace {

struct Outcome {
  uint64_t forgiven = 0;
  uint64_t forgiven_early = 0;  // before two fifths of a rank's bytes were there
  uint64_t shed = 0;
  uint64_t budget = 0;
  uint64_t retransmitted = 0;
  uint64_t skipped = 0;
  uint64_t cuts = 0;
  uint64_t trims = 0;
  uint64_t critical_forgiven = 0;
  uint64_t critical_budget = 0;
  bool invariant = true;
};

Outcome Play(const std::vector<std::string>& assignments) {
  Simulation run(SmallPlan(assignments), 7);
  EXPECT_TRUE(run.ToEnd({}));
  EXPECT_EQ(run.CheckConservation(), "");
  EXPECT_EQ(BudgetViolations(run), 0u);
  Outcome outcome;
  for (const StepRecord& step : run.metrics().steps(0)) {
    outcome.forgiven += step.forgiven;
    outcome.forgiven_early += step.forgiven_by_progress[0] + step.forgiven_by_progress[1];
    outcome.shed += step.shed;
    outcome.budget += step.budget;
    outcome.invariant = outcome.invariant && step.invariant;
    outcome.critical_forgiven += step.critical ? step.forgiven : 0;
    outcome.critical_budget += step.critical ? step.budget : 0;
  }
  const Counters gradient = run.CountersOf(0, TrafficKind::kGradient);
  outcome.retransmitted = gradient.retransmitted_bytes;
  outcome.skipped = gradient.skipped_bytes;
  outcome.cuts = gradient.rate_cuts_mark + gradient.rate_cuts_trim;
  outcome.trims = gradient.trims;
  return outcome;
}

TEST(Policy, WithoutARuleEverythingTrimmedIsRepairedAndNothingGivenUp) {
  const Outcome outcome = Play({"rule=none"});
  EXPECT_GT(outcome.trims, 0u);
  EXPECT_GT(outcome.retransmitted, 0u);
  EXPECT_EQ(outcome.forgiven + outcome.shed, 0u);
}

TEST(Policy, ForgivesWithinTheBudgetOfEachStep) {
  const Outcome outcome = Play({"rule=forgive", "p_low=0.005", "p_high=0.1"});
  EXPECT_GT(outcome.forgiven, 0u);
  EXPECT_LE(outcome.forgiven, outcome.budget);
  EXPECT_LE(outcome.critical_forgiven, outcome.critical_budget);
  EXPECT_TRUE(outcome.invariant);
}

TEST(Policy, WithTheProbabilityAtZeroOnlyTheExemptionIsLeft) {
  const Outcome plain = Play({"rule=none"});
  const Outcome outcome = Play({"rule=forgive", "forgiveness_probability=0", "p_low=0.1", "p_high=0.1"});
  EXPECT_EQ(outcome.forgiven, 0u);
  EXPECT_LT(outcome.cuts, plain.cuts);
}

TEST(Policy, ObeyingCutsMoreOftenThanTheExemptionAndNeverEndingItLess) {
  const Outcome obeys = Play({"rule=forgive", "exemption=never"});
  const Outcome budget = Play({"rule=forgive", "exemption=budget"});
  const Outcome always = Play({"rule=forgive", "exemption=always"});
  EXPECT_GT(obeys.forgiven, 0u);
  EXPECT_GT(obeys.cuts, budget.cuts);
  EXPECT_GE(budget.cuts, always.cuts);
}

TEST(Policy, UpFrontSpendsBeforeItVests) {
  const Outcome outcome = Play({"rule=forgive", "vesting=false", "p_low=0.1", "p_high=0.1"});
  EXPECT_GT(outcome.forgiven, 0u);
  EXPECT_LE(outcome.forgiven, outcome.budget);
}

TEST(Policy, LateForgivenessWaitsUntilItsShareIsThere) {
  const Outcome late = Play({"rule=forgive", "forgives_from=0.5", "p_low=0.1", "p_high=0.1"});
  EXPECT_GT(late.forgiven, 0u);
  EXPECT_EQ(late.forgiven_early, 0u);
  EXPECT_TRUE(late.invariant);
  EXPECT_GT(Play({"rule=forgive", "p_low=0.1", "p_high=0.1"}).forgiven_early, 0u);
  EXPECT_EQ(Play({"rule=forgive", "forgives_from=1", "p_low=0.1", "p_high=0.1"}).forgiven, 0u);
}

TEST(Policy, ShedsTheShareOfMessagesThatPSays) {
  PolicyPlan policy;
  policy.rule = LossRule::kShed;
  uint32_t shed = 0;
  uint32_t not_in_high = 0;
  for (uint32_t message = 0; message < 100000; ++message) {
    const MessageName name{message / 1000, message % 64, (message * 7) % 64, message};
    const bool low = IsShed(policy, 3, true, name);
    const bool high = IsShed(policy, 3, false, name);
    shed += high ? 1 : 0;
    not_in_high += low && !high ? 1 : 0;
  }
  EXPECT_NEAR(shed, 10000, 400);
  EXPECT_EQ(not_in_high, 0u);  // one draw for every tolerance
}

TEST(Policy, SheddingGivesUpWholeMessagesAndSendsMarkers) {
  const Outcome outcome = Play({"rule=shed", "p_low=0.3", "p_high=0.3"});
  const WorkloadPlan workload = SmallPlan().job.workload;
  ASSERT_GT(outcome.shed, 0u);
  EXPECT_EQ(outcome.shed % (workload.dp_chunk_bytes() - 64), 0u);
  EXPECT_EQ(outcome.forgiven, 0u);
}

TEST(Policy, AcceptingTrimsNeverSendsAnythingAgainButWhatWasDropped) {
  const Outcome outcome = Play({"rule=accept-trims", "exemption=never"});
  EXPECT_GT(outcome.forgiven, 0u);
  EXPECT_EQ(outcome.retransmitted, 0u);
}

TEST(Policy, ClosingMessagesGivesUpTailsWithinPOfEachMessage) {
  const Outcome outcome = Play({"rule=stop-asking", "exemption=always", "p_low=0.1", "p_high=0.1"});
  EXPECT_GT(outcome.forgiven, 0u);
  EXPECT_LE(outcome.forgiven, outcome.budget);
}

TEST(Policy, ClosingARoundWaitsUntilAllButPIsThere) {
  const Outcome outcome =
      Play({"rule=close-round", "exemption=never", "close_factor=0.1", "p_low=0.1", "p_high=0.1"});
  EXPECT_GT(outcome.forgiven, 0u);
  EXPECT_LE(outcome.forgiven, outcome.budget);
}

TEST(Policy, BoundingARoundClosesItWhateverHasArrived) {
  const Outcome outcome =
      Play({"rule=bound-round", "exemption=never", "close_factor=0.3", "warm_up_steps=1", "window_bytes=40000"});
  EXPECT_GT(outcome.forgiven, outcome.budget);
  EXPECT_GT(outcome.skipped, 0u);
}

}  // namespace
}  // namespace forgive::sim
