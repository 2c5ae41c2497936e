// SPDX-License-Identifier: Apache-2.0
// The receiver's rules, one sentence each: settling, forgiving, counting, completing and reporting.
#include "transport/receiver.h"

#include <gtest/gtest.h>

#include "receiver_fixture.h"
#include "transport/crc32c.h"

namespace forgive {
namespace {

using Fixture = ReceiverFixture;

// ---- Arrival ----

TEST(Receiver, PlacesWhatArrivesAndCompletesTheMessageWithTheSizeThatWasSent) {
  Fixture f;
  f.Post(2500);
  f.AllData(0);
  EXPECT_TRUE(f.IsPayload(0, 0, 2500));
  EXPECT_EQ(f.At(0, 2500), 0xEE);  // padding is not written
  const std::vector<Event> events = f.Events();
  ASSERT_EQ(events.size(), 1u);
  EXPECT_EQ(events[0].kind, Event::Kind::kReceived);
  EXPECT_EQ(events[0].cookie, 1000u);
  EXPECT_EQ(events[0].size, 2500u);
  EXPECT_EQ(f.receiver.completed_messages(), 1u);
  EXPECT_EQ(f.receiver.rcv_nxt(), 2512u + 16u);
  EXPECT_FALSE(f.receiver.HasUnfinished());
}

TEST(Receiver, CompletesAMessageShorterThanItsPostedReceive) {
  Fixture f;
  f.Post(4096);
  f.lengths[0] = 100;
  f.Data(0, 0, 100);
  ASSERT_EQ(f.Events().size(), 1u);
  EXPECT_EQ(f.At(0, 100), 0xEE);
}

TEST(Receiver, CompletesAZeroLengthMessageByItsEndSlot) {
  Fixture f;
  f.Post(0);
  f.Data(0, 0, 0);
  const std::vector<Event> events = f.Events();
  ASSERT_EQ(events.size(), 1u);
  EXPECT_EQ(events[0].size, 0u);
  EXPECT_EQ(f.receiver.rcv_nxt(), 16u);
}

TEST(Receiver, CompletesMessagesOutOfOrderButCountsOnlyTheContiguousOnes) {
  Fixture f;
  f.Post(100);
  f.Post(200);
  f.Data(1, 0, 200);
  ASSERT_EQ(f.Events().size(), 1u);
  EXPECT_EQ(f.receiver.completed_messages(), 0u);
  f.Data(0, 0, 100);
  EXPECT_EQ(f.receiver.completed_messages(), 2u);
}

TEST(Receiver, WritesOnlyTheMissingBytesOfAPacketThatOverlapsWhatArrived) {
  Fixture f;
  f.Post(1024);
  f.Data(0, 256, 256);
  f.buffers[0][300] = 0x11;  // as if the application had the bytes already
  f.Data(0, 0, 1024);
  EXPECT_EQ(f.At(0, 300), 0x11);
  EXPECT_TRUE(f.IsPayload(0, 0, 256));
  EXPECT_TRUE(f.IsPayload(0, 512, 1024));
  EXPECT_EQ(f.counters.received_bytes, 1024u);
  EXPECT_EQ(f.counters.duplicate_bytes, 256u);
  EXPECT_EQ(f.account().received, 1024u);
}

TEST(Receiver, DiscardsADuplicateOfACompletedMessageAndReportsAgain) {
  Fixture f;
  f.Post(512);
  f.Data(0, 0, 512);
  f.Reports();
  f.buffers[0].assign(f.buffers[0].size(), 0x11);
  f.Data(0, 0, 512);
  EXPECT_TRUE(f.Is(0x11, 0, 0, 512));
  EXPECT_EQ(f.counters.duplicate_bytes, 512u);
  f.now = f.now + Milliseconds(10);
  EXPECT_EQ(f.Reports().size(), 1u);
  EXPECT_EQ(f.account().received, 512u);
}

TEST(Receiver, SettlesNothingByAPacketWithAWrongCrc) {
  Config config = SmallConfig();
  config.payload_crc = true;
  Fixture f(config);
  f.Post(0);
  f.Post(64);
  const std::vector<uint8_t> payload(64, 5);
  DataHeader header = f.Header(1, 0, 64);
  header.payload_crc32c = Crc32c(payload.data(), 64) ^ 1;
  f.receiver.OnData(f.now, header, payload.data(), false);
  EXPECT_EQ(f.counters.bad_crc, 1u);
  EXPECT_FALSE(f.receiver.scoreboard().IsSettled(f.starts[1] / kUnitBytes));
  EXPECT_FALSE(f.receiver.scoreboard().IsSettled(f.starts[1] / kUnitBytes + 4));  // nor the end slot
  header.payload_crc32c ^= 1;
  f.receiver.OnData(f.now, header, payload.data(), false);
  EXPECT_EQ(f.counters.received_bytes, 64u);
}

TEST(Receiver, WritesNothingOfAPacketWithAWrongCrcWhereSomethingIsSettled) {
  Config config = SmallConfig();
  config.payload_crc = true;
  Fixture f(config);
  f.Post(2048);
  const std::vector<uint8_t> right(1024, 5);
  const std::vector<uint8_t> wrong(1024, 9);
  DataHeader first = f.Header(0, 0, 512);
  first.payload_crc32c = Crc32c(right.data(), 512);
  f.receiver.OnData(f.now, first, right.data(), false);
  for (const uint32_t length : {512u, 1024u}) {  // a duplicate, and one that is new in its second half
    DataHeader header = f.Header(0, 0, length);
    header.payload_crc32c = Crc32c(wrong.data(), length) ^ 1;
    f.receiver.OnData(f.now, header, wrong.data(), false);
    EXPECT_TRUE(f.Is(5, 0, 0, 512)) << length;
  }
  EXPECT_EQ(f.counters.bad_crc, 2u);
  EXPECT_EQ(f.counters.received_bytes, 512u);
}

TEST(Receiver, OverwritesWhatAPacketWithAWrongCrcLeft) {
  Config config = SmallConfig();
  config.payload_crc = true;
  Fixture f(config);
  f.Post(2048);
  const std::vector<uint8_t> right(1024, 5);
  const std::vector<uint8_t> wrong(1024, 9);
  for (const std::vector<uint8_t>* payload : {&wrong, &right}) {
    DataHeader header = f.Header(0, 0, 1024);
    header.payload_crc32c = Crc32c(right.data(), 1024);
    f.receiver.OnData(f.now, header, payload->data(), false);
  }
  EXPECT_TRUE(f.Is(5, 0, 0, 1024));
  EXPECT_EQ(f.counters.bad_crc, 1u);
  EXPECT_EQ(f.counters.received_bytes, 1024u);
}

TEST(Receiver, PlacesNoBytesWhereTheBufferIsNullButSettlesThem) {
  Fixture f;
  ReceiveRequest request;
  request.capacity = 512;
  ASSERT_TRUE(f.receiver.Post(request));
  f.lengths.push_back(512);
  f.starts.push_back(0);
  f.Data(0, 0, 512);
  EXPECT_EQ(f.receiver.completed_messages(), 1u);
}

// ---- What is refused ----

TEST(Receiver, CountsAsMalformedWhatContradictsTheMessageItNames) {
  Fixture f;
  f.Post(1024);
  f.Post(1024);
  f.Data(0, 0, 512);
  const uint8_t payload[1024] = {};
  const DataHeader good = f.Header(0, 512, 512);
  int refused = 0;
  const auto expect_refused = [&](DataHeader header) {
    f.receiver.OnData(f.now, header, payload, false);
    EXPECT_EQ(f.counters.malformed, static_cast<uint64_t>(++refused));
  };
  DataHeader header = good;
  header.message_length = 1040;  // another length than before
  expect_refused(header);
  header = good;
  header.stream_offset += 16;  // another start than before
  expect_refused(header);
  header = good;
  header.message_number = 2 + kEarlyMessages;  // not posted
  expect_refused(header);
  header = good;
  header.payload_length = 520;  // leaves its message
  expect_refused(header);
  header = good;
  header.payload_length = 24;  // ends inside a unit and inside the message
  expect_refused(header);
  header = good;
  header.payload_length = 0;  // settles nothing
  expect_refused(header);
  header = good;
  header.stream_offset = 8;  // unaligned
  header.offset_in_message = 8;
  expect_refused(header);
  header = f.Header(1, 0, 512);
  header.stream_offset += 16;  // a gap behind its neighbour
  expect_refused(header);
  header.stream_offset -= 32;  // overlaps its neighbour
  expect_refused(header);
  EXPECT_EQ(f.receiver.rcv_nxt(), 512u);
  f.Data(0, 512, 512);
  f.Data(1, 0, 1024);
  EXPECT_EQ(f.receiver.completed_messages(), 2u);
}

TEST(Receiver, RefusesAMessageThatLeavesNoRoomForThePostedOnesBeforeIt) {
  Fixture f;
  f.Post(0);
  f.Post(0);
  f.Post(0);
  DataHeader header = f.Header(2, 0, 0);
  header.stream_offset = 16;  // two messages before it take two slots at least
  f.receiver.OnData(f.now, header, nullptr, false);
  EXPECT_EQ(f.counters.malformed, 1u);
}

TEST(Receiver, RefusesAMessageThatDoesNotEndWhereAKnownOneBeginsBehindIt) {
  Fixture f;
  f.Post(1024);
  f.Post(64);
  f.Data(1, 0, 64);
  f.lengths[0] = 512;
  f.Data(0, 0, 256);
  EXPECT_EQ(f.counters.malformed, 1u);
  EXPECT_EQ(f.receiver.rcv_nxt(), 0u);
  f.lengths[0] = 1010;
  f.Data(0, 0, 256);
  EXPECT_EQ(f.counters.malformed, 1u);  // 1,010 bytes take as many units as 1,024
  EXPECT_EQ(f.receiver.rcv_nxt(), 256u);
}

TEST(Receiver, RefusesAPacketOfACompletedMessageThatReachesBeyondIt) {
  Fixture f;
  f.Post(64);
  f.Post(1024);
  f.Data(0, 0, 64);
  DataHeader header = f.Header(0, 0, 64);
  header.payload_length = 512;
  header.message_length = 512;
  const uint8_t payload[512] = {};
  f.receiver.OnData(f.now, header, payload, false);
  EXPECT_EQ(f.counters.malformed, 1u);
  EXPECT_EQ(f.counters.duplicate_bytes, 0u);
}

TEST(Receiver, RefusesAPayloadLargerThanTheConnectionAgreedOn) {
  Fixture f;
  f.Post(2048);
  const uint8_t payload[2048] = {};
  f.receiver.OnData(f.now, f.Header(0, 0, Fixture::kMaxPayload + 16), payload, false);
  EXPECT_EQ(f.counters.malformed, 1u);
}

TEST(Receiver, DropsWhatLiesBeyondTheScoreboardsSpan) {
  Config config = SmallConfig();
  config.scoreboard_bytes = 4096;
  Fixture f(config);
  f.Post(8192);
  f.Data(0, 4096, 1024);
  EXPECT_EQ(f.counters.out_of_window, 1u);
  f.Data(0, 3072, 1024);
  EXPECT_EQ(f.counters.received_bytes, 1024u);
}

TEST(Receiver, FailsWhenAMessageIsLongerThanItsPostedReceive) {
  Fixture f;
  f.Post(512);
  f.lengths[0] = 513;
  f.Data(0, 0, 512);
  EXPECT_TRUE(f.receiver.failed());
  EXPECT_EQ(f.receiver.fail_reason(), FailReason::kTooLong);
  EXPECT_TRUE(f.Is(0xEE, 0, 0, 512));
}

TEST(Receiver, AcceptsEachPacketNumberOnceAndNoneOlderThanTheWindow) {
  Fixture f;
  EXPECT_TRUE(f.receiver.AcceptPacketNumber(0));
  EXPECT_FALSE(f.receiver.AcceptPacketNumber(0));
  EXPECT_TRUE(f.receiver.AcceptPacketNumber(63));
  EXPECT_TRUE(f.receiver.AcceptPacketNumber(5));
  EXPECT_FALSE(f.receiver.AcceptPacketNumber(5));
  EXPECT_TRUE(f.receiver.AcceptPacketNumber(70));
  EXPECT_FALSE(f.receiver.AcceptPacketNumber(6));
  EXPECT_FALSE(f.receiver.AcceptPacketNumber(3)) << "never seen, but older than the window";
  EXPECT_TRUE(f.receiver.AcceptPacketNumber(7));
  EXPECT_TRUE(f.receiver.AcceptPacketNumber(64));
  EXPECT_FALSE(f.receiver.AcceptPacketNumber(63));
  EXPECT_TRUE(f.receiver.AcceptPacketNumber(uint64_t{1} << 33));
  EXPECT_FALSE(f.receiver.AcceptPacketNumber(69));
}

TEST(Receiver, RefusesAPostOnlyWhileItsMessageTableIsFull) {
  Config config = SmallConfig();
  config.max_messages = 2;
  Fixture f(config);
  f.Post(16);
  f.Post(16);
  EXPECT_FALSE(f.receiver.Post(ReceiveRequest{}));
  f.Data(0, 0, 16);
  f.Post(16);
}

// ---- Forgiveness ----

TEST(Receiver, ForgivesATrimThatVestedZeroFillsItAndAcknowledgesPastIt) {
  Fixture f;
  f.Post(16384);
  for (uint32_t offset = 0; offset < 10240; offset += 1024) f.Data(0, offset, 1024);
  f.Reports();
  EXPECT_EQ(f.Trim(0, 10240, 1024), Decision::kForgiven);
  EXPECT_TRUE(f.Is(0, 0, 10240, 11264));
  EXPECT_EQ(f.receiver.rcv_nxt(), 11264u);
  EXPECT_EQ(f.account().forgiven, 1024u);
  EXPECT_EQ(f.account().outstanding, 0u);
  EXPECT_EQ(f.account().contributions_lost, 2048u);
  const std::vector<Event> events = f.Events();
  ASSERT_EQ(events.size(), 1u);
  EXPECT_EQ(events[0].kind, Event::Kind::kForgiven);
  EXPECT_EQ(events[0].offset, 10240u);
  EXPECT_EQ(events[0].length, 1024u);
  EXPECT_EQ(events[0].step, 1u);
  EXPECT_EQ(events[0].contributions, 2u);
  EXPECT_EQ(events[0].connection_id, 77u);
  const std::vector<Report> reports = f.Reports();
  ASSERT_EQ(reports.size(), 1u);
  EXPECT_TRUE(reports[0].trimmed);
  EXPECT_EQ(reports[0].request_count, 0u);
  EXPECT_EQ(reports[0].rcv_nxt, 11264u);
}

TEST(Receiver, RequestsATrimThatDidNotVestAndEchoesItsPacketNumber) {
  Fixture f;
  f.Post(4096);
  f.Reports();
  EXPECT_EQ(f.Trim(0, 0, 1024), Decision::kNotVested);
  const std::vector<Report> reports = f.Reports();
  ASSERT_EQ(reports.size(), 1u);
  EXPECT_TRUE(reports[0].trimmed);
  EXPECT_FALSE(reports[0].has_newest);
  EXPECT_EQ(reports[0].trimmed_packet_number, 0u);
  ASSERT_EQ(reports[0].request_count, 1u);
  EXPECT_EQ(reports[0].requests[0], (Range{0, 1024}));
  EXPECT_EQ(f.account().outstanding, 1024u);
}

TEST(Receiver, ChargesNothingForARangeThatArrivedBeforeItsTrim) {
  Fixture f;
  f.Post(16384);
  for (uint32_t offset = 0; offset < 10240; offset += 1024) f.Data(0, offset, 1024);
  EXPECT_EQ(f.Trim(0, 4096, 1024), Decision::kAlreadySettled);
  EXPECT_EQ(f.account().forgiven, 0u);
  EXPECT_TRUE(f.IsPayload(0, 4096, 5120));
}

TEST(Receiver, ChargesOnlyTheMissingBytesOfATrimThatStraddlesRcvNxt) {
  Fixture f;
  f.Post(16384);
  for (uint32_t offset = 0; offset < 10240; offset += 1024) f.Data(0, offset, 1024);
  EXPECT_EQ(f.Trim(0, 9728, 1024), Decision::kForgiven);
  EXPECT_EQ(f.account().forgiven, 512u);
  EXPECT_TRUE(f.IsPayload(0, 9728, 10240));
  EXPECT_TRUE(f.Is(0, 0, 10240, 10752));
}

TEST(Receiver, ChargesARangeOnceHoweverOftenItIsTrimmed) {
  Fixture f;
  f.Post(16384);
  for (uint32_t offset = 0; offset < 10240; offset += 1024) f.Data(0, offset, 1024);
  EXPECT_EQ(f.Trim(0, 10240, 1024), Decision::kForgiven);
  EXPECT_EQ(f.Trim(0, 10240, 1024), Decision::kAlreadySettled);
  EXPECT_EQ(f.account().forgiven, 1024u);
}

TEST(Receiver, DiscardsAPayloadThatComesAfterItsRangeWasForgiven) {
  Fixture f;
  f.Post(16384);
  for (uint32_t offset = 0; offset < 10240; offset += 1024) f.Data(0, offset, 1024);
  EXPECT_EQ(f.Trim(0, 10240, 1024), Decision::kForgiven);
  f.Data(0, 10240, 1024);
  EXPECT_TRUE(f.Is(0, 0, 10240, 11264));
  EXPECT_EQ(f.counters.late_bytes, 1024u);
  EXPECT_EQ(f.account().received, 10240u);
}

TEST(Receiver, CompletesAMessageWhoseLastSegmentIsForgivenAndItsLedgerLineComesFirst) {
  Fixture f;
  f.Post(10250);
  for (uint32_t offset = 0; offset < 10240; offset += 1024) f.Data(0, offset, 1024);
  EXPECT_EQ(f.Trim(0, 10240, 10), Decision::kForgiven);
  const std::vector<Event> events = f.Events();
  ASSERT_EQ(events.size(), 2u);
  EXPECT_EQ(events[0].kind, Event::Kind::kForgiven);
  EXPECT_EQ(events[0].length, 10u);
  EXPECT_EQ(events[1].kind, Event::Kind::kReceived);
  EXPECT_EQ(events[1].size, 10250u);
  EXPECT_EQ(f.account().forgiven, 10u);  // padding counts in no counter
  EXPECT_EQ(f.At(0, 10250), 0xEE);
}

TEST(Receiver, SettlesTheEndSlotByATrimmedHeaderWhoseBytesAreOnlyRequested) {
  Fixture f;
  f.Post(100);
  EXPECT_EQ(f.Trim(0, 0, 100), Decision::kNotVested);
  EXPECT_TRUE(f.receiver.scoreboard().IsSettled(7));
  EXPECT_EQ(f.account().outstanding, 100u);
  bool requested = false;
  for (const Report& report : f.Reports()) {
    if (report.request_count == 0) continue;
    requested = true;
    EXPECT_EQ(report.requests[0], (Range{0, 112}));
  }
  EXPECT_TRUE(requested);
  f.Data(0, 0, 100);
  EXPECT_EQ(f.account().outstanding, 0u);
  EXPECT_EQ(f.receiver.completed_messages(), 1u);
}

TEST(Receiver, SettlesAZeroLengthMessageByATrimOfItsHeader) {
  Fixture f;
  f.Post(0);
  EXPECT_EQ(f.Trim(0, 0, 0), Decision::kAlreadySettled);
  EXPECT_EQ(f.receiver.completed_messages(), 1u);
}

TEST(Receiver, ForgivesEachMissingPartOfATrimWithALedgerLineOfItsOwn) {
  Fixture f;
  f.Post(16384);
  for (uint32_t offset = 0; offset < 10240; offset += 1024) f.Data(0, offset, 1024);
  f.Data(0, 10496, 256);
  EXPECT_EQ(f.Trim(0, 10240, 1024), Decision::kForgiven);
  const std::vector<Event> events = f.Events();
  ASSERT_EQ(events.size(), 2u);
  EXPECT_EQ(events[0].offset, 10240u);
  EXPECT_EQ(events[0].length, 256u);
  EXPECT_EQ(events[1].offset, 10752u);
  EXPECT_EQ(events[1].length, 512u);
  EXPECT_EQ(f.account().forgiven, 768u);
}

// ---- Outstanding: the corrections ----

TEST(Receiver, CountsEachTrimmedByteInOutstandingOnceHoweverItsTrimsOverlap) {
  Fixture f;
  f.Post(4096);
  EXPECT_EQ(f.Trim(0, 0, 1024), Decision::kNotVested);
  EXPECT_EQ(f.Trim(0, 0, 1024), Decision::kNotVested);
  EXPECT_EQ(f.account().outstanding, 1024u);
  EXPECT_EQ(f.Trim(0, 512, 1024), Decision::kNotVested);
  EXPECT_EQ(f.account().outstanding, 1536u);
}

TEST(Receiver, TakesOffOutstandingOnlyWhatWasCountedWhenUncountedRequestsArrive) {
  Fixture f;
  f.Post(4096);
  EXPECT_EQ(f.Trim(0, 0, 512), Decision::kNotVested);
  EXPECT_EQ(f.steps.End(1), StepResult::kOk);
  EXPECT_EQ(f.Trim(0, 512, 512), Decision::kNoOpenBudget);
  EXPECT_EQ(f.account().outstanding, 512u);
  f.Data(0, 512, 512);
  EXPECT_EQ(f.account().outstanding, 512u);
  f.Data(0, 0, 512);
  EXPECT_EQ(f.account().outstanding, 0u);
}

TEST(Receiver, CountsAnEligibleButUnforgivableTrimInOutstandingAndNeverForgivesIt) {
  Fixture f;
  f.Post(16384);
  f.Post(1024, true, false);
  for (uint32_t offset = 0; offset < 15360; offset += 1024) f.Data(0, offset, 1024);
  EXPECT_EQ(f.Trim(1, 0, 1024), Decision::kNotForgivable);
  EXPECT_EQ(f.account().outstanding, 1024u);
  const uint64_t received = f.account().received;
  f.Data(1, 0, 1024);
  EXPECT_EQ(f.account().outstanding, 0u);
  EXPECT_EQ(f.account().received, received);
}

TEST(Receiver, NeitherCountsNorForgivesATrimOfAReliableMessage) {
  Fixture f;
  f.Post(16384);
  f.Post(1024, false, false);
  f.Post(1024, true, true, 9);  // a step that is not open
  for (uint32_t offset = 0; offset < 15360; offset += 1024) f.Data(0, offset, 1024);
  EXPECT_EQ(f.Trim(1, 0, 1024), Decision::kNotForgivable);
  EXPECT_EQ(f.Trim(2, 0, 1024), Decision::kNotForgivable);
  EXPECT_EQ(f.account().outstanding, 0u);
  EXPECT_EQ(f.account().forgiven, 0u);
}

TEST(Receiver, ForgivesNothingAfterTheStepClosed) {
  Fixture f;
  f.Post(16384);
  for (uint32_t offset = 0; offset < 10240; offset += 1024) f.Data(0, offset, 1024);
  EXPECT_EQ(f.steps.End(1), StepResult::kOk);
  EXPECT_EQ(f.Trim(0, 10240, 1024), Decision::kNoOpenBudget);
  EXPECT_EQ(f.account().outstanding, 0u);
}

TEST(Receiver, LeavesADroppedRangeOutOfOutstandingUntilATrimReportsIt) {
  Fixture f;
  f.Post(16384);
  f.Data(0, 1024, 1024);
  EXPECT_EQ(f.account().outstanding, 0u);
  EXPECT_EQ(f.account().forgiven, 0u);
  EXPECT_EQ(f.receiver.rcv_nxt(), 0u);
}

TEST(Receiver, TakesItsCountedBytesOutOfTheStepWhenItCloses) {
  Fixture f;
  f.Post(4096);
  f.Trim(0, 0, 1024);
  f.receiver.Close();
  EXPECT_EQ(f.account().outstanding, 0u);
  EXPECT_EQ(f.account().messages, 0u);
}

// ---- Close ----

TEST(Receiver, WritesNothingAfterCloseAndAnswersEachPacketByAClosingReport) {
  Fixture f;
  f.Post(16);
  f.Post(512);
  f.Data(0, 0, 16);
  f.Reports();
  f.receiver.Close();
  std::vector<Report> reports = f.Reports();
  ASSERT_EQ(reports.size(), 1u);
  EXPECT_TRUE(reports[0].closing);
  EXPECT_EQ(reports[0].completed_messages, 1u);
  EXPECT_EQ(f.receiver.report_deadline(), kNever);
  f.Data(1, 0, 512);
  EXPECT_TRUE(f.Is(0xEE, 1, 0, 512));
  reports = f.Reports();
  ASSERT_EQ(reports.size(), 1u);
  EXPECT_TRUE(reports[0].closing);
  EXPECT_FALSE(f.receiver.HasUnfinished());
  EXPECT_FALSE(f.receiver.Post(ReceiveRequest{}));
}

TEST(Receiver, AnswersAProbeByAClosingReportOnceItIsClosed) {
  Fixture f;
  f.receiver.Close();
  ASSERT_EQ(f.Reports().size(), 1u);
  f.receiver.OnProbe();
  const std::vector<Report> reports = f.Reports();
  ASSERT_EQ(reports.size(), 1u);
  EXPECT_TRUE(reports[0].closing);
}

}  // namespace
}  // namespace forgive
