// SPDX-License-Identifier: Apache-2.0
// Tests of what is the uring driver's own: buffers that run out, prefixes, ports and threads, refusals of the kernel.
#include "dataplane/uring_lane.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <thread>

#include "dataplane/socket_address.h"
#include "dataplane/uring_driver.h"
#include "packets.h"
#include "refuse_call.h"

namespace forgive {
namespace {

class Uring : public testing::Test {
 protected:
  void SetUp() override {
    std::string why;
    if (!UringOffered(&why)) GTEST_SKIP() << why;
  }
  static UdpDriverOptions Loopback(uint16_t port = 0) {
    UdpDriverOptions options;
    options.local_address = "127.0.0.1";
    options.port_low = options.port_high = port;
    return options;
  }
  static std::unique_ptr<Driver> MustOpen(const UdpDriverOptions& options) {
    std::string error;
    std::unique_ptr<Driver> driver = OpenUringDriver(options, &error);
    EXPECT_NE(driver, nullptr) << error;
    return driver;
  }
};

#ifdef FORGIVE_HAVE_URING
TEST_F(Uring, LosesNothingWhereItsBuffersRunOutAndCountsThat) {
  UdpSockets sockets;
  std::string error;
  UdpDriverOptions options = Loopback();
  options.coalescing = false;
  ASSERT_TRUE(OpenUdpSockets(options, &sockets, &error)) << error;
  LaneOptions few;
  few.batch = 4;
  few.message_bytes = 2000;
  const auto lane = UringLane::Open(sockets.udp.get(), few, &error);
  ASSERT_NE(lane, nullptr) << error;
  const auto sender = MustOpen(Loopback());
  std::vector<std::string> bytes;
  std::vector<Transmit> packets;
  for (uint64_t i = 0; i < 50; ++i) bytes.push_back(PatternBytes(i, 1000));
  for (const std::string& one : bytes) packets.push_back(MakePacket(sockets.local, one, PacketClass::kData));
  ASSERT_EQ(sender->SendBurst(packets), packets.size());
  size_t received = 0;
  std::array<Datagram, 64> burst;
  for (int call = 0; call < 100 && received < bytes.size(); ++call) {
    const size_t count = lane->Receive(burst);
    ASSERT_LE(count, 4u);
    for (size_t i = 0; i < count; ++i, ++received) {
      ASSERT_EQ(std::string(reinterpret_cast<const char*>(burst[i].bytes), burst[i].length), bytes[received]);
    }
    // Whoever sleeps now must be woken by what is left.
    pollfd readable{sockets.udp.get(), POLLIN, 0};
    if (received < bytes.size()) {
      EXPECT_EQ(poll(&readable, 1, 0), 1) << received;
      EXPECT_FALSE(lane->drained());
    }
  }
  EXPECT_EQ(received, bytes.size());
  EXPECT_GE(lane->exhausted(), bytes.size() / 4 - 1);
}
#endif

TEST_F(Uring, SendsNothingTwiceAroundAPacketThatIsRefused) {
  UdpDriverOptions plain = Loopback();
  plain.segmentation = false;
  const auto sender = MustOpen(plain);
  const auto receiver = MustOpen(Loopback());
  const std::string huge(70000, 'x');
  std::vector<std::string> bytes;
  for (uint64_t i = 0; i < 40; ++i) bytes.push_back(i % 10 == 7 ? huge : PatternBytes(i, 900 + i));
  std::vector<Transmit> packets;
  for (const std::string& one : bytes) {
    packets.push_back(MakePacket(receiver->local_address(), one, PacketClass::kData));
  }
  ASSERT_EQ(sender->SendBurst(packets), packets.size());
  EXPECT_EQ(sender->counters().send_errors, 4u);
  const std::vector<Received> received = ReceiveRest(*receiver);
  ASSERT_EQ(received.size(), 36u);
  size_t next = 0;
  for (size_t i = 0; i < bytes.size(); ++i) {
    if (i % 10 == 7) continue;
    EXPECT_EQ(received[next++].bytes, bytes[i]);
  }
}

TEST_F(Uring, FreesItsPortAtOnceWhenItIsDestroyed) {
  std::array<Datagram, 8> burst;
  const uint16_t port = AddressPort(MustOpen(Loopback())->local_address());
  for (int round = 0; round < 50; ++round) {
    const auto driver = MustOpen(Loopback(port));
    ASSERT_NE(driver, nullptr) << round;
    EXPECT_EQ(driver->ReceiveBurst(burst), 0u);
  }
}

TEST_F(Uring, MayBeOpenedByAnotherThreadThanTheOneThatUsesAndDestroysIt) {
  const auto sender = MustOpen(Loopback());
  uint16_t port = 0;
  for (int round = 0; round < 20; ++round) {
    auto driver = MustOpen(Loopback(port));
    ASSERT_NE(driver, nullptr) << round;
    port = AddressPort(driver->local_address());
    const std::string bytes = PatternBytes(static_cast<uint64_t>(round), 500);
    std::vector<Received> received;
    std::thread engine([&] {
      std::array<Datagram, 8> burst;
      EXPECT_EQ(driver->ReceiveBurst(burst), 0u);
      const Transmit packet = MakePacket(driver->local_address(), bytes, PacketClass::kData);
      EXPECT_EQ(driver->SendBurst({&packet, 1}), 1u);
      received = ReceiveCount(*driver, 1);
      driver.reset();
    });
    engine.join();
    ASSERT_EQ(received.size(), 1u);
    EXPECT_EQ(received[0].bytes, bytes);
  }
}

// Runs in a child: refuses one system call with `error_number`, then opens the driver. The child ends with 0 if that
// failed with one line which has both words.
int OpensWithout(int call, int error_number, const char* word) {
  const pid_t child = fork();
  if (child != 0) {
    int status = -1;
    waitpid(child, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  }
  if (!RefuseCall(call, error_number)) _exit(3);
  UdpDriverOptions options;
  options.local_address = "127.0.0.1";
  std::string error;
  if (OpenUringDriver(options, &error) != nullptr) _exit(1);
  const bool said = error.find(word) != std::string::npos && error.find("FORGIVE_DRIVER=udp") != std::string::npos &&
                    error.find('\n') == std::string::npos;
  if (!said) std::fprintf(stderr, "%s\n", error.c_str());
  _exit(said ? 0 : 2);
}

TEST_F(Uring, SaysInOneLineWhatTheKernelRefuses) {
  EXPECT_EQ(OpensWithout(kUringSetupCall, EPERM, "seccomp"), 0);
  EXPECT_EQ(OpensWithout(kUringSetupCall, ENOSYS, "no io_uring"), 0);
  EXPECT_EQ(OpensWithout(kUringSetupCall, EINVAL, "too old"), 0);
  EXPECT_EQ(OpensWithout(kUringEnterCall, EPERM, "seccomp"), 0);
}

#ifndef FORGIVE_HAVE_URING
TEST(UringMissing, SaysHowToGetIt) {
  std::string error;
  EXPECT_EQ(OpenUringDriver({}, &error), nullptr);
  EXPECT_NE(error.find("FORGIVE_URING=ON"), std::string::npos) << error;
}
#endif

}  // namespace
}  // namespace forgive
