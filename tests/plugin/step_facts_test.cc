// SPDX-License-Identifier: Apache-2.0
// The classification of posts by the operator's word, message by message.
#include "plugin/step_facts.h"

#include <gtest/gtest.h>

#include <cstring>

#include "plugin/communicator.h"

namespace forgive {
namespace {

constexpr uint64_t kPost = 1 << 20;
constexpr uint64_t kBuffer = 4 << 20;

Settings Word(uint32_t ring_ranks, Eligible eligible = Eligible::kReduce) {
  Settings settings;
  settings.gradient_traffic_all = true;
  settings.ring_ranks = ring_ranks;
  settings.gradient_ranks = ring_ranks;
  settings.eligible = eligible;
  return settings;
}

Post RingPost(uint64_t posted = kPost) {
  return {.posted_bytes = posted, .region_bytes = kBuffer, .registrations = kRingRegistrations};
}

ReceiveRequest PostOne(StepFacts* facts, ConnectionStep* connection, uint64_t posted = kPost) {
  ReceiveRequest request;
  const StepFacts::Verdict verdict = facts->Classify(connection, RingPost(posted), &request);
  facts->Commit(connection, verdict);
  return request;
}

void Open(StepFacts* facts, uint64_t step, Fraction p = {100000}) {
  ASSERT_EQ(facts->Prepare(), StepFacts::BeginResult::kOk);
  facts->Open(step, p);
}

TEST(StepFacts, CountPhasesAndHopsOfARingOfFour) {
  // k = 4, S = 2: six reduce-scatter messages (hops 1 to 3), then six of all-gather.
  constexpr uint32_t kContributions[] = {1, 1, 2, 2, 3, 3, 4, 4, 4, 4, 4, 4};
  for (uint32_t message = 0; message < 36; ++message) {
    EXPECT_EQ(IsReducePhase(Operation::kAllReduce, message, 4), message % 12 < 6) << message;
    EXPECT_EQ(Contributions(Operation::kAllReduce, message, 4, 4), kContributions[message % 12]) << message;
  }
}

TEST(StepFacts, CountTwoAndTwoOfADirectAllReduce) {
  for (uint32_t message = 0; message < 12; ++message) {
    EXPECT_EQ(IsReducePhase(Operation::kAllReduce, message, 2), message % 4 < 2) << message;
    EXPECT_EQ(Contributions(Operation::kAllReduce, message, 2, 8), message % 4 < 2 ? 1u : 8u) << message;
  }
}

TEST(StepFacts, MakeTheReducePhaseForgivableAndBothPhasesExempt) {
  StepFacts facts(Word(3));
  ConnectionStep connection;
  EXPECT_FALSE(PostOne(&facts, &connection).has_step);
  Open(&facts, 7);
  for (int message = 0; message < 16; ++message) {
    const ReceiveRequest request = PostOne(&facts, &connection);
    EXPECT_TRUE(request.has_step);
    EXPECT_EQ(request.step, 7u);
    EXPECT_TRUE(request.exempt_eligible);
    EXPECT_EQ(request.forgivable, message % 8 < 4) << message;
  }
  facts.Close();
  EXPECT_FALSE(PostOne(&facts, &connection).has_step);
  ErrorText what;
  facts.Register(&connection);
  EXPECT_TRUE(facts.CheckCounts(&what)) << what.c_str();
}

TEST(StepFacts, MakeEverythingForgivableInAllAndNothingInNone) {
  StepFacts all(Word(2, Eligible::kAll));
  StepFacts none(Word(2, Eligible::kNone));
  ConnectionStep in_all;
  ConnectionStep in_none;
  Open(&all, 1);
  Open(&none, 1);
  for (int message = 0; message < 8; ++message) {
    EXPECT_TRUE(PostOne(&all, &in_all).forgivable);
    const ReceiveRequest request = PostOne(&none, &in_none);
    EXPECT_FALSE(request.exempt_eligible || request.forgivable);
  }
}

TEST(StepFacts, AreNotEligibleWithoutABudget) {
  StepFacts facts(Word(2));
  ConnectionStep connection;
  Open(&facts, 1, Fraction{0});
  const ReceiveRequest request = PostOne(&facts, &connection);
  EXPECT_TRUE(request.has_step);
  EXPECT_FALSE(request.exempt_eligible);
  EXPECT_FALSE(request.forgivable);
}

TEST(StepFacts, AreNotEligibleWithoutTheOperatorsWord) {
  StepFacts facts{Settings()};
  ConnectionStep connection;
  Open(&facts, 1);
  EXPECT_FALSE(PostOne(&facts, &connection).exempt_eligible);
  facts.Register(&connection);
  facts.Close();
  ErrorText what;
  EXPECT_TRUE(facts.CheckCounts(&what));
}

TEST(StepFacts, RequireAQuarterOfTheBufferAndThreeRegistrations) {
  for (const auto& [posted, region, registrations] :
       std::vector<std::tuple<uint64_t, uint64_t, uint32_t>>{{kPost / 2, kBuffer, 3},
                                                             {kPost, kBuffer + 4, 3},
                                                             {kPost, kBuffer, 1},
                                                             {kPost, kBuffer, 2},
                                                             {kPost, kBuffer, 4}}) {
    StepFacts facts(Word(2));
    ConnectionStep connection;
    Open(&facts, 1);
    ReceiveRequest request;
    facts.Commit(
        &connection,
        facts.Classify(&connection, {.posted_bytes = posted, .region_bytes = region, .registrations = registrations},
                       &request));
    EXPECT_FALSE(request.exempt_eligible);
    EXPECT_FALSE(PostOne(&facts, &connection).exempt_eligible) << "not latched";
    EXPECT_EQ(facts.refused_posts(), 2u);
  }
}

TEST(StepFacts, CountOnlyPostsThatTheEngineTook) {
  StepFacts facts(Word(2));
  ConnectionStep connection;
  Open(&facts, 1);
  ReceiveRequest request;
  for (int retry = 0; retry < 5; ++retry) facts.Classify(&connection, RingPost(), &request);
  EXPECT_EQ(connection.messages.load(), 0u);
  for (int message = 0; message < 4; ++message) {
    EXPECT_EQ(PostOne(&facts, &connection).forgivable, message < 2);
  }
}

TEST(StepFacts, LatchTheProcessWhenAnyConnectionIsInTheMiddle) {
  StepFacts facts(Word(3));
  ConnectionStep whole;
  ConnectionStep half;
  facts.Register(&whole);
  facts.Register(&half);
  Open(&facts, 1);
  for (int message = 0; message < 8; ++message) PostOne(&facts, &whole);
  for (int message = 0; message < 4; ++message) PostOne(&facts, &half);
  facts.Close();
  ErrorText what;
  EXPECT_FALSE(facts.CheckCounts(&what));
  EXPECT_NE(std::strstr(what.c_str(), "4 messages"), nullptr) << what.c_str();
  EXPECT_EQ(facts.Prepare(), StepFacts::BeginResult::kLatched);
}

TEST(StepFacts, ForgetTheCountsOfEarlierSteps) {
  StepFacts facts(Word(2));
  ConnectionStep connection;
  ConnectionStep idle_later;
  facts.Register(&connection);
  facts.Register(&idle_later);
  ErrorText what;
  for (uint64_t step = 1; step <= 3; ++step) {
    Open(&facts, step);
    for (int message = 0; message < 4; ++message) {
      EXPECT_EQ(PostOne(&facts, &connection).forgivable, message < 2);
      if (step == 1) PostOne(&facts, &idle_later);
    }
    facts.Close();
    EXPECT_TRUE(facts.CheckCounts(&what)) << what.c_str();
    EXPECT_EQ(connection.messages.load(), 4u) << "of this step alone";
  }
}

TEST(StepFacts, RefuseToPrepareWhileAReceiveIsPostedAndRecover) {
  StepFacts facts(Word(2));
  facts.AddPosted();
  EXPECT_EQ(facts.Prepare(), StepFacts::BeginResult::kReceivesPosted);
  facts.RemovePosted();
  Open(&facts, 1);
  EXPECT_EQ(facts.Prepare(), StepFacts::BeginResult::kStepOpen);
}

}  // namespace
}  // namespace forgive
