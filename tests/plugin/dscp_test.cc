// SPDX-License-Identifier: Apache-2.0
// The code points of a communicator's packets, as a raw socket beside the plugin sees them.
#include <gtest/gtest.h>
#include <linux/filter.h>
#include <netinet/in.h>
#include <netinet/ip.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <map>
#include <vector>

#include "ring_steps.h"

namespace forgive::testing {
namespace {

constexpr int kEct0 = 2;
constexpr int kDataType = 1;  // PacketType::kData, the header's second byte

// The first of the ports that are watched: another run of this test beside it has others, and so has every socket
// whose port the kernel chooses (from 32768 on).
int FirstPort() {
  static const int first = 20000 + getpid() % 790 * 16;
  return first;
}
constexpr int kPorts = 16;

// Every UDP packet of loopback that goes to these ports: the type of service of its data packets, and of the others.
class ServiceWatch {
 public:
  explicit ServiceWatch(bool ipv6) : ipv6_(ipv6) {
    fd_ = socket(ipv6 ? AF_INET6 : AF_INET, SOCK_RAW | SOCK_NONBLOCK | SOCK_CLOEXEC, IPPROTO_UDP);
    if (fd_ < 0) return;
    const int on = 1;
    const int bytes = 64 << 20;
    if (setsockopt(fd_, SOL_SOCKET, SO_RCVBUFFORCE, &bytes, sizeof(bytes)) != 0) {
      setsockopt(fd_, SOL_SOCKET, SO_RCVBUF, &bytes, sizeof(bytes));
    }
    if (ipv6) {
      EXPECT_EQ(setsockopt(fd_, IPPROTO_IPV6, IPV6_RECVTCLASS, &on, sizeof(on)), 0);
    }
    TakeOnlyWatchedPorts();
  }
  ~ServiceWatch() { close(fd_); }
  ServiceWatch(const ServiceWatch&) = delete;
  ServiceWatch& operator=(const ServiceWatch&) = delete;
  bool permitted() const { return fd_ >= 0; }

  // [true]: of data packets; [false]: of the others. How often each value was seen (a segmented message counts once).
  std::map<bool, std::map<int, int>> Read() const {
    std::map<bool, std::map<int, int>> seen;
    static char bytes[1 << 16];
    alignas(cmsghdr) char control[64];
    for (;;) {
      iovec vector{bytes, sizeof(bytes)};
      msghdr header{};
      header.msg_iov = &vector;
      header.msg_iovlen = 1;
      header.msg_control = control;
      header.msg_controllen = sizeof(control);
      const ssize_t length = recvmsg(fd_, &header, 0);
      if (length < 0) return seen;
      // A raw IPv4 socket gives the IP header too.
      const auto* udp = reinterpret_cast<const uint8_t*>(bytes) + (ipv6_ ? 0 : (bytes[0] & 0xf) * 4);
      if (!IsWatched(udp)) continue;
      int service = static_cast<uint8_t>(bytes[1]);
      if (ipv6_)
        std::copy_n(CMSG_DATA(CMSG_FIRSTHDR(&header)), sizeof(service), reinterpret_cast<uint8_t*>(&service));
      ++seen[udp[8 + 1] == kDataType][service];
    }
  }

 private:
  static bool IsWatched(const uint8_t* udp) {
    const int port = udp[2] << 8 | udp[3];
    return port >= FirstPort() && port < FirstPort() + kPorts;
  }

  // The socket sees every program's packets on loopback: what others send must not fill its buffer. What came before
  // this is still there, so that the reader looks at the port again.
  void TakeOnlyWatchedPorts() {
    // The IPv6 socket sees the UDP header, the IPv4 socket the IP header before it: X is its length.
    std::vector<sock_filter> filter;
    if (ipv6_) {
      filter = {BPF_STMT(BPF_LDX | BPF_W | BPF_IMM, 0)};
    } else {
      filter = {BPF_STMT(BPF_LDX | BPF_B | BPF_MSH, 0)};
    }
    const auto first = static_cast<uint32_t>(FirstPort());
    filter.push_back(BPF_STMT(BPF_LD | BPF_H | BPF_IND, 2));
    filter.push_back(BPF_JUMP(BPF_JMP | BPF_JGE | BPF_K, first, 0, 2));
    filter.push_back(BPF_JUMP(BPF_JMP | BPF_JGE | BPF_K, first + kPorts, 1, 0));
    filter.push_back(BPF_STMT(BPF_RET | BPF_K, 0xffffffff));
    filter.push_back(BPF_STMT(BPF_RET | BPF_K, 0));
    const sock_fprog program{static_cast<unsigned short>(filter.size()), filter.data()};
    EXPECT_EQ(setsockopt(fd_, SOL_SOCKET, SO_ATTACH_FILTER, &program, sizeof(program)), 0);
  }

  const bool ipv6_;
  int fd_ = -1;
};

using Parameter = std::pair<int, bool>;  // version, IPv6
class CodePoints : public ::testing::TestWithParam<Parameter> {
 protected:
  // One message of 100,000 bytes, through the ports that are watched; fails unless all data packets have this type
  // of service, and the control packets FORGIVE_DSCP_CONTROL's.
  void ExpectService(const Variables& environment, int traffic_class, int service) {
    const auto [version, ipv6] = GetParam();
    const std::string port = std::to_string(FirstPort()) + "-" + std::to_string(FirstPort() + kPorts - 1);
    const Variables here = {{"FORGIVE_PORT_RANGE", port}, {"NCCL_SOCKET_FAMILY", ipv6 ? "AF_INET6" : "AF_INET"}};
    ExpectInChild(environment + here, [&] {
      const ServiceWatch watch(GetParam().second);
      const Library library;
      const Net net = library.Table(GetParam().first, 7, traffic_class);
      ASSERT_EQ(net.init(), nccl::kSuccess) << (LogLines().empty() ? "" : LogLines().back());
      Pair pair = MakePair(net, 100000);
      void* receive = nullptr;
      void* send = nullptr;
      ASSERT_EQ(Receive(net, &pair, 0, 100000, &receive), nccl::kSuccess);
      ASSERT_EQ(Send(net, pair, 0, 100000, &send), nccl::kSuccess);
      ASSERT_EQ(Wait(net, send), nccl::kSuccess);
      ASSERT_EQ(Wait(net, receive), nccl::kSuccess);
      ClosePair(net, &pair);
      const auto seen = watch.Read();
      ASSERT_EQ(seen.count(true), 1u);
      EXPECT_EQ(seen.at(true).begin()->first, service);
      EXPECT_EQ(seen.at(true).size(), 1u);
      EXPECT_EQ(seen.at(false).size(), 1u);
      EXPECT_EQ(seen.at(false).begin()->first, 46 << 2);
    });
  }
  bool HasClasses() const { return GetParam().first >= 10; }

  void SetUp() override {
    if (!ServiceWatch(GetParam().second).permitted()) GTEST_SKIP() << "raw sockets need CAP_NET_RAW";
  }
};

TEST_P(CodePoints, AreThoseOfTheCommunicatorsTrafficClass) {
  // The lower two bits are ECN's, and not the class's.
  ExpectService({}, 107, HasClasses() ? 104 | kEct0 : 10 << 2 | kEct0);
  ExpectService({}, 0, HasClasses() ? 0 | kEct0 : 10 << 2 | kEct0);
  ExpectService({{"FORGIVE_DSCP_DATA", "20"}}, -1, 20 << 2 | kEct0);
}

TEST_P(CodePoints, AreThoseOfTheVariableWhereNcclTellsNoClass) {
  ExpectService({{"FORGIVE_TRAFFIC_CLASS", "96"}}, -1, HasClasses() ? 10 << 2 | kEct0 : 96 | kEct0);
}

std::vector<Parameter> EveryVersionAndFamily() {
  std::vector<Parameter> all;
  for (const int version : kVersions) {
    for (const bool ipv6 : {false, true}) all.emplace_back(version, ipv6);
  }
  return all;
}
INSTANTIATE_TEST_SUITE_P(Api, CodePoints, ::testing::ValuesIn(EveryVersionAndFamily()), [](const auto& parameter) {
  return "v" + std::to_string(parameter.param.first) + (parameter.param.second ? "_ipv6" : "_ipv4");
});

class TrafficClassGuard : public ::testing::TestWithParam<int> {};

TEST_P(TrafficClassGuard, RefusesAClassWhoseDataWouldPassForTrimmedOrControlPackets) {
  const std::vector<std::pair<int, const char*>> refused = {
      {11 << 2, "DSCP 11, which is that of trimmed packets (FORGIVE_DSCP_TRIMMED)"},
      {(46 << 2) + 3, "DSCP 46, which is that of control packets (FORGIVE_DSCP_CONTROL)"},
      {256, "traffic class 256: accepted are 0 to 255"}};
  for (const auto& [traffic_class, words] : refused) {
    ExpectInChild({}, [this, traffic_class, words] {
      const Library library;
      const Net net = library.Table(GetParam(), 7, traffic_class);
      if (net.finalize) {
        EXPECT_NE(net.init(), nccl::kSuccess);
        EXPECT_EQ(net.communicator->context, nullptr);
      } else {
        ASSERT_EQ(net.init(), nccl::kSuccess);
        alignas(8) char handle[nccl::kHandleBytes];
        void* listen_comm = nullptr;
        void* send_comm = &send_comm;
        ASSERT_EQ(net.listen(0, handle, &listen_comm), nccl::kSuccess);
        EXPECT_NE(net.connect(0, handle, &send_comm), nccl::kSuccess);
        EXPECT_EQ(send_comm, nullptr);
        EXPECT_EQ(net.close_listen(listen_comm), nccl::kSuccess);
      }
      EXPECT_TRUE(LogContains(words)) << (LogLines().empty() ? "" : LogLines().back());
    });
  }
}

INSTANTIATE_TEST_SUITE_P(Api, TrafficClassGuard, ::testing::Values(10, 11, 12),
                         [](const auto& parameter) { return "v" + std::to_string(parameter.param); });

TEST(TrafficClassVariable, IsRefusedWhereItsDataWouldPassForTrimmedPackets) {
  ExpectInChild({{"FORGIVE_TRAFFIC_CLASS", "44"}}, [] {
    const Library library;
    EXPECT_NE(library.Table(8).init(), nccl::kSuccess);
    EXPECT_TRUE(LogContains("FORGIVE_TRAFFIC_CLASS: traffic class 44 is DSCP 11, which is that of trimmed packets"));
  });
}

}  // namespace
}  // namespace forgive::testing
