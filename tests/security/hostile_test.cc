// SPDX-License-Identifier: Apache-2.0
// Hostile peers before one endpoint: floods take no memory, replays no second effect, and no answer is an amplifier.
#include "allocation_hook.h"
#include "endpoint_fixture.h"
#include "transport/wire_layout.h"

namespace {

uint64_t g_allocations = 0;

}  // namespace

void forgive::OnAllocation() { ++g_allocations; }

namespace forgive::testing {
namespace {

constexpr int kFlood = 20000;

class HostileTest : public EndpointTest {
 protected:
  // What endpoint `to` does with a datagram from nowhere: allocations are counted, answers and events looked at.
  struct Answer {
    uint64_t allocations = 0;
    uint64_t packets = 0;
    uint64_t bytes = 0;
    uint64_t events = 0;
    bool to_the_sender = false;
  };
  static Address Nowhere() { return World::AddressOf(99); }

  Answer Give(int to, const std::vector<uint8_t>& bytes, size_t length) {
    Answer answer;
    Endpoint& endpoint = world_.endpoint(to);
    const TimePoint now = world_.LocalNow(to);
    const uint64_t before = g_allocations;
    endpoint.OnDatagram(now, {Nowhere(), bytes.data(), length, false});
    answer.allocations = g_allocations - before;
    Transmit transmit;
    while (endpoint.NextTransmit(now, &transmit)) {
      ++answer.packets;
      answer.bytes += transmit.header_length + transmit.payload_length;
      answer.to_the_sender |= transmit.destination.bytes == Nowhere().bytes;
    }
    Event event;
    while (endpoint.NextEvent(&event)) ++answer.events;
    return answer;
  }
  Answer Give(int to, const std::vector<uint8_t>& bytes) { return Give(to, bytes, bytes.size()); }

  std::vector<uint8_t> GenuineConnect(const ListenTicket& ticket, uint64_t connection_id) {
    Connect connect;
    connect.max_payload = 1408;
    connect.listen_id = ticket.listen_id;
    connect.connection_id = connection_id;
    connect.nonce[0] = static_cast<uint8_t>(connection_id);
    std::vector<uint8_t> packet(kDataHeaderBytes + connect.max_payload);
    WriteConnect(connect, ticket.secret, packet.data());
    return packet;
  }

  // The same of another version: its tag covers its own bytes.
  std::vector<uint8_t> ForeignConnect(const ListenTicket& ticket, uint64_t connection_id) {
    std::vector<uint8_t> packet = GenuineConnect(ticket, connection_id);
    packet[0] = FORGIVE_WIRE_VERSION + 1;
    std::vector<uint8_t> covered = packet;
    covered.erase(covered.begin() + 72, covered.begin() + 80);
    const uint64_t tag = SipHash(ticket.secret, covered.data(), covered.size(), 0);
    for (size_t i = 0; i < 8; ++i) packet[72 + i] = static_cast<uint8_t>(tag >> (56 - 8 * i));
    return packet;
  }

  // A connection from host 0 to host 1 over which a message went; sent_ has every genuine packet of both.
  Link LiveLink() {
    Link link;
    EXPECT_TRUE(ConnectPair(&world_, 0, 1, &link));
    const std::vector<uint8_t> source = Bytes(40000);
    destination_.assign(source.size(), 0);
    EXPECT_TRUE(Receive(link, 1, &destination_));
    EXPECT_TRUE(Send(link, 0, source));
    RunFor(Milliseconds(50));
    EXPECT_EQ(destination_, source);
    return link;
  }

  std::vector<uint8_t> destination_;
};

TEST_F(HostileTest, AFloodOfForgedConnectsTakesNoMemoryAndGetsNoAnswer) {
  ListenTicket ticket;
  ASSERT_EQ(world_.endpoint(1).Post(ListenRequest{}, &ticket), PostResult::kAccepted);
  std::vector<uint8_t> packet = GenuineConnect(ticket, 5);
  for (int i = 0; i < kFlood; ++i) {
    for (size_t at = 16; at < 80; ++at) packet[at] = static_cast<uint8_t>(world_.draw().Next());
    // A number of rails that may be, or it would be malformed before its tag is looked at.
    packet[64] = 0;
    packet[65] = static_cast<uint8_t>(i % 4 == 0 ? 0 : 1 + i % 4);
    const Answer answer = Give(1, packet);
    ASSERT_EQ(answer.allocations + answer.packets + answer.events, 0u);
  }
  EXPECT_EQ(world_.endpoint(1).counters().bad_tag, static_cast<uint64_t>(kFlood));
  EXPECT_EQ(world_.endpoint(1).counters().malformed, 0u) << "none is refused for another reason";
  EXPECT_EQ(Give(1, GenuineConnect(ticket, 5)).events, 1u) << "and whoever has the ticket is let in afterwards";
}

TEST_F(HostileTest, AReplayedConnectMakesNoSecondConnectionAndIsAnsweredByNoMoreThanItHas) {
  ListenTicket ticket;
  ASSERT_EQ(world_.endpoint(1).Post(ListenRequest{}, &ticket), PostResult::kAccepted);
  const std::vector<uint8_t> packet = GenuineConnect(ticket, 5);
  ASSERT_EQ(Give(1, packet).events, 1u);
  for (int i = 0; i < kFlood; ++i) {
    const Answer answer = Give(1, packet);
    ASSERT_EQ(answer.allocations + answer.events, 0u);
    ASSERT_LE(answer.packets, 1u);
    ASSERT_LE(answer.bytes, packet.size());
  }
}

TEST_F(HostileTest, AReplayedConnectOfAnotherVersionIsToldToTheListenerOnce) {
  ListenTicket ticket;
  ASSERT_EQ(world_.endpoint(1).Post(ListenRequest{}, &ticket), PostResult::kAccepted);
  const std::vector<uint8_t> packet = ForeignConnect(ticket, 5);
  uint64_t told = 0;
  for (int i = 0; i < kFlood; ++i) {
    const Answer answer = Give(1, packet);
    told += answer.events;
    ASSERT_EQ(answer.packets, 1u) << "its sender may have missed the first answer";
    ASSERT_LE(answer.bytes, packet.size());
  }
  EXPECT_EQ(told, 1u);
  EXPECT_EQ(Give(1, ForeignConnect(ticket, 6)).events, 1u) << "another peer is another refusal";
}

TEST_F(HostileTest, NoFlippedBitOfAGenuinePacketIsAnsweredOrAllocatesOrFailsAConnection) {
  LiveLink();
  for (int from : {0, 1}) {
    const std::vector<std::vector<uint8_t>> genuine = sent_[from];
    for (const std::vector<uint8_t>& packet : genuine) {
      std::vector<uint8_t> flipped = packet;
      const size_t tagged = packet[1] == FORGIVE_TYPE_DATA ? kDataHeaderBytes : packet.size();
      for (size_t bit = 0; bit < 8 * std::min<size_t>(tagged, 120); ++bit) {
        flipped[bit / 8] ^= static_cast<uint8_t>(1u << bit % 8);
        const Answer answer = Give(1 - from, flipped);
        ASSERT_EQ(answer.allocations + answer.packets + answer.events, 0u) << "type " << int{packet[1]} << " bit " << bit;
        flipped[bit / 8] ^= static_cast<uint8_t>(1u << bit % 8);
      }
    }
  }
}

TEST_F(HostileTest, NoGenuinePacketCutAnywhereOrPaddedIsAnsweredOrAllocates) {
  LiveLink();
  for (int from : {0, 1}) {
    const std::vector<std::vector<uint8_t>> genuine = sent_[from];
    for (const std::vector<uint8_t>& packet : genuine) {
      std::vector<uint8_t> padded = packet;
      padded.resize(packet.size() + 300);
      for (size_t length = 0; length <= padded.size(); length += length < 120 ? 1 : 37) {
        if (length == packet.size()) continue;
        const Answer answer = Give(1 - from, padded, length);
        ASSERT_EQ(answer.allocations + answer.packets + answer.events, 0u) << int{packet[1]} << " cut to " << length;
      }
    }
  }
}

TEST_F(HostileTest, AReplayOfAnyPacketIsAnsweredToThePeerOnlyAndByNoMoreThanItHas) {
  LiveLink();
  for (int from : {0, 1}) {
    const std::vector<std::vector<uint8_t>> genuine = sent_[from];
    ASSERT_GE(genuine.size(), 2u);
    for (const std::vector<uint8_t>& packet : genuine) {
      const Answer answer = Give(1 - from, packet);
      EXPECT_LE(answer.bytes, packet.size());
      EXPECT_EQ(answer.allocations + answer.events, 0u);
      EXPECT_FALSE(answer.to_the_sender);
    }
  }
}

TEST_F(HostileTest, ATrimmedReplayOfAnArrivedPacketSpendsNoBudgetAndIsNoTrim) {
  StepTable& steps = *world_.host(1).steps;
  StepPlan plan;
  plan.step = 3;
  plan.p = Fraction{500000};
  plan.expected_bytes = 1 << 20;
  ASSERT_EQ(steps.Begin(plan), StepResult::kOk);
  Link link;
  ASSERT_TRUE(ConnectPair(&world_, 0, 1, &link));
  const std::vector<uint8_t> source = Bytes(200000);
  std::vector<uint8_t> destination(source.size());
  ReceiveRequest request;
  request.buffer = destination.data();
  request.capacity = destination.size();
  request.has_step = true;
  request.step = 3;
  request.exempt_eligible = request.forgivable = true;
  ASSERT_EQ(world_.endpoint(1).Post(world_.LocalNow(1), link.receiver, request), PostResult::kAccepted);
  ASSERT_TRUE(Send(link, 0, source));
  RunFor(Milliseconds(1));
  size_t replayed = 0;
  const std::vector<std::vector<uint8_t>> genuine = sent_[0];
  for (const std::vector<uint8_t>& packet : genuine) {
    if (packet[1] != FORGIVE_TYPE_DATA) continue;
    Give(1, packet, kDataHeaderBytes);
    ++replayed;
  }
  ASSERT_GT(replayed, 4u);
  const Counters& counters = world_.endpoint(1).counters();
  // The last ones of those sent may be on their way still: then these copies were first, and are what a switch does.
  EXPECT_LT(counters.trims, replayed);
  EXPECT_GE(counters.replayed + counters.trims, replayed);
  RunFor(Seconds(1));
  uint64_t wrong = 0;
  for (size_t i = 0; i < source.size(); ++i) wrong += destination[i] != source[i];
  EXPECT_LE(wrong, counters.forgiven_bytes);
  EXPECT_LE(counters.forgiven_bytes, counters.trims * kMaxPayloadBytes);
}

TEST_F(HostileTest, AConnectionThatWasClosedBeforeItsHandshakeEndedBelievesNoControlPacket) {
  ConnectRequest request;
  request.peer = World::AddressOf(2);
  request.ticket.listen_id = 1 << 20;
  ConnectionHandle handle;
  ASSERT_EQ(world_.endpoint(0).Post(world_.LocalNow(0), request, &handle), PostResult::kAccepted);
  RunFor(Milliseconds(1));
  Connect connect;
  ASSERT_FALSE(sent_[0].empty());
  ASSERT_TRUE(ParseConnect(sent_[0][0].data(), sent_[0][0].size(), &connect));
  world_.endpoint(0).Post(world_.LocalNow(0), CloseRequest{handle});
  RunFor(Milliseconds(1));
  // It has no keys yet: those of a packet that says so must not be the ones that everybody knows.
  Control control;
  control.type = PacketType::kProbe;
  control.connection_id = connect.connection_id;
  control.control_number = 1;
  std::vector<uint8_t> packet(kControlBytes);
  const SipKey nothing{};
  WriteControl(control, &nothing, packet.data());
  const Answer answer = Give(0, packet);
  EXPECT_EQ(answer.packets + answer.events, 0u);
  EXPECT_EQ(world_.endpoint(0).counters().unknown_connection, 1u);
}

}  // namespace
}  // namespace forgive::testing
