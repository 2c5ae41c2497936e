// SPDX-License-Identifier: Apache-2.0
// What is proved about posts by NCCL's attributes and by the profiler, and every way in which it is not.
#include "plugin/proof.h"

#include <gtest/gtest.h>

#include <cstring>
#include <thread>

#include "plugin/step_facts.h"

namespace forgive {
namespace {

constexpr uint32_t kAllReduce = 16;
constexpr uint32_t kReduceScatter = 8;
constexpr uint32_t kAllGather = 4;
constexpr uint32_t kRing = 2;
constexpr uint32_t kTree = 1;
constexpr uint32_t kSimple = 4;
constexpr uint32_t kLl = 1;

Settings ByClass(Eligible eligible = Eligible::kReduce) {
  Settings settings;
  settings.traffic_class = 4;
  settings.eligible = eligible;
  return settings;
}

Post Attributed(uint32_t operation, uint32_t ring_ranks = 3, uint32_t algorithm = kRing,
                uint32_t protocol = kSimple) {
  Post post{.posted_bytes = 1 << 20, .region_bytes = 4 << 20, .registrations = 3};
  post.has_collective = true;
  post.collective = {.operation = operation, .algorithm = algorithm, .protocol = protocol};
  post.ring_ranks = ring_ranks;
  return post;
}

Post Profiled(uint32_t message, Operation operation = Operation::kAllReduce) {
  Post post{.posted_bytes = 1 << 20, .region_bytes = 4 << 20, .registrations = 3};
  post.profiled = {.known = true,
                   .operation = operation,
                   .ring = true,
                   .simple = true,
                   .floating_point = true,
                   .count = 1 << 20,
                   .message = message,
                   .ring_ranks = 3};
  return post;
}

// A receive communicator in an open step.
class ProofOfPosts : public ::testing::Test {
 protected:
  explicit ProofOfPosts(const Settings& settings = ByClass()) : facts_(settings) {
    facts_.Register(&connection_);
    Begin(1);
  }
  void Begin(uint64_t step) {
    ASSERT_EQ(facts_.Prepare(), StepFacts::BeginResult::kOk);
    facts_.Open(step, Fraction{100000});
  }
  ReceiveRequest PostOne(const Post& post) {
    ReceiveRequest request;
    verdict_ = facts_.Classify(&connection_, post, &request);
    facts_.Commit(&connection_, verdict_);
    return request;
  }
  void ExpectRefused(const Post& post, Refusal refusal, bool exempt) {
    const uint64_t before = facts_.refused(refusal);
    const ReceiveRequest request = PostOne(post);
    EXPECT_FALSE(request.forgivable);
    EXPECT_EQ(request.exempt_eligible, exempt) << NameOf(refusal);
    EXPECT_EQ(facts_.refused(refusal), before + 1) << NameOf(refusal) << ", got " << NameOf(verdict_.refusal);
  }

  StepFacts facts_;
  ConnectionStep connection_;
  StepFacts::Verdict verdict_;
};

TEST_F(ProofOfPosts, CountsThePhaseOfAllReducesByAttributes) {
  for (uint32_t message = 0; message < 24; ++message) {
    const ReceiveRequest request = PostOne(Attributed(kAllReduce));
    EXPECT_TRUE(request.exempt_eligible);
    EXPECT_EQ(request.forgivable, message % 8 < 4) << message;
    EXPECT_EQ(request.contributions, message % 8 < 4 ? message % 4 / 2 + 1 : 3u) << message;
  }
  EXPECT_EQ(facts_.proved(Proof::kAttributes), 24u);
}

TEST_F(ProofOfPosts, ForgivesAllOfAReduceScatterAndNothingOfAnAllGather) {
  for (uint32_t message = 0; message < 8; ++message) {
    const ReceiveRequest request = PostOne(Attributed(kReduceScatter));
    EXPECT_TRUE(request.forgivable);
    EXPECT_EQ(request.contributions, message % 4 / 2 + 1);
  }
  ExpectRefused(Attributed(kAllGather), Refusal::kOtherOperation, false);
}

TEST_F(ProofOfPosts, KeepsThePhaseOverOtherOperationsAndOverPostsOutsideOfSteps) {
  facts_.Close();
  for (int message = 0; message < 8; ++message) PostOne(Attributed(kAllReduce));
  for (int message = 0; message < 3; ++message) PostOne(Attributed(kAllGather));
  Begin(2);
  for (int message = 0; message < 4; ++message) EXPECT_TRUE(PostOne(Attributed(kReduceScatter)).forgivable);
  for (int message = 0; message < 5; ++message) PostOne(Attributed(kAllGather));
  for (uint32_t message = 0; message < 8; ++message) {
    EXPECT_EQ(PostOne(Attributed(kAllReduce)).forgivable, message < 4) << message;
  }
}

TEST_F(ProofOfPosts, IsExemptWithoutBeingForgivableWithAnotherAlgorithmOrProtocol) {
  ExpectRefused(Attributed(kAllReduce, 3, kTree), Refusal::kOtherAlgorithm, true);
  ExpectRefused(Attributed(kAllReduce, 3, kRing, kLl), Refusal::kOtherProtocol, true);
  for (int message = 0; message < 4; ++message) EXPECT_TRUE(PostOne(Attributed(kAllReduce)).forgivable);
}

TEST_F(ProofOfPosts, AcceptsNoOperationOfMoreOrLessThanOneBit) {
  for (const uint32_t operation : {0u, ~0u, 24u, 1u << 5, 1u << 6, 1u << 7}) {
    ExpectRefused(Attributed(operation), Refusal::kNoOperation, false);
  }
}

TEST_F(ProofOfPosts, RefusesWhatItDoesNotKnow) {
  ExpectRefused(Attributed(kAllReduce, 0), Refusal::kRanksUnknown, true);
  Post unmarked = Attributed(kAllReduce);
  unmarked.marked = false;
  ExpectRefused(unmarked, Refusal::kNotMarked, false);
  Post hinted = Attributed(kAllReduce);
  hinted.optional_completion = true;
  ExpectRefused(hinted, Refusal::kOptionalCompletion, true);
  ExpectRefused({.posted_bytes = 1 << 20, .region_bytes = 4 << 20, .registrations = 3}, Refusal::kUnproved, false);
}

TEST_F(ProofOfPosts, LatchesAConnectionWhosePostIsNotWhatItIsSaidToBe) {
  Post half = Attributed(kAllReduce);
  half.posted_bytes /= 2;
  ExpectRefused(half, Refusal::kNotAQuarter, false);
  ExpectRefused(Attributed(kAllReduce), Refusal::kLatched, false);
}

TEST_F(ProofOfPosts, LatchesAConnectionOnWhichAnOperationWasCutShort) {
  for (int message = 0; message < 3; ++message) PostOne(Attributed(kReduceScatter));
  ExpectRefused(Attributed(kAllReduce), Refusal::kCutShort, false);
  ExpectRefused(Attributed(kAllReduce), Refusal::kLatched, false);
}

TEST_F(ProofOfPosts, LatchesTheProcessAtTheEndOfAStepInTheMiddleOfAnOperation) {
  for (int message = 0; message < 6; ++message) PostOne(Attributed(kAllReduce));
  facts_.Close();
  ErrorText what;
  EXPECT_FALSE(facts_.CheckCounts(&what));
  EXPECT_NE(std::strstr(what.c_str(), "middle of an operation"), nullptr) << what.c_str();
  EXPECT_TRUE(facts_.latched());
}

TEST_F(ProofOfPosts, FollowsTheProfilerWhereNcclSaysNothingElse) {
  for (const uint32_t message : {0u, 9u, 3u, 4u, 7u, 12u}) {  // in any order: each says its own place
    EXPECT_EQ(PostOne(Profiled(message)).forgivable, message % 8 < 4) << message;
  }
  EXPECT_EQ(facts_.proved(Proof::kProfiler), 6u);
  ExpectRefused(Profiled(0, Operation::kOther), Refusal::kOtherOperation, false);
  Post integers = Profiled(0);
  integers.profiled.floating_point = false;
  ExpectRefused(integers, Refusal::kNotFloat, true);
  Post few = Profiled(0);
  few.profiled.count = 1;
  ExpectRefused(few, Refusal::kTooFew, true);
}

TEST_F(ProofOfPosts, ComparesBothWaysOfFindingThePhaseAndTrustsNeitherWhenTheyDisagree) {
  for (uint32_t message = 0; message < 16; ++message) {
    Post both = Profiled(message % 8);
    both.has_collective = true;
    both.collective = {.operation = kAllReduce, .algorithm = kRing, .protocol = kSimple};
    EXPECT_EQ(PostOne(both).forgivable, message % 8 < 4) << message;
  }
  EXPECT_EQ(facts_.refused(Refusal::kPhasesDisagree), 0u);
  Post shifted = Profiled(1);
  shifted.has_collective = true;
  shifted.collective = {.operation = kAllReduce, .algorithm = kRing, .protocol = kSimple};
  ExpectRefused(shifted, Refusal::kPhasesDisagree, false);
  ExpectRefused(shifted, Refusal::kLatched, false);
}

TEST_F(ProofOfPosts, TrustsTheProfilerAloneOnceASplitCommunicatorSharesConnections) {
  facts_.OnSharedConnections();
  ExpectRefused(Attributed(kAllReduce), Refusal::kSplit, true);
  Post both = Profiled(4);
  both.has_collective = true;
  both.collective = {.operation = kAllReduce, .algorithm = kRing, .protocol = kSimple};
  both.profiled.ring_ranks = 5;
  EXPECT_TRUE(PostOne(both).forgivable);
}

TEST_F(ProofOfPosts, BelongsToTheStepInWhichItWasEnqueued) {
  Post stamped = Profiled(0);
  stamped.profiled.stamped = true;
  stamped.profiled.epoch = facts_.open_epoch();
  EXPECT_TRUE(PostOne(stamped).forgivable);
  stamped.profiled.epoch = facts_.open_epoch() - 1;
  ExpectRefused(stamped, Refusal::kStaleStamp, false);
  EXPECT_FALSE(PostOne(stamped).has_step);
  stamped.profiled.epoch = facts_.open_epoch();
  stamped.profiled.captured = true;
  ExpectRefused(stamped, Refusal::kStaleStamp, false);
}

TEST_F(ProofOfPosts, IsOfNothingWhereSeveralRanksShareAProcess) {
  EXPECT_TRUE(PostOne(Attributed(kAllReduce)).forgivable);
  facts_.OnSeveralRanks();
  ExpectRefused(Attributed(kAllReduce), Refusal::kSeveralRanks, false);
  EXPECT_FALSE(facts_.WantsRingAndSimple(nullptr));
}

TEST(ProofSettings, MarkCommunicatorsByClassOrAllByTheWord) {
  const StepFacts by_class(ByClass());
  EXPECT_TRUE(by_class.IsMarked(4));
  EXPECT_FALSE(by_class.IsMarked(-1));
  EXPECT_FALSE(by_class.IsMarked(0));
  const StepFacts nothing{Settings()};
  EXPECT_FALSE(nothing.IsMarked(-1));
  Settings word;
  word.gradient_traffic_all = true;
  word.ring_ranks = 2;
  EXPECT_TRUE(StepFacts(word).IsMarked(-1));
  EXPECT_TRUE(StepFacts(word).IsMarked(7));
}

TEST(ProofSettings, NoneMakesNothingEligibleWhateverIsProved) {
  StepFacts facts(ByClass(Eligible::kNone));
  ConnectionStep connection;
  ASSERT_EQ(facts.Prepare(), StepFacts::BeginResult::kOk);
  facts.Open(1, Fraction{100000});
  ReceiveRequest request;
  facts.Commit(&connection, facts.Classify(&connection, Attributed(kAllReduce), &request));
  EXPECT_FALSE(request.exempt_eligible || request.forgivable);
  EXPECT_EQ(facts.proved(Proof::kAttributes), 0u);
}

TEST(ProofSettings, AllMakesTheAllGatherPhaseForgivableToo) {
  StepFacts facts(ByClass(Eligible::kAll));
  ConnectionStep connection;
  ASSERT_EQ(facts.Prepare(), StepFacts::BeginResult::kOk);
  facts.Open(1, Fraction{100000});
  for (int message = 0; message < 8; ++message) {
    ReceiveRequest request;
    facts.Commit(&connection, facts.Classify(&connection, Attributed(kAllReduce), &request));
    EXPECT_TRUE(request.forgivable);
  }
}

TEST(ThreadCollective, IsEachThreadsOwnAndEachContextsOwn) {
  ContextTable table;
  bool twice = true;
  const auto one = table.Add(1, -1, nullptr, &twice);
  EXPECT_FALSE(twice);
  const auto other = table.Add(2, -1, nullptr, &twice);
  Collective found;
  EXPECT_FALSE(FindThreadCollective(*one, &found));
  SetThreadCollective(*one, {.operation = kAllReduce, .algorithm = kRing, .protocol = kSimple});
  ASSERT_TRUE(FindThreadCollective(*one, &found));
  EXPECT_EQ(found.operation, kAllReduce);
  EXPECT_FALSE(FindThreadCollective(*other, &found));
  std::thread([&] {
    Collective elsewhere;
    EXPECT_FALSE(FindThreadCollective(*one, &elsewhere));
    SetThreadCollective(*one, {.operation = kAllGather, .algorithm = kRing, .protocol = kSimple});
  }).join();
  ASSERT_TRUE(FindThreadCollective(*one, &found));
  EXPECT_EQ(found.operation, kAllReduce);
  // A context that takes over the place of an ended one has no value yet.
  EXPECT_TRUE(table.Remove(one.get()));
  const auto next = table.Add(1, -1, nullptr, &twice);
  EXPECT_FALSE(twice);
  EXPECT_EQ(next->slot, one->slot);
  EXPECT_FALSE(FindThreadCollective(*next, &found));
  table.Add(1, -1, nullptr, &twice);
  EXPECT_TRUE(twice);
}

TEST(ThreadCollective, IsUnknownForContextsBeyondTheLimit) {
  ContextTable table;
  std::vector<std::shared_ptr<Context>> contexts;
  bool twice = false;
  for (uint64_t id = 0; id <= kMaxContexts; ++id) contexts.push_back(table.Add(id, -1, nullptr, &twice));
  for (const auto& context : contexts) SetThreadCollective(*context, {});
  Collective found;
  EXPECT_TRUE(FindThreadCollective(*contexts[kMaxContexts - 1], &found));
  EXPECT_FALSE(FindThreadCollective(*contexts[kMaxContexts], &found));
}

}  // namespace
}  // namespace forgive
