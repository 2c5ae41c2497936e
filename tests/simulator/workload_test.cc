// SPDX-License-Identifier: Apache-2.0
// Tests of what a job sends: bytes and times of its collectives against arithmetic.
#include <gtest/gtest.h>

#include "small_plan.h"
#include "testbed/simulator/run.h"
#include "testbed/simulator/training.h"

namespace forgive::sim {
namespace {

constexpr int64_t kHeader = 56;

int64_t WirePs(int64_t payload) {
  const int64_t packets = (payload + 4095) / 4096;
  return (payload + packets * kHeader) * 20;
}

TEST(Training, ARingOnAnIdleLeafTakesItsRoundsOfAMessageAndAWayEach) {
  const Plan plan = SmallPlan(
      {"tp=2", "dp=1", "tp_all_reduces=1", "tp_streams=1", "tp_bytes=1048576", "steps=1", "critical_steps=[1]"});
  Simulation run(plan, 1);
  ASSERT_TRUE(run.ToEnd({}));
  const auto& times = run.metrics().steps(0)[0].tensor_times;
  ASSERT_EQ(times.size(), 2u);
  // Two rounds: half of the bytes, the last packet's second link, 10 us of way.
  const int64_t round = WirePs(1048576 / 2) + (4096 + kHeader) * 20 + 10'000'000;
  // Reports share the links: at most one of 88 bytes a packet.
  const int64_t reports = 128 * 88 * 20;
  for (const Picoseconds time : times) {
    EXPECT_GE(time.value, 2 * round);
    EXPECT_LE(time.value, 2 * (round + reports));
  }
}

TEST(Training, StreamsOneAtATimeWaitForEachOther) {
  const auto time = [](const char* at_once) {
    const Plan plan = SmallPlan({"tp=2", "dp=1", "tp_all_reduces=1", "tp_streams=4", "tp_bytes=65536", "steps=1",
                                 "critical_steps=[1]", std::string("streams_at_once=") + at_once});
    Simulation run(plan, 1);
    EXPECT_TRUE(run.ToEnd({}));
    return run.metrics().steps(0)[0].tensor_times.at(0).value;
  };
  // Two rounds of 10 us of way each; the bytes of a message take 0.2 us.
  EXPECT_LT(time("0"), 2 * 11'000'000);
  EXPECT_GT(time("2"), 2 * 2 * 10'000'000);
  EXPECT_GT(time("1"), 4 * 2 * 10'000'000);
}

TEST(Training, AStepIsItsComputeAndItsCollectives) {
  const Plan plan = SmallPlan({"tp=1", "dp=1", "tp_all_reduces=3", "tp_on_fabric=false", "tp_us=40", "compute_us=100",
                               "steps=2", "ranks_per_leaf=1"});
  Simulation run(plan, 1);
  ASSERT_TRUE(run.ToEnd({}));
  EXPECT_EQ(run.time_of(0).value, int64_t{2} * (4 * 100 + 3 * 40) * 1'000'000);
}

TEST(Training, SkewDelaysARankBySeedAndStepAndByNothingElse) {
  const auto time = [](uint64_t seed, const char* skew, const char* rule) {
    const Plan plan =
        SmallPlan({"tp=1", "dp=1", "tp_all_reduces=1", "tp_on_fabric=false", "tp_us=0", "compute_us=100", "steps=2",
                   "ranks_per_leaf=1", std::string("gradient_skew_us=") + skew, std::string("rule=") + rule});
    Simulation run(plan, seed);
    EXPECT_TRUE(run.ToEnd({}));
    return run.time_of(0).value;
  };
  const int64_t in_step = time(1, "0", "none");
  EXPECT_EQ(in_step, int64_t{2} * 2 * 100 * 1'000'000);
  EXPECT_GT(time(1, "1000", "none"), in_step);
  EXPECT_LE(time(1, "1000", "none"), in_step + int64_t{2} * 1000 * 1'000'000);
  EXPECT_EQ(time(1, "1000", "none"), time(1, "1000", "forgive"));
  EXPECT_NE(time(1, "1000", "none"), time(2, "1000", "none"));
}

TEST(Training, MovesTheBytesOfBothAlgorithmsAndNoMore) {
  for (const char* algorithm : {"direct", "ring"}) {
    const Plan plan = SmallPlan(
        {std::string("dp_algorithm=") + algorithm, "fabric.data_queue_bytes=4194304", "congestion_control=none"});
    Simulation run(plan, 1);
    ASSERT_TRUE(run.ToEnd({}));
    const WorkloadPlan& workload = plan.job.workload;
    const Counters gradient = run.CountersOf(0, TrafficKind::kGradient);
    EXPECT_EQ(gradient.received_bytes, workload.gradient_bytes() * workload.ranks() * workload.steps) << algorithm;
    const Counters tensor = run.CountersOf(0, TrafficKind::kTensor);
    // 2 (tp - 1) messages of a tp-th a rank and all-reduce.
    EXPECT_EQ(tensor.received_bytes, 2u * 262144 / 2 * workload.tp_all_reduces * workload.ranks() * workload.steps);
    EXPECT_EQ(run.CheckConservation(), "");
  }
}

TEST(Training, CountsEveryRankThatALossTakesAlong) {
  // Everything that is lost in a direct reduce-scatter is one rank's contribution, in the gather all four.
  const Plan plan = SmallPlan({"rule=forgive", "p_low=0.2", "p_high=0.2", "eligible=reduce"});
  Simulation run(plan, 1);
  ASSERT_TRUE(run.ToEnd({}));
  uint64_t forgiven = 0;
  uint64_t lost = 0;
  for (const StepRecord& step : run.metrics().steps(0)) {
    forgiven += step.forgiven;
    lost += step.contributions_lost;
  }
  ASSERT_GT(forgiven, 0u);
  EXPECT_EQ(lost, forgiven);
}

TEST(Training, ABurstBeginsAtItsStepAndArrives) {
  const Plan plan = SmallPlan({"burst_flows=3", "burst_bytes=1000000", "burst_rank=1", "burst_step=2"});
  Simulation run(plan, 1);
  ASSERT_TRUE(run.ToEnd({}));
  EXPECT_EQ(run.CountersOf(0, TrafficKind::kFlow).received_bytes, 3'000'000u);
  EXPECT_TRUE(run.training(0)->burst().done());
}

TEST(Training, ASecondJobMovesItsOwnBytes) {
  const Plan plan =
      SmallPlan({"fabric.hosts_per_leaf=4", "job2.workload.first_host=2", "job2.workload.ranks_per_leaf=2",
                 "job2.workload.tp=2", "job2.workload.dp=4", "job2.workload.steps=2", "job2.workload.tp_bytes=262144",
                 "job2.workload.dp_bytes=1000000", "job2.workload.compute_us=100", "job2.workload.fan_in=3"});
  Simulation run(plan, 1);
  ASSERT_TRUE(run.ToEnd({}));
  ASSERT_EQ(run.jobs(), 2u);
  const WorkloadPlan& second = plan.job2->workload;
  EXPECT_EQ(run.CountersOf(1, TrafficKind::kGradient).received_bytes,
            second.gradient_bytes() * second.ranks() * second.steps);
  EXPECT_EQ(run.CheckConservation(), "");
}

}  // namespace
}  // namespace forgive::sim
