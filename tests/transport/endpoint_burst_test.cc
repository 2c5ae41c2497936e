// SPDX-License-Identifier: Apache-2.0
// Bursts against single calls: a twin pair of endpoints that moves packets one by one must end up the same.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <memory>
#include <vector>

#include "transport/crc32c.h"
#include "transport/endpoint.h"
#include "world.h"

namespace forgive {
namespace {

using Packet = std::vector<uint8_t>;

constexpr uint32_t kConnections = 2;

Address AddressOf(size_t host) {
  Address address;
  address.bytes[0] = static_cast<uint8_t>(host + 1);
  return address;
}

// Host 0 sends to host 1, over kConnections connections.
class Pair {
 public:
  explicit Pair(bool bursts) : bursts_(bursts) {
    Config config;
    config.max_connections = 8;
    config.congestion_control = CongestionControlKind::kNone;
    for (size_t host = 0; host < 2; ++host) {
      std::array<uint8_t, 32> entropy{};
      entropy[0] = static_cast<uint8_t>(host + 1);
      steps_[host] = std::make_unique<StepTable>(config.max_steps, config.forgiveness_probability, host);
      endpoints_[host] = std::make_unique<Endpoint>(config, steps_[host].get(), entropy, Identity{});
    }
    for (uint32_t i = 0; i < kConnections; ++i) Connect(i);
  }

  void Post(uint32_t connection, const Packet& source, Packet* destination) {
    SendRequest send{0, source.data(), static_cast<uint32_t>(source.size())};
    ReceiveRequest receive;
    receive.buffer = destination->data();
    receive.capacity = destination->size();
    ASSERT_EQ(endpoints_[1]->Post(now_, receivers_[connection], receive), PostResult::kAccepted);
    ASSERT_EQ(endpoints_[0]->Post(now_, senders_[connection], send), PostResult::kAccepted);
    ++posted_;
  }

  // At most `most` packets that may leave a host now.
  std::vector<Packet> Take(size_t host, size_t most) {
    std::vector<Transmit> transmits(most);
    size_t count = 0;
    if (bursts_) {
      count = endpoints_[host]->NextTransmits(now_, transmits);
    } else {
      while (count < most && endpoints_[host]->NextTransmit(now_, &transmits[count])) ++count;
    }
    std::vector<Packet> packets;
    for (size_t i = 0; i < count; ++i) packets.push_back(testing::BytesOf(transmits[i]));
    return packets;
  }

  void Give(size_t host, const std::vector<Packet>& packets) {
    std::vector<Datagram> datagrams;
    for (const Packet& packet : packets) {
      Datagram datagram;
      datagram.source = AddressOf(1 - host);
      datagram.bytes = packet.data();
      datagram.length = packet.size();
      datagrams.push_back(datagram);
    }
    if (bursts_) {
      endpoints_[host]->OnDatagrams(now_, datagrams);
    } else {
      for (const Datagram& datagram : datagrams) endpoints_[host]->OnDatagram(now_, datagram);
    }
  }

  void Pass(Nanoseconds time) {
    now_ = now_ + time;
    for (const auto& endpoint : endpoints_) endpoint->OnDeadline(now_);
  }

  // Takes the host's events: sends of host 0 and receives of host 1 that are done.
  void Drain(size_t host) {
    Event event;
    while (endpoints_[host]->NextEvent(&event)) {
      if (event.kind == Event::Kind::kSent) ++sent_;
      if (event.kind == Event::Kind::kReceived) ++received_;
    }
  }
  size_t unfinished_sends() const { return posted_ - sent_; }
  size_t received() const { return received_; }

  const Counters& counters(size_t host) const { return endpoints_[host]->counters(); }
  const SipKey& data_key(uint32_t connection) const { return data_keys_[connection]; }
  uint64_t data_id(uint32_t connection) const { return data_ids_[connection]; }

 private:
  void Connect(uint32_t number) {
    ListenTicket ticket;
    ASSERT_EQ(endpoints_[1]->Post(ListenRequest{}, &ticket), PostResult::kAccepted);
    ConnectRequest request;
    request.peer = AddressOf(1);
    request.ticket = ticket;
    ASSERT_EQ(endpoints_[0]->Post(now_, request, &senders_[number]), PostResult::kAccepted);
    const std::vector<Packet> connect = Take(0, 1);
    ASSERT_EQ(connect.size(), 1u);
    Give(1, connect);
    Event event;
    ASSERT_TRUE(endpoints_[1]->NextEvent(&event));
    receivers_[number] = event.connection;
    const std::vector<Packet> reply = Take(1, 1);
    ASSERT_EQ(reply.size(), 1u);
    Give(0, reply);
    ASSERT_TRUE(endpoints_[0]->NextEvent(&event));
    ASSERT_EQ(event.kind, Event::Kind::kConnected);
    forgive::Connect asked;
    ConnectReply answered;
    ASSERT_TRUE(ParseConnect(connect[0].data(), connect[0].size(), &asked));
    ASSERT_TRUE(ParseConnectReply(reply[0].data(), reply[0].size(), &answered));
    data_keys_[number] = DeriveKeys(ticket.secret, asked.nonce, answered.nonce).to_receiver;
    data_ids_[number] = answered.peer_connection_id;
  }

  const bool bursts_;
  TimePoint now_{1000000000};
  std::array<std::unique_ptr<StepTable>, 2> steps_;
  std::array<std::unique_ptr<Endpoint>, 2> endpoints_;
  std::array<ConnectionHandle, kConnections> senders_;
  std::array<ConnectionHandle, kConnections> receivers_;
  std::array<SipKey, kConnections> data_keys_;
  std::array<uint64_t, kConnections> data_ids_{};
  size_t posted_ = 0;
  size_t sent_ = 0;
  size_t received_ = 0;
};

bool SameCounters(const Counters& a, const Counters& b) { return std::memcmp(&a, &b, sizeof(Counters)) == 0; }

// What the network does to packets on the way, told from nothing but their places.
std::vector<Packet> Disturb(std::vector<Packet> packets, size_t round) {
  std::vector<Packet> out;
  for (size_t i = 0; i < packets.size(); ++i) {
    Packet packet = packets[i];
    const size_t fate = (i * 7 + round * 3) % 17;
    if (fate == 0) continue;                                 // lost
    if (fate == 1) packet[50] ^= 1;                          // a wrong tag
    if (fate == 2) packet.resize(kDataHeaderBytes);          // trimmed
    if (fate == 3) packet[15] ^= 0x40;                       // of an unknown connection
    if (fate == 4) packet[0] = 77;                           // of another version
    if (fate == 5 && i != 0) out.push_back(packets[i - 1]);  // a copy of the one before
    if (fate == 6) packet.resize(10);                        // noise
    out.push_back(std::move(packet));
  }
  return out;
}

TEST(EndpointBurst, EndsAsSingleCallsDoWhateverHappensOnTheWay) {
  Pair single(false);
  Pair burst(true);
  std::vector<Packet> sources;
  for (size_t i = 0; i < 6; ++i) {
    Packet source(70000 * i + 1001 * (i % 3));
    for (size_t k = 0; k < source.size(); ++k) source[k] = static_cast<uint8_t>(k * 31 + i);
    sources.push_back(std::move(source));
  }
  std::vector<Packet> from_single = sources;
  std::vector<Packet> from_burst = sources;
  for (size_t i = 0; i < sources.size(); ++i) {
    std::fill(from_single[i].begin(), from_single[i].end(), uint8_t{0});
    from_burst[i] = from_single[i];
    single.Post(static_cast<uint32_t>(i % kConnections), sources[i], &from_single[i]);
    burst.Post(static_cast<uint32_t>(i % kConnections), sources[i], &from_burst[i]);
  }
  for (size_t round = 0; round < 2000; ++round) {
    const size_t most = 1 + round * 5 % 37;
    for (size_t host = 0; host < 2; ++host) {
      const std::vector<Packet> packets = single.Take(host, most);
      ASSERT_EQ(packets, burst.Take(host, most)) << "round " << round << ", host " << host;
      const std::vector<Packet> arriving = host == 0 ? Disturb(packets, round) : packets;
      single.Give(1 - host, arriving);
      burst.Give(1 - host, arriving);
      ASSERT_TRUE(SameCounters(single.counters(1 - host), burst.counters(1 - host))) << "round " << round;
    }
    single.Pass(Milliseconds(1));
    burst.Pass(Milliseconds(1));
  }
  EXPECT_TRUE(from_single == sources);
  EXPECT_TRUE(from_burst == sources);
  const Counters& receiver = burst.counters(1);
  EXPECT_GT(receiver.bad_tag, 0u);
  EXPECT_GT(receiver.replayed, 0u);
  EXPECT_GT(receiver.trims, 0u);
  EXPECT_GT(receiver.unknown_connection, 0u);
  EXPECT_GT(receiver.foreign_version + receiver.malformed, 0u);
}

// Packets of zeros with these numbers: the next segments, from `first` on, of the first connection's first message.
std::vector<Packet> Numbered(const Pair& pair, size_t message_length, size_t first,
                             const std::vector<uint64_t>& numbers) {
  std::vector<Packet> packets;
  for (const uint64_t number : numbers) {
    DataHeader header;
    header.connection_id = pair.data_id(0);
    header.payload_length = kMaxPayloadBytes;
    header.offset_in_message = static_cast<uint32_t>(first + packets.size()) * kMaxPayloadBytes;
    header.stream_offset = header.offset_in_message;
    header.message_length = static_cast<uint32_t>(message_length);
    header.packet_number = number;
    Packet packet(kDataHeaderBytes + kMaxPayloadBytes);
    header.payload_crc32c = Crc32c(packet.data() + kDataHeaderBytes, kMaxPayloadBytes);
    WriteDataHeader(header, &pair.data_key(0), packet.data());
    packets.push_back(std::move(packet));
  }
  return packets;
}

// The tags of a burst are computed before its first packet moves what the low 32 bits of a number mean.
TEST(EndpointBurst, VerifiesAPacketWhoseFullNumberAnEarlierOneOfItsBurstChanged) {
  Pair burst(true);
  Packet source(10 * kMaxPayloadBytes);
  Packet destination(source.size());
  burst.Post(0, source, &destination);
  burst.Give(1, Numbered(burst, source.size(), 0, {0x70000000, 0xe0000000, 0x100000005}));
  EXPECT_EQ(burst.counters(1).bad_tag, 0u);
  EXPECT_EQ(burst.counters(1).packets_received, 3u);
  // From here on every tag of a burst is computed with an upper half that is not 0.
  burst.Give(1, Numbered(burst, source.size(), 3, {0x100000006, 0x100000007, 0x100000008}));
  EXPECT_EQ(burst.counters(1).bad_tag, 0u);
  EXPECT_EQ(burst.counters(1).packets_received, 6u);
}

// Each message of no bytes is an event on both sides; nobody asks for them until the queue is nearly full.
void FillTheQueueOfEvents(bool bursts) {
  Pair pair(bursts);
  const Packet source;
  Packet destination;
  constexpr size_t kRounds = 200;
  constexpr size_t kMessages = 64;
  for (size_t round = 0; round < kRounds; ++round) {
    for (size_t i = 0; i < kMessages; ++i) pair.Post(0, source, &destination);
    for (int i = 0; i < 400 && pair.unfinished_sends() != 0; ++i) {
      for (size_t host = 0; host < 2; ++host) pair.Give(1 - host, pair.Take(host, 64));
      pair.Pass(Milliseconds(1));
      if (pair.counters(1).events_full != 0) pair.Drain(1);
      pair.Drain(0);
    }
    ASSERT_EQ(pair.unfinished_sends(), 0u) << "round " << round;
  }
  pair.Drain(1);
  EXPECT_EQ(pair.received(), kRounds * kMessages);
  EXPECT_GT(pair.counters(1).events_full, 0u) << "the queue was never near its end";
}

TEST(EndpointBurst, TakesNoDatagramWhoseEventsMightNotFitTheQueue) { FillTheQueueOfEvents(true); }
TEST(EndpointBurst, TakesNoSingleDatagramWhoseEventsMightNotFitTheQueue) { FillTheQueueOfEvents(false); }

}  // namespace
}  // namespace forgive
