// SPDX-License-Identifier: Apache-2.0
// Tests of the sender's segments, credit, limits, completion and reports.
#include "sender_peer.h"

namespace forgive {
namespace {

using namespace testing;  // NOLINT: the fixture's names

// ---- Segments, credit, limits ----

TEST(Sender, SendsNothingBeforeAReceiveIsPosted) {
  Peer peer;
  peer.Post(100);
  EXPECT_TRUE(peer.Drain().empty());
  peer.Credit(1);
  EXPECT_EQ(peer.Drain().size(), 1u);
}

TEST(Sender, SendsNoMessageBeyondTheCredit) {
  Peer peer;
  for (int i = 0; i < 4; ++i) peer.Post(100);
  peer.Credit(2);
  const auto packets = peer.Drain();
  ASSERT_EQ(packets.size(), 2u);
  EXPECT_EQ(packets[1].message_number, 1u);
}

TEST(Sender, DescribesEachSegmentCompletelyInItsHeader) {
  Peer peer;
  peer.Post(kPayload + 7);
  peer.Post(0);
  peer.Credit(2);
  DataHeader header;
  const uint8_t* payload = nullptr;
  ASSERT_TRUE(peer.sender.NextPacket(peer.now, &header, &payload));
  EXPECT_EQ(header.connection_id, 77u);
  EXPECT_EQ(header.stream_offset, 0u);
  EXPECT_EQ(header.payload_length, kPayload);
  EXPECT_EQ(header.message_length, kPayload + 7);
  EXPECT_EQ(header.send_timestamp, WireTimestamp(peer.now));
  EXPECT_EQ(payload, peer.memory.data());
  EXPECT_FALSE(header.carries_end());
  const uint64_t number = header.packet_number;
  ASSERT_TRUE(peer.sender.NextPacket(peer.now, &header, &payload));
  EXPECT_EQ(header.packet_number, number + 1);
  EXPECT_EQ(header.stream_offset, kPayload);
  EXPECT_EQ(header.offset_in_message, kPayload);
  EXPECT_EQ(header.payload_length, 7u);
  EXPECT_EQ(payload, peer.memory.data() + kPayload);
  EXPECT_TRUE(header.carries_end());
  ASSERT_TRUE(peer.sender.NextPacket(peer.now, &header, &payload));
  EXPECT_EQ(header.message_number, 1u);
  EXPECT_EQ(header.stream_offset, kPayload + 16 + 16);
  EXPECT_EQ(header.message_length, 0u);
  EXPECT_TRUE(header.carries_end());
}

TEST(Sender, FillsThePayloadsCrcOnlyWhereConfigured) {
  Config config = TestConfig();
  config.payload_crc = true;
  Peer with(config), without;
  for (Peer* peer : {&with, &without}) {
    peer->Post(9);
    peer->Credit(1);
  }
  std::copy_n("123456789", 9, with.memory.begin());
  EXPECT_EQ(with.Drain().at(0).payload_crc32c, 0xe3069283u);  // CRC32C's check value
  EXPECT_EQ(without.Drain().at(0).payload_crc32c, 0u);
}

TEST(Sender, RefusesAPostBeyondMaxMessagesAndTakesItAfterACompletion) {
  Peer peer;
  for (int i = 0; i < 16; ++i) peer.Post(16);
  EXPECT_FALSE(peer.sender.Post({1, peer.memory.data(), 16}));
  peer.Credit(16);
  peer.Drain();
  peer.report.rcv_nxt = 32;
  peer.report.completed_messages = 1;
  peer.Deliver();
  EXPECT_TRUE(peer.sender.Post({1, peer.memory.data(), 16}));
}

TEST(Sender, KeepsBytesInFlightWithinTheWindow) {
  Config config = TestConfig();
  config.window_bytes = 5 * kPayload + 10;
  Peer peer(config);
  peer.Post(100 * kPayload);
  peer.Credit(1);
  EXPECT_EQ(peer.Drain().size(), 5u);
  EXPECT_EQ(peer.sender.bytes_in_flight(), 5 * kPayload);
  peer.report.rcv_nxt = 2 * kPayload;
  peer.Deliver();
  EXPECT_EQ(peer.Drain().size(), 2u);
}

TEST(Sender, SendsASegmentThatIsLargerThanTheWindowAlone) {
  Config config = TestConfig();
  config.window_bytes = kPayload / 2;
  Peer peer(config);
  peer.Post(2 * kPayload);
  peer.Credit(1);
  EXPECT_EQ(peer.Drain().size(), 1u);
}

TEST(Sender, StaysWithinTheScoreboardOfThePeerThoughTheWindowHasRoom) {
  Peer peer(TestConfig(), 8 * kPayload);
  peer.Post(100 * kPayload);
  peer.Credit(1);
  EXPECT_EQ(peer.Drain().size(), 8u);
  peer.AddSack(kPayload, 8 * kPayload);  // all but the first
  peer.Deliver();
  EXPECT_EQ(peer.sender.bytes_in_flight(), kPayload);
  EXPECT_TRUE(peer.Drain().empty());
  peer.report.rcv_nxt = 8 * kPayload;
  peer.Deliver();
  EXPECT_EQ(peer.Drain().size(), 8u);
}

// ---- Completion ----

TEST(Sender, CompletesMessagesInOrderWithTheirCookies) {
  Peer peer;
  peer.Post(kPayload);
  peer.Post(kPayload);
  peer.Credit(2);
  const auto packets = peer.Drain();
  peer.AddSack(packets[1].stream_offset, packets[1].stream_offset + kPayload + 16);
  peer.Deliver();
  EXPECT_TRUE(peer.SentCookies().empty());
  EXPECT_TRUE(peer.sender.HasUnfinished());
  peer.report.rcv_nxt = kPayload + 16;
  peer.Deliver();
  EXPECT_EQ(peer.SentCookies(), (std::vector<uint64_t>{1000, 1001}));
  EXPECT_FALSE(peer.sender.HasUnfinished());
}

TEST(Sender, TakesACountOfCompletedMessagesAsTheirAcknowledgement) {
  Peer peer;
  peer.Post(3 * kPayload);
  peer.Post(kPayload);
  peer.Credit(2);
  peer.Drain();
  peer.report.completed_messages = 1;
  peer.Deliver();
  EXPECT_EQ(peer.SentCookies(), (std::vector<uint64_t>{1000}));
  EXPECT_EQ(peer.sender.bytes_in_flight(), kPayload);
}

TEST(Sender, FailsWithAResetWhenThePeerClosesBeforeEverythingIsCompleted) {
  Peer peer;
  peer.Post(kPayload);
  peer.Post(kPayload);
  peer.Credit(1);
  peer.Drain();
  peer.report.completed_messages = 1;
  peer.report.closing = true;
  peer.Deliver();
  EXPECT_EQ(peer.SentCookies(), (std::vector<uint64_t>{1000}));
  EXPECT_TRUE(peer.sender.failed());
  EXPECT_EQ(peer.sender.fail_reason(), FailReason::kReset);
  EXPECT_TRUE(peer.Drain().empty());
  EXPECT_EQ(peer.sender.next_deadline(), kNever);
}

TEST(Sender, DoesNotFailWhenThePeerClosesAfterEverythingIsCompleted) {
  Peer peer;
  peer.Post(kPayload);
  peer.Credit(1);
  peer.Drain();
  peer.report.completed_messages = 1;
  peer.report.closing = true;
  peer.Deliver();
  EXPECT_FALSE(peer.sender.failed());
  EXPECT_EQ(peer.sender.fail_reason(), FailReason::kNone);
}

// ---- Reports: replays, order, nonsense ----

TEST(Sender, IgnoresAndCountsAReportThatComesTwice) {
  Peer peer;
  peer.Post(kPayload);
  peer.Post(kPayload);
  peer.Credit(1);
  Report twice = peer.report;
  twice.posted_messages = 2;
  twice.report_number = 1;  // the number of the first
  peer.sender.OnReport(peer.now, twice);
  EXPECT_EQ(peer.counters.stale_reports, 1u);
  EXPECT_EQ(peer.Drain().size(), 1u);
}

TEST(Sender, IgnoresAReportOlderThanItsWindow) {
  Peer peer;
  peer.report.report_number = 5000;
  peer.Deliver();
  peer.report.report_number = 5000 - 1024;
  peer.Deliver();
  EXPECT_EQ(peer.counters.stale_reports, 1u);
  peer.report.report_number = 5000 - 1023;
  peer.Deliver();
  EXPECT_EQ(peer.counters.stale_reports, 1u);
}

TEST(Sender, ForgetsTheReportsOfAWindowThatWasLeftOutAsAWhole) {
  Peer peer;
  peer.Deliver();                      // 1
  peer.report.report_number = 10000;
  peer.Deliver();
  for (const uint64_t number : {9217u, 9999u}) {  // at the place of 1, and beside the newest
    peer.report.report_number = number;
    peer.Deliver();
  }
  EXPECT_EQ(peer.counters.stale_reports, 0u);
  peer.report.report_number = 9217;
  peer.Deliver();
  EXPECT_EQ(peer.counters.stale_reports, 1u);
}

TEST(Sender, TakesAReportThatWasOvertakenLongAfterTheFirstThousands) {
  Peer peer;
  peer.Post(4 * kPayload);
  peer.Credit(1);
  peer.Drain();
  for (int i = 0; i < 3000; ++i) peer.Deliver();
  const uint64_t skipped = peer.report.report_number++;
  peer.Deliver();
  Report late = peer.report;
  late.report_number = skipped;
  late.rcv_nxt = kPayload;
  peer.sender.OnReport(peer.now, late);
  EXPECT_EQ(peer.counters.stale_reports, 0u);
  EXPECT_EQ(peer.sender.bytes_in_flight(), 3 * kPayload);
}

TEST(Sender, TakesAcknowledgementsAndCreditButNoFlagsFromAReportThatWasOvertaken) {
  Peer peer;
  peer.Post(4 * kPayload);
  peer.Credit(1);
  const auto packets = peer.Drain();
  peer.report.report_number = 10;
  peer.Exempt(1);
  peer.Deliver();
  ASSERT_EQ(peer.sender.mode(peer.now), Mode::kExempt);
  Report late = peer.report;
  late.report_number = 9;
  late.budget_exhausted = true;
  late.rcv_nxt = kPayload;
  late.trimmed = true;
  late.trimmed_packet_number = static_cast<uint32_t>(packets[2].packet_number);
  late.requests[late.request_count++] = {2 * kPayload, 3 * kPayload};
  peer.sender.OnReport(peer.now, late);
  EXPECT_EQ(peer.sender.mode(peer.now), Mode::kExempt);
  EXPECT_EQ(peer.sender.bytes_in_flight(), 2 * kPayload);
  EXPECT_EQ(peer.counters.lost_by_request, 1u);
}

TEST(Sender, NeverTakesCreditBack) {
  Peer peer;
  peer.Post(16);
  peer.Post(16);
  peer.Credit(2);
  peer.Credit(1);
  EXPECT_EQ(peer.Drain().size(), 2u);
}

TEST(Sender, RefusesAReportThatSettlesWhatWasNeverSent) {
  Peer peer;
  peer.Post(4 * kPayload);
  peer.Credit(1);
  DataHeader header;
  const uint8_t* payload = nullptr;
  ASSERT_TRUE(peer.sender.NextPacket(peer.now, &header, &payload));
  peer.report.rcv_nxt = 2 * kPayload;
  peer.Deliver();
  peer.report.rcv_nxt = 0;
  peer.AddSack(0, 2 * kPayload);
  peer.Deliver();
  peer.report.completed_messages = 1;
  peer.Deliver();
  peer.report.completed_messages = 0;
  peer.Trim(header, true);
  peer.report.requests[0].end = 2 * kPayload;
  peer.Deliver();
  EXPECT_EQ(peer.counters.malformed, 4u);
  EXPECT_EQ(peer.sender.bytes_in_flight(), kPayload);
  EXPECT_TRUE(peer.SentCookies().empty());
}

TEST(Sender, ExpandsReportNumbersAroundTheNewest) {
  Peer peer;
  EXPECT_EQ(peer.sender.ExpandReportNumber(3), 3u);
  peer.report.report_number = 0x1fffffff0;
  peer.Deliver();
  EXPECT_EQ(peer.sender.ExpandReportNumber(0x00000005), 0x200000005u);
  EXPECT_EQ(peer.sender.ExpandReportNumber(0xfffffff5), 0x1fffffff5u);
}

}  // namespace
}  // namespace forgive
