// SPDX-License-Identifier: Apache-2.0
// Tests of connections over several rails: where each path leads, and what happens where a rail is dead.
#include <gtest/gtest.h>

#include <set>
#include <tuple>

#include "endpoint_fixture.h"
#include "transport/wire_layout.h"

namespace forgive {
namespace {

using namespace testing;  // NOLINT: the fixture's names

Config Railed(uint32_t rails, uint32_t paths) {
  Config config = TestConfig();
  config.path_policy = PathPolicy::kOblivious;
  config.rails = rails;
  config.paths = paths;
  return config;
}

// Links that lead somewhere only where path and destination are of one rail, and that rail is alive.
class Rails : public OneMessageTest {
 protected:
  static constexpr uint32_t kRails = 3;
  static constexpr uint32_t kPaths = 6;

  explicit Rails(Config config = Railed(kRails, kPaths)) : OneMessageTest(config) {
    world_.carry = [this](int from, const Transmit& transmit) {
      const uint32_t rail = transmit.destination.bytes[1];
      EXPECT_EQ(rail, transmit.path % kRails) << "to another rail than the path's";
      if (transmit.header[1] == FORGIVE_TYPE_CONNECT) {
        EXPECT_LT(transmit.path, kRails) << "by a path whose socket never receives the reply";
        ++connects_;
      }
      if (dead_.contains({from, rail})) return;
      Flight* flight = world_.NewFlight(from, transmit.destination);
      ASSERT_NE(flight, nullptr) << "to nobody";
      bytes_[from][rail] += transmit.header_length + transmit.payload_length;
      paths_[from].insert(transmit.path);
      flight->bytes = BytesOf(transmit);
      flight->source = World::AddressOf(spoofed_ ? 77 : from, rail);
      world_.Launch(world_.now() + Microseconds(50));
    };
  }

  void KillRail(uint32_t rail) { dead_.insert({{0, rail}, {1, rail}}); }

  std::set<std::pair<int, uint32_t>> dead_;  // what leaves the host by the rail
  bool spoofed_ = false;
  std::array<std::array<uint64_t, kRails>, 2> bytes_{};
  std::array<std::set<uint16_t>, 2> paths_;
  int connects_ = 0;
};

TEST_F(Rails, CarryEqualSharesOfTheDataOverEveryPath) {
  ASSERT_TRUE(ConnectPair(&world_, 0, 1, &link_));
  Post();
  RunFor(Seconds(5));
  ExpectWhole();
  EXPECT_EQ(paths_[0].size(), kPaths);
  for (uint32_t rail = 0; rail < kRails; ++rail) {
    EXPECT_NEAR(static_cast<double>(bytes_[0][rail]), 1e6 / kRails, 5e4) << rail;
  }
}

TEST_F(Rails, SendReportsToTheAddressesThatTheConnectNamesAndNotToItsSource) {
  spoofed_ = true;  // the carrier knows no host 77, and would say so
  ASSERT_TRUE(ConnectPair(&world_, 0, 1, &link_));
  Post();
  RunFor(Seconds(5));
  ExpectWhole();
}

class DeadRail : public Rails, public ::testing::WithParamInterface<uint32_t> {};

TEST_P(DeadRail, LeavesTheConnectionGoingOnTheOthers) {
  ASSERT_TRUE(ConnectPair(&world_, 0, 1, &link_));
  Post();
  RunFor(Milliseconds(3));
  ASSERT_EQ(logs_[0].Count(Event::Kind::kSent), 0) << "the transfer is over already";
  KillRail(GetParam());
  RunFor(Milliseconds(400));
  ExpectWhole();
}

TEST_P(DeadRail, LetsAConnectionBeginByTheNextOne) {
  KillRail(GetParam());
  ASSERT_TRUE(ConnectPair(&world_, 0, 1, &link_));
  EXPECT_EQ(connects_, GetParam() == 0 ? 2 : 1) << "the reply left by another rail than its Connect";
  Post();
  RunFor(Milliseconds(500));
  ExpectWhole();
}

TEST_P(DeadRail, LetsAConnectionBeginWhereOnlyTheWayBackIsDead) {
  dead_.insert({1, GetParam()});
  ASSERT_TRUE(ConnectPair(&world_, 0, 1, &link_));
  EXPECT_EQ(connects_, GetParam() == 0 ? 2 : 1) << "the reply to a repeated Connect left by the dead rail again";
  Post();
  RunFor(Milliseconds(500));
  ExpectWhole();
}

INSTANTIATE_TEST_SUITE_P(Each, DeadRail, ::testing::Values(0u, 1u, 2u));

TEST_F(Rails, OfAnotherNumberAreRefusedByTheRailThatWorksAndTheConnectorSaysWhy) {
  World world;
  world.carry = [&](int from, const Transmit& transmit) {
    if (transmit.path == 0) return;
    Flight* flight = world.NewFlight(from, transmit.destination);
    flight->source = World::AddressOf(from, transmit.path);
    flight->bytes = BytesOf(transmit);
    world.Launch(world.now() + Microseconds(50));
  };
  world.Begin(5);
  world.AddHost(Railed(2, 2), {});
  world.AddHost(Railed(kRails, kPaths), {});
  std::vector<Event> events;
  world.on_event = [&](int, const Event& event) { events.push_back(event); };
  ListenTicket ticket;
  ASSERT_EQ(world.endpoint(1).Post(ListenRequest{7}, &ticket), PostResult::kAccepted);
  ConnectionHandle sender;
  ASSERT_EQ(world.endpoint(0).Post(world.LocalNow(0), World::RequestOf(0, 1, ticket), &sender), PostResult::kAccepted);
  for (int i = 0; i < 100 && world.Step(world.now() + Seconds(1)); ++i) {
  }
  ASSERT_EQ(events.size(), 1u);
  EXPECT_EQ(events[0].kind, Event::Kind::kFailed);
  EXPECT_EQ(events[0].reason, FailReason::kOtherRails);
}

}  // namespace
}  // namespace forgive
