// SPDX-License-Identifier: Apache-2.0
// Tests of what the drivers over kernel UDP have in common: offloads, cut packets in every form, ports, drops.
#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <netinet/ip.h>
#include <netinet/ip6.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>

#include "dataplane/socket_address.h"
#include "kernel_driver.h"
#include "packets.h"

namespace forgive {
namespace {

constexpr size_t kMostBytes = kDataHeaderBytes + kMaxPayloadBytes;

std::unique_ptr<Driver> MustOpen(const UdpDriverOptions& options) {
  std::string error;
  std::unique_ptr<Driver> driver = OpenKernelDriver(options, &error);
  EXPECT_NE(driver, nullptr) << error;
  return driver;
}

// ---- Offloads ----

struct Offloads {
  bool segmentation;
  bool coalescing;
};

class UdpOffloads : public testing::TestWithParam<Offloads> {};

TEST_P(UdpOffloads, ChangeNothingThatArrives) {
  for (const char* address : {"127.0.0.1", "::1"}) {
    UdpDriverOptions sending;
    sending.local_address = address;
    sending.segmentation = GetParam().segmentation;
    UdpDriverOptions receiving;
    receiving.local_address = address;
    receiving.coalescing = GetParam().coalescing;
    const auto sender = MustOpen(sending);
    const auto receiver = MustOpen(receiving);
    // Runs of equal sizes, runs that end short, single ones, both classes.
    std::vector<std::string> bytes;
    std::vector<PacketClass> classes;
    uint64_t number = 0;
    for (size_t run = 1; run < 40; ++run) {
      const size_t size = run % 3 == 0 ? 1200 : kMostBytes;
      for (size_t i = 0; i < run; ++i) bytes.push_back(PatternBytes(++number, size));
      if (run % 2 == 0) bytes.push_back(PatternBytes(++number, 56 + run));
      classes.resize(bytes.size(), run % 7 == 0 ? PacketClass::kControl : PacketClass::kData);
    }
    std::vector<Transmit> packets;
    for (size_t i = 0; i < bytes.size(); ++i) {
      packets.push_back(MakePacket(receiver->local_address(), bytes[i], classes[i]));
    }
    const std::vector<Received> received = Exchange(*sender, *receiver, packets);
    ASSERT_EQ(received.size(), bytes.size());
    for (size_t i = 0; i < bytes.size(); ++i) ASSERT_EQ(received[i].bytes, bytes[i]) << i;
    EXPECT_EQ(sender->counters().send_errors, 0u);
    EXPECT_EQ(receiver->counters().truncated, 0u);
  }
}

INSTANTIATE_TEST_SUITE_P(All, UdpOffloads,
                         testing::Values(Offloads{false, false}, Offloads{false, true}, Offloads{true, false},
                                         Offloads{true, true}),
                         [](const auto& instance) {
                           return std::string(instance.param.segmentation ? "segmentation" : "plain") + "_" +
                                  (instance.param.coalescing ? "coalescing" : "plain");
                         });

TEST(KernelDriver, CountsAPacketThatIsTooLargeForTheKernelAndGoesOn) {
  UdpDriverOptions options;
  options.local_address = "127.0.0.1";
  const auto sender = MustOpen(options);
  const auto receiver = MustOpen(options);
  const std::string huge(70000, 'x');
  const std::string fine = PatternBytes(1, 400);
  const std::vector<Transmit> packets = {MakePacket(receiver->local_address(), huge, PacketClass::kData),
                                         MakePacket(receiver->local_address(), fine, PacketClass::kData)};
  ASSERT_EQ(sender->SendBurst(packets), 2u);
  EXPECT_EQ(sender->counters().send_errors, 1u);
  const std::vector<Received> received = ReceiveCount(*receiver, 1);
  ASSERT_EQ(received.size(), 1u);
  EXPECT_EQ(received[0].bytes, fine);
}

TEST(KernelDriver, DropsAndCountsWhatItsOwnBufferWouldCut) {
  UdpDriverOptions options;
  options.local_address = "127.0.0.1";
  options.coalescing = false;
  const auto sender = MustOpen(options);
  const auto receiver = MustOpen(options);
  const std::string large(kMostBytes + 1, 'x');
  const std::string fine = PatternBytes(1, kMostBytes);
  const std::vector<Transmit> packets = {MakePacket(receiver->local_address(), large, PacketClass::kData),
                                         MakePacket(receiver->local_address(), fine, PacketClass::kData)};
  ASSERT_EQ(sender->SendBurst(packets), 2u);
  const std::vector<Received> received = ReceiveCount(*receiver, 1);
  ASSERT_EQ(received.size(), 1u);
  EXPECT_EQ(received[0].bytes, fine);
  EXPECT_EQ(receiver->counters().truncated, 1u);
}

TEST(KernelDriver, CountsWhatTheKernelDroppedForWantOfBuffer) {
  UdpDriverOptions options;
  options.local_address = "127.0.0.1";
  const auto sender = MustOpen(options);
  options.receive_buffer_bytes = 50000;
  const auto receiver = MustOpen(options);
  const std::string bytes = PatternBytes(1, kMostBytes);
  const std::vector<Transmit> packets(64, MakePacket(receiver->local_address(), bytes, PacketClass::kData));
  for (int i = 0; i < 4; ++i) ASSERT_EQ(sender->SendBurst(packets), packets.size());
  const size_t first = ReceiveRest(*receiver).size();
  // The kernel tells the number with the next packet.
  ASSERT_EQ(sender->SendBurst(std::span(packets).first(1)), 1u);
  ASSERT_EQ(ReceiveCount(*receiver, 1).size(), 1u);
  EXPECT_LT(first, 256u);
  EXPECT_GT(receiver->counters().socket_drops, 0u);
}

// ---- Code points ----

// What a plain socket sees of the type of service.
class ServiceReader {
 public:
  explicit ServiceReader(const char* host) {
    EXPECT_TRUE(ParseAddress(host, 0, &address_));
    const bool ipv6 = AddressFamily(address_) == AF_INET6;
    fd_ = socket(ipv6 ? AF_INET6 : AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    const int on = 1;
    EXPECT_EQ(setsockopt(fd_, ipv6 ? IPPROTO_IPV6 : IPPROTO_IP, ipv6 ? IPV6_RECVTCLASS : IP_RECVTOS, &on, sizeof(on)),
              0);
    sockaddr_storage storage;
    socklen_t length = ToSocketAddress(address_, &storage);
    EXPECT_EQ(bind(fd_, reinterpret_cast<const sockaddr*>(&storage), length), 0);
    length = sizeof(storage);
    EXPECT_EQ(getsockname(fd_, reinterpret_cast<sockaddr*>(&storage), &length), 0);
    address_ = ToAddress(reinterpret_cast<const sockaddr*>(&storage));
  }
  ~ServiceReader() { close(fd_); }
  ServiceReader(const ServiceReader&) = delete;
  ServiceReader& operator=(const ServiceReader&) = delete;
  const Address& address() const { return address_; }

  // Of the next packet; -1: none came.
  int Next() const {
    pollfd waiting{fd_, POLLIN, 0};
    if (poll(&waiting, 1, 5000) != 1) return -1;
    char bytes[9000];
    alignas(cmsghdr) char control[64];
    iovec vector{bytes, sizeof(bytes)};
    msghdr header{};
    header.msg_iov = &vector;
    header.msg_iovlen = 1;
    header.msg_control = control;
    header.msg_controllen = sizeof(control);
    if (recvmsg(fd_, &header, 0) < 0) return -1;
    const cmsghdr* told = CMSG_FIRSTHDR(&header);
    if (told == nullptr) return -1;
    int value = 0;
    std::memcpy(&value, CMSG_DATA(told), told->cmsg_level == IPPROTO_IP ? 1 : sizeof(value));
    return value;
  }

 private:
  Address address_;
  int fd_ = -1;
};

TEST(KernelDriver, SendsDataWithItsConnectionsCodePointAndControlWithItsOwn) {
  constexpr int kEct0 = 2;
  for (const char* host : {"127.0.0.1", "::1"}) {
    UdpDriverOptions options;
    options.local_address = host;
    const auto sender = MustOpen(options);
    const ServiceReader reader(host);
    const std::string bytes = PatternBytes(1, 900);
    std::vector<Transmit> packets;
    // Neighbours of one size, which would leave as one segmented message if their code points were alike.
    for (const uint8_t dscp : {uint8_t{26}, uint8_t{26}, uint8_t{0}, kDscpOfDriver, uint8_t{63}}) {
      packets.push_back(MakePacket(reader.address(), bytes, PacketClass::kData));
      packets.back().dscp = dscp;
    }
    packets.push_back(MakePacket(reader.address(), bytes, PacketClass::kControl));
    packets.back().dscp = 26;
    ASSERT_EQ(sender->SendBurst(packets), packets.size());
    for (const int dscp : {26, 26, 0, int{options.dscp_data}, 63})
      EXPECT_EQ(reader.Next(), dscp << 2 | kEct0) << host;
    EXPECT_EQ(reader.Next(), options.dscp_control << 2) << host;
  }
}

// ---- Ports ----

TEST(KernelDriver, TakesTheFirstFreePortOfARangeAndNamesABusyOne) {
  UdpDriverOptions options;
  options.local_address = "127.0.0.1";
  const auto any = MustOpen(options);
  const uint16_t busy = AddressPort(any->local_address());
  options.port_low = options.port_high = busy;
  std::string error;
  EXPECT_EQ(OpenKernelDriver(options, &error), nullptr);
  EXPECT_NE(error.find(std::to_string(busy)), std::string::npos) << error;
  EXPECT_NE(error.find("FORGIVE_PORT_RANGE"), std::string::npos) << error;
  options.port_high = static_cast<uint16_t>(std::min(busy + 20, 65535));
  if (options.port_high == busy) GTEST_SKIP() << "the last port of all";
  const auto next = MustOpen(options);
  ASSERT_NE(next, nullptr);
  EXPECT_GT(AddressPort(next->local_address()), busy);
  EXPECT_LE(AddressPort(next->local_address()), options.port_high);
}

TEST(KernelDriver, SaysWhatIsWrongWithAnAddress) {
  UdpDriverOptions options;
  std::string error;
  options.local_address = "not-an-address";
  EXPECT_EQ(OpenKernelDriver(options, &error), nullptr);
  EXPECT_NE(error.find("not-an-address"), std::string::npos);
  options.local_address = "192.0.2.77";
  EXPECT_EQ(OpenKernelDriver(options, &error), nullptr);
  EXPECT_NE(error.find("192.0.2.77"), std::string::npos);
}

// ---- Cut packets ----

// How a switch leaves the lengths and the checksum of a packet that it cut (IP's own length is always right here: the
// kernel of the sending side insists).
enum class Repair { kFull, kStale, kSai };

class RawSender {
 public:
  explicit RawSender(bool ipv6)
      : ipv6_(ipv6), fd_(socket(ipv6 ? AF_INET6 : AF_INET, SOCK_RAW | SOCK_CLOEXEC, IPPROTO_RAW)) {}
  ~RawSender() { close(fd_); }
  bool permitted() const { return fd_ >= 0; }

  // Sends the first `kept` bytes of a UDP payload, with the UDP header as `repair` says.
  void Send(const Address& to, const std::string& whole, size_t kept, Repair repair, uint8_t traffic_class) {
    const auto udp_length = static_cast<uint16_t>(8 + (repair == Repair::kSai ? whole.size() : kept));
    std::string packet = IpHeader(to, static_cast<uint16_t>(8 + kept), traffic_class);
    const uint16_t words[4] = {htons(kSourcePort), htons(AddressPort(to)), htons(udp_length),
                               htons(repair == Repair::kFull ? 0 : 0x1234)};
    packet.append(reinterpret_cast<const char*>(words), sizeof(words));
    packet.append(whole, 0, kept);
    Address target = to;
    SetAddressPort(0, &target);
    sockaddr_storage storage;
    const socklen_t length = ToSocketAddress(target, &storage);
    ASSERT_EQ(sendto(fd_, packet.data(), packet.size(), 0, reinterpret_cast<const sockaddr*>(&storage), length),
              static_cast<ssize_t>(packet.size()));
  }

  static constexpr uint16_t kSourcePort = 33333;

 private:
  std::string IpHeader(const Address& to, uint16_t payload_bytes, uint8_t traffic_class) {
    if (!ipv6_) {
      iphdr header{};
      header.version = 4;
      header.ihl = 5;
      header.tos = traffic_class;
      header.ttl = 64;
      header.protocol = IPPROTO_UDP;
      header.saddr = header.daddr = htonl(INADDR_LOOPBACK);
      return {reinterpret_cast<const char*>(&header), sizeof(header)};
    }
    ip6_hdr header{};
    header.ip6_flow = htonl(6u << 28 | static_cast<uint32_t>(traffic_class) << 20);
    header.ip6_plen = htons(payload_bytes);
    header.ip6_nxt = IPPROTO_UDP;
    header.ip6_hlim = 64;
    header.ip6_src = header.ip6_dst = in6addr_loopback;
    (void)to;
    return {reinterpret_cast<const char*>(&header), sizeof(header)};
  }

  bool ipv6_;
  int fd_;
};

class CutPackets : public testing::TestWithParam<bool> {
 protected:
  void SetUp() override {
    if (!raw_.permitted()) GTEST_SKIP() << "raw sockets need CAP_NET_RAW";
    options_.local_address = GetParam() ? "::1" : "127.0.0.1";
    options_.raw_path = RawPath::kAlways;
  }

  RawSender raw_{GetParam()};
  UdpDriverOptions options_;
};

TEST_P(CutPackets, AreSeenOnceHoweverTheSwitchLeftThem) {
  const auto receiver = MustOpen(options_);
  ASSERT_NE(receiver->description().find("raw path"), std::string::npos);
  const std::string whole = DataPacketBytes(77, 1, 8192, 4096);
  for (Repair repair : {Repair::kFull, Repair::kStale, Repair::kSai}) {
    for (size_t kept : {size_t{56}, size_t{80}, size_t{1000}, whole.size() - 1}) {
      raw_.Send(receiver->local_address(), whole, kept, repair, 11 << 2 | 2);
      std::vector<Received> received = ReceiveCount(*receiver, 1);
      ASSERT_EQ(received.size(), 1u) << static_cast<int>(repair) << " " << kept;
      EXPECT_EQ(received[0].bytes, whole.substr(0, kept));
      EXPECT_EQ(AddressPort(received[0].source), RawSender::kSourcePort);
      EXPECT_FALSE(received[0].ce);
    }
  }
  EXPECT_EQ(ReceiveRest(*receiver).size(), 0u);
  EXPECT_EQ(receiver->counters().raw_packets, 12u);
  EXPECT_EQ(receiver->counters().socket_drops, 0u);
}

TEST_P(CutPackets, KeepTheirCongestionExperienced) {
  const auto receiver = MustOpen(options_);
  const std::string whole = DataPacketBytes(77, 1, 0, 4096);
  raw_.Send(receiver->local_address(), whole, 56, Repair::kSai, 11 << 2 | 3);
  const std::vector<Received> received = ReceiveCount(*receiver, 1);
  ASSERT_EQ(received.size(), 1u);
  EXPECT_TRUE(received[0].ce);
}

TEST_P(CutPackets, DoNotDisturbWholePacketsOfAnyKind) {
  const auto receiver = MustOpen(options_);
  options_.raw_path = RawPath::kOff;
  const auto sender = MustOpen(options_);
  std::vector<std::string> bytes;
  for (uint16_t i = 0; i < 200; ++i) {
    bytes.push_back(i % 3 == 0   ? PatternBytes(i, i)
                    : i % 3 == 1 ? DataPacketBytes(5, i, 4096, 4096)
                                 : DataPacketBytes(5, i, 0, static_cast<uint16_t>(i)));
  }
  std::vector<Transmit> packets;
  for (const std::string& one : bytes) {
    packets.push_back(MakePacket(receiver->local_address(), one, PacketClass::kData));
  }
  const std::vector<Received> received = Exchange(*sender, *receiver, packets);
  ASSERT_EQ(received.size(), bytes.size());
  for (size_t i = 0; i < bytes.size(); ++i) ASSERT_EQ(received[i].bytes, bytes[i]) << i;
  EXPECT_EQ(ReceiveRest(*receiver).size(), 0u);
  EXPECT_EQ(receiver->counters().raw_packets, 0u);
}

TEST_P(CutPackets, ToAnotherPortAreNotSeen) {
  const auto receiver = MustOpen(options_);
  const auto other = MustOpen(options_);
  const std::string whole = DataPacketBytes(77, 1, 0, 4096);
  raw_.Send(other->local_address(), whole, 56, Repair::kSai, 0);
  ASSERT_EQ(ReceiveCount(*other, 1).size(), 1u);
  EXPECT_EQ(ReceiveRest(*receiver).size(), 0u);
}

TEST_P(CutPackets, WithoutTheRawPathAreSeenOnlyIfFullyRepaired) {
  options_.raw_path = RawPath::kOff;
  const auto receiver = MustOpen(options_);
  const std::string whole = DataPacketBytes(77, 1, 0, 4096);
  raw_.Send(receiver->local_address(), whole, 56, Repair::kSai, 0);
  raw_.Send(receiver->local_address(), whole, 57, Repair::kStale, 0);
  raw_.Send(receiver->local_address(), whole, 58, Repair::kFull, 0);
  ASSERT_EQ(ReceiveCount(*receiver, 1)[0].bytes.size(), 58u);
  EXPECT_EQ(ReceiveRest(*receiver).size(), 0u);
}

TEST_P(CutPackets, AreDropsWithoutTheTrimmedCodePointWhereItIsRequired) {
  options_.require_trimmed_dscp = true;
  options_.dscp_trimmed = 11;
  for (RawPath path : {RawPath::kOff, RawPath::kAlways}) {
    options_.raw_path = path;
    const auto receiver = MustOpen(options_);
    const std::string whole = DataPacketBytes(77, 1, 0, 4096);
    raw_.Send(receiver->local_address(), whole, 56, Repair::kFull, 10 << 2);
    raw_.Send(receiver->local_address(), whole, 57, Repair::kFull, 11 << 2);
    const std::vector<Received> received = ReceiveCount(*receiver, 1);
    ASSERT_EQ(received.size(), 1u);
    EXPECT_EQ(received[0].bytes.size(), 57u);
    EXPECT_EQ(receiver->counters().truncated, 1u);
  }
}

INSTANTIATE_TEST_SUITE_P(Families, CutPackets, testing::Bool(),
                         [](const auto& instance) { return instance.param ? "ipv6" : "ipv4"; });

}  // namespace
}  // namespace forgive
