// SPDX-License-Identifier: Apache-2.0
// Tests of what a connection does where the path swallows packets of a size that it took before.
#include "transport/black_hole.h"

#include "endpoint_fixture.h"

namespace forgive {
namespace {

using namespace testing;  // NOLINT: the fixture's names

using Verdict = BlackHoleDetector::Verdict;
constexpr uint32_t kRounds = BlackHoleDetector::kRounds;
constexpr Nanoseconds kRto = Milliseconds(20);
constexpr Nanoseconds kPatience = Seconds(30);
// Of datagrams without IP and UDP, that is of what Faults::largest_datagram_bytes speaks.
constexpr size_t kFits1500 = 1500 - 48;
constexpr size_t kFits1280 = 1280 - 48;

// ---- The detector ----

// A timeout after a round in which the peer was heard.
Verdict Heard(BlackHoleDetector* detector, uint32_t length, Nanoseconds waited = kRto) {
  detector->OnHeard();
  return detector->OnTimeout(length, waited, kPatience);
}

TEST(BlackHoleDetector, CutsAfterSoManyRoundsInWhichThePeerWasHeardAndNotBefore) {
  BlackHoleDetector detector(4096);
  EXPECT_EQ(Heard(&detector, 4096), Verdict::kWait) << "what was heard before the first timeout says nothing";
  for (uint32_t round = 1; round < kRounds; ++round) EXPECT_EQ(Heard(&detector, 4096), Verdict::kAsk);
  EXPECT_EQ(detector.payload(), 4096u);
  EXPECT_EQ(Heard(&detector, 4096), Verdict::kCut);
  EXPECT_EQ(detector.payload(), 1392u);
  EXPECT_FALSE(detector.suspects()) << "the new size is innocent";
}

TEST(BlackHoleDetector, AsksThePeerFromTheSecondTimeoutOn) {
  BlackHoleDetector detector(4096);
  EXPECT_EQ(detector.OnTimeout(4096, kRto, kPatience), Verdict::kWait);
  EXPECT_EQ(detector.OnTimeout(4096, kRto, kPatience), Verdict::kAsk);
}

TEST(BlackHoleDetector, NeverCutsWhileThePeerIsSilent) {
  BlackHoleDetector detector(4096);
  for (int round = 0; round < 1000; ++round) EXPECT_NE(detector.OnTimeout(4096, kRto, kPatience), Verdict::kCut);
}

TEST(BlackHoleDetector, GoesDownTheLadderAndThenGivesUpAfterThePatience) {
  BlackHoleDetector detector(4096);
  for (const uint32_t size : {1392u, 1168u}) {
    const uint32_t before = detector.payload();
    for (uint32_t round = 0; round < kRounds; ++round)
      EXPECT_NE(Heard(&detector, before, Seconds(60)), Verdict::kCut);
    EXPECT_EQ(Heard(&detector, before, Seconds(60)), Verdict::kCut) << "patience is for the last size only";
    EXPECT_EQ(detector.payload(), size);
  }
  Heard(&detector, 1168, Seconds(1));
  for (int round = 1; round < 30; ++round) EXPECT_EQ(Heard(&detector, 1168, Seconds(1)), Verdict::kAsk) << round;
  EXPECT_EQ(Heard(&detector, 1168, Seconds(1)), Verdict::kGiveUp);
}

TEST(BlackHoleDetector, DoesNotGiveUpByTimeAloneIfThePeerWasHardlyHeard) {
  BlackHoleDetector detector(1168);
  Heard(&detector, 1168);
  for (uint32_t round = 1; round < kRounds; ++round)
    EXPECT_NE(Heard(&detector, 1168, Seconds(100)), Verdict::kGiveUp);
  for (int round = 0; round < 100; ++round) {
    EXPECT_NE(detector.OnTimeout(1168, Seconds(100), kPatience), Verdict::kGiveUp) << "a silent round is none";
  }
  EXPECT_EQ(Heard(&detector, 1168, Seconds(100)), Verdict::kGiveUp);
}

TEST(BlackHoleDetector, LeavesOutAStepThatGainsLessThanATunnelsHeader) {
  BlackHoleDetector detector(1408);  // Ethernet with IPv4
  for (uint32_t round = 0; round <= kRounds; ++round) Heard(&detector, 1408);
  EXPECT_EQ(detector.payload(), 1168u);
}

TEST(BlackHoleDetector, CutsBelowTheShortestThatVanishedAndNotToItsLength) {
  for (const uint32_t length :
       {1393u, 1300u, 1169u}) {  // the last segment of a message, and of others nothing is left
    BlackHoleDetector detector(4096);
    for (uint32_t round = 0; round <= kRounds; ++round) Heard(&detector, length);
    EXPECT_EQ(detector.payload(), 1168u) << length;
  }
}

TEST(BlackHoleDetector, ASmallPacketThatIsLostAgainAndAgainIsNoMatterOfSize) {
  BlackHoleDetector detector(4096);
  for (int round = 0; round < 1000; ++round) EXPECT_NE(Heard(&detector, 1168), Verdict::kCut);
  EXPECT_EQ(detector.payload(), 4096u);
}

TEST(BlackHoleDetector, CutsNothingWhereNoPathSwallowsPacketsForTheirSize) {
  BlackHoleDetector detector(4096, false);
  for (uint32_t i = 0; i < 3 * kRounds; ++i) EXPECT_NE(Heard(&detector, 4096), Verdict::kCut);
  EXPECT_EQ(detector.payload(), 4096u);
}

TEST(BlackHoleDetector, BelievesThatASizePassesIfOneOfThatSizeWasAcknowledged) {
  BlackHoleDetector detector(4096);
  for (int again = 0; again < 100; ++again) {
    for (uint32_t round = 0; round < kRounds; ++round) EXPECT_NE(Heard(&detector, 4096), Verdict::kCut);
    detector.OnAcknowledged(4096);
    EXPECT_FALSE(detector.suspects());
  }
}

TEST(BlackHoleDetector, AShorterSegmentThatIsAcknowledgedSaysNothingOfALongerOne) {
  BlackHoleDetector detector(4096);
  uint32_t rounds = 0;
  for (; rounds < 100 && Heard(&detector, 4096) != Verdict::kCut; ++rounds) detector.OnAcknowledged(4080);
  EXPECT_EQ(rounds, kRounds);
}

TEST(BlackHoleDetector, AnyProgressEndsWhatItsPatienceCounts) {
  BlackHoleDetector detector(1168);
  for (int round = 0; round < 1000; ++round) {
    EXPECT_NE(Heard(&detector, 1168, Seconds(1)), Verdict::kGiveUp);
    if (round % 20 == 19) detector.OnAcknowledged(16);
  }
}

// ---- Connections ----

Config LongLived(Config config) {
  config.peer_timeout = Seconds(30);
  return config;
}

class BlackHole : public EndpointTest {
 protected:
  explicit BlackHole(const Config& config = LongLived(TestConfig())) : EndpointTest(config) {}

  const Counters& sender() { return world_.endpoint(0).counters(); }
  // The largest data packet that host 0 sent since the index.
  size_t LargestSince(size_t index) {
    size_t largest = 0;
    for (; index < sent_[0].size(); ++index) {
      if (sent_[0][index][1] == static_cast<uint8_t>(PacketType::kData))
        largest = std::max(largest, sent_[0][index].size());
    }
    return largest;
  }
  // A transfer of so many bytes, in the middle of which the path begins to lose larger datagrams for good.
  void BeginAndShrink(Link* link, size_t bytes, size_t largest) {
    ASSERT_TRUE(ConnectPair(&world_, 0, 1, link));
    message_ = Bytes(bytes);
    buffer_.assign(bytes, 0);
    ASSERT_TRUE(Receive(*link, 1, &buffer_));
    ASSERT_TRUE(Send(*link, 0, message_));
    RunFor(Milliseconds(3));
    ASSERT_EQ(logs_[0].Count(Event::Kind::kSent), 0) << "the transfer is over already";
    ASSERT_GT(world_.endpoint(1).counters().received_bytes, 0u) << "the transfer has not begun";
    world_.faults.largest_datagram_bytes = largest;
  }
  void ExpectWhole() {
    EXPECT_EQ(logs_[0].Count(Event::Kind::kSent), 1);
    EXPECT_EQ(logs_[1].Count(Event::Kind::kReceived), 1);
    EXPECT_EQ(logs_[0].Count(Event::Kind::kFailed) + logs_[1].Count(Event::Kind::kFailed), 0);
    EXPECT_TRUE(buffer_ == message_) << "the bytes differ";
  }

  std::vector<uint8_t> message_, buffer_;
};

TEST_F(BlackHole, ATransferGoesOnWithSegmentsThatFit1500BytesWherePathsPassNoMore) {
  Link link;
  BeginAndShrink(&link, 1000000, kFits1500);
  RunFor(Seconds(10));
  ExpectWhole();
  EXPECT_EQ(sender().segment_cuts, 1u);
  ASSERT_NE(logs_[0].Find(Event::Kind::kSegmentsCut), nullptr);
  EXPECT_EQ(logs_[0].Find(Event::Kind::kSegmentsCut)->size, 1392u);
  EXPECT_EQ(logs_[0].Find(Event::Kind::kSegmentsCut)->connection, link.sender);
}

TEST_F(BlackHole, ATransferGoesOnWithSegmentsThatFit1280BytesWherePathsPassNoMore) {
  Link link;
  BeginAndShrink(&link, 1000000, kFits1280);
  RunFor(Seconds(20));
  ExpectWhole();
  EXPECT_EQ(sender().segment_cuts, 2u);
}

TEST_F(BlackHole, SegmentsStaySmallAlsoWhenThePathIsWideAgain) {
  Link link;
  BeginAndShrink(&link, 1000000, kFits1500);
  RunFor(Seconds(10));
  ExpectWhole();
  world_.faults.largest_datagram_bytes = SIZE_MAX;
  const size_t sent = sent_[0].size();
  logs_.clear();
  ASSERT_TRUE(Receive(link, 1, &buffer_));
  ASSERT_TRUE(Send(link, 0, message_));
  RunFor(Seconds(10));
  ExpectWhole();
  EXPECT_EQ(LargestSince(sent), 1392 + kDataHeaderBytes);
  EXPECT_EQ(sender().retransmitted_bytes % 16, 0u);
}

TEST_F(BlackHole, APathThatPassesNotEvenTheSmallestFailsAtBothEndsWithAReasonOfItsOwn) {
  Link link;
  BeginAndShrink(&link, 1000000, 600);
  RunFor(Seconds(20));
  EXPECT_EQ(logs_[0].Count(Event::Kind::kFailed), 0) << "it has been patient for less than the timeout";
  RunFor(Seconds(60));
  for (const int host : {0, 1}) {
    ASSERT_EQ(logs_[host].Count(Event::Kind::kFailed), 1) << "host " << host;
    EXPECT_EQ(logs_[host].Find(Event::Kind::kFailed)->reason, FailReason::kDataSwallowed);
  }
  EXPECT_EQ(sender().segment_cuts, 2u);
}

TEST_F(BlackHole, SmallMessagesThatVanishCutNothingAndFailInTheEnd) {
  Link link;
  ASSERT_TRUE(ConnectPair(&world_, 0, 1, &link));
  message_ = Bytes(1000);
  buffer_.assign(1000, 0);
  ASSERT_TRUE(Receive(link, 1, &buffer_));
  RunFor(Milliseconds(5));
  world_.faults.largest_datagram_bytes = 600;
  ASSERT_TRUE(Send(link, 0, message_));
  RunFor(Seconds(60));
  EXPECT_EQ(sender().segment_cuts, 0u);
  ASSERT_EQ(logs_[0].Count(Event::Kind::kFailed), 1);
  EXPECT_EQ(logs_[0].Find(Event::Kind::kFailed)->reason, FailReason::kDataSwallowed);
}

TEST_F(BlackHole, ThreeTenthsOfAllPacketsLostAtRandomCutNothing) {
  Link link;
  ASSERT_TRUE(ConnectPair(&world_, 0, 1, &link));
  world_.faults.drop = Fraction{300000};
  // Messages of one full segment are the worst: nothing else of its size can make progress in a round.
  message_ = Bytes(4096);
  buffer_.resize(message_.size());
  for (int n = 0; n < 3000; ++n) {
    ASSERT_TRUE(Receive(link, 1, &buffer_));
    ASSERT_TRUE(Send(link, 0, message_));
    while (logs_[0].Count(Event::Kind::kSent) == 0 || logs_[1].Count(Event::Kind::kReceived) == 0) {
      ASSERT_TRUE(world_.Step(world_.now() + Seconds(60)));
      ASSERT_EQ(logs_[0].Count(Event::Kind::kFailed), 0);
    }
    logs_.clear();
    sent_.clear();
  }
  message_ = Bytes(2000000);
  buffer_.assign(message_.size(), 0);
  ASSERT_TRUE(Receive(link, 1, &buffer_));
  ASSERT_TRUE(Send(link, 0, message_));
  RunFor(Seconds(200));
  ExpectWhole();
  EXPECT_GT(sender().timeouts, 1000u) << "the losses were too few to say anything";
  EXPECT_EQ(sender().segment_cuts, 0u);
}

TEST_F(BlackHole, AReceiverThatIsStoppedCutsNothing) {
  Link link;
  ASSERT_TRUE(ConnectPair(&world_, 0, 1, &link));
  message_ = Bytes(1000000);
  buffer_.assign(message_.size(), 0);
  ASSERT_TRUE(Receive(link, 1, &buffer_));
  ASSERT_TRUE(Send(link, 0, message_));
  RunFor(Milliseconds(3));
  world_.host(1).stalled_until = world_.now() + Seconds(25);
  RunFor(Seconds(40));
  ExpectWhole();
  EXPECT_GT(sender().timeouts, kRounds + 1) << "it did not stop for long enough";
  EXPECT_EQ(sender().segment_cuts, 0u);
}

TEST_F(BlackHole, AReceiverWithoutAPostedBufferCutsNothingAndIsWaitedFor) {
  Link link;
  ASSERT_TRUE(ConnectPair(&world_, 0, 1, &link));
  message_ = Bytes(100000);
  buffer_.assign(message_.size(), 0);
  ASSERT_TRUE(Send(link, 0, message_));
  RunFor(Seconds(300));
  EXPECT_GT(sender().reports_received, kRounds) << "the peer was not heard: this says nothing";
  ASSERT_TRUE(Receive(link, 1, &buffer_));
  RunFor(Seconds(10));
  ExpectWhole();
  EXPECT_EQ(sender().segment_cuts, 0u);
}

TEST_F(BlackHole, ATransferIsWholeWhereThePathShrinksAndLosesAndCutsAndRepeats) {
  Link link;
  BeginAndShrink(&link, 1000000, kFits1280);
  world_.faults.drop = Fraction{100000};
  world_.faults.trim = Fraction{50000};
  world_.faults.duplicate = Fraction{100000};
  world_.faults.reorder = Fraction{200000};
  RunFor(Seconds(120));
  ExpectWhole();
  EXPECT_EQ(sender().segment_cuts, 2u);
}

// Of four paths three swallow all data.
class SprayedBlackHole : public BlackHole {
 protected:
  static Config Spraying() {
    Config config = LongLived(TestConfig());
    config.path_policy = PathPolicy::kOblivious;
    config.paths = 4;
    return config;
  }
  SprayedBlackHole() : BlackHole(Spraying()) {
    world_.carry = [this](int from, const Transmit& transmit) {
      const bool data = transmit.packet_class == PacketClass::kData;
      if (data && swallows_ && transmit.path != 2) return;
      if (data && transmit.header_length + transmit.payload_length > largest_) return;
      Flight* flight = world_.NewFlight(from, transmit.destination);
      flight->bytes = BytesOf(transmit);
      world_.Launch(world_.now() + Microseconds(50));
    };
  }
  bool swallows_ = false;
  size_t largest_ = SIZE_MAX;
};

TEST_F(SprayedBlackHole, PathsThatSwallowEverythingBesideOneThatWorksCutNothing) {
  Link link;
  BeginAndShrink(&link, 1000000, SIZE_MAX);
  swallows_ = true;
  RunFor(Seconds(200));
  ExpectWhole();
  EXPECT_GT(sender().timeouts, kRounds);
  EXPECT_EQ(sender().segment_cuts, 0u);
}

TEST_F(SprayedBlackHole, PathsThatAllShrinkAreFound) {
  Link link;
  BeginAndShrink(&link, 1000000, SIZE_MAX);
  largest_ = kFits1500;
  RunFor(Seconds(20));
  ExpectWhole();
  EXPECT_EQ(sender().segment_cuts, 1u);
}

}  // namespace
}  // namespace forgive
