// SPDX-License-Identifier: Apache-2.0
// The handshake: sizes, repeats, versions, refusals, and what an onlooker may not do to it.
#include <gtest/gtest.h>

#include <vector>

#include "endpoint_fixture.h"
#include "transport/wire_layout.h"

namespace forgive::testing {
namespace {

class HandshakeTest : public EndpointTest {};

TEST_F(HandshakeTest, FallsBackToAPayloadThatThePathLetsThrough) {
  world_.faults.largest_datagram_bytes = 1500 - 28;
  Link link;
  ASSERT_TRUE(ConnectPair(&world_, 0, 1, &link));
  Endpoint::ConnectionFacts facts;
  ASSERT_TRUE(world_.endpoint(0).Facts(world_.LocalNow(0), link.sender, &facts));
  EXPECT_EQ(facts.max_payload, 1408u);
  const std::vector<uint8_t> message = Bytes(50000);
  std::vector<uint8_t> buffer(message.size());
  ASSERT_TRUE(Receive(link, 1, &buffer));
  ASSERT_TRUE(Send(link, 0, message));
  RunFor(Milliseconds(500));
  EXPECT_EQ(buffer, message);
}

TEST_F(HandshakeTest, ARepeatedConnectGetsTheSameAnswerAlsoAfterTheListenerClosed) {
  Link link;
  ASSERT_TRUE(ConnectPair(&world_, 0, 1, &link));  // closes the listener
  std::vector<uint8_t> connect;
  for (const auto& packet : sent_[0]) {
    if (packet[1] == FORGIVE_TYPE_CONNECT) connect = packet;
  }
  ASSERT_FALSE(connect.empty());
  sent_[1].clear();
  world_.Inject(1, connect);
  RunFor(Milliseconds(1));
  ASSERT_FALSE(sent_[1].empty());
  EXPECT_EQ(sent_[1].back()[1], FORGIVE_TYPE_CONNECT_REPLY);
  EXPECT_EQ(logs_[1].Count(Event::Kind::kIncoming), 0) << "no second connection";
}

TEST_F(HandshakeTest, AConnectWithoutTheTicketIsDroppedAndAllocatesNothing) {
  ListenTicket ticket;
  ASSERT_EQ(world_.endpoint(1).Post(ListenRequest{}, &ticket), PostResult::kAccepted);
  ticket.secret.k0 ^= 1;
  ConnectionHandle sender;
  ASSERT_TRUE(BeginConnect(ticket, &sender));
  RunFor(Seconds(6));
  EXPECT_GT(world_.endpoint(1).counters().bad_tag, 0u);
  EXPECT_EQ(logs_[1].Count(Event::Kind::kIncoming), 0);
  ASSERT_EQ(logs_[0].Count(Event::Kind::kFailed), 1);
  EXPECT_EQ(logs_[0].Find(Event::Kind::kFailed)->reason, FailReason::kNoAnswer);
}

TEST_F(HandshakeTest, AConnectOfAnotherVersionEndsInAClearErrorOnBothSides) {
  ListenTicket ticket;
  ASSERT_EQ(world_.endpoint(1).Post(ListenRequest{}, &ticket), PostResult::kAccepted);
  Connect connect;
  connect.max_payload = 1408;
  connect.listen_id = ticket.listen_id;
  connect.connection_id = 77;
  connect.rail_count = kMaxRails;  // the longest head that the two versions share
  std::vector<uint8_t> packet(kDataHeaderBytes + connect.max_payload);
  WriteConnect(connect, ticket.secret, packet.data());
  packet[0] = FORGIVE_WIRE_VERSION + 1;
  // The other version tags its own bytes.
  std::vector<uint8_t> untagged = packet;
  untagged.erase(untagged.begin() + 72, untagged.begin() + 80);
  const uint64_t tag = SipHash(ticket.secret, untagged.data(), untagged.size(), 0);
  for (int i = 0; i < 8; ++i) packet[static_cast<size_t>(72 + i)] = static_cast<uint8_t>(tag >> (56 - 8 * i));
  world_.Inject(1, packet);
  RunFor(Milliseconds(1));
  EXPECT_EQ(world_.endpoint(1).counters().foreign_version, 1u);
  ASSERT_EQ(sent_[1].size(), 1u);
  ConnectReply reply;
  ASSERT_TRUE(ParseConnectReply(sent_[1][0].data(), sent_[1][0].size(), &reply));
  EXPECT_EQ(reply.status, ConnectStatus::kVersionMismatch);
  EXPECT_EQ(reply.connection_id, 77u);
  ASSERT_EQ(logs_[1].Count(Event::Kind::kIncomingRefused), 1) << "and on the listener's";
}

TEST_F(HandshakeTest, RefusesAConnectionOverTheLimitWithAClearReason) {
  std::vector<Link> links(64);
  for (size_t i = 0; i < 64; ++i) ASSERT_TRUE(ConnectPair(&world_, i % 2 == 0 ? 0 : 2, 1, &links[i]));
  ListenTicket ticket;
  ASSERT_EQ(world_.endpoint(1).Post(ListenRequest{}, &ticket), PostResult::kAccepted);
  ConnectionHandle sender;
  ASSERT_TRUE(BeginConnect(ticket, &sender));
  RunFor(Seconds(1));
  ASSERT_EQ(logs_[0].Count(Event::Kind::kFailed), 1);
  EXPECT_EQ(logs_[0].Find(Event::Kind::kFailed)->reason, FailReason::kRefused);
}

TEST_F(HandshakeTest, AHostThatWasStoppedForLongerThanTheTimeoutStillConnects) {
  ListenTicket ticket;
  ASSERT_EQ(world_.endpoint(1).Post(ListenRequest{}, &ticket), PostResult::kAccepted);
  ConnectionHandle sender;
  ASSERT_TRUE(BeginConnect(ticket, &sender));
  world_.Pump();
  world_.host(0).clock_offset = world_.host(0).clock_offset + Seconds(3600);
  RunFor(Seconds(1));
  EXPECT_EQ(logs_[0].Count(Event::Kind::kFailed), 0);
  EXPECT_EQ(logs_[0].Count(Event::Kind::kConnected), 1);
}

TEST_F(HandshakeTest, AReplyOfAnotherVersionIsBelievedOnlyFromWhoHasTheTicket) {
  ListenTicket ticket;
  ASSERT_EQ(world_.endpoint(1).Post(ListenRequest{}, &ticket), PostResult::kAccepted);
  world_.faults.drop = Fraction{Fraction::kOne};  // the listener never answers by itself
  ConnectionHandle sender;
  ASSERT_TRUE(BeginConnect(ticket, &sender));
  RunFor(Milliseconds(1));
  ASSERT_FALSE(sent_[0].empty());
  Connect connect;
  ASSERT_TRUE(ParseConnect(sent_[0][0].data(), sent_[0][0].size(), &connect));
  // Everything that an onlooker knows, and a tag of its own.
  ConnectReply reply;
  reply.status = ConnectStatus::kVersionMismatch;
  reply.connection_id = connect.connection_id;
  std::memcpy(&reply.connector_nonce_echo, connect.nonce.data(), sizeof reply.connector_nonce_echo);
  std::vector<uint8_t> forged(kConnectReplyBytes), genuine(kConnectReplyBytes);
  WriteConnectReply(reply, SipKey{1, 2}, forged.data());
  WriteConnectReply(reply, ticket.secret, genuine.data());
  for (std::vector<uint8_t>* packet : {&forged, &genuine}) {
    (*packet)[0] = FORGIVE_WIRE_VERSION + 1;
    std::vector<uint8_t> covered(packet->begin(), packet->begin() + 72);
    const uint64_t tag = SipHash(packet == &forged ? SipKey{1, 2} : ticket.secret, covered.data(), covered.size(), 0);
    for (size_t i = 0; i < 8; ++i) (*packet)[72 + i] = static_cast<uint8_t>(tag >> (56 - 8 * i));
  }
  world_.Inject(0, forged);
  EXPECT_EQ(logs_[0].Count(Event::Kind::kFailed), 0);
  EXPECT_EQ(world_.endpoint(0).counters().bad_tag, 1u);
  world_.Inject(0, genuine);
  ASSERT_EQ(logs_[0].Count(Event::Kind::kFailed), 1);
  EXPECT_EQ(logs_[0].Find(Event::Kind::kFailed)->reason, FailReason::kVersionMismatch);
}

TEST_F(HandshakeTest, AReplyIsBelievedOnlyIfItEchoesTheNonceOfThisConnect) {
  ListenTicket ticket;
  ASSERT_EQ(world_.endpoint(1).Post(ListenRequest{}, &ticket), PostResult::kAccepted);
  world_.faults.drop = Fraction{Fraction::kOne};  // the listener never answers by itself
  ConnectionHandle sender;
  ASSERT_TRUE(BeginConnect(ticket, &sender));
  RunFor(Milliseconds(1));
  ASSERT_FALSE(sent_[0].empty());
  Connect connect;
  ASSERT_TRUE(ParseConnect(sent_[0][0].data(), sent_[0][0].size(), &connect));
  // Both have the ticket's tag; the first answers a Connect that this one was not.
  ConnectReply reply;
  reply.status = ConnectStatus::kOverLimit;
  reply.connection_id = connect.connection_id;
  std::memcpy(&reply.connector_nonce_echo, connect.nonce.data(), sizeof reply.connector_nonce_echo);
  std::vector<uint8_t> other(kConnectReplyBytes), own(kConnectReplyBytes);
  WriteConnectReply(reply, ticket.secret, own.data());
  reply.connector_nonce_echo ^= 1;
  WriteConnectReply(reply, ticket.secret, other.data());
  world_.Inject(0, other);
  EXPECT_EQ(logs_[0].Count(Event::Kind::kFailed), 0);
  EXPECT_EQ(world_.endpoint(0).counters().bad_tag, 1u);
  world_.Inject(0, own);
  ASSERT_EQ(logs_[0].Count(Event::Kind::kFailed), 1);
  EXPECT_EQ(logs_[0].Find(Event::Kind::kFailed)->reason, FailReason::kRefused);
}

// Connects an endpoint that wants payload CRCs to one that does not, or the reverse.
void CarryBetween(bool sender_wants_crc, bool receiver_wants_crc, uint64_t* bad_crc) {
  Config config = TestConfig();
  config.payload_crc = sender_wants_crc;
  World world(2, config, 11);
  config.payload_crc = receiver_wants_crc;
  std::array<uint8_t, 32> entropy{9};
  world.host(1).endpoint = std::make_unique<Endpoint>(config, world.host(1).steps.get(), entropy, Identity{});
  Link link;
  ASSERT_TRUE(ConnectPair(&world, 0, 1, &link));
  int received = 0;
  world.on_event = [&](int, const Event& event) { received += event.kind == Event::Kind::kReceived; };
  const std::vector<uint8_t> message = Bytes(200000);
  std::vector<uint8_t> buffer(message.size());
  ReceiveRequest receive{2, buffer.data(), buffer.size(), false, 0, false, false, 1};
  ASSERT_EQ(world.endpoint(1).Post(world.LocalNow(1), link.receiver, receive), PostResult::kAccepted);
  ASSERT_EQ(world.endpoint(0).Post(world.LocalNow(0), link.sender,
                                   SendRequest{1, message.data(), static_cast<uint32_t>(message.size())}),
            PostResult::kAccepted);
  world.faults.corrupt = Fraction{200000};
  const TimePoint end = world.now() + Seconds(5);
  while (received == 0 && world.Step(end)) {
  }
  EXPECT_EQ(received, 1);
  if (sender_wants_crc || receiver_wants_crc) {
    EXPECT_EQ(buffer, message);
  }
  *bad_crc = world.endpoint(1).counters().bad_crc;
}

TEST(Handshake, PayloadsCarryACrcIfEitherSideWantsIt) {
  uint64_t bad_crc = 0;
  CarryBetween(false, true, &bad_crc);
  EXPECT_GT(bad_crc, 0u);
  CarryBetween(true, false, &bad_crc);
  EXPECT_GT(bad_crc, 0u);
  CarryBetween(false, false, &bad_crc);
  EXPECT_EQ(bad_crc, 0u);
}

}  // namespace
}  // namespace forgive::testing
