// SPDX-License-Identifier: Apache-2.0
// Memory that runs out in the thread that writes the statistics: lines are left out, and nothing else is lost.
#include <gtest/gtest.h>
#include <pthread.h>
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <fstream>
#include <functional>
#include <new>
#include <nlohmann/json.hpp>
#include <string>

#include "allocation_hook.h"
#include "ring_steps.h"

namespace {

// While set, no thread gets memory but the process's first and the engine's.
std::atomic<bool> failing{false};

}  // namespace

void forgive::OnAllocation() {
  if (!failing.load() || gettid() == getpid() || testing::InLogger()) return;
  char name[16] = "";
  pthread_getname_np(pthread_self(), name, sizeof(name));
  if (std::strcmp(name, "forgive-engine") == 0) return;
  throw std::bad_alloc();
}

namespace forgive::testing {
namespace {

TEST(StatisticsWithoutMemory, LeaveLinesOutAndCountTheLedgersAndTheJobAndItsAccountsGoOn) {
  const std::string file = ::testing::TempDir() + "forgive-statistics-memory-" + std::to_string(getpid());
  RunPlugin(kWord + kTrims + Variables{{"FORGIVE_STATS", file}, {"FORGIVE_TRACE_INTERVAL_US", "500"}},
            [&](const Net& net, const Interface& forgive) {
              RingConnection ring = MakeRing(net);
              const auto run_step = [&](uint64_t step, const std::function<void()>& before_its_end) {
                ASSERT_EQ(forgive.begin(step, 0, 8 << 20), FORGIVE_OK);
                Transfer(net, &ring.pair, 16, kPosted, kPosted, nullptr);
                before_its_end();
                ASSERT_EQ(forgive.end(step), FORGIVE_OK);
                forgive_step_stats_t account{};
                ASSERT_EQ(forgive.step_stats(step, &account), FORGIVE_OK);
                EXPECT_GT(account.forgiven, 0u) << "nothing came into the ledger: this proves nothing";
                EXPECT_EQ(account.budget_violations, 0u);
              };
              failing = true;
              run_step(1, [&] {
                // The step's end takes what is left of the ledger in this thread, which has memory.
                EXPECT_TRUE(PollUntil([&] { return forgive.lost() > 0; }));
              });
              EXPECT_TRUE(
                  PollUntil([] { return LogContains("no memory is left in this process; lines are left out"); }));
              failing = false;
              const uint64_t lost = forgive.lost();
              run_step(2, [] {});
              EXPECT_EQ(forgive.lost(), lost);
              EXPECT_FALSE(Ledger(forgive).empty());
            });
  std::ifstream stream(file);
  ASSERT_TRUE(stream.good()) << file;
  nlohmann::json last;
  uint64_t steps = 0;
  for (std::string text; std::getline(stream, text);) {
    last = nlohmann::json::parse(text);
    steps += last["type"] == "step" && last["step"] == 2;
  }
  unlink(file.c_str());
  EXPECT_EQ(steps, 1u);
  ASSERT_EQ(last["type"], "final");
  EXPECT_GT(last["lines_left_out"], 0u);
  EXPECT_GT(last["ledger_lost"], 0u);
  EXPECT_EQ(last["totals"]["steps"], 2u);
}

}  // namespace
}  // namespace forgive::testing
