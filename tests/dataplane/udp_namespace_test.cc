// SPDX-License-Identifier: Apache-2.0
// Tests of the drivers over kernel UDP on interfaces of its own, in a network namespace of the test.
#include <gtest/gtest.h>

#include <cstdio>

#include "kernel_driver.h"
#include "namespaces.h"
#include "packets.h"

namespace forgive {
namespace {

// Packets sent by an interface. /sys shows the namespace that mounted it, so `ip` is asked.
uint64_t PacketsOut(const std::string& interface) {
  FILE* pipe = popen(("ip -s link show dev " + interface + " | tail -1").c_str(), "r");
  if (pipe == nullptr) return 0;
  unsigned long bytes = 0;
  unsigned long packets = 0;
  if (std::fscanf(pipe, "%lu %lu", &bytes, &packets) != 2) packets = 0;
  pclose(pipe);
  return packets;
}

class UdpNamespace : public testing::Test {
 protected:
  void SetUp() override {
    if (!EnterFreshNamespace()) GTEST_SKIP() << "a network namespace needs CAP_SYS_ADMIN";
    if (!Shell("ip link add name va type veth peer name vb")) {
      GTEST_SKIP() << "ip (iproute2) cannot make a veth pair here";
    }
  }
  void TearDown() override {
    Shell("ip link del va");
    Shell("ip link del vc");
  }
  static std::unique_ptr<Driver> MustOpen(const std::string& address) {
    UdpDriverOptions options;
    options.local_address = address;
    options.raw_path = RawPath::kAuto;
    std::string error;
    std::unique_ptr<Driver> driver = OpenKernelDriver(options, &error);
    EXPECT_NE(driver, nullptr) << error;
    return driver;
  }
};

TEST_F(UdpNamespace, ReachesALinkLocalPeerThroughItsScope) {
  ASSERT_TRUE(Shell("ip addr add fe80::a/64 dev va nodad && ip addr add fe80::b/64 dev vb nodad"));
  ASSERT_TRUE(Shell("ip link set va mtu 9000 up && ip link set vb mtu 9000 up") && AwaitUp("va") && AwaitUp("vb"));
  const auto a = MustOpen("fe80::a%va");
  const auto b = MustOpen("fe80::b%vb");
  // The peer's address as it must be told here: with our own scope.
  Address to = b->local_address();
  const Address ours = a->local_address();
  std::copy(ours.bytes.begin() + 24, ours.bytes.end(), to.bytes.begin() + 24);
  // While the kernel asks for a neighbour, it keeps fewer packets than a burst has.
  ASSERT_EQ(SendUntilReceived(*a, to, *b, "reached").bytes, "reached");
  ReceiveRest(*b);
  std::vector<std::string> bytes;
  for (uint64_t i = 0; i < 100; ++i) bytes.push_back(PatternBytes(i, a->max_datagram_bytes()));
  std::vector<Transmit> packets;
  for (const std::string& one : bytes) packets.push_back(MakePacket(to, one, PacketClass::kData));
  const std::vector<Received> received = Exchange(*a, *b, packets);
  ASSERT_EQ(received.size(), bytes.size());
  for (size_t i = 0; i < bytes.size(); ++i) EXPECT_EQ(received[i].bytes, bytes[i]);
}

TEST_F(UdpNamespace, FitsItsPacketsToTheMtu) {
  ASSERT_TRUE(Shell("ip addr add 10.9.0.1/24 dev va && ip link set va mtu 1500 up && ip link set vb mtu 1500 up"));
  ASSERT_TRUE(Shell("ip addr add fd00:9::1/64 dev va nodad"));
  EXPECT_EQ(MustOpen("10.9.0.1")->max_datagram_bytes(), 1500u - 28);
  EXPECT_EQ(MustOpen("fd00:9::1")->max_datagram_bytes(), 1500u - 48);
  ASSERT_TRUE(Shell("ip link set va mtu 9000"));
  EXPECT_EQ(MustOpen("10.9.0.1")->max_datagram_bytes(), kDataHeaderBytes + kMaxPayloadBytes);
}

TEST_F(UdpNamespace, FitsItsPacketsToTheLeastMtuOfItsRails) {
  ASSERT_TRUE(Shell("ip link add name vc type veth peer name vd"));
  ASSERT_TRUE(Shell("ip addr add 10.9.0.1/24 dev va && ip addr add 10.9.1.1/24 dev vc"));
  ASSERT_TRUE(Shell("ip link set va mtu 3000 up && ip link set vc mtu 1500 up"));
  UdpDriverOptions options;
  std::string error;
  const std::pair<const char*, const char*> orders[] = {{"10.9.0.1", "10.9.1.1"}, {"10.9.1.1", "10.9.0.1"}};
  for (const auto& [first, second] : orders) {
    options.local_address = first;
    options.more_rails = {second};
    const auto driver = OpenKernelDriver(options, &error);
    ASSERT_NE(driver, nullptr) << error;
    EXPECT_EQ(driver->max_datagram_bytes(), 1500u - 28);
  }
}

TEST_F(UdpNamespace, CountsPacketsOverTheMtuAsErrorsAndSendsTheOthersOfTheBurst) {
  ASSERT_TRUE(Shell("ip addr add 10.9.0.1/24 dev va && ip link set va mtu 1500 up && ip link set vb mtu 1500 up"));
  ASSERT_TRUE(AwaitUp("va") && Shell("ip neigh add 10.9.0.9 lladdr 02:00:00:00:00:09 dev va"));
  const auto a = MustOpen("10.9.0.1");
  Address to = a->local_address();
  to.bytes[7] = 9;
  const std::string large = PatternBytes(1, 1473);
  const std::string fits = PatternBytes(2, 1472);
  std::vector<Transmit> packets(5, MakePacket(to, large, PacketClass::kData));  // one segmented message
  packets.resize(10, MakePacket(to, fits, PacketClass::kData));
  const uint64_t before = PacketsOut("va");
  ASSERT_EQ(a->SendBurst(packets), 10u);
  EXPECT_EQ(a->counters().send_errors, 5u);
  EXPECT_GE(PacketsOut("va"), before + 1);
  EXPECT_NE(a->description().find(", UDP_SEGMENT"), std::string::npos);  // the path was too narrow, not unable
}

TEST_F(UdpNamespace, LeavesByItsOwnInterfaceWhereTwoShareASubnet) {
  ASSERT_TRUE(Shell("ip link add name vc type veth peer name vd"));
  for (const char* interface : {"va", "vb", "vc", "vd"})
    ASSERT_TRUE(Shell(std::string("ip link set up dev ") + interface));
  ASSERT_TRUE(Shell("ip addr add 10.9.0.1/24 dev va && ip addr add 10.9.0.2/24 dev vc"));
  for (const char* interface : {"va", "vc"}) {
    ASSERT_TRUE(AwaitUp(interface));
    ASSERT_TRUE(Shell(std::string("ip neigh add 10.9.0.9 lladdr 02:00:00:00:00:09 dev ") + interface));
  }
  const std::pair<const char*, const char*> drivers[] = {{"10.9.0.1", "va"}, {"10.9.0.2", "vc"}};
  for (const auto& [address, interface] : drivers) {
    const auto driver = MustOpen(address);
    Address to = driver->local_address();
    to.bytes[7] = 9;
    const std::string bytes = PatternBytes(1, 700);
    const std::string other = std::string(interface) == "va" ? "vc" : "va";
    const uint64_t before = PacketsOut(interface);
    const uint64_t other_before = PacketsOut(other);
    for (int i = 0; i < 50; ++i) {
      const Transmit packet = MakePacket(to, bytes, PacketClass::kData);
      ASSERT_EQ(driver->SendBurst({&packet, 1}), 1u);
    }
    EXPECT_GE(PacketsOut(interface), before + 50) << address;
    EXPECT_LT(PacketsOut(other), other_before + 25) << address;  // IPv6's own chatter at most
    EXPECT_EQ(driver->counters().send_errors, 0u);
  }
  // And an address of this machine is reached all the same, over loopback.
  const auto one = MustOpen("10.9.0.1");
  const auto two = MustOpen("10.9.0.2");
  const std::string bytes = PatternBytes(3, 900);
  const Transmit packet = MakePacket(two->local_address(), bytes, PacketClass::kData);
  ASSERT_EQ(one->SendBurst({&packet, 1}), 1u);
  const std::vector<Received> received = ReceiveCount(*two, 1);
  ASSERT_EQ(received.size(), 1u);
  EXPECT_EQ(received[0].source, one->local_address());
}

}  // namespace
}  // namespace forgive
