// SPDX-License-Identifier: Apache-2.0
// The data path allocates nothing after set-up: every allocation on an engine's thread is counted.
#include <gtest/gtest.h>
#include <pthread.h>

#include <cstring>

#include "allocation_hook.h"
#include "ranks.h"

namespace {

std::atomic<bool> g_counting{false};
std::atomic<uint64_t> g_engine_allocations{0};

bool OnAnEngineThread() {
  static thread_local int known = -1;
  if (known < 0) {
    char name[16] = "";
    pthread_getname_np(pthread_self(), name, sizeof(name));
    known = std::strcmp(name, "forgive-engine") == 0 ? 1 : 0;
  }
  return known == 1;
}

}  // namespace

void forgive::OnAllocation() {
  if (g_counting.load(std::memory_order_relaxed) && OnAnEngineThread()) g_engine_allocations.fetch_add(1);
}

namespace forgive {
namespace {

class EngineAllocation : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    std::string why;
    if (!NetworkOffered(GetParam(), &why)) GTEST_SKIP() << why;
  }
};

TEST_P(EngineAllocation, IsNoneWhileMessagesFlow) {
  RankOptions options;
  options.network = GetParam();
  options.fault = "trim=0.02,drop=0.01,duplicate=0.01,reorder=0.01,corrupt=0.01,seed=3";
  options.config.min_rto = Milliseconds(5);
  const auto a = StartEngine(options);
  const auto b = StartEngine(options);
  const Link link = MakeLink(*a, *b);
  StepPlan plan;
  plan.step = 1;
  plan.p = Fraction{100000};
  plan.expected_bytes = 10 << 20;
  ASSERT_EQ(b->BeginStep(plan, nullptr), StepResult::kOk);
  g_engine_allocations.store(0);
  g_counting.store(true);
  {
    std::deque<Stream> streams;
    streams.emplace_back(*a, *b, link, std::vector<size_t>(40, 200000), 8);
    RunStreams(streams);
  }
  g_counting.store(false);
  EXPECT_EQ(g_engine_allocations.load(), 0u);
  EXPECT_TRUE(WaitFor([&] { return b->Snapshot().counters.trims > 0; }));
  // The counter itself works: a connection is made on the engine's thread.
  g_counting.store(true);
  MakeLink(*a, *b);
  g_counting.store(false);
  EXPECT_GT(g_engine_allocations.load(), 0u);
}

INSTANTIATE_TEST_SUITE_P(Networks, EngineAllocation, testing::Values("memory", "udp_ipv4", "uring_ipv4", "udp_rails"),
                         [](const auto& instance) { return std::string(instance.param); });

}  // namespace
}  // namespace forgive
