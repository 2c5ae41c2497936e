// SPDX-License-Identifier: Apache-2.0
// Tests of whole runs: the same bytes again, every byte accounted for, and what the results say.
#include "testbed/simulator/run.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <sstream>

#include "small_plan.h"
#include "testbed/simulator/results.h"

namespace forgive::sim {
namespace {

std::string Lines(const std::vector<std::string>& assignments, uint64_t seed) {
  Simulation run(SmallPlan(assignments), seed);
  EXPECT_TRUE(run.ToEnd({}));
  EXPECT_EQ(run.CheckConservation(), "");
  return ResultLines(run);
}

std::vector<nlohmann::json> Parsed(const std::string& lines) {
  std::vector<nlohmann::json> all;
  std::istringstream stream(lines);
  for (std::string line; std::getline(stream, line);) all.push_back(nlohmann::json::parse(line));
  return all;
}

TEST(Run, SaysTheSameBytesForTheSamePlanAndSeed) {
  const std::string once = Lines({"rule=forgive"}, 3);
  EXPECT_EQ(once, Lines({"rule=forgive"}, 3));
  EXPECT_NE(once, Lines({"rule=forgive"}, 4));
}

TEST(Run, AccountsForEveryByteWhereTheFabricDropsInsteadOfTrimming) {
  const auto lines = Parsed(Lines({"rule=none", "fabric.trims=false", "congestion_control=none"}, 1));
  EXPECT_GT(lines.back()["drops"], 0);
  EXPECT_EQ(lines.back()["trims"], 0);
  EXPECT_EQ(lines.back()["conservation"], true);
}

TEST(Run, GoBackNAccountsForWhatItDropsAndSendsMoreAgainThanSelectiveRepeat) {
  const auto selective = Parsed(Lines({"rule=none", "congestion_control=none"}, 1)).back();
  const auto back = Parsed(Lines({"rule=none", "congestion_control=none", "recovery=go-back-n"}, 1)).back();
  EXPECT_EQ(back["conservation"], true);
  EXPECT_GT(selective["trims"], 0);
  EXPECT_GT(back["retransmitted_bytes"], 2 * selective["retransmitted_bytes"].get<uint64_t>());
}

TEST(Run, SpraysOverPathsAndUnderNsccWithEveryByteAccountedFor) {
  for (const char* policy : {"oblivious", "reps"}) {
    const auto lines = Parsed(Lines({"rule=forgive", "fabric.spines=2", "congestion_control=nscc", "paths=16",
                                     "ecmp_unit=connection", std::string("path_policy=") + policy}, 1));
    EXPECT_EQ(lines.back()["conservation"], true) << policy;
    EXPECT_EQ(lines.back()["budget_violations"], 0) << policy;
  }
}

TEST(Run, WritesARunLineALineAStepAndASummary) {
  const auto lines = Parsed(Lines({"rule=forgive"}, 1));
  ASSERT_EQ(lines.size(), 6u);
  EXPECT_EQ(lines[0]["kind"], "run");
  EXPECT_EQ(lines[0]["parameters"]["policy.rule"], "forgive");
  for (size_t step = 1; step <= 4; ++step) {
    EXPECT_EQ(lines[step]["kind"], "step");
    EXPECT_EQ(lines[step]["step"], step);
    EXPECT_EQ(lines[step]["critical"], step == 1);
    EXPECT_EQ(lines[step]["expected"].get<uint64_t>(),
              lines[step]["received"].get<uint64_t>() + lines[step]["forgiven"].get<uint64_t>());
  }
  EXPECT_EQ(lines[5]["kind"], "summary");
  EXPECT_EQ(lines[5]["budget_violations"], 0);
}

TEST(Run, TheFifthsOfAStepAddUpToItsTrims) {
  const auto lines = Parsed(Lines({"rule=forgive"}, 1));
  uint64_t by_time = 0;
  uint64_t by_progress = 0;
  uint64_t forgiven = 0;
  uint64_t forgiven_by_time = 0;
  for (size_t step = 1; step <= 4; ++step) {
    for (size_t fifth = 0; fifth < 5; ++fifth) {
      by_time += lines[step]["trimmed_bytes_by_fifth"][fifth].get<uint64_t>();
      by_progress += lines[step]["trimmed_bytes_by_progress_fifth"][fifth].get<uint64_t>();
      forgiven_by_time += lines[step]["forgiven_bytes_by_fifth"][fifth].get<uint64_t>();
    }
    forgiven += lines[step]["forgiven"].get<uint64_t>();
  }
  EXPECT_GT(by_time, 0u);
  EXPECT_EQ(by_time, by_progress);
  EXPECT_EQ(forgiven, forgiven_by_time);
}

TEST(Run, CountsFlowsThatWereExempt) {
  const auto lines = Parsed(Lines({"rule=forgive", "p_low=0.1"}, 1));
  const WorkloadPlan workload = SmallPlan().job.workload;
  const uint64_t flows = 2 * uint64_t{workload.dp - 1} * workload.dp_streams * workload.ranks() * workload.steps;
  EXPECT_GT(lines.back()["exempt_flows"], flows / 2);
  EXPECT_LE(lines.back()["exempt_flows"], flows);
  const auto plain = Parsed(Lines({"rule=none"}, 1));
  EXPECT_EQ(plain.back()["exempt_flows"], 0);
}

TEST(Run, StopsWhenItIsTold) {
  Simulation run(SmallPlan({"steps=2000", "burst_step=1"}), 1);
  int looks = 0;
  EXPECT_FALSE(run.ToEnd([&](const Progress& progress) {
    EXPECT_LT(progress.share, 1);
    return ++looks < 2;
  }));
  EXPECT_EQ(looks, 2);
}

}  // namespace
}  // namespace forgive::sim
