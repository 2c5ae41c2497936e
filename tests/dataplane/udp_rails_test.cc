// SPDX-License-Identifier: Apache-2.0
// Tests of the drivers over kernel UDP with several rails: which address each path has, and what each rail receives.
#include <gtest/gtest.h>
#include <poll.h>

#include <algorithm>
#include <map>
#include <set>

#include "dataplane/drivers.h"
#include "dataplane/fault_driver.h"
#include "dataplane/socket_address.h"
#include "kernel_driver.h"
#include "packets.h"

namespace forgive {
namespace {

constexpr uint32_t kRails = 3;

UdpDriverOptions RailOptions(uint32_t paths = 1, RawPath raw = RawPath::kOff) {
  UdpDriverOptions options;
  options.local_address = "127.0.0.1";
  options.more_rails = {"127.0.0.2", "127.0.0.3"};
  options.paths = paths;
  options.raw_path = raw;
  return options;
}

std::unique_ptr<Driver> MustOpen(const UdpDriverOptions& options) {
  std::string error;
  std::unique_ptr<Driver> driver = OpenKernelDriver(options, &error);
  EXPECT_NE(driver, nullptr) << error;
  return driver;
}

// The last byte of 127.0.0.N.
int HostOf(const Address& address) { return address.bytes[7]; }

// Packets that take the paths in turn, each to the peer's address of its rail.
std::vector<Transmit> InTurn(const Driver& to, const std::vector<std::string>& bytes, uint32_t paths) {
  std::vector<Transmit> packets;
  for (const std::string& one : bytes) {
    const auto path = static_cast<uint16_t>(packets.size() % paths);
    packets.push_back(MakePacket(to.rail_address(path % kRails), one, PacketClass::kData));
    packets.back().path = path;
  }
  return packets;
}

std::vector<std::string> Patterns(size_t count, size_t length) {
  std::vector<std::string> bytes;
  for (uint64_t i = 0; i < count; ++i) bytes.push_back(PatternBytes(i, length));
  return bytes;
}

TEST(UdpRails, SendEachPathFromItsRailAndReceiveOnAll) {
  for (const uint32_t paths_each : {1u, 2u}) {
    const auto sender = MustOpen(RailOptions(paths_each));
    const auto receiver = MustOpen(RailOptions());
    const uint32_t paths = paths_each * kRails;
    const std::vector<std::string> bytes = Patterns(60 * paths, 2000);
    const std::vector<Received> received = Exchange(*sender, *receiver, InTurn(*receiver, bytes, paths));
    ASSERT_EQ(received.size(), bytes.size());
    std::map<std::string, size_t> number;
    for (size_t i = 0; i < bytes.size(); ++i) number[bytes[i]] = i;
    std::map<uint32_t, std::set<uint16_t>> ports;  // by path
    for (const Received& one : received) {
      const auto path = static_cast<uint32_t>(number.at(one.bytes) % paths);
      EXPECT_EQ(HostOf(one.source), static_cast<int>(1 + path % kRails));
      ports[path].insert(AddressPort(one.source));
      const bool known = one.source == sender->rail_address(path % kRails);
      EXPECT_EQ(known, path < kRails) << "only a rail's first path leaves from where the rail receives";
    }
    for (const auto& [path, own] : ports) EXPECT_EQ(own.size(), 1u) << path;
    EXPECT_EQ(ports.size(), paths);
  }
}

TEST(UdpRails, CountTheBytesOfEachInBothDirections) {
  const auto sender = MustOpen(RailOptions(2));
  const auto receiver = MustOpen(RailOptions());
  std::vector<Transmit> packets;
  const std::vector<std::string> bytes = Patterns(12, 1000);
  for (size_t i = 0; i < bytes.size(); ++i) {
    const auto rail = static_cast<uint16_t>(i < 6 ? 0 : i < 10 ? 1 : 2);
    packets.push_back(MakePacket(receiver->rail_address(rail), bytes[i], PacketClass::kData));
    packets.back().path = static_cast<uint16_t>(rail + (i % 2) * kRails);
  }
  ASSERT_EQ(Exchange(*sender, *receiver, packets).size(), packets.size());
  const uint64_t expected[] = {6000, 4000, 2000};
  for (size_t rail = 0; rail < kRails; ++rail) {
    EXPECT_EQ(sender->counters().rails[rail], (RailBytes{expected[rail], 0})) << rail;
    EXPECT_EQ(receiver->counters().rails[rail], (RailBytes{0, expected[rail]})) << rail;
  }
}

TEST(UdpRails, HandOutWhatCameByOneWhileAnotherAlwaysHasAFullBurst) {
  const auto sender = MustOpen(RailOptions());
  const auto receiver = MustOpen(RailOptions());
  const std::string flood = PatternBytes(1, 200);
  for (uint32_t other = 1; other < kRails; ++other) {
    const std::vector<Transmit> packets(640, MakePacket(receiver->local_address(), flood, PacketClass::kData));
    ASSERT_EQ(sender->SendBurst(packets), packets.size());
    const std::string lonely = PatternBytes(2, 300);
    Transmit one = MakePacket(receiver->rail_address(other), lonely, PacketClass::kData);
    one.path = static_cast<uint16_t>(other);
    ASSERT_EQ(sender->SendBurst({&one, 1}), 1u);
    std::vector<Received> received;
    for (uint32_t call = 0; call < kRails; ++call) ReceiveSome(*receiver, &received);
    EXPECT_TRUE(std::ranges::any_of(received, [&](const Received& r) { return r.bytes == lonely; })) << other;
    ReceiveRest(*receiver);
  }
}

TEST(UdpRails, WakeWhoeverPollsWhicheverRailThePacketCameBy) {
  const auto sender = MustOpen(RailOptions());
  const auto receiver = MustOpen(RailOptions());
  const std::string bytes = PatternBytes(1, 200);
  for (uint32_t rail = 0; rail < kRails; ++rail) {
    EXPECT_TRUE(ReceiveRest(*receiver).empty());
    Transmit packet = MakePacket(receiver->rail_address(rail), bytes, PacketClass::kData);
    packet.path = static_cast<uint16_t>(rail);
    ASSERT_EQ(sender->SendBurst({&packet, 1}), 1u);
    std::vector<pollfd> fds;
    for (const int fd : receiver->poll_fds()) fds.push_back({fd, POLLIN, 0});
    EXPECT_EQ(poll(fds.data(), fds.size(), 20000), 1) << rail;
    EXPECT_EQ(ReceiveCount(*receiver, 1).size(), 1u);
    EXPECT_TRUE(receiver->receive_drained());
  }
}

TEST(UdpRails, SeeCutPacketsOnEachByItsOwnRawSocket) {
  const auto receiver = MustOpen(RailOptions(1, RawPath::kAlways));
  if (receiver->description().find("no CAP_NET_RAW") != std::string::npos) {
    GTEST_SKIP() << "raw sockets need CAP_NET_RAW";
  }
  const auto sender = MustOpen(RailOptions());
  std::string cut = DataPacketBytes(7, 1, 0, 900);
  cut.resize(kDataHeaderBytes);
  for (uint32_t rail = 0; rail < kRails; ++rail) {
    Transmit packet = MakePacket(receiver->rail_address(rail), cut, PacketClass::kData);
    packet.path = static_cast<uint16_t>(rail);
    ASSERT_EQ(sender->SendBurst({&packet, 1}), 1u);
    const std::vector<Received> received = ReceiveRest(*receiver);
    ASSERT_EQ(received.size(), 1u) << "rail " << rail << ": not once";
    EXPECT_EQ(received[0].bytes, cut);
    EXPECT_EQ(received[0].source, sender->rail_address(rail));
    EXPECT_EQ(receiver->counters().raw_packets, rail + 1);
    // The kernel tells of the drops before it with the next packet that it delivers.
    const std::string whole = PatternBytes(rail, 100);
    packet = MakePacket(receiver->rail_address(rail), whole, PacketClass::kData);
    packet.path = static_cast<uint16_t>(rail);
    ASSERT_EQ(sender->SendBurst({&packet, 1}), 1u);
    ASSERT_EQ(ReceiveRest(*receiver).size(), 1u);
    EXPECT_EQ(receiver->counters().socket_drops, 0u) << "what the raw path saw is no drop";
  }
}

TEST(UdpRails, AreOfOneAddressFamily) {
  UdpDriverOptions options = RailOptions();
  options.more_rails = {"::1"};
  std::string error;
  EXPECT_EQ(OpenKernelDriver(options, &error), nullptr);
  EXPECT_EQ(error, "rails 127.0.0.1 and ::1 must be both IPv4 or both IPv6: set NCCL_SOCKET_FAMILY");
}

TEST(UdpRails, SayWhichOneHasNoPortOrNoAddress) {
  UdpDriverOptions options = RailOptions();
  options.more_rails = {"127.0.0.2", "203.0.113.9"};
  std::string error;
  EXPECT_EQ(OpenKernelDriver(options, &error), nullptr);
  EXPECT_EQ(error, "address 203.0.113.9 is not on this machine: choose an interface that is up");
}

TEST(UdpRails, KeepTheirAddressesBehindInjectedFaults) {
  const auto driver = MakeFaultDriver(MustOpen(RailOptions()), FaultSpec{}, nullptr);
  for (uint32_t rail = 0; rail < kRails; ++rail) {
    EXPECT_EQ(HostOf(driver->rail_address(rail)), static_cast<int>(rail + 1));
  }
}

TEST(UdpRails, AreRefusedWhereTheDriverHasOneWithALineThatNamesTheWayOut) {
  EngineOptions options;
  options.transport.path_policy = PathPolicy::kReps;
  options.transport.rails = 2;
  options.transport.paths = 2;
  DeviceOptions device;
  device.local_address = "127.0.0.1";
  device.more_rails = {"127.0.0.2"};
  options.devices.push_back(device);
  const auto refusal = [&] {
    std::string error;
    EXPECT_EQ(MakeDriver(options, 0, nullptr, &error), nullptr);
    return error;
  };
  options.driver = "dpdk";
  EXPECT_EQ(refusal(), "FORGIVE_RAILS: FORGIVE_DRIVER=dpdk has one rail: choose udp or uring, or unset FORGIVE_RAILS");
  options.driver = "udp";
  options.relay = "127.0.0.1:9";
  EXPECT_EQ(refusal(), "FORGIVE_RAILS: a relay (FORGIVE_RELAY) is one rail: unset FORGIVE_RAILS");
  options.relay.clear();
  options.transport.paths = 10;
  EXPECT_EQ(refusal(), "FORGIVE_PATHS=5: accepted: an integer from 1 to 4 (for each of 2 rails)");
}

}  // namespace
}  // namespace forgive
