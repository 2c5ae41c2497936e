// SPDX-License-Identifier: Apache-2.0
// Tests of the drivers over kernel UDP with several paths: source ports, order, bursts, sockets that are full.
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <map>
#include <set>
#include <sstream>

#include "dataplane/drivers.h"
#include "dataplane/send_lane.h"
#include "dataplane/socket_address.h"
#include "kernel_driver.h"
#include "packets.h"

namespace forgive {
namespace {

std::unique_ptr<Driver> MustOpen(const char* address, uint32_t paths, bool segmentation = true) {
  UdpDriverOptions options;
  options.local_address = address;
  options.paths = paths;
  options.segmentation = segmentation;
  std::string error;
  std::unique_ptr<Driver> driver = OpenKernelDriver(options, &error);
  EXPECT_NE(driver, nullptr) << error;
  return driver;
}

// Packets that take the paths in turn, as spraying has them.
std::vector<Transmit> InTurn(const Address& to, const std::vector<std::string>& bytes, uint32_t paths) {
  std::vector<Transmit> packets;
  for (const std::string& one : bytes) {
    packets.push_back(MakePacket(to, one, PacketClass::kData));
    packets.back().path = static_cast<uint16_t>((packets.size() - 1) % paths);
  }
  return packets;
}

std::vector<std::string> Patterns(size_t count, size_t length) {
  std::vector<std::string> bytes;
  for (uint64_t i = 0; i < count; ++i) bytes.push_back(PatternBytes(i, length));
  return bytes;
}

// What waits in the socket of this port on 127.0.0.1, as the kernel counts it.
uint64_t QueuedBytes(uint16_t port) {
  std::ifstream table("/proc/net/udp");
  char wanted[32];
  std::snprintf(wanted, sizeof(wanted), "0100007F:%04X", port);
  std::string line;
  while (std::getline(table, line)) {
    if (line.find(wanted) == std::string::npos) continue;
    std::istringstream words(line);
    std::string number, local, remote, state, queues;
    words >> number >> local >> remote >> state >> queues;
    return std::stoull(queues.substr(queues.find(':') + 1), nullptr, 16);
  }
  ADD_FAILURE() << "no socket has port " << port;
  return 0;
}

class UdpPaths : public testing::TestWithParam<std::tuple<const char*, bool>> {};

TEST_P(UdpPaths, EachHaveOneSourcePortOfTheirOwnAndKeepTheirOrder) {
  const auto [address, segmentation] = GetParam();
  for (const uint32_t paths : {2u, 4u, kMostUdpPaths}) {
    const auto sender = MustOpen(address, paths, segmentation);
    const auto receiver = MustOpen(address, 1);
    std::vector<std::string> bytes = Patterns(300, 4152);
    for (size_t i = 0; i < bytes.size(); i += 7) bytes[i].resize(900);  // runs that end short
    const std::vector<Received> received =
        Exchange(*sender, *receiver, InTurn(receiver->local_address(), bytes, paths));
    ASSERT_EQ(received.size(), bytes.size());
    std::map<uint16_t, std::vector<std::string>> by_port;
    for (const Received& one : received) by_port[AddressPort(one.source)].push_back(one.bytes);
    ASSERT_EQ(by_port.size(), paths);
    std::set<size_t> seen;
    for (const auto& [port, own] : by_port) {
      const size_t path = static_cast<size_t>(std::find(bytes.begin(), bytes.end(), own[0]) - bytes.begin());
      ASSERT_LT(path, paths);
      // The first path is the socket that the peer knows.
      EXPECT_EQ(port == AddressPort(sender->local_address()), path == 0);
      seen.insert(path);
      for (size_t i = 0; i < own.size(); ++i) ASSERT_EQ(own[i], bytes[path + i * paths]) << port << " " << i;
    }
    EXPECT_EQ(seen.size(), paths);
    EXPECT_EQ(sender->counters().send_errors, 0u);
    EXPECT_NE(sender->description().find(", " + std::to_string(paths) + " paths ("), std::string::npos);
  }
}

INSTANTIATE_TEST_SUITE_P(All, UdpPaths, testing::Combine(testing::Values("127.0.0.1", "::1"), testing::Bool()),
                         [](const auto& instance) {
                           return std::string(std::get<0>(instance.param)[0] == ':' ? "ipv6" : "ipv4") +
                                  (std::get<1>(instance.param) ? "_segmented" : "_plain");
                         });

TEST(UdpPathSockets, TakeNothingThatIsSentToThem) {
  const auto sender = MustOpen("127.0.0.1", 2);
  const auto receiver = MustOpen("127.0.0.1", 1);
  const std::vector<std::string> bytes = Patterns(2, 500);
  const std::vector<Received> received = Exchange(*sender, *receiver, InTurn(receiver->local_address(), bytes, 2));
  ASSERT_EQ(received.size(), 2u);
  // What is sent back to the second path's port reaches nobody, and what is sent to the first one's does.
  std::vector<Transmit> back;
  for (const Received& one : received) back.push_back(MakePacket(one.source, bytes[0], PacketClass::kControl));
  ASSERT_EQ(receiver->SendBurst(back), 2u);
  EXPECT_EQ(ReceiveRest(*sender).size(), 1u);
  for (const Received& one : received) EXPECT_EQ(QueuedBytes(AddressPort(one.source)), 0u);
}

TEST(UdpPathSockets, StayInThePortRangeAndSayHowManyDidNotFit) {
  const auto any = MustOpen("127.0.0.1", 1);
  UdpDriverOptions options;
  options.local_address = "127.0.0.1";
  options.paths = 3;
  std::string error;
  // Some range of twenty ports is free but for others' sockets.
  const uint16_t busy = AddressPort(any->local_address());
  options.port_low = static_cast<uint16_t>(std::min<uint32_t>(busy, 65000));
  options.port_high = static_cast<uint16_t>(options.port_low + 20);
  {
    const auto sender = OpenKernelDriver(options, &error);
    ASSERT_NE(sender, nullptr) << error;
    const auto receiver = MustOpen("127.0.0.1", 1);
    const std::vector<std::string> bytes = Patterns(30, 400);
    const std::vector<Received> received = Exchange(*sender, *receiver, InTurn(receiver->local_address(), bytes, 3));
    ASSERT_EQ(received.size(), bytes.size());
    for (const Received& one : received) {
      EXPECT_GE(AddressPort(one.source), options.port_low);
      EXPECT_LE(AddressPort(one.source), options.port_high);
    }
  }
  const auto sender = MustOpen("127.0.0.1", 1);
  const uint16_t freed = AddressPort(sender->local_address());
  options.port_low = options.port_high = freed;
  UdpDriverOptions on_other = options;
  on_other.local_address = "127.0.0.2";  // the same port is free there, once
  EXPECT_EQ(OpenKernelDriver(on_other, &error), nullptr);
  EXPECT_TRUE(error.starts_with("path 2 of FORGIVE_PATHS=3 has no port of its own: port " + std::to_string(freed)))
      << error;
  EXPECT_NE(error.find("FORGIVE_PORT_RANGE"), std::string::npos) << error;
}

// ---- Full sockets ----

// Sends what a socket has room for, and remembers it.
class RoomSender final : public MessageSender {
 public:
  struct Shared {
    std::map<int, size_t> room;         // by descriptor, in messages
    std::map<int, size_t> icmp_errors;  // that wait at a socket, each for one call
    std::map<int, std::vector<std::string>> sent;
  };
  explicit RoomSender(Shared* shared) : shared_(shared) {}

  int Send(int fd, std::span<mmsghdr> messages) override {
    if (shared_->icmp_errors[fd] != 0) {
      --shared_->icmp_errors[fd];
      errno = ECONNREFUSED;
      return -1;
    }
    int sent = 0;
    for (const mmsghdr& message : messages) {
      if (shared_->room[fd] == 0) break;
      --shared_->room[fd];
      std::string bytes;
      for (size_t i = 0; i < message.msg_hdr.msg_iovlen; ++i) {
        const iovec& part = message.msg_hdr.msg_iov[i];
        bytes.append(static_cast<const char*>(part.iov_base), part.iov_len);
      }
      shared_->sent[fd].push_back(bytes);
      ++sent;
    }
    if (sent == 0) errno = EAGAIN;
    return sent == 0 ? -1 : sent;
  }

 private:
  Shared* shared_;
};

class SprayLane : public testing::Test {
 protected:
  static constexpr uint32_t kPaths = 3;

  SprayLane() {
    for (uint32_t path = 0; path < kPaths; ++path) {
      UniqueFd fd(socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));  // a number of its own; nothing is sent by it
      fds_[path] = fd.get();
      if (path == 0) {
        sockets_[0].udp = std::move(fd);
      } else {
        sockets_[0].more_paths.push_back(std::move(fd));
      }
    }
    sockets_[0].segmentation = false;
    lane_ = std::make_unique<SendLane>(UdpDriverOptions{}, sockets_, std::make_unique<RoomSender>(&shared_));
  }

  std::array<int, kPaths> fds_{};
  std::array<UdpSockets, 1> sockets_;
  RoomSender::Shared shared_;
  std::unique_ptr<SendLane> lane_;
};

TEST_F(SprayLane, SendsEachPacketOnceByItsPathWhicheverSocketIsFull) {
  Address to;
  ASSERT_TRUE(ParseAddress("127.0.0.1", 9, &to));
  const std::vector<std::string> bytes = Patterns(200, 300);
  const std::vector<Transmit> packets = InTurn(to, bytes, kPaths);
  uint64_t state = 7;
  size_t taken = 0;
  for (int call = 0; call < 3000 && taken < packets.size(); ++call) {
    for (const int fd : fds_) {
      state = state * 6364136223846793005u + 1442695040888963407u;
      shared_.room[fd] = (state >> 40) % 4 == 0 ? (state >> 50) % 9 : 0;
    }
    state = state * 6364136223846793005u + 1442695040888963407u;
    const size_t offered = std::min<size_t>(packets.size() - taken, 1 + (state >> 33) % 130);
    const size_t count = lane_->SendBurst(std::span(packets).subspan(taken, offered));
    ASSERT_LE(count, offered);
    taken += count;
    if (count < offered) {
      ASSERT_EQ(lane_->blocked_fd(), fds_[packets[taken].path]) << call;
    }
  }
  ASSERT_EQ(taken, packets.size());
  for (uint32_t path = 0; path < kPaths; ++path) {
    std::vector<std::string> own;
    for (size_t i = path; i < bytes.size(); i += kPaths) own.push_back(bytes[i]);
    EXPECT_EQ(shared_.sent[fds_[path]], own) << path;
  }
}

TEST_F(SprayLane, LetsOtherPathsGoAheadOfOneThatIsFull) {
  Address to;
  ASSERT_TRUE(ParseAddress("127.0.0.1", 9, &to));
  const std::vector<std::string> bytes = Patterns(30, 300);
  shared_.room[fds_[1]] = shared_.room[fds_[2]] = 100;
  EXPECT_EQ(lane_->SendBurst(InTurn(to, bytes, kPaths)), 0u);
  EXPECT_EQ(shared_.sent[fds_[1]].size(), 10u);
  EXPECT_EQ(shared_.sent[fds_[2]].size(), 10u);
}

TEST_F(SprayLane, SendsAgainWhatTheErrorOfAnIcmpMessageRefusedOnAnyPath) {
  Address to;
  ASSERT_TRUE(ParseAddress("127.0.0.1", 9, &to));
  const std::vector<std::string> bytes = Patterns(30, 300);
  for (const int fd : fds_) {
    shared_.room[fd] = 100;
    shared_.icmp_errors[fd] = 1;
  }
  EXPECT_EQ(lane_->SendBurst(InTurn(to, bytes, kPaths)), 30u);
  for (const int fd : fds_) EXPECT_EQ(shared_.sent[fd].size(), 10u);
  EXPECT_EQ(lane_->send_errors(), 0u);
}

// ---- What drivers refuse ----

TEST(Paths, AreRefusedWithALineThatNamesTheWayOut) {
  EngineOptions options;
  options.devices.push_back({"lo", "127.0.0.1", {}, 0, 0, {}});
  options.transport.path_policy = PathPolicy::kReps;
  const auto refusal = [&] {
    std::string error;
    EXPECT_EQ(MakeDriver(options, 0, nullptr, &error), nullptr);
    return error;
  };
  options.transport.paths = 9;
  EXPECT_EQ(refusal(), "FORGIVE_PATHS=9: accepted: an integer from 1 to 8");
  options.transport.paths = 4;
  options.driver = "dpdk";
  EXPECT_EQ(refusal(),
            "FORGIVE_PATHS=4: FORGIVE_DRIVER=dpdk has one path: choose udp or uring, or unset FORGIVE_PATHS");
  options.driver = "udp";
  options.relay = "127.0.0.1:9";
  EXPECT_EQ(refusal(), "FORGIVE_PATHS=4: a relay (FORGIVE_RELAY) is one path: unset FORGIVE_PATHS");
}

}  // namespace
}  // namespace forgive
