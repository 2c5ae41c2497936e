// SPDX-License-Identifier: Apache-2.0
// Eligibility as NCCL's calls prove it, end to end: attributes, the profiler's chain, traffic classes, several ranks.
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>

#include "fake_profiler.h"
#include "ring_steps.h"

namespace forgive::testing {
namespace {

constexpr int kClass = 104;
const Variables kByClass = {{"FORGIVE_TRAFFIC_CLASS", "104"}, {"FORGIVE_SEED", "1"}};

// Two all-reduces in a step; whatever is forgiven lies in the reduce-scatter phase. Returns the bytes.
uint64_t OneStep(const Net& net, const Interface& forgive, RingConnection* ring, uint64_t step, int first_message) {
  EXPECT_EQ(forgive.begin(step, 0, 8 << 20), FORGIVE_OK) << forgive.last_error();
  const uint64_t forgiven = AllReduce(net, forgive, ring, 2, kPosted, first_message);
  EXPECT_EQ(forgive.end(step), FORGIVE_OK) << forgive.last_error();
  return forgiven;
}

forgive_stats_t Totals(const Interface& forgive) {
  forgive_stats_t totals{};
  totals.size = sizeof(totals);
  EXPECT_EQ(forgive.stats(&totals), FORGIVE_OK);
  return totals;
}

class EligibilityByAttributes : public ::testing::TestWithParam<int> {
 protected:
  void Run(const Variables& environment, const std::function<void(const Library&, const Net&)>& body,
           int traffic_class = kClass) {
    ExpectInChild(environment + kTrims, [&] {
      const Library library;
      const Net net = library.Table(GetParam(), 7, traffic_class);
      ASSERT_EQ(net.init(), nccl::kSuccess) << (LogLines().empty() ? "" : LogLines().back());
      body(library, net);
    });
  }
};

TEST_P(EligibilityByAttributes, ForgivesProvedAllReducesAndCountsTheProof) {
  Run(kByClass, [](const Library& library, const Net& net) {
    const Interface forgive(library);
    SayRanks(library, 7, 2);
    RingConnection ring = MakeRing(net);
    const nccl::Attributes attributes = AllReduceAttributes();
    ASSERT_EQ(net.set_attributes(&attributes), nccl::kSuccess);
    EXPECT_GT(OneStep(net, forgive, &ring, 1, 0), 0u);
    for (const forgive_range_t& line : Ledger(forgive)) EXPECT_LT(line.message % 4, 2u);
    EXPECT_EQ(Totals(forgive).proved_by_attributes, 8u);
    EXPECT_EQ(Totals(forgive).refused, 0u);
  });
}

TEST_P(EligibilityByAttributes, ForgivesNothingOfAnAllGatherWithinAStep) {
  Run(kByClass, [](const Library& library, const Net& net) {
    const Interface forgive(library);
    SayRanks(library, 7, 2);
    RingConnection ring = MakeRing(net);
    nccl::Attributes attributes = AllReduceAttributes(4);
    ASSERT_EQ(net.set_attributes(&attributes), nccl::kSuccess);
    ASSERT_EQ(forgive.begin(1, 0, 8 << 20), FORGIVE_OK);
    Transfer(net, &ring.pair, 2, kPosted, kPosted,
             nullptr);  // an all-gather on two ranks: it must not shift the phase
    EXPECT_EQ(Ledger(forgive).size(), 0u);
    attributes = AllReduceAttributes();
    ASSERT_EQ(net.set_attributes(&attributes), nccl::kSuccess);
    EXPECT_GT(AllReduce(net, forgive, &ring, 2, kPosted, 2), 0u);
    for (const forgive_range_t& line : Ledger(forgive)) EXPECT_LT((line.message - 2) % 4, 2u);
    EXPECT_EQ(forgive.end(1), FORGIVE_OK) << forgive.last_error();
    EXPECT_EQ(Totals(forgive).refused, 2u);
  });
}

TEST_P(EligibilityByAttributes, IsNothingForAnotherClassOrBeforeTheRanksAreKnown) {
  Run(
      kByClass,
      [](const Library& library, const Net& net) {
        const Interface forgive(library);
        SayRanks(library, 7, 2);
        RingConnection ring = MakeRing(net);
        const nccl::Attributes attributes = AllReduceAttributes();
        ASSERT_EQ(net.set_attributes(&attributes), nccl::kSuccess);
        EXPECT_EQ(OneStep(net, forgive, &ring, 1, 0), 0u);
        EXPECT_EQ(Totals(forgive).sent_exempt_bytes, 0u);
      },
      5);
  Run(kByClass, [](const Library& library, const Net& net) {
    const Interface forgive(library);
    RingConnection ring = MakeRing(net);
    const nccl::Attributes attributes = AllReduceAttributes();
    ASSERT_EQ(net.set_attributes(&attributes), nccl::kSuccess);
    EXPECT_EQ(OneStep(net, forgive, &ring, 1, 0), 0u);
    SayRanks(library, 7, 2);
    EXPECT_GT(OneStep(net, forgive, &ring, 2, 8), 0u) << "the posts before were counted";
  });
}

TEST_P(EligibilityByAttributes, IsNothingWhereTwoRanksOfACommunicatorShareTheProcess) {
  Run(kByClass, [](const Library& library, const Net& net) {
    const Interface forgive(library);
    SayRanks(library, 7, 2);
    const Net second = library.Table(GetParam(), 7, kClass);
    ASSERT_EQ(second.init(), nccl::kSuccess);
    RingConnection ring = MakeRing(net);
    const nccl::Attributes attributes = AllReduceAttributes();
    ASSERT_EQ(net.set_attributes(&attributes), nccl::kSuccess);
    EXPECT_EQ(OneStep(net, forgive, &ring, 1, 0), 0u);
    forgive_step_stats_t step{};
    ASSERT_EQ(forgive.step_stats(1, &step), FORGIVE_OK);
    EXPECT_EQ(step.budget, 0u);
    const Net third = library.Table(GetParam(), 7, kClass);
    ASSERT_EQ(third.init(), nccl::kSuccess);
    int said = 0;
    for (const std::string& line : LogLines()) said += line.find("several ranks") != std::string::npos;
    EXPECT_EQ(said, 1);
  });
}

TEST_P(EligibilityByAttributes, TurnsItsCounterOffWhenASplitCommunicatorSharesConnections) {
  Run(kByClass, [](const Library& library, const Net& net) {
    const Interface forgive(library);
    SayRanks(library, 7, 2);
    SayRanks(library, 8, 2);  // a communicator whose network was never initialised
    RingConnection ring = MakeRing(net);
    const nccl::Attributes attributes = AllReduceAttributes();
    ASSERT_EQ(net.set_attributes(&attributes), nccl::kSuccess);
    EXPECT_EQ(OneStep(net, forgive, &ring, 1, 0), 0u);
    EXPECT_TRUE(LogContains("splitShare"));
  });
}

INSTANTIATE_TEST_SUITE_P(Api, EligibilityByAttributes, ::testing::Values(11, 12),
                         [](const auto& parameter) { return "v" + std::to_string(parameter.param); });

// The profiler's version, and the network's.
class EligibilityByProfiler : public ::testing::TestWithParam<std::pair<int, int>> {
 protected:
  void Run(const Variables& environment, const std::function<void(const Library&, const Net&, FakeProfiler*)>& body) {
    ExpectInChild(environment + kTrims, [&] {
      const Library library;
      const Net net = library.Table(GetParam().second, 7, kClass);
      net.communicator->profiler = ProfilerCallback;
      ASSERT_EQ(net.init(), nccl::kSuccess) << (LogLines().empty() ? "" : LogLines().back());
      FakeProfiler profiler;
      LoadProfiler(library, GetParam().first, 2, &profiler);
      body(library, net, &profiler);
    });
  }
};

// v3 does not say how many ranks there are.
const Variables kRanks = {{"FORGIVE_RING_RANKS", "2"}};

TEST_P(EligibilityByProfiler, ForgivesByTheChainOfHandlesInTheReducePhaseOnly) {
  Run(kByClass + kRanks, [](const Library& library, const Net& net, FakeProfiler* profiler) {
    EXPECT_NE(profiler->mask & nccl::kProfileProxyStep, 0);
    const Interface forgive(library);
    RingConnection ring = MakeRing(net);
    ASSERT_EQ(forgive.begin(1, 0, 8 << 20), FORGIVE_OK);
    StartAllReduce(profiler);
    EXPECT_EQ(TransferProfiled(net, forgive, profiler, &ring, {2, 3, 6, 7}), 0u) << "all-gather";
    EXPECT_GT(TransferProfiled(net, forgive, profiler, &ring, {0, 1, 4, 5}), 0u) << "reduce-scatter";
    EXPECT_EQ(Totals(forgive).proved_by_profiler, 8u);
    StartAllReduce(profiler, "AllGather");
    EXPECT_EQ(TransferProfiled(net, forgive, profiler, &ring, {0, 1, 2, 3}), 0u);
    StartAllReduce(profiler, "AllReduce", "ncclInt32");
    EXPECT_EQ(TransferProfiled(net, forgive, profiler, &ring, {0, 1, 2, 3}), 0u);
    StartAllReduce(profiler, "AllReduce", "ncclBfloat16", false, getpid() + 1);
    EXPECT_EQ(TransferProfiled(net, forgive, profiler, &ring, {0, 1, 2, 3}), 0u) << "of another process";
    EXPECT_EQ(forgive.end(1), FORGIVE_OK) << forgive.last_error();
  });
}

TEST_P(EligibilityByProfiler, BelievesNoHandleThatIsNotItsOwn) {
  Run(kByClass + kRanks, [](const Library& library, const Net& net, FakeProfiler* profiler) {
    const Interface forgive(library);
    RingConnection ring = MakeRing(net);
    ASSERT_EQ(forgive.begin(1, 0, 8 << 20), FORGIVE_OK);
    net.communicator->profiler_handle = &profiler->record;
    for (const uint64_t handle : {uint64_t{0}, uint64_t{1} << 59, ~uint64_t{0}, uint64_t{0x0400000000000001},
                                  reinterpret_cast<uint64_t>(&ring)}) {
      profiler->record.step = reinterpret_cast<void*>(handle);
      Transfer(net, &ring.pair, 1, kPosted, kPosted, nullptr);
    }
    StartAllReduce(profiler);
    StartMessage(profiler, net, 0);
    // So many newer events that the message's is forgotten.
    for (int i = 0; i < 10000; ++i) {
      profiler->Start([](auto* description) { description->type = nccl::kProfileProxyStep; });
    }
    Transfer(net, &ring.pair, 1, kPosted, kPosted, nullptr);
    EXPECT_EQ(Ledger(forgive).size(), 0u);
    EXPECT_EQ(forgive.end(1), FORGIVE_OK);
  });
}

TEST_P(EligibilityByProfiler, StaysOutOfTheWayWhenAskedTo) {
  Run(kByClass + kRanks + Variables{{"FORGIVE_PROFILER", "0"}},
      [](const Library& library, const Net& net, FakeProfiler* profiler) {
        EXPECT_EQ(profiler->mask, 0);
        const Interface forgive(library);
        RingConnection ring = MakeRing(net);
        ASSERT_EQ(forgive.begin(1, 0, 8 << 20), FORGIVE_OK);
        StartAllReduce(profiler);
        EXPECT_EQ(TransferProfiled(net, forgive, profiler, &ring, {0, 1, 4, 5}), 0u);
        EXPECT_EQ(forgive.end(1), FORGIVE_OK);
      });
}

TEST_P(EligibilityByProfiler, AgreesWithTheCounterOfPostsWhereNcclSaysBoth) {
  if (GetParam().second < 11) return;  // only then are there attributes to agree with
  Run(kByClass + kRanks, [](const Library& library, const Net& net, FakeProfiler* profiler) {
    const Interface forgive(library);
    SayRanks(library, 7, 2);
    RingConnection ring = MakeRing(net);
    const nccl::Attributes attributes = AllReduceAttributes();
    ASSERT_EQ(net.set_attributes(&attributes), nccl::kSuccess);
    ASSERT_EQ(forgive.begin(1, 0, 8 << 20), FORGIVE_OK);
    for (int operation = 0; operation < 3; ++operation) {
      StartAllReduce(profiler);
      EXPECT_GT(TransferProfiled(net, forgive, profiler, &ring, {0, 1, 2, 3}), 0u);
    }
    EXPECT_EQ(Totals(forgive).refused, 0u);
    StartAllReduce(profiler);
    EXPECT_EQ(TransferProfiled(net, forgive, profiler, &ring, {1, 2, 3, 0}), 0u) << "the ways disagree";
    EXPECT_TRUE(LogContains("PhasesDisagree"));
    EXPECT_EQ(Totals(forgive).refused, 4u);
    EXPECT_EQ(forgive.end(1), FORGIVE_OK) << forgive.last_error();
  });
}

TEST_P(EligibilityByProfiler, FollowsTheStepOfTheCallFromV5On) {
  if (GetParam().first < 5) return;  // before, there is no event for the call
  Run(kByClass, [](const Library& library, const Net& net, FakeProfiler* profiler) {
    const Interface forgive(library);
    RingConnection ring = MakeRing(net);
    StartAllReduce(profiler);  // enqueued before the step
    ASSERT_EQ(forgive.begin(1, 0, 8 << 20), FORGIVE_OK);
    EXPECT_EQ(TransferProfiled(net, forgive, profiler, &ring, {0, 1, 4, 5}), 0u);
    StartAllReduce(profiler, "AllReduce", "ncclFloat32", true);
    EXPECT_EQ(TransferProfiled(net, forgive, profiler, &ring, {0, 1, 4, 5}), 0u) << "captured into a graph";
    StartAllReduce(profiler);
    EXPECT_GT(TransferProfiled(net, forgive, profiler, &ring, {0, 1, 4, 5}), 0u);
    EXPECT_EQ(forgive.end(1), FORGIVE_OK);
  });
}

INSTANTIATE_TEST_SUITE_P(Api, EligibilityByProfiler,
                         ::testing::Values(std::pair(3, 10), std::pair(4, 10), std::pair(5, 11), std::pair(6, 12)),
                         [](const auto& parameter) {
                           return "profiler_v" + std::to_string(parameter.param.first) + "_net_v" +
                                  std::to_string(parameter.param.second);
                         });

TEST(ProfilerBeforeV3, AsksForNothingSinceNoHandleReachesAPost) {
  ExpectInChild({}, [] {
    const Library library;
    for (const char* name : {"ncclProfiler_v1", "ncclProfiler_v2"}) {
      const auto* table = static_cast<const nccl::ProfilerV1*>(library.Symbol(name));
      ASSERT_NE(table, nullptr);
      void* context = nullptr;
      int mask = -1;
      EXPECT_EQ(table->init(&context, &mask), nccl::kSuccess);
      EXPECT_EQ(mask, 0);
      EXPECT_EQ(table->finalize(context), nccl::kSuccess);
    }
  });
}

TEST(EligibilityByWord, StillHoldsOnEveryVersionWhereNcclSaysNothing) {
  for (const int version : kVersions) {
    ExpectInChild(kWord + kTrims, [version] {
      const Library library;
      const Net net = library.Table(version);
      ASSERT_EQ(net.init(), nccl::kSuccess);
      const Interface forgive(library);
      RingConnection ring = MakeRing(net);
      EXPECT_GT(OneStep(net, forgive, &ring, 1, 0), 0u) << version;
      EXPECT_EQ(Totals(forgive).proved_by_operators_word, 8u);
    });
  }
}

TEST(EligibilityByWord, IsGoneForAConnectionWhoseCompletionsNcclCanDoWithout) {
  ExpectInChild(kWord + kTrims, [] {
    const Library library;
    const Net net = library.Table(9);
    ASSERT_EQ(net.init(), nccl::kSuccess);
    const Interface forgive(library);
    RingConnection ring = MakeRing(net);
    net.communicator->optional_completion = true;
    EXPECT_EQ(OneStep(net, forgive, &ring, 1, 0), 0u) << "LL or LL128: flags stand within the data";
  });
}

}  // namespace
}  // namespace forgive::testing
