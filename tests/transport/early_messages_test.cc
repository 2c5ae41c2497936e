// SPDX-License-Identifier: Apache-2.0
// Messages of one packet that are sent before their receives are posted: how many, what waits, and what a loss costs.
#include <set>

#include "receiver_fixture.h"
#include "sender_peer.h"

namespace forgive::testing {
namespace {

Config EarlyConfig() {
  Config config = TestConfig();
  config.early_messages = true;
  return config;
}

// ---- The sender ----

TEST(EarlyMessages, AreSentWithoutCreditAsManyAsTheReceiverHasPlacesFor) {
  Peer peer(EarlyConfig());
  for (uint32_t i = 0; i < 2 * kEarlyMessages; ++i) peer.Post(i % 2 == 0 ? 100 : 0);
  std::vector<DataHeader> sent = peer.Drain();
  ASSERT_EQ(sent.size(), kEarlyMessages);
  for (uint32_t i = 0; i < sent.size(); ++i) EXPECT_EQ(sent[i].message_number, i);
  peer.Credit(1);
  sent = peer.Drain();
  ASSERT_EQ(sent.size(), 1u);
  EXPECT_EQ(sent[0].message_number, kEarlyMessages);
}

TEST(EarlyMessages, HaveNoPacketOfALongerMessageAmongThem) {
  Peer peer(EarlyConfig());
  peer.Post(kPayload);
  peer.Post(kPayload + 1);
  peer.Post(1);
  ASSERT_EQ(peer.Drain().size(), 1u);
  peer.Credit(2);
  EXPECT_EQ(peer.Drain().size(), 3u);
}

TEST(EarlyMessages, AreNotSentWhereThePeerKeepsNone) {
  Config config = EarlyConfig();
  config.early_messages = false;
  Peer peer(config);
  peer.Post(1);
  EXPECT_TRUE(peer.Drain().empty());
}

TEST(EarlyMessages, AreNotCalledLostWhileTheyWaitForTheirReceives) {
  Peer peer(EarlyConfig());
  peer.Post(100);
  ASSERT_EQ(peer.Drain().size(), 1u);
  int probes = 0;
  for (int i = 0; i < 100; ++i) {
    peer.Advance(Milliseconds(100));
    peer.sender.OnDeadline(peer.now);
    if (peer.sender.TakeProbeDue(peer.now)) ++probes;
  }
  EXPECT_EQ(peer.counters.timeouts, 0u);
  EXPECT_TRUE(peer.Drain().empty());
  EXPECT_GE(probes, 10) << "a lost credit must be asked for";
}

TEST(EarlyMessages, AreRepeatedAnRtoAfterTheCreditIfNothingAcknowledgesThem) {
  Peer peer(EarlyConfig());
  peer.Post(100);
  ASSERT_EQ(peer.Drain().size(), 1u);
  peer.Advance(Seconds(10));
  peer.Credit(1);
  const TimePoint due = peer.now + peer.sender.rto();
  peer.RunUntil(due - Nanoseconds{1});
  EXPECT_TRUE(peer.Drain().empty()) << "it did not wait for an RTO";
  peer.RunUntil(due);
  const std::vector<DataHeader> again = peer.Drain();
  ASSERT_EQ(again.size(), 1u);
  EXPECT_EQ(again[0].message_number, 0u);
}

TEST(EarlyMessages, KeepNoTimeoutFromAMessageWithCredit) {
  Peer peer(EarlyConfig());
  peer.Credit(1);
  peer.Post(100);
  peer.Post(200);
  ASSERT_EQ(peer.Drain().size(), 2u);
  peer.RunUntil(peer.now + peer.sender.rto());
  EXPECT_EQ(peer.counters.timeouts, 1u);
  const std::vector<DataHeader> again = peer.Drain();
  ASSERT_FALSE(again.empty());
  EXPECT_EQ(again[0].message_number, 0u);
}

TEST(EarlyMessages, AreNoPartOfAnythingThatIsLostBeforeTheirCredit) {
  Config config = EarlyConfig();
  config.path_policy = PathPolicy::kReps;
  config.paths = kEarlyMessages + 1;
  Peer peer(config);
  peer.Credit(1);
  for (uint32_t i = 0; i <= kEarlyMessages; ++i) peer.Post(100);
  ASSERT_EQ(peer.Drain().size(), kEarlyMessages + 1u);
  std::set<uint16_t> tried;
  for (int timeouts = 0; timeouts < 4; ++timeouts) {
    peer.RunUntil(peer.sender.next_deadline());
    const std::vector<DataHeader> sent = peer.Drain();
    ASSERT_EQ(sent.size(), 1u) << "after " << timeouts << " timeouts";
    EXPECT_EQ(sent[0].message_number, 0u);
    tried.insert(sent[0].path);
  }
  EXPECT_GT(tried.size(), 1u);
  EXPECT_EQ(peer.counters.paths_given_up, 0u) << "a path that carried nothing but what waits";
}

TEST(EarlyMessages, AreNotOvertakenByWhatIsSentAgain) {
  Peer peer(EarlyConfig());
  peer.Credit(1);
  peer.Post(100);
  peer.Post(200);
  const std::vector<DataHeader> sent = peer.Drain();
  ASSERT_EQ(sent.size(), 2u);
  peer.Trim(sent[0], true);
  peer.Deliver();
  peer.Advance(Milliseconds(5));
  const std::vector<DataHeader> again = peer.Drain();
  ASSERT_EQ(again.size(), 1u);
  peer.Advance(Microseconds(70));
  peer.SetNewest(again[0]);
  peer.report.rcv_nxt = again[0].stream_offset + 128;
  peer.report.completed_messages = 1;
  peer.Deliver();
  EXPECT_TRUE(peer.Drain().empty()) << "what waits for its receive arrived long ago, and is not told of yet";
  EXPECT_EQ(peer.counters.lost_by_rack, 0u);
}

TEST(EarlyMessages, TakeNoRoomOfTheWindowFromWhatWasLost) {
  Config config = EarlyConfig();
  config.window_bytes = 2 * kPayload;
  Peer peer(config);
  peer.Credit(1);
  for (int i = 0; i < 3; ++i) peer.Post(kPayload);
  const std::vector<DataHeader> sent = peer.Drain();
  ASSERT_EQ(sent.size(), 3u);
  EXPECT_EQ(peer.sender.bytes_in_flight(), kPayload);
  peer.Trim(sent[0], true);
  peer.Deliver();
  EXPECT_EQ(peer.Drain().size(), 1u);
}

TEST(EarlyMessages, AreCutWithTheOthersAndSentAgainWithTheirCreditOnly) {
  constexpr uint32_t kLarge = 4096;
  Peer peer(EarlyConfig(), 256 * kLarge, kLarge);
  peer.Credit(1);
  peer.Post(kLarge);
  peer.Post(kLarge);
  ASSERT_EQ(peer.Drain().size(), 2u);
  for (int round = 0; round < 20 && peer.counters.segment_cuts == 0; ++round) {
    peer.Deliver();  // the peer answers
    peer.RunUntil(peer.sender.next_deadline());
    if (peer.counters.segment_cuts != 0) break;
    for (const DataHeader& header : peer.Drain()) ASSERT_EQ(header.message_number, 0u);
  }
  ASSERT_EQ(peer.counters.segment_cuts, 1u);
  std::vector<DataHeader> sent = peer.Drain();
  ASSERT_GT(sent.size(), 1u);
  for (const DataHeader& header : sent) EXPECT_EQ(header.message_number, 0u);
  peer.Credit(2);
  sent = peer.Drain();
  ASSERT_GT(sent.size(), 1u);
  for (const DataHeader& header : sent) EXPECT_EQ(header.message_number, 1u);
}

TEST(EarlyMessages, StartCongestionStateAnewWhenTheirCreditSaysThatTheyBeginAStep) {
  Config config = EarlyConfig();
  config.congestion_control = CongestionControlKind::kDcqcnPaper;
  config.link_rate = BitsPerSecond{100000000000};
  Peer peer(config);
  const BitsPerSecond full = peer.sender.rate();
  peer.Credit(1);
  peer.Post(8 * kPayload);
  std::vector<DataHeader> sent = peer.Drain();
  ASSERT_FALSE(sent.empty());
  peer.SetNewest(sent[0]);
  peer.report.ce_bytes = kPayload;
  peer.Deliver();
  ASSERT_LT(peer.sender.rate().value, full.value);
  for (int i = 0; i < 100 && sent.size() < 8; ++i) {
    peer.Advance(Nanoseconds{100});
    for (const DataHeader& header : peer.Drain()) sent.push_back(header);
  }
  ASSERT_EQ(sent.size(), 8u);
  peer.Post(100);
  peer.Advance(Milliseconds(1));
  ASSERT_EQ(peer.Drain().size(), 1u);
  ASSERT_LT(peer.sender.rate().value, full.value);
  peer.report.has_step_start = true;
  peer.report.step_start_message = 1;
  peer.Credit(2);
  EXPECT_EQ(peer.sender.rate().value, full.value);
}

// ---- The receiver ----

// A receiver to which messages come before their receives.
class EarlyReceiver : public ::testing::Test, protected ReceiverFixture {
 protected:
  // The header of the next message, all of it, as `number`.
  DataHeader HeaderOf(uint32_t number, uint32_t length) {
    DataHeader header;
    header.payload_length = static_cast<uint16_t>(length);
    header.connection_id = 77;
    header.message_number = number;
    header.message_length = length;
    header.packet_number = next_packet++;
    for (uint32_t i = 0; i < number; ++i) header.stream_offset += PayloadUnits(length) * kUnitBytes + kUnitBytes;
    return header;
  }
  void Early(uint32_t number, uint32_t length, uint8_t fill = 0) {
    std::vector<uint8_t> payload(length + 1);
    for (uint32_t i = 0; i < length; ++i) payload[i] = fill != 0 ? fill : PayloadByte(number, i);
    receiver.OnData(now, HeaderOf(number, length), payload.data(), false);
  }
  bool Received(uint32_t number) {
    for (const Event& event : Events()) {
      if (event.kind == Event::Kind::kReceived && event.message == number) return true;
    }
    return false;
  }
};

TEST_F(EarlyReceiver, TakesWhatCameBeforeWithItsPostAndReportsBothAtOnce) {
  Early(0, 500);
  EXPECT_TRUE(Events().empty());
  EXPECT_TRUE(Reports().empty()) << "nothing is settled yet";
  Post(500);
  receiver.TakeEarly(now, false);
  EXPECT_TRUE(Received(0));
  for (uint32_t i = 0; i < 500; ++i) ASSERT_EQ(buffers[0][i], PayloadByte(0, i)) << i;
  const std::vector<Report> reports = Reports();
  ASSERT_EQ(reports.size(), 1u);
  EXPECT_EQ(reports[0].posted_messages, 1u);
  EXPECT_EQ(reports[0].completed_messages, 1u);
  EXPECT_FALSE(reports[0].has_newest) << "the wait for the receive would be a sample of the RTT";
}

TEST_F(EarlyReceiver, KeepsTheFirstPacketOfAMessageAndCountsWhatHasNoPlace) {
  Early(0, 64);
  Early(0, 64, 0x55);
  EXPECT_EQ(counters.out_of_window, 1u);
  Early(kEarlyMessages, 64);
  EXPECT_EQ(counters.malformed, 1u);
  Post(64);
  receiver.TakeEarly(now, false);
  for (uint32_t i = 0; i < 64; ++i) ASSERT_EQ(buffers[0][i], PayloadByte(0, i));
  Early(kEarlyMessages, 64);
  EXPECT_EQ(counters.malformed, 1u);
  EXPECT_EQ(counters.out_of_window, 1u) << "the place of the message that was taken is free";
}

TEST_F(EarlyReceiver, DropsWhatItIsToldToAndHasThePlaceAgain) {
  Early(0, 64);
  Post(64);
  receiver.TakeEarly(now, true);
  EXPECT_FALSE(Received(0));
  Early(kEarlyMessages, 64);
  EXPECT_EQ(counters.out_of_window, 0u);
  Data(0, 0, 64);
  EXPECT_TRUE(Received(0));
}

TEST_F(EarlyReceiver, HoldsNoPartOfAMessage) {
  DataHeader header = HeaderOf(0, 64);
  header.message_length = 128;
  const std::vector<uint8_t> payload(64);
  receiver.OnData(now, header, payload.data(), false);
  EXPECT_EQ(counters.out_of_window, 1u);
  Post(128);
  receiver.TakeEarly(now, false);
  EXPECT_EQ(counters.packets_received, 0u);
}

TEST_F(EarlyReceiver, AsksForACutOneWhenItsReceiveIsPosted) {
  receiver.OnTrimmedHeader(now, HeaderOf(0, 64), false);
  EXPECT_EQ(counters.trims, 0u);
  Post(64, /*eligible=*/false, /*forgivable=*/false);
  receiver.TakeEarly(now, false);
  EXPECT_EQ(counters.trims, 1u);
  EXPECT_EQ(counters.decisions[static_cast<size_t>(Decision::kNotForgivable)], 1u);
  const std::vector<Report> reports = Reports();
  ASSERT_FALSE(reports.empty());
  ASSERT_EQ(reports[0].request_count, 1u);
  EXPECT_EQ(reports[0].requests[0].begin, 0u);
  EXPECT_EQ(reports[0].requests[0].end, 64u);
}

TEST_F(EarlyReceiver, FailsWhereTheReceiveIsShorterThanWhatCame) {
  Early(0, 65);
  Post(64);
  receiver.TakeEarly(now, false);
  EXPECT_TRUE(receiver.failed());
  for (uint32_t i = 0; i < 128; ++i) ASSERT_EQ(buffers[0][i], 0xEE);
}

}  // namespace
}  // namespace forgive::testing
