// SPDX-License-Identifier: Apache-2.0
// Each operation as a step (FORGIVE_STEP=operation), marks by name, and budgets in contributions, end to end.
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "fake_profiler.h"
#include "ring_steps.h"

namespace forgive::testing {
namespace {

constexpr int kRanksOfRing = 4;
const Variables kWithName = {{"FORGIVE_COMMUNICATOR", "grad*"}, {"FORGIVE_SEED", "1"}};
const Variables kByOperation = {
    {"FORGIVE_STEP", "operation"}, {"FORGIVE_DETECTOR", "steps"}, {"FORGIVE_DETECTOR_STEPS", "2"}};

// In a process of its own: a communicator of four ranks with this name, as NCCL 2.28 on has it.
void RunNamed(const Variables& environment, const char* name,
              const std::function<void(const Net&, const Interface&, FakeProfiler*)>& body) {
  ExpectInChild(environment + kTrims, [&] {
    const Library library;
    const Net net = library.Table(12, 7);
    net.communicator->profiler = ProfilerCallback;
    ASSERT_EQ(net.init(), nccl::kSuccess) << (LogLines().empty() ? "" : LogLines().back());
    FakeProfiler profiler;
    LoadProfiler(library, 5, kRanksOfRing, &profiler, name);
    body(net, Interface(library), &profiler);
  });
}

// The messages of one loop of an all-reduce of four ranks.
std::vector<int> OneLoop() {
  std::vector<int> messages;
  for (int i = 0; i < 2 * (kRanksOfRing - 1) * 2; ++i) messages.push_back(i);
  return messages;
}

// Starts an all-reduce of as many floats as one loop moves here.
void StartOneLoop(FakeProfiler* profiler, bool captured = false) {
  // Each rank receives (k-1)/k of it in either phase: six messages of 1 MiB.
  StartAllReduce(profiler, "AllReduce", "ncclFloat32", captured, getpid(), (8 << 20) / 4);
}

TEST(StepByOperation, OpensAStepForEachProvedAllReduceAndKeepsItsBudget) {
  RunNamed(kWithName + kByOperation, "gradients",
           [](const Net& net, const Interface& forgive, FakeProfiler* profiler) {
             RingConnection ring = MakeRing(net);
             for (int operation = 1; operation <= 4; ++operation) {
               StartOneLoop(profiler);
               const uint64_t forgiven = TransferProfiled(net, forgive, profiler, &ring, OneLoop());
               EXPECT_GT(forgiven, 0u) << operation;
               // The second is the critical one.
               EXPECT_LE(forgiven, (6u << 20) / (operation == 2 ? 200 : 10)) << operation;
             }
             std::set<uint64_t> steps;
             for (const forgive_range_t& line : Ledger(forgive)) {
               steps.insert(line.step);
               EXPECT_LT(line.message % 12, 6u) << "the reduce-scatter phase";
             }
             EXPECT_EQ(steps, (std::set<uint64_t>{1, 2, 3, 4}));
             forgive_step_stats_t step{};
             ASSERT_EQ(forgive.step_stats(1, &step), FORGIVE_OK) << forgive.last_error();
             EXPECT_EQ(step.expected, 6u << 20);
             EXPECT_EQ(step.received + step.forgiven, 6u << 20);
             EXPECT_EQ(step.budget_violations, 0u);
             EXPECT_EQ(forgive.begin(9, 0, 0), FORGIVE_ERROR_BAD_ARGUMENT);
             EXPECT_NE(std::string(forgive.last_error()).find("FORGIVE_STEP=operation"), std::string::npos);
           });
}

TEST(StepByOperation, HoldsForACollectiveLaunchedFromAGraph) {
  RunNamed(kWithName + kByOperation, "gradients",
           [](const Net& net, const Interface& forgive, FakeProfiler* profiler) {
             RingConnection ring = MakeRing(net);
             StartOneLoop(profiler, true);
             EXPECT_GT(TransferProfiled(net, forgive, profiler, &ring, OneLoop()), 0u);
           });
}

TEST(StepByOperation, IsNothingForAnAllGatherOrByTheOperatorsWordAlone) {
  RunNamed(kWithName + kByOperation, "gradients",
           [](const Net& net, const Interface& forgive, FakeProfiler* profiler) {
             RingConnection ring = MakeRing(net);
             StartAllReduce(profiler, "AllGather");
             EXPECT_EQ(TransferProfiled(net, forgive, profiler, &ring, OneLoop()), 0u);
             forgive_stats_t totals{};
             totals.size = sizeof(totals);
             ASSERT_EQ(forgive.stats(&totals), FORGIVE_OK);
             EXPECT_EQ(totals.sent_exempt_bytes, 0u);
           });
  RunPlugin(kWord + kByOperation + kTrims, [](const Net& net, const Interface& forgive) {
    RingConnection ring = MakeRing(net);
    EXPECT_EQ(AllReduce(net, forgive, &ring, 2, kPosted, 0), 0u);
    forgive_stats_t totals{};
    totals.size = sizeof(totals);
    ASSERT_EQ(forgive.stats(&totals), FORGIVE_OK);
    EXPECT_EQ(totals.refused, 8u);
    EXPECT_EQ(totals.proved_by_operators_word, 0u);
  });
}

TEST(StepByOperation, ForgivesNothingWhereTheDetectorHasSeenNoNormsBeyondACriticalStepsBudget) {
  RunNamed(kWithName + Variables{{"FORGIVE_STEP", "operation"}}, "gradients",
           [](const Net& net, const Interface& forgive, FakeProfiler* profiler) {
             RingConnection ring = MakeRing(net);
             StartOneLoop(profiler);
             EXPECT_LE(TransferProfiled(net, forgive, profiler, &ring, OneLoop()), (6u << 20) / 200);
           });
}

TEST(StepByOperation, WritesALineForEachOperationByTheEndOfTheProcess) {
  const std::string file = ::testing::TempDir() + "forgive_operations_" + std::to_string(getpid()) + ".jsonl";
  RunNamed(kWithName + kByOperation + Variables{{"FORGIVE_STATS", file}}, "gradients",
           [](const Net& net, const Interface& forgive, FakeProfiler* profiler) {
             RingConnection ring = MakeRing(net);
             for (int operation = 0; operation < 3; ++operation) {
               StartOneLoop(profiler);
               TransferProfiled(net, forgive, profiler, &ring, OneLoop());
             }
           });
  std::ifstream lines(file);
  std::map<uint64_t, nlohmann::json> steps;
  for (std::string text; std::getline(lines, text);) {
    const nlohmann::json line = nlohmann::json::parse(text);
    if (line["type"] == "step") steps[line["step"]] = line;
  }
  ASSERT_EQ(steps.size(), 3u);
  EXPECT_EQ(steps[1]["critical"], false);
  EXPECT_EQ(steps[2]["critical"], true);
  for (const auto& [number, step] : steps) {
    EXPECT_EQ(step["settled"], 6u << 20);
    EXPECT_GE(step["end_ns"], step["begin_ns"]);
    EXPECT_EQ(step["refusals"].size(), 0u);
  }
  unlink(file.c_str());
}

TEST(MarksByName, ForgiveOnlyInACommunicatorWhoseNameTheListMeans) {
  struct Case {
    const char* list;
    const char* name;
    bool meant;
  };
  const Case cases[] = {
      {"grad*", "gradients", true},    {"pp,grad?ents", "gradients", true}, {"grad", "gradients", false},
      {"^tp*,pp*", "gradients", true}, {"^tp*,grad*", "gradients", false},  {"grad*", nullptr, false},
      {"^tp*", nullptr, false}};
  for (const Case& one : cases) {
    RunNamed({{"FORGIVE_COMMUNICATOR", one.list}, {"FORGIVE_SEED", "1"}}, one.name,
             [&one](const Net& net, const Interface& forgive, FakeProfiler* profiler) {
               RingConnection ring = MakeRing(net);
               ASSERT_EQ(forgive.begin(1, 0, 6 << 20), FORGIVE_OK);
               StartOneLoop(profiler);
               EXPECT_EQ(TransferProfiled(net, forgive, profiler, &ring, OneLoop()) > 0, one.meant)
                   << one.list << " " << (one.name == nullptr ? "none" : one.name);
               EXPECT_EQ(forgive.end(1), FORGIVE_OK);
             });
  }
}

TEST(MarksByName, ExcludeAChildThatInheritedItsParentsTrafficClass) {
  for (const char* name : {"gradients", "child"}) {
    ExpectInChild(kWithName + Variables{{"FORGIVE_TRAFFIC_CLASS", "104"}} + kTrims, [name] {
      const Library library;
      const Net net = library.Table(12, 7, 104);
      net.communicator->profiler = ProfilerCallback;
      ASSERT_EQ(net.init(), nccl::kSuccess);
      FakeProfiler profiler;
      LoadProfiler(library, 5, kRanksOfRing, &profiler, name);
      const Interface forgive(library);
      RingConnection ring = MakeRing(net);
      ASSERT_EQ(forgive.begin(1, 0, 6 << 20), FORGIVE_OK);
      StartOneLoop(&profiler);
      EXPECT_EQ(TransferProfiled(net, forgive, &profiler, &ring, OneLoop()) > 0, name[0] == 'g') << name;
      EXPECT_EQ(forgive.end(1), FORGIVE_OK);
    });
  }
}

TEST(BudgetOfContributions, IsChargedTheRanksWhoseContributionGoesWithEachByte) {
  std::map<std::string, uint64_t> lost;
  for (const char* unit : {"bytes", "contributions"}) {
    const std::string file = ::testing::TempDir() + "forgive_unit_" + std::to_string(getpid());
    RunNamed(kWithName + Variables{{"FORGIVE_BUDGET_UNIT", unit}, {"FORGIVE_FAULT", "trim=0.5,seed=5"}}, "gradients",
             [&file](const Net& net, const Interface& forgive, FakeProfiler* profiler) {
               RingConnection ring = MakeRing(net);
               ASSERT_EQ(forgive.begin(1, 0, 6 << 20), FORGIVE_OK);
               StartOneLoop(profiler);
               TransferProfiled(net, forgive, profiler, &ring, OneLoop());
               EXPECT_EQ(forgive.end(1), FORGIVE_OK);
               uint64_t sum = 0;
               for (const forgive_range_t& line : Ledger(forgive)) {
                 EXPECT_EQ(line.contributions, line.message % 6 / 2 + 1);
                 sum += uint64_t{line.length} * line.contributions;
               }
               forgive_step_stats_t step{};
               ASSERT_EQ(forgive.step_stats(1, &step), FORGIVE_OK);
               EXPECT_EQ(step.contributions_lost, sum);
               EXPECT_EQ(step.budget_violations, 0u);
               if (step.budget_unit == FORGIVE_BUDGET_CONTRIBUTIONS) {
                 EXPECT_LE(sum, step.budget);
               }
               std::ofstream(file) << sum;
             });
    std::ifstream(file) >> lost[unit];
    unlink(file.c_str());
  }
  const uint64_t budget = (6u << 20) / 10;
  EXPECT_GT(lost["bytes"], budget) << "in bytes, contributions are not bounded";
  EXPECT_LE(lost["contributions"], budget);
  EXPECT_GT(lost["contributions"], budget / 2);
}

TEST(SettingsOfOperations, AreRefusedWithoutTheProfilerThatTheyNeed) {
  for (const Variables& wrong :
       {Variables{{"FORGIVE_STEP", "operation"}}, Variables{{"FORGIVE_COMMUNICATOR", "a"}}}) {
    ExpectInChild(wrong + Variables{{"FORGIVE_PROFILER", "0"}}, [&wrong] {
      const Library library;
      EXPECT_NE(library.Table(12).init(), nccl::kSuccess);
      EXPECT_TRUE(LogContains(wrong[0].first));
      EXPECT_TRUE(LogContains("needs FORGIVE_PROFILER=1"));
    });
  }
}

}  // namespace
}  // namespace forgive::testing
