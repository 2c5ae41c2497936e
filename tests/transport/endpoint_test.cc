// SPDX-License-Identifier: Apache-2.0
// The endpoint's promises: handshake, stray packets, limits, liveness and ends.
#include "transport/endpoint.h"

#include <gtest/gtest.h>

#include <vector>

#include "endpoint_fixture.h"
#include "transport/wire_layout.h"

namespace forgive::testing {
namespace {

TEST_F(EndpointTest, CarriesAMessageToThePostedBuffer) {
  Link link;
  ASSERT_TRUE(ConnectPair(&world_, 0, 1, &link));
  const std::vector<uint8_t> message = Bytes(100001);
  std::vector<uint8_t> buffer(message.size());
  ASSERT_TRUE(Receive(link, 1, &buffer));
  ASSERT_TRUE(Send(link, 0, message));
  RunFor(Milliseconds(500));
  EXPECT_EQ(buffer, message);
  EXPECT_EQ(logs_[0].Count(Event::Kind::kSent), 1);
  ASSERT_EQ(logs_[1].Count(Event::Kind::kReceived), 1);
  EXPECT_EQ(logs_[1].Find(Event::Kind::kReceived)->size, message.size());
}

class SlowToPost : public EndpointTest {
 protected:
  void ExpectToWaitForAReceive(size_t bytes) {
    Link link;
    ASSERT_TRUE(ConnectPair(&world_, 0, 1, &link));
    const std::vector<uint8_t> message = Bytes(bytes);
    ASSERT_TRUE(Send(link, 0, message));
    RunFor(Seconds(10));
    EXPECT_EQ(world_.endpoint(0).counters().packets_sent, 0u);
    EXPECT_EQ(logs_[0].Count(Event::Kind::kFailed), 0) << "a peer slow to post is alive";
    std::vector<uint8_t> buffer(bytes);
    ASSERT_TRUE(Receive(link, 1, &buffer));
    RunFor(Seconds(1));
    EXPECT_EQ(buffer, message);
  }
};

TEST_F(SlowToPost, GetsNoPayloadOfALongMessageBeforeItsReceiveIsPosted) { ExpectToWaitForAReceive(5000); }

TEST_F(SlowToPost, GetsNoPayloadOfAShortMessageWhereItKeepsNone) {
  Config config = TestConfig();
  config.early_messages = false;
  world_.Boot(1, config);
  ExpectToWaitForAReceive(1000);
}

TEST_F(EndpointTest, AShortMessageThatCameFirstIsReceivedWhenItsReceiveIsPosted) {
  Link link;
  ASSERT_TRUE(ConnectPair(&world_, 0, 1, &link));
  const std::vector<uint8_t> message = Bytes(1000);
  ASSERT_TRUE(Send(link, 0, message));
  RunFor(Seconds(1));
  EXPECT_EQ(world_.endpoint(0).counters().packets_sent, 1u);
  EXPECT_EQ(world_.endpoint(0).counters().timeouts, 0u);
  std::vector<uint8_t> buffer(message.size());
  ASSERT_TRUE(Receive(link, 1, &buffer));
  RunFor(world_.faults.delay / 2);
  EXPECT_EQ(logs_[1].Count(Event::Kind::kReceived), 1) << "it waited for something of the peer's";
  EXPECT_EQ(buffer, message);
  RunFor(Milliseconds(1));
  EXPECT_EQ(logs_[0].Count(Event::Kind::kSent), 1);
  EXPECT_EQ(world_.endpoint(0).counters().packets_sent, 1u);
}

TEST_F(EndpointTest, AShortMessageThatWasLostBeforeItsReceiveWasPostedIsSentAgain) {
  for (const bool cut : {false, true}) {
    Link link;
    ASSERT_TRUE(ConnectPair(&world_, 0, 1, &link));
    const std::vector<uint8_t> message = Bytes(1000);
    (cut ? world_.faults.trim : world_.faults.drop) = Fraction{Fraction::kOne};
    ASSERT_TRUE(Send(link, 0, message));
    RunFor(Milliseconds(1));
    world_.faults = Faults{};
    std::vector<uint8_t> buffer(message.size());
    ASSERT_TRUE(Receive(link, 1, &buffer));
    RunFor(Seconds(1));
    EXPECT_EQ(buffer, message) << cut;
  }
  EXPECT_EQ(world_.endpoint(1).counters().trims, 1u);
}

TEST(Endpoint, HasRoomForTheEventsOfAllMessagesThatCameBeforeTheirReceives) {
  constexpr uint32_t kLinks = 300;
  Config config = TestConfig();
  config.max_connections = kLinks;
  config.event_capacity = 2 * EventQueue::kReserve;
  static_assert(kLinks * kEarlyMessages > 2 * EventQueue::kReserve);
  World world(2, config, 42);
  uint8_t byte = 7;
  std::vector<Link> links(kLinks);
  for (Link& link : links) {
    ASSERT_TRUE(ConnectPair(&world, 0, 1, &link));
    for (uint32_t i = 0; i < kEarlyMessages; ++i) {
      ASSERT_EQ(world.endpoint(0).Post(world.LocalNow(0), link.sender, SendRequest{1, &byte, 1}),
                PostResult::kAccepted);
    }
  }
  while (world.Step(world.now() + Milliseconds(5))) continue;
  uint32_t received = 0;
  world.on_event = [&](int host, const Event& event) {
    received += host == 1 && event.kind == Event::Kind::kReceived ? 1 : 0;
  };
  // Nobody takes an event in between.
  std::vector<uint8_t> buffer(kLinks * kEarlyMessages);
  for (uint32_t i = 0; i < buffer.size(); ++i) {
    ReceiveRequest request;
    request.buffer = &buffer[i];
    request.capacity = 1;
    ASSERT_EQ(world.endpoint(1).Post(world.LocalNow(1), links[i / kEarlyMessages].receiver, request),
              PostResult::kAccepted);
  }
  const TimePoint end = world.now() + Seconds(1);
  while (received < buffer.size() && world.Step(end)) continue;
  EXPECT_EQ(received, buffer.size()) << "what had no room was sent again";
}

TEST_F(EndpointTest, ACreditThatWasLostIsLearnedByAProbe) {
  Link link;
  ASSERT_TRUE(ConnectPair(&world_, 0, 1, &link));
  const std::vector<uint8_t> message = Bytes(5000);
  std::vector<uint8_t> buffer(5000);
  ASSERT_TRUE(Send(link, 0, message));
  world_.faults.drop = Fraction{Fraction::kOne};
  ASSERT_TRUE(Receive(link, 1, &buffer));
  RunFor(Milliseconds(1));
  world_.faults.drop = Fraction{0};
  RunFor(Seconds(3));
  EXPECT_EQ(buffer, message);
}

TEST_F(EndpointTest, AZeroLengthMessageIsReceivedAndAcknowledged) {
  Link link;
  ASSERT_TRUE(ConnectPair(&world_, 0, 1, &link));
  std::vector<uint8_t> buffer(64, 0xaa);
  ASSERT_TRUE(Receive(link, 1, &buffer));
  ASSERT_TRUE(Send(link, 0, {}));
  RunFor(Milliseconds(500));
  EXPECT_EQ(logs_[0].Count(Event::Kind::kSent), 1);
  ASSERT_EQ(logs_[1].Count(Event::Kind::kReceived), 1);
  EXPECT_EQ(logs_[1].Find(Event::Kind::kReceived)->size, 0u);
  EXPECT_EQ(buffer, std::vector<uint8_t>(64, 0xaa));
}

TEST_F(EndpointTest, ASendLongerThanItsReceiveFailsBothSides) {
  Link link;
  ASSERT_TRUE(ConnectPair(&world_, 0, 1, &link));
  std::vector<uint8_t> buffer(100, 0xaa);
  const std::vector<uint8_t> message = Bytes(101);
  ASSERT_TRUE(Receive(link, 1, &buffer));
  ASSERT_TRUE(Send(link, 0, message));
  RunFor(Seconds(1));
  for (int host : {0, 1}) {
    ASSERT_EQ(logs_[host].Count(Event::Kind::kFailed), 1) << "host " << host;
    EXPECT_EQ(logs_[host].Find(Event::Kind::kFailed)->reason, FailReason::kTooLong);
  }
  EXPECT_EQ(buffer, std::vector<uint8_t>(100, 0xaa));
}

TEST_F(EndpointTest, GarbageAndForgeriesAreCountedAndDisturbNothing) {
  Link link;
  ASSERT_TRUE(ConnectPair(&world_, 0, 1, &link));
  const std::vector<uint8_t> message = Bytes(300000);
  std::vector<uint8_t> buffer(message.size());
  ASSERT_TRUE(Receive(link, 1, &buffer));
  ASSERT_TRUE(Send(link, 0, message));
  uint64_t injected = 0;
  for (int round = 0; round < 3000; ++round) {
    world_.Step(world_.now() + Microseconds(50));
    const int host = static_cast<int>(world_.draw().Below(2));
    std::vector<uint8_t> packet;
    const auto& captured = sent_[1 - host];
    if (!captured.empty() && world_.draw().Below(2) != 0) {
      // Captured from the wire, then changed or cut: a forgery.
      packet = captured[world_.draw().Below(captured.size())];
      packet[world_.draw().Below(std::min<size_t>(packet.size(), 48))] ^= 0x40;
      packet.resize(1 + world_.draw().Below(packet.size()));
    } else {
      packet.resize(world_.draw().Below(200));
      for (uint8_t& byte : packet) byte = static_cast<uint8_t>(world_.draw().Next());
      if (packet.size() > 1) packet[0] = 1, packet[1] = static_cast<uint8_t>(world_.draw().Below(9));
    }
    world_.Inject(host, packet);
    ++injected;
  }
  RunFor(Seconds(1));
  EXPECT_EQ(buffer, message);
  EXPECT_EQ(logs_[0].Count(Event::Kind::kFailed) + logs_[1].Count(Event::Kind::kFailed), 0);
  uint64_t refused = 0;
  for (int host : {0, 1}) {
    const Counters& c = world_.endpoint(host).counters();
    refused += c.bad_tag + c.malformed + c.unknown_connection + c.replayed + c.foreign_version + c.stale_reports;
  }
  EXPECT_GE(refused, injected);
}

TEST_F(EndpointTest, AReplayOfEveryPacketChangesNothing) {
  Link link;
  ASSERT_TRUE(ConnectPair(&world_, 0, 1, &link));
  const std::vector<uint8_t> message = Bytes(200000);
  std::vector<uint8_t> buffer(message.size());
  ASSERT_TRUE(Receive(link, 1, &buffer));
  ASSERT_TRUE(Send(link, 0, message));
  RunFor(Milliseconds(500));
  ASSERT_EQ(buffer, message);
  std::fill(buffer.begin(), buffer.end(), uint8_t{0xaa});
  const auto from_sender = sent_[0];
  const auto from_receiver = sent_[1];
  const uint64_t received = world_.endpoint(1).counters().received_bytes;
  for (const auto& packet : from_sender) world_.Inject(1, packet);
  for (const auto& packet : from_receiver) world_.Inject(0, packet);
  RunFor(Milliseconds(500));
  EXPECT_EQ(buffer, std::vector<uint8_t>(message.size(), 0xaa)) << "a replay was written";
  EXPECT_EQ(world_.endpoint(1).counters().received_bytes, received);
  EXPECT_EQ(logs_[1].Count(Event::Kind::kReceived), 1);
  EXPECT_EQ(logs_[0].Count(Event::Kind::kSent), 1);
}

TEST_F(EndpointTest, APeerThatDiesFailsItsConnectionsWithinTheTimeout) {
  Link to_dead, from_dead, alive;
  ASSERT_TRUE(ConnectPair(&world_, 0, 1, &to_dead));
  ASSERT_TRUE(ConnectPair(&world_, 1, 2, &from_dead));
  ASSERT_TRUE(ConnectPair(&world_, 0, 2, &alive));
  const std::vector<uint8_t> message = Bytes(500000);
  std::vector<uint8_t> buffer1(message.size()), buffer2(message.size()), buffer3(message.size());
  ASSERT_TRUE(Receive(to_dead, 1, &buffer1));
  ASSERT_TRUE(Receive(from_dead, 2, &buffer2));
  ASSERT_TRUE(Send(to_dead, 0, message));
  ASSERT_TRUE(Send(from_dead, 1, message));
  RunFor(Milliseconds(3));
  world_.host(1).dead = true;
  const TimePoint death = world_.now();
  RunFor(Seconds(5));
  EXPECT_LE(world_.now() - death, Seconds(6));
  for (int host : {0, 2}) {
    ASSERT_EQ(logs_[host].Count(Event::Kind::kFailed), 1) << "host " << host;
    EXPECT_EQ(logs_[host].Find(Event::Kind::kFailed)->reason, FailReason::kPeerSilent);
  }
  ASSERT_TRUE(Receive(alive, 2, &buffer3));
  ASSERT_TRUE(Send(alive, 0, message));
  RunFor(Seconds(1));
  EXPECT_EQ(buffer3, message) << "the survivors' connection still works";
}

TEST_F(EndpointTest, AReplayedReportIsNoSignOfLife) {
  Link link;
  ASSERT_TRUE(ConnectPair(&world_, 0, 1, &link));
  const std::vector<uint8_t> message = Bytes(500000);
  std::vector<uint8_t> buffer(message.size());
  ASSERT_TRUE(Receive(link, 1, &buffer));
  ASSERT_TRUE(Send(link, 0, message));
  RunFor(Milliseconds(3));
  std::vector<uint8_t> report;
  for (const auto& packet : sent_[1]) {
    if (packet[1] == FORGIVE_TYPE_REPORT) report = packet;
  }
  ASSERT_FALSE(report.empty());
  world_.host(1).dead = true;
  for (int i = 0; i < 60 && logs_[0].Count(Event::Kind::kFailed) == 0; ++i) {
    world_.Inject(0, report);
    RunFor(Milliseconds(100));
  }
  EXPECT_EQ(logs_[0].Count(Event::Kind::kFailed), 1) << "a dead peer lived on by replays";
}

TEST_F(EndpointTest, SilenceBeforeAPostDoesNotCountAgainstThePeer) {
  Link link;
  ASSERT_TRUE(ConnectPair(&world_, 0, 1, &link));
  const std::vector<uint8_t> message = Bytes(1000);
  std::vector<uint8_t> buffer(message.size());
  ASSERT_TRUE(Receive(link, 1, &buffer));
  ASSERT_TRUE(Send(link, 0, message));
  RunFor(Seconds(60));
  ASSERT_EQ(logs_[0].Count(Event::Kind::kSent), 1);
  // The timeout is 4 s: from here on the peer has all of it, though it was silent for a minute.
  world_.faults.drop = Fraction{Fraction::kOne};
  ASSERT_TRUE(Send(link, 0, message));
  RunFor(Milliseconds(3800));
  EXPECT_EQ(logs_[0].Count(Event::Kind::kFailed), 0);
  RunFor(Seconds(2));
  EXPECT_EQ(logs_[0].Count(Event::Kind::kFailed), 1);
}

TEST_F(EndpointTest, AStallLongerThanTheTimeoutBlamesNobody) {
  Link link;
  ASSERT_TRUE(ConnectPair(&world_, 0, 1, &link));
  const std::vector<uint8_t> message = Bytes(500000);
  std::vector<uint8_t> buffer(message.size());
  ASSERT_TRUE(Receive(link, 1, &buffer));
  ASSERT_TRUE(Send(link, 0, message));
  RunFor(Milliseconds(3));
  world_.Stall(Seconds(30));
  RunFor(Seconds(3));
  EXPECT_EQ(logs_[0].Count(Event::Kind::kFailed) + logs_[1].Count(Event::Kind::kFailed), 0);
  EXPECT_EQ(buffer, message);
}

TEST_F(EndpointTest, ClosingAReceiverTellsTheSenderAndWritesNothingAfterwards) {
  Link link;
  ASSERT_TRUE(ConnectPair(&world_, 0, 1, &link));
  const std::vector<uint8_t> message = Bytes(500000);
  std::vector<uint8_t> buffer(message.size(), 0);
  ASSERT_TRUE(Receive(link, 1, &buffer));
  ASSERT_TRUE(Send(link, 0, message));
  RunFor(Milliseconds(3));
  world_.endpoint(1).Post(world_.LocalNow(1), CloseRequest{link.receiver});
  const std::vector<uint8_t> at_close = buffer;
  RunFor(Seconds(1));
  EXPECT_EQ(buffer, at_close);
  EXPECT_EQ(logs_[1].Count(Event::Kind::kReceived), 0);
  ASSERT_EQ(logs_[0].Count(Event::Kind::kFailed), 1);
  EXPECT_EQ(logs_[0].Find(Event::Kind::kFailed)->reason, FailReason::kReset);
}

TEST_F(EndpointTest, ClosingAReceiverWhoseLastReportWasLostStillCompletesTheSend) {
  Link link;
  ASSERT_TRUE(ConnectPair(&world_, 0, 1, &link));
  const std::vector<uint8_t> message = Bytes(3000);
  std::vector<uint8_t> buffer(message.size());
  ASSERT_TRUE(Receive(link, 1, &buffer));
  ASSERT_TRUE(Send(link, 0, message));
  while (logs_[1].Count(Event::Kind::kReceived) == 0) ASSERT_TRUE(world_.Step(world_.now() + Seconds(1)));
  world_.faults.drop = Fraction{Fraction::kOne};
  world_.Pump();
  world_.endpoint(1).Post(world_.LocalNow(1), CloseRequest{link.receiver});
  world_.Pump();
  world_.faults.drop = Fraction{0};
  RunFor(Seconds(2));
  EXPECT_EQ(logs_[0].Count(Event::Kind::kSent), 1);
  EXPECT_EQ(logs_[0].Count(Event::Kind::kFailed), 0);
}

TEST_F(EndpointTest, ASendPostedAfterThePeerHasClosedFailsAtOnce) {
  Link link;
  ASSERT_TRUE(ConnectPair(&world_, 0, 1, &link));
  world_.endpoint(1).Post(world_.LocalNow(1), CloseRequest{link.receiver});
  RunFor(Milliseconds(10));
  ASSERT_EQ(logs_[0].Count(Event::Kind::kFailed), 0) << "nothing was posted: nothing failed";
  const std::vector<uint8_t> message = Bytes(10);
  ASSERT_TRUE(Send(link, 0, message));
  RunFor(Milliseconds(1));
  ASSERT_EQ(logs_[0].Count(Event::Kind::kFailed), 1) << "it waits for a peer that is gone";
  EXPECT_EQ(logs_[0].Find(Event::Kind::kFailed)->reason, FailReason::kReset);
}

TEST_F(EndpointTest, ClosingASenderFailsTheReceiverThatStillWaits) {
  Link link;
  ASSERT_TRUE(ConnectPair(&world_, 0, 1, &link));
  std::vector<uint8_t> buffer(1000);
  ASSERT_TRUE(Receive(link, 1, &buffer));
  RunFor(Milliseconds(10));
  world_.endpoint(0).Post(world_.LocalNow(0), CloseRequest{link.sender});
  RunFor(Seconds(1));
  ASSERT_EQ(logs_[1].Count(Event::Kind::kFailed), 1);
  EXPECT_EQ(logs_[1].Find(Event::Kind::kFailed)->reason, FailReason::kReset);
}

TEST_F(EndpointTest, AConnectionIdIsNotReusedAfterItsSlotIsFreed) {
  for (int round = 0; round < 200; ++round) {
    Link link;
    ASSERT_TRUE(ConnectPair(&world_, 0, 1, &link))
        << "round " << round << ": slots of closed connections must come back";
    world_.endpoint(0).Post(world_.LocalNow(0), CloseRequest{link.sender});
    world_.endpoint(1).Post(world_.LocalNow(1), CloseRequest{link.receiver});
    const std::vector<uint8_t> message = Bytes(10);
    EXPECT_FALSE(Send(link, 0, message));
    RunFor(Seconds(6));
    EXPECT_FALSE(Send(link, 0, message)) << "a stale handle found a new connection";
  }
}

TEST_F(EndpointTest, AnIdleEndpointHasNoDeadline) {
  Link link;
  ASSERT_TRUE(ConnectPair(&world_, 0, 1, &link));
  const std::vector<uint8_t> message = Bytes(100000);
  std::vector<uint8_t> buffer(message.size());
  ASSERT_TRUE(Receive(link, 1, &buffer));
  ASSERT_TRUE(Send(link, 0, message));
  RunFor(Seconds(5));
  ASSERT_EQ(buffer, message);
  EXPECT_EQ(world_.endpoint(0).next_deadline(), kNever);
  EXPECT_EQ(world_.endpoint(1).next_deadline(), kNever);
}

TEST(Endpoint, WithoutTrimmingACutPacketIsADropAndNothingIsForgiven) {
  Config config = TestConfig();
  config.fabric_trims = false;
  World world(2, config, 7);
  int received = 0;
  world.on_event = [&](int, const Event& event) {
    EXPECT_NE(event.kind, Event::Kind::kForgiven);
    received += event.kind == Event::Kind::kReceived;
  };
  Link link;
  ASSERT_TRUE(ConnectPair(&world, 0, 1, &link));
  ASSERT_EQ(world.host(1).steps->Begin({1, false, Fraction{500000}, 1 << 20}), StepResult::kOk);
  const std::vector<uint8_t> message = Bytes(1 << 19);
  std::vector<uint8_t> buffer(message.size());
  ReceiveRequest request{2, buffer.data(), buffer.size(), true, 1, true, true, 1};
  ASSERT_EQ(world.endpoint(1).Post(world.LocalNow(1), link.receiver, request), PostResult::kAccepted);
  ASSERT_EQ(world.endpoint(0).Post(world.LocalNow(0), link.sender,
                                   SendRequest{1, message.data(), static_cast<uint32_t>(message.size())}),
            PostResult::kAccepted);
  world.faults.trim = Fraction{100000};
  const TimePoint end = world.now() + Seconds(20);
  while (received == 0 && world.Step(end)) {
  }
  EXPECT_EQ(received, 1);
  EXPECT_EQ(buffer, message);
  EXPECT_EQ(world.endpoint(1).counters().trims, 0u);
}

}  // namespace
}  // namespace forgive::testing
