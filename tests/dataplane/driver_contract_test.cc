// SPDX-License-Identifier: Apache-2.0
// The contract of drivers, run for every one of them.
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <map>

#include "dataplane/fault_driver.h"
#include "dataplane/memory_driver.h"
#include "dataplane/socket_address.h"
#include "dataplane/udp_driver.h"
#include "dataplane/uring_driver.h"
#ifdef FORGIVE_TEST_DPDK
#include "dpdk_network.h"
#endif
#include "network.h"
#include "packets.h"

namespace forgive {
namespace {

constexpr size_t kMostBytes = kDataHeaderBytes + kMaxPayloadBytes;

class UdpNetwork : public Network {
 public:
  using Opener = decltype(&OpenUdpDriver);

  UdpNetwork(Opener open, const char* address, bool offloads) : open_(open) {
    options_.local_address = address;
    options_.segmentation = offloads;
    options_.coalescing = offloads;
  }
  std::unique_ptr<Driver> Open() override {
    std::string error;
    std::unique_ptr<Driver> driver = open_(options_, &error);
    EXPECT_NE(driver, nullptr) << error;
    return driver;
  }
  void SendMarked(Driver&, const Address& to, const std::string& bytes) override {
    const bool ipv6 = AddressFamily(to) == AF_INET6;
    const int fd = socket(ipv6 ? AF_INET6 : AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    const int traffic_class = 3;
    ASSERT_EQ(setsockopt(fd, ipv6 ? IPPROTO_IPV6 : IPPROTO_IP, ipv6 ? IPV6_TCLASS : IP_TOS, &traffic_class,
                         sizeof(traffic_class)),
              0);
    sockaddr_storage storage;
    const socklen_t length = ToSocketAddress(to, &storage);
    ASSERT_EQ(sendto(fd, bytes.data(), bytes.size(), 0, reinterpret_cast<const sockaddr*>(&storage), length),
              static_cast<ssize_t>(bytes.size()));
    close(fd);
  }

 private:
  Opener open_;
  UdpDriverOptions options_;
};

class MemoryNetwork : public Network {
 public:
  std::unique_ptr<Driver> Open() override { return hub_->Open(); }
  void SendMarked(Driver& from, const Address& to, const std::string& bytes) override {
    hub_->set_mark_every(1);
    const Transmit packet = MakePacket(to, bytes, PacketClass::kData);
    ASSERT_EQ(from.SendBurst({&packet, 1}), 1u);
    hub_->set_mark_every(0);
  }

 private:
  std::shared_ptr<MemoryHub> hub_ = MemoryHub::Make();
};

class FaultlessNetwork : public MemoryNetwork {
 public:
  std::unique_ptr<Driver> Open() override { return MakeFaultDriver(MemoryNetwork::Open(), FaultSpec{}, nullptr); }
};

std::unique_ptr<Network> MakeNetwork(const std::string& kind) {
#ifdef FORGIVE_TEST_DPDK
  return MakeDpdkNetwork(kind);
#endif
  const bool uring = kind.starts_with("uring");
  if (uring || kind.starts_with("udp")) {
    const char* address = kind.find("ipv6") != std::string::npos ? "::1" : "127.0.0.1";
    return std::make_unique<UdpNetwork>(uring ? OpenUringDriver : OpenUdpDriver, address, !kind.ends_with("plain"));
  }
  if (kind == "memory") return std::make_unique<MemoryNetwork>();
  return std::make_unique<FaultlessNetwork>();
}

class DriverContract : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    std::string why;
    if (std::string(GetParam()).starts_with("uring") && !UringOffered(&why)) GTEST_SKIP() << why;
  }
  std::unique_ptr<Network> network_ = MakeNetwork(GetParam());
};

TEST_P(DriverContract, DeliversBurstsWholeAndInOrder) {
  const auto sender = network_->Open();
  const auto receiver = network_->Open();
  std::vector<std::string> bytes;
  for (uint64_t i = 0; i < 3000; ++i) bytes.push_back(PatternBytes(i, i % 5 == 0 ? 100 + i % 300 : kMostBytes));
  std::vector<Transmit> packets;
  for (size_t i = 0; i < bytes.size(); ++i) {
    packets.push_back(
        MakePacket(receiver->local_address(), bytes[i], i % 5 == 0 ? PacketClass::kControl : PacketClass::kData));
  }
  const std::vector<Received> received = Exchange(*sender, *receiver, packets);
  ASSERT_EQ(received.size(), bytes.size());
  for (size_t i = 0; i < bytes.size(); ++i) {
    ASSERT_EQ(received[i].bytes, bytes[i]) << i;
    ASSERT_EQ(received[i].source, sender->local_address());
    ASSERT_FALSE(received[i].ce);
  }
  EXPECT_EQ(ReceiveRest(*receiver).size(), 0u);
}

TEST_P(DriverContract, CarriesEverySizeUpToTheLargest) {
  const auto sender = network_->Open();
  const auto receiver = network_->Open();
  EXPECT_EQ(sender->max_datagram_bytes(), kMostBytes);
  std::vector<std::string> bytes;
  for (size_t size = 0; size <= kMostBytes; size += size < 128 || size > kMostBytes - 40 ? 1 : 61) {
    bytes.push_back(PatternBytes(size, size));
  }
  bytes.push_back(PatternBytes(1, kMostBytes));
  std::vector<Transmit> packets;
  for (const std::string& one : bytes) {
    packets.push_back(MakePacket(receiver->local_address(), one, PacketClass::kData));
  }
  const std::vector<Received> received = Exchange(*sender, *receiver, packets);
  ASSERT_EQ(received.size(), bytes.size());
  for (size_t i = 0; i < bytes.size(); ++i) ASSERT_EQ(received[i].bytes, bytes[i]) << bytes[i].size();
}

TEST_P(DriverContract, ShowsCongestionExperiencedOfThatPacketOnly) {
  const auto sender = network_->Open();
  const auto receiver = network_->Open();
  const std::string plain = PatternBytes(1, 500);
  const std::string marked = PatternBytes(2, 500);
  const Transmit packet = MakePacket(receiver->local_address(), plain, PacketClass::kData);
  ASSERT_EQ(sender->SendBurst({&packet, 1}), 1u);
  std::vector<Received> received = ReceiveCount(*receiver, 1);
  ASSERT_EQ(received.size(), 1u);
  EXPECT_FALSE(received[0].ce);
  network_->SendMarked(*sender, receiver->local_address(), marked);
  received = ReceiveCount(*receiver, 1);
  ASSERT_EQ(received.size(), 1u);
  EXPECT_EQ(received[0].bytes, marked);
  EXPECT_TRUE(received[0].ce);
}

TEST_P(DriverContract, NamesTheSourceOfEachPacket) {
  const auto receiver = network_->Open();
  std::vector<std::unique_ptr<Driver>> senders;
  std::vector<std::string> bytes;
  for (uint64_t i = 0; i < 5; ++i) {
    senders.push_back(network_->Open());
    bytes.push_back(PatternBytes(i, 1000 + i));
  }
  for (int round = 0; round < 20; ++round) {
    for (size_t i = 0; i < senders.size(); ++i) {
      const Transmit packet = MakePacket(receiver->local_address(), bytes[i], PacketClass::kData);
      ASSERT_EQ(senders[i]->SendBurst({&packet, 1}), 1u);
    }
  }
  const std::vector<Received> received = ReceiveCount(*receiver, 20 * senders.size());
  ASSERT_EQ(received.size(), 20 * senders.size());
  for (const Received& one : received) {
    const auto who = std::find(bytes.begin(), bytes.end(), one.bytes);
    ASSERT_NE(who, bytes.end());
    EXPECT_EQ(one.source, senders[static_cast<size_t>(who - bytes.begin())]->local_address());
  }
}

TEST_P(DriverContract, SendsToSeveralDestinationsInOneBurst) {
  const auto sender = network_->Open();
  const std::unique_ptr<Driver> receivers[] = {network_->Open(), network_->Open(), network_->Open()};
  std::vector<std::string> bytes;
  for (uint64_t i = 0; i < 60; ++i) bytes.push_back(PatternBytes(i, 2000));
  std::vector<Transmit> packets;
  for (size_t i = 0; i < bytes.size(); ++i) {
    packets.push_back(MakePacket(receivers[i / 2 % 3]->local_address(), bytes[i], PacketClass::kData));
  }
  ASSERT_EQ(sender->SendBurst(packets), packets.size());
  for (size_t r = 0; r < 3; ++r) {
    const std::vector<Received> received = ReceiveCount(*receivers[r], 20);
    ASSERT_EQ(received.size(), 20u);
    size_t next = 0;
    for (size_t i = 0; i < bytes.size(); ++i) {
      if (i / 2 % 3 != r) continue;
      EXPECT_EQ(received[next++].bytes, bytes[i]);
    }
  }
}

TEST_P(DriverContract, TakesPacketsFromTheFrontAndTheRestAfterTryAgain) {
  const auto sender = network_->Open();
  const auto receiver = network_->Open();
  std::vector<std::string> bytes;
  for (uint64_t i = 0; i < 4000; ++i) bytes.push_back(PatternBytes(i, 300));
  std::vector<Transmit> packets;
  for (const std::string& one : bytes) {
    packets.push_back(MakePacket(receiver->local_address(), one, PacketClass::kData));
  }
  // Everything that will be taken without a receiver; then the receiver makes room and the rest follows.
  size_t sent = 0;
  for (size_t taken = 1; taken != 0 && sent < packets.size(); sent += taken) {
    taken = sender->SendBurst(std::span<const Transmit>(packets).subspan(sent));
  }
  std::vector<Received> received;
  const TimePoint deadline = TestDeadline();
  while (received.size() < bytes.size() && MonotonicNow() < deadline) {
    if (ReceiveSome(*receiver, &received) == 0) AwaitInput(*receiver);
    if (sent < packets.size()) sent += sender->SendBurst(std::span<const Transmit>(packets).subspan(sent));
  }
  ASSERT_EQ(received.size(), bytes.size());
  for (size_t i = 0; i < bytes.size(); ++i) ASSERT_EQ(received[i].bytes, bytes[i]) << i;
}

TEST_P(DriverContract, LetsPacketsToAClosedPortVanish) {
  const auto sender = network_->Open();
  auto closed = network_->Open();
  const auto open = network_->Open();
  const Address gone = closed->local_address();
  closed.reset();
  const std::string bytes = PatternBytes(9, 700);
  for (int i = 0; i < 3000; ++i) {
    const Transmit packet = MakePacket(gone, bytes, PacketClass::kData);
    ASSERT_EQ(sender->SendBurst({&packet, 1}), 1u);
  }
  // The refusals of the closed port reach neither sending nor receiving.
  const Transmit there = MakePacket(open->local_address(), bytes, PacketClass::kData);
  const Transmit back = MakePacket(sender->local_address(), bytes, PacketClass::kData);
  ASSERT_EQ(sender->SendBurst({&there, 1}), 1u);
  ASSERT_EQ(open->SendBurst({&back, 1}), 1u);
  EXPECT_EQ(ReceiveCount(*open, 1).size(), 1u);
  EXPECT_EQ(ReceiveCount(*sender, 1).size(), 1u);
  EXPECT_EQ(sender->counters().send_errors, 0u);
}

TEST_P(DriverContract, ReportsDrainedOnlyWhenNothingIsLeft) {
  const auto sender = network_->Open();
  const auto receiver = network_->Open();
  const std::string bytes = PatternBytes(3, kMostBytes);
  const std::vector<Transmit> packets(200, MakePacket(receiver->local_address(), bytes, PacketClass::kData));
  size_t sent = 0;
  while (sent < packets.size()) sent += sender->SendBurst(std::span<const Transmit>(packets).subspan(sent));
  AwaitInput(*receiver);
  // One full round until it says drained: on loopback everything has arrived by then.
  std::vector<Received> received;
  const TimePoint deadline = TestDeadline();
  do {
    if (ReceiveSome(*receiver, &received) == 0) break;
  } while (!receiver->receive_drained() && MonotonicNow() < deadline);
  EXPECT_EQ(received.size(), packets.size());
}

TEST_P(DriverContract, DescribesItselfInOneLine) {
  const auto driver = network_->Open();
  EXPECT_FALSE(driver->description().empty());
  EXPECT_EQ(driver->description().find('\n'), std::string::npos);
}

#ifdef FORGIVE_TEST_DPDK
const auto kNetworks = testing::ValuesIn(kDpdkNetworks);
#else
const auto kNetworks = testing::Values("udp_ipv4", "udp_ipv6", "udp_ipv4_plain", "udp_ipv6_plain", "uring_ipv4",
                                       "uring_ipv6", "uring_ipv4_plain", "uring_ipv6_plain", "memory", "faultless");
#endif
INSTANTIATE_TEST_SUITE_P(Drivers, DriverContract, kNetworks,
                         [](const auto& instance) { return std::string(instance.param); });

}  // namespace
}  // namespace forgive
