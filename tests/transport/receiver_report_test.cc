// SPDX-License-Identifier: Apache-2.0
// When a receiver reports and what its reports say.
#include <gtest/gtest.h>

#include "receiver_fixture.h"
#include "transport/receiver.h"

namespace forgive {
namespace {

using Fixture = ReceiverFixture;

TEST(ReceiverReport, AdvertisesTheCreditOfNewPostsAtOnce) {
  Fixture f;
  EXPECT_TRUE(f.Reports().empty());
  EXPECT_EQ(f.receiver.report_deadline(), kNever);
  f.Post(100);
  f.Post(100);
  EXPECT_LE(f.receiver.report_deadline(), f.now);
  const std::vector<Report> reports = f.Reports();
  ASSERT_EQ(reports.size(), 1u);
  EXPECT_EQ(reports[0].posted_messages, 2u);
  EXPECT_EQ(reports[0].same_step_end, 2u);
  EXPECT_TRUE(reports[0].exempt_eligible);
  EXPECT_FALSE(reports[0].budget_exhausted);
  EXPECT_FALSE(reports[0].has_newest);
}

TEST(ReceiverReport, ReportsAfterTheConfiguredNumberOfPacketsOrAQuarterOfTheRtt) {
  Fixture f;
  f.receiver.set_rtt(Microseconds(400));
  f.Post(32768);
  f.Reports();
  for (uint32_t i = 0; i < 15; ++i) f.Data(0, i * 1024, 1024);
  EXPECT_EQ(f.receiver.report_deadline(), f.now + Microseconds(100));
  EXPECT_TRUE(f.Reports().empty());
  f.Data(0, 15 * 1024, 1024);
  ASSERT_EQ(f.Reports().size(), 1u);
  f.Data(0, 16 * 1024, 1024);
  EXPECT_TRUE(f.Reports().empty());
  f.now = f.now + Microseconds(100);
  const std::vector<Report> reports = f.Reports();
  ASSERT_EQ(reports.size(), 1u);
  EXPECT_TRUE(reports[0].has_newest);
  EXPECT_EQ(reports[0].newest_packet_number, 16u);
  EXPECT_EQ(reports[0].newest_timestamp, 160u);
  EXPECT_EQ(reports[0].received_bytes, 17u * 1024u);
}

TEST(ReceiverReport, ReportsAtOnceWhenTheCongestionMarkChangesAndEchoesMarkedBytesExactly) {
  Fixture f;
  f.Post(32768);
  f.Reports();
  f.Data(0, 0, 1024);
  EXPECT_TRUE(f.Reports().empty());
  f.Data(0, 1024, 1024, true);
  std::vector<Report> reports = f.Reports();
  ASSERT_EQ(reports.size(), 1u);
  EXPECT_EQ(reports[0].ce_bytes, 1024u);
  f.Data(0, 2048, 1024, true);
  EXPECT_TRUE(f.Reports().empty());
  f.Data(0, 3072, 1024);
  reports = f.Reports();
  ASSERT_EQ(reports.size(), 1u);
  EXPECT_EQ(reports[0].ce_bytes, 2048u);
  EXPECT_EQ(reports[0].received_bytes, 4096u);
}

TEST(ReceiverReport, AnswersAMarkedTrimAsATrimAndEchoesNoMarkedBytes) {
  Fixture f;
  f.Post(32768);
  f.Reports();
  f.Data(0, 0, 1024, true);
  f.Reports();
  f.Trim(0, 1024, 1024, true);
  const std::vector<Report> reports = f.Reports();
  ASSERT_EQ(reports.size(), 1u);
  EXPECT_TRUE(reports[0].trimmed);
  EXPECT_EQ(reports[0].ce_bytes, 1024u);  // of the whole packet alone
  EXPECT_EQ(reports[0].received_bytes, 1024u);
  EXPECT_EQ(f.counters.marks, 2u);
}

TEST(ReceiverReport, ReportsAtOnceWhenAMessageCompletes) {
  Fixture f;
  f.Post(16);
  f.Reports();
  f.Data(0, 0, 16);
  const std::vector<Report> reports = f.Reports();
  ASSERT_EQ(reports.size(), 1u);
  EXPECT_EQ(reports[0].completed_messages, 1u);
}

TEST(ReceiverReport, SendsOneReportForEachTrimmedPacketEvenInOneTurn) {
  Fixture f;
  f.Post(8192);
  f.Reports();
  f.Trim(0, 0, 1024);
  f.Trim(0, 1024, 1024);
  f.Trim(0, 4096, 1024);
  const std::vector<Report> reports = f.Reports();
  ASSERT_EQ(reports.size(), 3u);
  for (uint32_t i = 0; i < 3; ++i) {
    EXPECT_TRUE(reports[i].trimmed);
    EXPECT_EQ(reports[i].trimmed_packet_number, i);
    EXPECT_EQ(reports[i].request_count, 1u);
    EXPECT_EQ(reports[i].report_number, reports[0].report_number + i);
  }
}

TEST(ReceiverReport, GivesUpARequestButNoDecisionWhenAWindowOfRequestsWaits) {
  Fixture f;
  f.Post(64 * 1024 - 16);
  f.Reports();
  for (int i = 0; i < 65; ++i) f.Trim(0, 0, 1024);
  const std::vector<Report> reports = f.Reports();
  EXPECT_EQ(reports.size(), 64u);
  EXPECT_EQ(f.counters.trims, 65u);
  EXPECT_EQ(f.account().outstanding, 1024u);
  f.Trim(0, 0, 1024);
  EXPECT_EQ(f.Reports().size(), 1u);
}

TEST(ReceiverReport, NamesEachSettledRangeInThreeSuccessiveReportsNewestFirst) {
  Fixture f;
  f.Post(8192);
  f.Reports();
  f.Data(0, 1024, 512);
  f.receiver.OnProbe();
  std::vector<Report> reports = f.Reports();
  ASSERT_EQ(reports.size(), 1u);
  ASSERT_EQ(reports[0].sack_count, 1u);
  EXPECT_EQ(reports[0].sacks[0], (Range{1024, 1536}));
  f.Data(0, 4096, 512);
  f.receiver.OnProbe();
  reports = f.Reports();
  ASSERT_EQ(reports[0].sack_count, 2u);
  EXPECT_EQ(reports[0].sacks[0], (Range{4096, 4608}));
  EXPECT_EQ(reports[0].sacks[1], (Range{1024, 1536}));
  for (const uint32_t expected : {2u, 1u, 0u}) {
    f.receiver.OnProbe();
    reports = f.Reports();
    ASSERT_EQ(reports.size(), 1u);
    EXPECT_EQ(reports[0].sack_count, expected);
  }
}

TEST(ReceiverReport, NamesTheWholeSettledRunAroundARecentRangeAndEachRunOnce) {
  Fixture f;
  f.Post(8192);
  f.Reports();
  f.Data(0, 1024, 512);
  f.Data(0, 2048, 512);
  f.Data(0, 1536, 512);
  f.receiver.OnProbe();
  const std::vector<Report> reports = f.Reports();
  ASSERT_EQ(reports[0].sack_count, 1u);
  EXPECT_EQ(reports[0].sacks[0], (Range{1024, 2560}));
}

TEST(ReceiverReport, NamesForgivenRangesLikeReceivedOnes) {
  Fixture f;
  f.Post(16384);
  for (uint32_t offset = 1024; offset < 11264; offset += 1024) f.Data(0, offset, 1024);
  f.Reports();
  EXPECT_EQ(f.Trim(0, 12288, 1024), Decision::kForgiven);
  const std::vector<Report> reports = f.Reports();
  ASSERT_GE(reports.size(), 1u);
  ASSERT_GE(reports[0].sack_count, 1u);
  EXPECT_EQ(reports[0].sacks[0], (Range{12288, 13312}));
}

TEST(ReceiverReport, NamesASettledRangeAgainAfterADuplicateOfIt) {
  Fixture f;
  f.Post(8192);
  f.Data(0, 1024, 512);
  for (int i = 0; i < 4; ++i) {
    f.receiver.OnProbe();
    f.Reports();
  }
  f.Data(0, 1024, 512);
  f.receiver.OnProbe();
  EXPECT_EQ(f.Reports()[0].sack_count, 1u);
}

TEST(ReceiverReport, SaysExhaustedWhenTheReportLeavesAndClearsItWhenTheBytesArrive) {
  Fixture f(SmallConfig(), 30000);  // budget 3,000
  f.Post(16384);
  f.Reports();
  f.Trim(0, 0, 1024);
  f.Trim(0, 1024, 1024);
  std::vector<Report> reports = f.Reports();
  ASSERT_EQ(reports.size(), 2u);
  EXPECT_TRUE(reports[0].exempt_eligible);
  EXPECT_TRUE(reports[0].budget_exhausted);  // both trims count when the first report leaves
  f.Data(0, 0, 1024);
  reports = f.Reports();  // at once: the flag changed
  ASSERT_EQ(reports.size(), 1u);
  EXPECT_FALSE(reports[0].budget_exhausted);
}

TEST(ReceiverReport, ReportsAtOnceWhenAnotherConnectionExhaustsTheSharedBudget) {
  Fixture f(SmallConfig(), 30000);
  f.Post(16384);
  f.Reports();
  Receiver other(SmallConfig(), 1024, ConnectionHandle{4}, 78, &f.steps, &f.counters, &f.events);
  ReceiveRequest request;
  request.capacity = 8192;
  request.has_step = true;
  request.step = 1;
  request.exempt_eligible = true;
  ASSERT_TRUE(other.Post(request));
  DataHeader header;
  header.payload_length = 1024;
  header.message_length = 8192;
  other.OnTrimmedHeader(f.now, header, false);
  header.stream_offset = header.offset_in_message = 1024;
  other.OnTrimmedHeader(f.now, header, false);
  f.receiver.OnStepsChanged();
  const std::vector<Report> reports = f.Reports();
  ASSERT_EQ(reports.size(), 1u);
  EXPECT_TRUE(reports[0].budget_exhausted);
}

TEST(ReceiverReport, SaysBothFlagsFalseOnceTheStepClosed) {
  Fixture f;
  f.Post(4096);
  f.Reports();
  EXPECT_EQ(f.steps.End(1), StepResult::kOk);
  f.receiver.OnStepsChanged();
  const std::vector<Report> reports = f.Reports();
  ASSERT_EQ(reports.size(), 1u);
  EXPECT_FALSE(reports[0].exempt_eligible);
  EXPECT_FALSE(reports[0].budget_exhausted);
}

TEST(ReceiverReport, SaysNotEligibleWhenPIsZero) {
  Fixture f(SmallConfig(), 1 << 20, Fraction{0});
  f.Post(4096);
  EXPECT_FALSE(f.Reports()[0].exempt_eligible);
}

TEST(ReceiverReport, LimitsItsFlagsToTheMessagesOfTheSameStepAndEligibility) {
  Fixture f;
  f.Post(16);
  f.Post(16);
  f.Post(16, false, false);
  f.Post(16);
  EXPECT_EQ(f.Reports()[0].same_step_end, 2u);
  f.Data(0, 0, 16);
  f.Data(1, 0, 16);
  const Report report = f.Reports()[0];
  EXPECT_FALSE(report.exempt_eligible);
  EXPECT_EQ(report.same_step_end, 3u);
}

TEST(ReceiverReport, MarksTheFirstMessageOfTheNewestStep) {
  Fixture f;
  f.Post(16, false, false, 0, false);
  EXPECT_FALSE(f.Reports()[0].has_step_start);
  f.Post(16);
  f.Post(16);
  Report report = f.Reports()[0];
  EXPECT_TRUE(report.has_step_start);
  EXPECT_EQ(report.step_start_message, 1u);
  EXPECT_EQ(f.steps.End(1), StepResult::kOk);
  StepPlan plan;
  plan.step = 2;
  EXPECT_EQ(f.steps.Begin(plan), StepResult::kOk);
  f.Post(16, true, true, 2);
  EXPECT_EQ(f.Reports()[0].step_start_message, 3u);
}

TEST(ReceiverReport, RequestsAtMostTheFirstEightMissingPartsOfATrim) {
  Fixture f;
  f.Post(4096);
  f.Reports();
  for (uint32_t offset = 16; offset < 512; offset += 32) f.Data(0, offset, 16);
  f.Reports();
  EXPECT_EQ(f.Trim(0, 0, 512), Decision::kNotVested);
  const Report report = f.Reports()[0];
  ASSERT_EQ(report.request_count, kMaxRequestRanges);
  EXPECT_EQ(report.requests[0], (Range{0, 16}));
  EXPECT_EQ(report.requests[7], (Range{224, 240}));
}

TEST(ReceiverReport, NamesAtMostThirtyTwoSettledRangesAndTheNewestOnesFirst) {
  Fixture f;
  f.Post(4096);
  f.Reports();
  for (uint32_t i = 0; i < 40; ++i) f.Data(0, 16 + 32 * i, 16);
  const std::vector<Report> reports = f.Reports();
  ASSERT_EQ(reports.size(), 1u);
  ASSERT_EQ(reports[0].sack_count, kMaxSackRanges);
  EXPECT_EQ(reports[0].sacks[0], (Range{16 + 32 * 39, 32 + 32 * 39}));
  EXPECT_EQ(reports[0].sacks[31], (Range{16 + 32 * 8, 32 + 32 * 8}));
}

TEST(ReceiverReport, KeepsThePacketCountOfAnOrdinaryReportThroughATrimsReport) {
  Fixture f;
  f.Post(16384);
  f.Reports();
  f.Data(0, 0, 1024);
  f.Trim(0, 4096, 1024);
  EXPECT_EQ(f.Reports().size(), 1u);
  f.now = f.now + Milliseconds(1);  // the timestamp of the whole packet is still owed
  const std::vector<Report> reports = f.Reports();
  ASSERT_EQ(reports.size(), 1u);
  EXPECT_TRUE(reports[0].has_newest);
  EXPECT_FALSE(reports[0].trimmed);
}

TEST(ReceiverReport, EchoesTheNewestPacketNumberNotTheOneThatCameLast) {
  Fixture f;
  f.Post(4096);
  f.next_packet = 9;
  f.Data(0, 0, 1024);
  f.next_packet = 4;
  f.Data(0, 1024, 1024);
  f.receiver.OnProbe();
  const Report report = f.Reports()[0];
  EXPECT_EQ(report.newest_packet_number, 9u);
  EXPECT_EQ(report.newest_timestamp, 90u);
}

}  // namespace
}  // namespace forgive
