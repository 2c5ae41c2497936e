// SPDX-License-Identifier: Apache-2.0
// Tests of the path that reports, probes and replies of a connection that sprays take while paths are dead.
#include <set>

#include "endpoint_fixture.h"

namespace forgive {
namespace {

using namespace testing;  // NOLINT: the fixture's names

class ControlPath : public OneMessageTest {
 protected:
  static Config Spraying() {
    Config config = TestConfig();
    config.path_policy = PathPolicy::kReps;
    config.paths = 4;
    return config;
  }
  ControlPath() : OneMessageTest(Spraying()) {
    world_.carry = [this](int from, const Transmit& transmit) {
      if (transmit.packet_class == PacketClass::kControl) control_paths_.insert(transmit.path);
      if (dead_.contains(transmit.path)) return;
      if (reports_die_ && from == 1 && transmit.path == 0) return;
      Flight* flight = world_.NewFlight(from, transmit.destination);
      flight->bytes = BytesOf(transmit);
      world_.Launch(world_.now() + Microseconds(50));
    };
  }

  // One message, from whose middle on these paths lose everything, in both directions.
  void Transfer(const std::set<uint16_t>& dead) {
    Post();
    RunFor(Milliseconds(3));
    ASSERT_EQ(logs_[0].Count(Event::Kind::kSent), 0) << "the transfer is over already";
    dead_ = dead;
  }

  // Shorter than an eighth of the peer timeout, after which the silence itself makes both sides probe.
  static constexpr Nanoseconds kBeforeSilence = Milliseconds(400);

  std::set<uint16_t> dead_, control_paths_;
  bool reports_die_ = false;  // those on the first path
};

TEST_F(ControlPath, IsTheFirstWhileReportsArrive) {
  ASSERT_TRUE(ConnectPair(&world_, 0, 1, &link_));
  Transfer({});
  RunFor(Seconds(10));
  ExpectWhole();
  EXPECT_EQ(control_paths_, std::set<uint16_t>{0});
}

TEST_F(ControlPath, IsLeftWhereItIsDead) {
  ASSERT_TRUE(ConnectPair(&world_, 0, 1, &link_));
  Transfer({0, 1});
  RunFor(kBeforeSilence);
  ExpectWhole();
}

TEST_F(ControlPath, IsLeftByTheProbesAndReportsOfASenderThatWaitsForAReceive) {
  ASSERT_TRUE(ConnectPair(&world_, 0, 1, &link_));
  message_ = Bytes(1000);
  buffer_.assign(message_.size(), 0);
  dead_ = {0, 1};
  ASSERT_TRUE(Send(link_, 0, message_));
  RunFor(Milliseconds(2));
  ASSERT_TRUE(Receive(link_, 1, &buffer_));
  RunFor(kBeforeSilence);
  ExpectWhole();
}

TEST_F(ControlPath, IsLeftByTheLastReportsOfAConnectionThatWasClosed) {
  ASSERT_TRUE(ConnectPair(&world_, 0, 1, &link_));
  message_ = Bytes(1000);
  buffer_.assign(message_.size(), 0);
  ASSERT_TRUE(Receive(link_, 1, &buffer_));
  RunFor(Milliseconds(2));
  ASSERT_TRUE(Send(link_, 0, message_));
  reports_die_ = true;
  for (int i = 0; i < 100 && logs_[1].Count(Event::Kind::kReceived) == 0; ++i) RunFor(Microseconds(100));
  world_.endpoint(1).Post(world_.LocalNow(1), CloseRequest{link_.receiver});
  RunFor(kBeforeSilence);
  ExpectWhole();
}

TEST_F(ControlPath, IsAnotherForARepeatedReplyToAConnect) {
  ListenTicket ticket;
  ASSERT_EQ(world_.endpoint(1).Post(ListenRequest{7}, &ticket), PostResult::kAccepted);
  ConnectionHandle sender;
  int replies = 0;  // lost ones
  const auto carry = world_.carry;
  world_.carry = [&, carry](int from, const Transmit& transmit) {
    if (from == 1 && transmit.path == 0) {
      ++replies;
    } else {
      carry(from, transmit);
    }
  };
  ASSERT_TRUE(BeginConnect(ticket, &sender));
  RunFor(Seconds(1));
  EXPECT_EQ(logs_[0].Count(Event::Kind::kConnected), 1);
  EXPECT_GT(replies, 0);
}

}  // namespace
}  // namespace forgive
