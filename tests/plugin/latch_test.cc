// SPDX-License-Identifier: Apache-2.0
// Every latch of the operator's word: what breaks the promise becomes reliable.
#include <gtest/gtest.h>

#include <string>

#include "ring_steps.h"

namespace forgive::testing {
namespace {

TEST(PluginLatch, RefusesABeginWhileReceivesArePostedAndTheStepStaysReliable) {
  RunPlugin(kWord + kTrims, [](const Net& net, const Interface& forgive) {
    RingConnection ring = MakeRing(net);
    void* receive = nullptr;
    ASSERT_EQ(Receive(net, &ring.pair, 0, kPosted, &receive), nccl::kSuccess);
    EXPECT_EQ(forgive.begin(1, 0, 8 << 20), FORGIVE_ERROR_RECEIVES_POSTED);
    EXPECT_NE(std::string(forgive.last_error()).find("receives are posted"), std::string::npos);
    EXPECT_EQ(forgive.end(1), FORGIVE_ERROR_STEP_OPEN);
    void* send = nullptr;
    ASSERT_EQ(Send(net, ring.pair, 0, kPosted, &send), nccl::kSuccess);
    EXPECT_EQ(Wait(net, send), nccl::kSuccess);
    EXPECT_EQ(Wait(net, receive), nccl::kSuccess);
    EXPECT_EQ(Ledger(forgive).size(), 0u);
    EXPECT_EQ(forgive.begin(1, 0, 8 << 20), FORGIVE_OK) << forgive.last_error();
    EXPECT_GT(AllReduce(net, forgive, &ring, 4, kPosted, 1), 0u);
    EXPECT_EQ(forgive.end(1), FORGIVE_OK);
  });
}

TEST(PluginLatch, ForgetsReceivesThatWereClosedInFlight) {
  RunPlugin(kWord, [](const Net& net, const Interface& forgive) {
    RingConnection ring = MakeRing(net);
    void* receive = nullptr;
    ASSERT_EQ(Receive(net, &ring.pair, 0, kPosted, &receive), nccl::kSuccess);
    EXPECT_EQ(forgive.begin(1, 0, 1), FORGIVE_ERROR_RECEIVES_POSTED);
    EXPECT_EQ(net.close_receive(ring.pair.receive_comm), nccl::kSuccess);
    EXPECT_EQ(forgive.begin(1, 0, 1), FORGIVE_OK);
  });
}

TEST(PluginLatch, RefusesABeginWhileAStepIsOpenAndNumbersThatDoNotRise) {
  RunPlugin(kWord, [](const Net&, const Interface& forgive) {
    EXPECT_EQ(forgive.end(1), FORGIVE_ERROR_STEP_OPEN);
    EXPECT_EQ(forgive.begin(5, 0, 0), FORGIVE_OK);
    EXPECT_EQ(forgive.begin(6, 0, 0), FORGIVE_ERROR_STEP_OPEN);
    EXPECT_EQ(forgive.end(6), FORGIVE_ERROR_STEP_OPEN);
    EXPECT_EQ(forgive.end(5), FORGIVE_OK);
    EXPECT_EQ(forgive.begin(5, 0, 0), FORGIVE_ERROR_BAD_ARGUMENT);
    EXPECT_EQ(forgive.begin(6, 0, 0), FORGIVE_OK);
    EXPECT_EQ(forgive.end(6), FORGIVE_OK);
  });
}

TEST(PluginLatch, APostThatFailsTheRuleInAStepMakesItsConnectionReliable) {
  RunPlugin(kWord + kTrims, [](const Net& net, const Interface& forgive) {
    RingConnection latched = MakeRing(net);
    RingConnection good = MakeRing(net);
    ASSERT_EQ(forgive.begin(1, 0, 8 << 20), FORGIVE_OK);
    // A Tree or a broadcast posts half a slice.
    Transfer(net, &latched.pair, 4, 1000, kPosted / 2, nullptr);
    EXPECT_EQ(AllReduce(net, forgive, &latched, 2, kPosted, 4), 0u);
    EXPECT_EQ(forgive.end(1), FORGIVE_OK) << forgive.last_error();
    ASSERT_EQ(forgive.begin(2, 0, 8 << 20), FORGIVE_OK);
    EXPECT_EQ(AllReduce(net, forgive, &latched, 2, kPosted, 12), 0u);
    EXPECT_GT(AllReduce(net, forgive, &good, 4, kPosted, 0), 0u);
    EXPECT_EQ(forgive.end(2), FORGIVE_OK) << forgive.last_error();
    int said = 0;
    for (const std::string& line : LogLines()) said += line.find("is not Ring and Simple") != std::string::npos;
    EXPECT_EQ(said, 1);
    forgive_stats_t totals{};
    totals.size = sizeof(totals);
    ASSERT_EQ(forgive.stats(&totals), FORGIVE_OK);
    EXPECT_EQ(totals.not_posted_operator_latch, 4u + 8u + 8u);
  });
}

TEST(PluginLatch, APostThatFailsTheRuleOutsideAStepLatchesNothing) {
  RunPlugin(kWord + kTrims, [](const Net& net, const Interface& forgive) {
    RingConnection ring = MakeRing(net);
    Transfer(net, &ring.pair, 3, 1000, kPosted / 2, nullptr);
    ASSERT_EQ(forgive.begin(1, 0, 8 << 20), FORGIVE_OK);
    // The counter starts at the step: the phase is right although three messages went before.
    EXPECT_GT(AllReduce(net, forgive, &ring, 4, kPosted, 3), 0u);
    for (const forgive_range_t& line : Ledger(forgive)) EXPECT_LT((line.message - 3) % 4, 2u);
    EXPECT_EQ(forgive.end(1), FORGIVE_OK);
  });
}

TEST(PluginLatch, AConnectionWithoutThreeRegistrationsIsReliable) {
  RunPlugin(kWord + kTrims, [](const Net& net, const Interface& forgive) {
    RingConnection point_to_point;
    point_to_point.pair = MakePair(net, kBuffer);
    ASSERT_EQ(forgive.begin(1, 0, 8 << 20), FORGIVE_OK);
    EXPECT_EQ(AllReduce(net, forgive, &point_to_point, 2, kPosted, 0), 0u);
    EXPECT_EQ(forgive.end(1), FORGIVE_OK);
  });
}

TEST(PluginLatch, AnAllGatherInsideAStepLatchesTheProcessAtItsEnd) {
  RunPlugin(kWord + kTrims, [](const Net& net, const Interface& forgive) {
    RingConnection ring = MakeRing(net);
    ASSERT_EQ(forgive.begin(1, 0, 8 << 20), FORGIVE_OK);
    Transfer(net, &ring.pair, 4 + 2, kPosted, kPosted, nullptr);  // an all-reduce, and half of one
    EXPECT_EQ(forgive.end(1), FORGIVE_ERROR_LATCHED);
    EXPECT_TRUE(LogContains("6 messages in the step, not a multiple of 4"));
    EXPECT_EQ(forgive.begin(2, 0, 8 << 20), FORGIVE_ERROR_LATCHED);
    const size_t lines = Ledger(forgive).size();
    AllReduce(net, forgive, &ring, 2, kPosted, 6);
    EXPECT_EQ(Ledger(forgive).size(), lines);
    EXPECT_EQ(forgive.end(2), FORGIVE_ERROR_LATCHED);
  });
}

TEST(PluginLatch, AConnectionClosedInTheMiddleOfAnAllReduceLatchesTheProcess) {
  RunPlugin(kWord, [](const Net& net, const Interface& forgive) {
    RingConnection ring = MakeRing(net);
    ASSERT_EQ(forgive.begin(1, 0, 8 << 20), FORGIVE_OK);
    Transfer(net, &ring.pair, 1, kPosted, kPosted, nullptr);
    EXPECT_EQ(net.close_receive(ring.pair.receive_comm), nccl::kSuccess);
    EXPECT_EQ(forgive.end(1), FORGIVE_ERROR_LATCHED);
  });
}

}  // namespace
}  // namespace forgive::testing
