// SPDX-License-Identifier: Apache-2.0
// Three hosts in a world, and what happened at each: the ground of the endpoint's tests.
#ifndef FORGIVE_TESTS_TRANSPORT_ENDPOINT_FIXTURE_H_
#define FORGIVE_TESTS_TRANSPORT_ENDPOINT_FIXTURE_H_

#include <gtest/gtest.h>

#include <map>
#include <vector>

#include "world.h"

namespace forgive::testing {

inline Config TestConfig() {
  Config config;
  config.max_connections = 64;
  config.link_rate = BitsPerSecond{400000000};
  config.peer_timeout = Seconds(4);
  config.min_rto = Milliseconds(5);
  return config;
}

// What happened at one host.
struct Log {
  std::vector<Event> events;
  int Count(Event::Kind kind) const {
    int count = 0;
    for (const Event& event : events) count += event.kind == kind;
    return count;
  }
  const Event* Find(Event::Kind kind) const {
    for (const Event& event : events) {
      if (event.kind == kind) return &event;
    }
    return nullptr;
  }
};

inline std::vector<uint8_t> Bytes(size_t size) {
  std::vector<uint8_t> bytes(size);
  for (size_t i = 0; i < size; ++i) bytes[i] = static_cast<uint8_t>(i * 31 + 7);
  return bytes;
}

class EndpointTest : public ::testing::Test {
 protected:
  explicit EndpointTest(Config config = TestConfig()) : world_(3, config, 42) {
    world_.on_event = [this](int host, const Event& event) { logs_[host].events.push_back(event); };
    world_.on_transmit = [this](int host, const Transmit& transmit) { sent_[host].push_back(BytesOf(transmit)); };
  }

  void RunFor(Nanoseconds duration) {
    const TimePoint end = world_.now() + duration;
    while (world_.Step(end)) {
    }
    world_.Stall(std::max(Nanoseconds{0}, end - world_.now()));
  }

  // Host 0 asks host 1 for a connection; nothing has been sent yet.
  bool BeginConnect(const ListenTicket& ticket, ConnectionHandle* sender, uint32_t max_payload = kMaxPayloadBytes) {
    ConnectRequest request = World::RequestOf(0, 1, ticket);
    request.max_payload_bytes = max_payload;
    return world_.endpoint(0).Post(world_.LocalNow(0), request, sender) == PostResult::kAccepted;
  }
  bool Send(const Link& link, int from, const std::vector<uint8_t>& bytes, uint64_t cookie = 1) {
    return world_.endpoint(from).Post(world_.LocalNow(from), link.sender,
                                      SendRequest{cookie, bytes.data(), static_cast<uint32_t>(bytes.size())}) ==
           PostResult::kAccepted;
  }
  bool Receive(const Link& link, int to, std::vector<uint8_t>* buffer, uint64_t cookie = 2) {
    ReceiveRequest request;
    request.cookie = cookie;
    request.buffer = buffer->data();
    request.capacity = buffer->size();
    return world_.endpoint(to).Post(world_.LocalNow(to), link.receiver, request) == PostResult::kAccepted;
  }

  World world_;
  std::map<int, Log> logs_;
  std::map<int, std::vector<std::vector<uint8_t>>> sent_;
};

// One message from host 0 to host 1, over one connection.
class OneMessageTest : public EndpointTest {
 protected:
  using EndpointTest::EndpointTest;

  void Post() {
    message_ = Bytes(1000000);
    buffer_.assign(message_.size(), 0);
    ASSERT_TRUE(Receive(link_, 1, &buffer_));
    ASSERT_TRUE(Send(link_, 0, message_));
  }
  void ExpectWhole() {
    EXPECT_EQ(logs_[0].Count(Event::Kind::kSent), 1);
    EXPECT_EQ(logs_[1].Count(Event::Kind::kReceived), 1);
    EXPECT_EQ(logs_[0].Count(Event::Kind::kFailed) + logs_[1].Count(Event::Kind::kFailed), 0);
    EXPECT_TRUE(buffer_ == message_) << "the bytes differ";
  }

  Link link_;
  std::vector<uint8_t> message_, buffer_;
};

}  // namespace forgive::testing

#endif  // FORGIVE_TESTS_TRANSPORT_ENDPOINT_FIXTURE_H_
