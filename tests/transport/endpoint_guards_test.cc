// SPDX-License-Identifier: Apache-2.0
// What an onlooker's packets, lost resets, old handles and full tables may not do to an endpoint.
#include <gtest/gtest.h>

#include <cstring>
#include <utility>
#include <vector>

#include "endpoint_fixture.h"
#include "transport/wire_layout.h"

namespace forgive::testing {
namespace {

using Packet = std::vector<uint8_t>;

class GuardTest : public EndpointTest {
 protected:
  explicit GuardTest(Config config = TestConfig()) : EndpointTest(config) {}

  // The last packet of the type that a host sent; empty if there is none.
  Packet Last(int host, uint8_t type) {
    for (auto packet = sent_[host].rbegin(); packet != sent_[host].rend(); ++packet) {
      if ((*packet)[1] == type) return *packet;
    }
    return {};
  }
  const Counters& counters(int host) { return world_.endpoint(host).counters(); }
  void Close(int host, ConnectionHandle handle) {
    world_.endpoint(host).Post(world_.LocalNow(host), CloseRequest{handle});
  }
};

// ---- Forgeries and replays ----

TEST_F(GuardTest, AForgedReportIsCountedAndNotObeyed) {
  Link link;
  ASSERT_TRUE(ConnectPair(&world_, 0, 1, &link));
  const Packet message = Bytes(5000);
  ASSERT_TRUE(Send(link, 0, message));
  RunFor(Milliseconds(10));
  Packet buffer(message.size());
  ASSERT_TRUE(Receive(link, 1, &buffer));
  world_.Pump();  // the report with the credit is on its way
  Packet report = Last(1, FORGIVE_TYPE_REPORT);
  ASSERT_FALSE(report.empty());
  report[19] = static_cast<uint8_t>(report[19] + 1);  // the next report's number: the genuine tag is of another one
  const uint64_t bad_tags = counters(0).bad_tag;
  world_.Inject(0, report);
  EXPECT_EQ(counters(0).bad_tag, bad_tags + 1);
  world_.Pump();
  EXPECT_EQ(counters(0).packets_sent, 0u) << "a forged credit was believed";
}

TEST_F(GuardTest, AForgedResetIsCountedAndEndsNothing) {
  Link link;
  ASSERT_TRUE(ConnectPair(&world_, 0, 1, &link));
  Packet buffer(100);
  ASSERT_TRUE(Receive(link, 1, &buffer));
  Endpoint::ConnectionFacts facts;
  ASSERT_TRUE(world_.endpoint(1).Facts(world_.LocalNow(1), link.receiver, &facts));
  const SipKey guessed{1, 2};
  Packet reset(kControlBytes);
  WriteControl(Control{PacketType::kReset, static_cast<uint16_t>(FailReason::kReset), facts.connection_id, 1},
               &guessed, reset.data());
  world_.Inject(1, reset);
  EXPECT_EQ(counters(1).bad_tag, 1u);
  EXPECT_EQ(logs_[1].Count(Event::Kind::kFailed), 0);
}

TEST_F(GuardTest, AReplayedProbeIsCountedAndNotAnswered) {
  Link link;
  ASSERT_TRUE(ConnectPair(&world_, 0, 1, &link));
  const Packet message = Bytes(100);
  ASSERT_TRUE(Send(link, 0, message));  // without a credit: it probes
  while (Last(0, FORGIVE_TYPE_PROBE).empty()) ASSERT_TRUE(world_.Step(world_.now() + Seconds(1)));
  RunFor(Microseconds(200));
  const Packet probe = Last(0, FORGIVE_TYPE_PROBE);
  const uint64_t replayed = counters(1).replayed;
  const uint64_t reports = counters(1).reports_sent;
  world_.Inject(1, probe);
  world_.Pump();
  EXPECT_EQ(counters(1).replayed, replayed + 1);
  EXPECT_EQ(counters(1).reports_sent, reports);
}

TEST_F(GuardTest, AReplayedConnectOfAConnectionThatEndedMakesNoOther) {
  ListenTicket ticket;
  ASSERT_EQ(world_.endpoint(1).Post(ListenRequest{}, &ticket), PostResult::kAccepted);
  ConnectionHandle sender;
  ASSERT_TRUE(BeginConnect(ticket, &sender));
  RunFor(Milliseconds(10));
  ASSERT_EQ(logs_[1].Count(Event::Kind::kIncoming), 1);
  const Packet connect = Last(0, FORGIVE_TYPE_CONNECT);
  Close(0, sender);
  Close(1, logs_[1].Find(Event::Kind::kIncoming)->connection);
  RunFor(Seconds(10));  // nothing lingers any more
  world_.Inject(1, connect);
  EXPECT_EQ(counters(1).replayed, 1u);
  EXPECT_EQ(logs_[1].Count(Event::Kind::kIncoming), 1);
}

TEST_F(GuardTest, AReplayedConnectMakesNoOtherHoweverManyWereAcceptedSince) {
  ListenTicket ticket;
  ASSERT_EQ(world_.endpoint(1).Post(ListenRequest{}, &ticket), PostResult::kAccepted);
  constexpr int kAccepted = 20;
  Packet first;
  for (int i = 1; i <= kAccepted; ++i) {
    ConnectionHandle sender;
    ASSERT_TRUE(BeginConnect(ticket, &sender));
    RunFor(Milliseconds(10));
    ASSERT_EQ(logs_[1].Count(Event::Kind::kIncoming), i);
    if (first.empty()) first = Last(0, FORGIVE_TYPE_CONNECT);
    Close(0, sender);
    for (const Event& event : logs_[1].events) {
      if (event.kind == Event::Kind::kIncoming) Close(1, event.connection);
    }
    RunFor(Seconds(10));  // nothing lingers any more
  }
  world_.Inject(1, first);
  EXPECT_EQ(counters(1).replayed, 1u);
  EXPECT_EQ(logs_[1].Count(Event::Kind::kIncoming), kAccepted);
}

TEST_F(GuardTest, AConnectToAListenerThatIsGoneIsCountedAndNotAnswered) {
  Link link;
  ASSERT_TRUE(ConnectPair(&world_, 0, 1, &link));  // closes the listener
  Packet connect = Last(0, FORGIVE_TYPE_CONNECT);
  Close(1, link.receiver);
  Close(0, link.sender);
  RunFor(Seconds(10));
  sent_[1].clear();
  world_.Inject(1, connect);
  EXPECT_EQ(counters(1).unknown_connection, 1u) << "a closed listener accepts nobody";
  connect[8] = static_cast<uint8_t>(connect[8] ^ 1);  // of the listener's id
  world_.Inject(1, connect);
  EXPECT_EQ(counters(1).unknown_connection, 2u) << "nor does one that never was";
  world_.Pump();
  EXPECT_TRUE(sent_[1].empty());
}

// A listener that has the ticket but agrees to what the connector's path does not let through, or to nonsense.
TEST_F(GuardTest, AReplyThatAgreesToMoreThanWasOfferedIsMalformed) {
  ListenTicket ticket;
  ASSERT_EQ(world_.endpoint(1).Post(ListenRequest{}, &ticket), PostResult::kAccepted);
  world_.faults.drop = Fraction{Fraction::kOne};  // the listener never answers by itself
  ConnectionHandle sender;
  ASSERT_TRUE(BeginConnect(ticket, &sender, 1024));
  RunFor(Milliseconds(1));
  Connect connect;
  const Packet sent = Last(0, FORGIVE_TYPE_CONNECT);
  ASSERT_TRUE(ParseConnect(sent.data(), sent.size(), &connect));
  const auto answer = [&](uint16_t max_payload, uint32_t scoreboard_bytes) {
    ConnectReply reply;
    reply.max_payload = max_payload;
    reply.connection_id = connect.connection_id;
    reply.peer_connection_id = 99;
    reply.scoreboard_bytes = scoreboard_bytes;
    std::memcpy(&reply.connector_nonce_echo, connect.nonce.data(), sizeof reply.connector_nonce_echo);
    Packet packet(kConnectReplyBytes);
    WriteConnectReply(reply, ticket.secret, packet.data());
    world_.Inject(0, packet);
  };
  answer(1040, 1 << 20);
  answer(1000, 1 << 20);  // off the grid of units
  answer(0, 1 << 20);
  answer(1024, 1024);  // no segment and its end slot would fit
  EXPECT_EQ(counters(0).malformed, 4u);
  EXPECT_EQ(logs_[0].Count(Event::Kind::kConnected), 0);
  answer(1024, 1 << 20);
  EXPECT_EQ(logs_[0].Count(Event::Kind::kConnected), 1);
  answer(1024, 1 << 20);
  EXPECT_EQ(counters(0).replayed, 1u) << "a second answer to the same Connect";
}

// ---- Trims ----

TEST_F(GuardTest, APacketOfWhichAPartOfThePayloadIsLeftIsATrim) {
  Link link;
  ASSERT_TRUE(ConnectPair(&world_, 0, 1, &link));
  const Packet message = Bytes(2000);
  Packet buffer(message.size());
  ASSERT_TRUE(Receive(link, 1, &buffer));
  RunFor(Milliseconds(1));
  world_.faults.drop = Fraction{Fraction::kOne};  // what is cut below never arrives whole
  ASSERT_TRUE(Send(link, 0, message));
  world_.Pump();
  Packet data = Last(0, FORGIVE_TYPE_DATA);
  ASSERT_EQ(data.size(), kDataHeaderBytes + 2000);
  data.resize(kDataHeaderBytes + 1);
  world_.Inject(1, data);
  EXPECT_EQ(counters(1).trims, 1u);
  EXPECT_EQ(counters(1).trimmed_bytes, 2000u);
  EXPECT_EQ(counters(1).bad_crc, 0u);
  EXPECT_EQ(counters(1).packets_received, 0u);
}

// ---- Ends ----

TEST_F(GuardTest, AConnectionThatFailsTakesItsTrimmedBytesOutOfItsStep) {
  Link link;
  ASSERT_TRUE(ConnectPair(&world_, 0, 1, &link));
  ASSERT_EQ(world_.host(1).steps->Begin({1, false, Fraction{10}, 1 << 20}), StepResult::kOk);
  const Packet message = Bytes(1 << 18);
  Packet buffer(message.size());
  const ReceiveRequest request{2, buffer.data(), buffer.size(), true, 1, true, true, 1};
  ASSERT_EQ(world_.endpoint(1).Post(world_.LocalNow(1), link.receiver, request), PostResult::kAccepted);
  world_.faults.trim = Fraction{Fraction::kOne};
  ASSERT_TRUE(Send(link, 0, message));
  RunFor(Milliseconds(3));
  ASSERT_GT(world_.host(1).steps->Find(1)->outstanding, 0u);
  world_.host(0).dead = true;
  RunFor(Seconds(6));
  ASSERT_EQ(logs_[1].Count(Event::Kind::kFailed), 1);
  EXPECT_EQ(world_.host(1).steps->Find(1)->outstanding, 0u);
  EXPECT_EQ(world_.host(1).steps->Find(1)->messages, 0u);
  EXPECT_EQ(world_.endpoint(1).Post(world_.LocalNow(1), link.receiver, request), PostResult::kFailed);
}

TEST_F(GuardTest, AResetThatWasLostIsSentAgainWhenThePeerSendsMore) {
  Link link;
  ASSERT_TRUE(ConnectPair(&world_, 0, 1, &link));
  Packet buffer(100);
  const Packet message = Bytes(101);
  ASSERT_TRUE(Receive(link, 1, &buffer));
  ASSERT_TRUE(Send(link, 0, message));
  while (logs_[1].Count(Event::Kind::kFailed) == 0) ASSERT_TRUE(world_.Step(world_.now() + Seconds(1)));
  world_.faults.drop = Fraction{Fraction::kOne};
  world_.Pump();  // the resets are lost
  world_.faults.drop = Fraction{0};
  for (int i = 0; i < 300 && logs_[0].Count(Event::Kind::kFailed) == 0; ++i) RunFor(Milliseconds(1));
  ASSERT_EQ(logs_[0].Count(Event::Kind::kFailed), 1);
  EXPECT_EQ(counters(0).timeouts, 1u) << "the data that were repeated were not answered, a later probe was";
  EXPECT_EQ(logs_[0].Find(Event::Kind::kFailed)->reason, FailReason::kTooLong);
}

TEST_F(GuardTest, AProbeOfAConnectionThatFailedIsAnsweredByAReset) {
  Link link;
  ASSERT_TRUE(ConnectPair(&world_, 0, 1, &link));
  Packet buffer(100), later(100);
  const Packet message = Bytes(100);
  ASSERT_TRUE(Receive(link, 1, &buffer));
  world_.host(0).dead = true;
  RunFor(Seconds(6));
  ASSERT_EQ(logs_[1].Count(Event::Kind::kFailed), 1) << "silent for longer than the timeout";
  world_.host(0).dead = false;  // it was stopped, and knows nothing of all this
  ASSERT_TRUE(Send(link, 0, message, 1));
  ASSERT_TRUE(Send(link, 0, message, 2));  // beyond the credit: it will probe
  RunFor(Seconds(3));
  ASSERT_EQ(logs_[0].Count(Event::Kind::kFailed), 1);
  EXPECT_NE(logs_[0].Find(Event::Kind::kFailed)->reason, FailReason::kPeerSilent);
}

// ---- Handles, ids and limits ----

TEST_F(GuardTest, AnOldHandleOrIdNamesNoLaterConnectionInItsSlot) {
  Link old;
  ASSERT_TRUE(ConnectPair(&world_, 0, 1, &old));
  const Packet message = Bytes(10);
  Packet buffer(10);
  ASSERT_TRUE(Receive(old, 1, &buffer));
  ASSERT_TRUE(Send(old, 0, message));
  RunFor(Milliseconds(10));
  const Packet data = Last(0, FORGIVE_TYPE_DATA);
  const Packet report = Last(1, FORGIVE_TYPE_REPORT);
  Close(0, old.sender);
  Close(1, old.receiver);
  RunFor(Seconds(6));
  Link next;
  ASSERT_TRUE(ConnectPair(&world_, 0, 1, &next));
  constexpr uint32_t kSlotOfHandle = 0xffff;
  ASSERT_EQ(next.sender.value & kSlotOfHandle, old.sender.value & kSlotOfHandle) << "the slot was not used again";
  EXPECT_FALSE(Send(old, 0, message));
  EXPECT_FALSE(Receive(old, 1, &buffer));
  Endpoint::ConnectionFacts facts;
  EXPECT_FALSE(world_.endpoint(0).Facts(world_.LocalNow(0), old.sender, &facts));
  Close(0, old.sender);  // of nobody
  world_.Inject(1, data);
  world_.Inject(0, report);
  EXPECT_EQ(counters(1).unknown_connection, 1u);
  EXPECT_EQ(counters(0).unknown_connection, 1u);
  EXPECT_EQ(counters(0).bad_tag + counters(1).bad_tag, 0u);
  ASSERT_TRUE(Send(next, 0, message)) << "the close of an old handle closed a new connection";
}

TEST_F(GuardTest, EachSideTakesOnlyItsOwnKindOfRequest) {
  Link link;
  ASSERT_TRUE(ConnectPair(&world_, 0, 1, &link));
  const Packet message = Bytes(10);
  Packet buffer(10);
  const Link turned{link.receiver, link.sender};
  EXPECT_EQ(world_.endpoint(1).Post(world_.LocalNow(1), turned.sender, SendRequest{1, message.data(), 10}),
            PostResult::kUnknownConnection);
  ReceiveRequest receive;
  receive.buffer = buffer.data();
  receive.capacity = buffer.size();
  EXPECT_EQ(world_.endpoint(0).Post(world_.LocalNow(0), turned.receiver, receive), PostResult::kUnknownConnection);
  // The data of a connection that receives nothing, and reports to one that sends nothing.
  Packet data = {FORGIVE_WIRE_VERSION, FORGIVE_TYPE_DATA};
  data.resize(kDataHeaderBytes);
  Packet report = {FORGIVE_WIRE_VERSION, FORGIVE_TYPE_REPORT};
  report.resize(kReportBytes);
  const Packet connect = Last(0, FORGIVE_TYPE_CONNECT);
  std::memcpy(data.data() + 8, connect.data() + 16, 8);  // the connector's own id
  Endpoint::ConnectionFacts facts;
  ASSERT_TRUE(world_.endpoint(1).Facts(world_.LocalNow(1), link.receiver, &facts));
  for (size_t i = 0; i < 8; ++i) report[8 + i] = static_cast<uint8_t>(facts.connection_id >> (56 - 8 * i));
  world_.Inject(0, data);
  world_.Inject(1, report);
  EXPECT_EQ(counters(0).unknown_connection, 1u);
  EXPECT_EQ(counters(1).unknown_connection, 1u);
}

TEST_F(GuardTest, AFullTableOfMessagesSaysTryAgain) {
  Link link;
  ASSERT_TRUE(ConnectPair(&world_, 0, 1, &link));
  const Packet message = Bytes(10);
  std::vector<Packet> buffers(65, Packet(10));
  for (size_t i = 0; i < 64; ++i) {
    ASSERT_TRUE(Send(link, 0, message, i));
    ASSERT_TRUE(Receive(link, 1, &buffers[i], i));
  }
  ReceiveRequest receive;
  receive.buffer = buffers[64].data();
  receive.capacity = 10;
  EXPECT_EQ(world_.endpoint(0).Post(world_.LocalNow(0), link.sender, SendRequest{1, message.data(), 10}),
            PostResult::kTryAgain);
  EXPECT_EQ(world_.endpoint(1).Post(world_.LocalNow(1), link.receiver, receive), PostResult::kTryAgain);
  RunFor(Milliseconds(100));
  EXPECT_TRUE(Send(link, 0, message));
  EXPECT_TRUE(Receive(link, 1, &buffers[64]));
}

TEST_F(GuardTest, AListenersPlaceIsUsedAgainAfterItWasClosedTheOldestFirst) {
  const uint32_t most = TestConfig().max_listeners;
  std::vector<ListenTicket> tickets(most);
  for (ListenTicket& ticket : tickets) {
    ASSERT_EQ(world_.endpoint(1).Post(ListenRequest{}, &ticket), PostResult::kAccepted);
  }
  ListenTicket more;
  EXPECT_EQ(world_.endpoint(1).Post(ListenRequest{}, &more), PostResult::kOverLimit);
  world_.endpoint(1).CloseListener(tickets[2].listen_id);
  world_.endpoint(1).CloseListener(tickets[1].listen_id);
  world_.endpoint(1).CloseListener(tickets[1].listen_id);  // a second time
  ASSERT_EQ(world_.endpoint(1).Post(ListenRequest{}, &more), PostResult::kAccepted);
  constexpr uint64_t kSlotOfId = 0xffff;
  EXPECT_EQ(more.listen_id & kSlotOfId, tickets[2].listen_id & kSlotOfId);
  ASSERT_EQ(world_.endpoint(1).Post(ListenRequest{}, &more), PostResult::kAccepted);
  EXPECT_EQ(more.listen_id & kSlotOfId, tickets[1].listen_id & kSlotOfId);
  EXPECT_EQ(world_.endpoint(1).Post(ListenRequest{}, &more), PostResult::kOverLimit);
}

TEST_F(GuardTest, ADrawnTicketTakesItsOwnPlaceOnceUntilItsListenerIsClosed) {
  const auto most = static_cast<uint16_t>(TestConfig().max_listeners);
  Endpoint& listening = world_.endpoint(1);
  const ListenTicket ticket = Endpoint::DrawnTicket(2, 77, {1, 2});
  EXPECT_EQ(Endpoint::PlaceOf(ticket), 2);
  EXPECT_EQ(listening.Post(ListenRequest{}, Endpoint::DrawnTicket(most, 77, {1, 2})), PostResult::kOverLimit);
  ASSERT_EQ(listening.Post(ListenRequest{}, ticket), PostResult::kAccepted);
  EXPECT_EQ(listening.Post(ListenRequest{}, Endpoint::DrawnTicket(2, 78, {3, 4})), PostResult::kOverLimit);
  ConnectionHandle sender;
  ASSERT_TRUE(BeginConnect(ticket, &sender));
  RunFor(Milliseconds(10));
  EXPECT_EQ(logs_[0].Count(Event::Kind::kConnected), 1);
  listening.CloseListener(ticket.listen_id);
  EXPECT_EQ(listening.Post(ListenRequest{}, Endpoint::DrawnTicket(2, 78, {3, 4})), PostResult::kAccepted);
}

TEST_F(GuardTest, APlaceThatWasSkippedHasNoListenerThatAnyoneCouldName) {
  ASSERT_EQ(world_.endpoint(1).Post(ListenRequest{}, Endpoint::DrawnTicket(2, 77, {1, 2})), PostResult::kAccepted);
  ConnectionHandle sender;
  ASSERT_TRUE(BeginConnect(ListenTicket{0, {9, 9}}, &sender));
  RunFor(Milliseconds(1));
  EXPECT_GE(counters(1).unknown_connection, 1u);
  EXPECT_EQ(counters(1).bad_tag, 0u) << "it was held against the secret of a listener that never was";
}

TEST_F(GuardTest, AConnectRequestWithoutRoomForAUnitOrBeyondTheLimitIsRefusedHere) {
  ConnectRequest request;
  request.peer = World::AddressOf(1);
  request.max_payload_bytes = kUnitBytes - 1;
  ConnectionHandle handle;
  EXPECT_EQ(world_.endpoint(0).Post(world_.LocalNow(0), request, &handle), PostResult::kFailed);
  request.max_payload_bytes = kUnitBytes;
  for (uint32_t i = 0; i < TestConfig().max_connections; ++i) {
    ASSERT_EQ(world_.endpoint(0).Post(world_.LocalNow(0), request, &handle), PostResult::kAccepted);
  }
  EXPECT_EQ(world_.endpoint(0).Post(world_.LocalNow(0), request, &handle), PostResult::kOverLimit);
}

// ---- Turns and wake-ups ----

Config Unpaced() {
  Config config = TestConfig();
  config.link_rate = BitsPerSecond{};
  config.congestion_control = CongestionControlKind::kNone;
  return config;
}

class UnpacedGuardTest : public GuardTest {
 protected:
  UnpacedGuardTest() : GuardTest(Unpaced()) {}
};

TEST_F(UnpacedGuardTest, ConnectionsTakeTurnsThoughOneHasMuchToSend) {
  Link links[2];
  const Packet message = Bytes(1 << 19);
  std::vector<Packet> buffers(2, Packet(message.size()));
  for (size_t i = 0; i < 2; ++i) {
    ASSERT_TRUE(ConnectPair(&world_, 0, 1, &links[i]));
    ASSERT_TRUE(Receive(links[i], 1, &buffers[i]));
  }
  RunFor(Milliseconds(1));
  for (const Link& link : links) ASSERT_TRUE(Send(link, 0, message));
  int packets[2] = {0, 0};
  Transmit transmit;
  for (int i = 0; i < 64 && world_.endpoint(0).NextTransmit(world_.LocalNow(0), &transmit); ++i) {
    ++packets[transmit.connection == links[0].sender ? 0 : 1];
  }
  EXPECT_EQ(packets[0], 32);
  EXPECT_EQ(packets[1], 32);
}

TEST_F(GuardTest, TheEndOfAStepIsReportedThoughNothingArrives) {
  Link link;
  ASSERT_TRUE(ConnectPair(&world_, 0, 1, &link));
  ASSERT_EQ(world_.host(1).steps->Begin({1, false, Fraction{100000}, 1 << 20}), StepResult::kOk);
  Packet buffer(100);
  const ReceiveRequest request{2, buffer.data(), buffer.size(), true, 1, true, true, 1};
  ASSERT_EQ(world_.endpoint(1).Post(world_.LocalNow(1), link.receiver, request), PostResult::kAccepted);
  RunFor(Milliseconds(10));
  ASSERT_GT(world_.endpoint(1).next_deadline(), world_.LocalNow(1));
  ASSERT_EQ(world_.host(1).steps->End(1), StepResult::kOk);
  EXPECT_LE(world_.endpoint(1).next_deadline(), world_.LocalNow(1)) << "nobody would look before something arrives";
  sent_[1].clear();
  world_.Pump();
  const Packet packet = Last(1, FORGIVE_TYPE_REPORT);
  Report report;
  ASSERT_TRUE(ParseReport(packet.data(), packet.size(), &report));
  EXPECT_FALSE(report.exempt_eligible);
}

TEST_F(GuardTest, AClosedConnectionWakesItsEndpointOnceMoreToFreeItsSlot) {
  Link link;
  ASSERT_TRUE(ConnectPair(&world_, 0, 1, &link));
  Close(0, link.sender);
  Close(1, link.receiver);
  RunFor(Seconds(1));
  for (int host : {0, 1}) EXPECT_LT(world_.endpoint(host).next_deadline(), kNever) << "host " << host;
  RunFor(Seconds(6));
  for (int host : {0, 1}) EXPECT_EQ(world_.endpoint(host).next_deadline(), kNever) << "host " << host;
}

}  // namespace
}  // namespace forgive::testing
