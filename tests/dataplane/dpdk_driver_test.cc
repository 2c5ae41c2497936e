// SPDX-License-Identifier: Apache-2.0
// Tests of what is the dpdk driver's own: its host stays as it was, ports end and begin again, neighbours, bad input.
#include <gtest/gtest.h>
#include <linux/if_packet.h>
#include <net/if.h>
#include <netinet/in.h>
#include <sched.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <set>
#include <thread>

#include "dataplane/dpdk/frame.h"
#include "dataplane/socket_address.h"
#include "dataplane/udp_driver.h"
#include "dpdk_network.h"

namespace forgive {
namespace {

std::string ErrorOf(const std::string& text, const std::string& kernel_address = "") {
  std::string error;
  EXPECT_EQ(OpenDpdk(DpdkOptionsOf(text, kernel_address), &error), nullptr) << text;
  EXPECT_EQ(error.find('\n'), std::string::npos) << error;
  return error;
}

size_t OpenDescriptors() {
  size_t count = 0;
  for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) ++count;
  return count;
}

// What the epoll descriptors of this process list: by their own number, the eventfds among the listed numbers.
std::map<int, std::set<int>> ListedEventDescriptors() {
  std::map<int, std::set<int>> listed;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fdinfo")) {
    std::ifstream facts(entry.path());
    for (std::string word; facts >> word;) {
      int number = -1;
      if (word != "tfd:" || !(facts >> number)) continue;
      std::error_code closed;
      const auto target = std::filesystem::read_symlink("/proc/self/fd/" + std::to_string(number), closed);
      if (target == "anon_inode:[eventfd]") listed[std::stoi(entry.path().filename().string())].insert(number);
    }
  }
  return listed;
}

bool Reaches(Driver& from, Driver& to) {
  const std::string bytes = PatternBytes(4, 1200);
  const Received received = SendUntilReceived(from, to.local_address(), to, bytes);
  EXPECT_EQ(received.source, from.local_address());
  return received.bytes == bytes;
}

class DpdkDriver : public testing::Test {
 protected:
  void SetUp() override { ASSERT_TRUE(EnterFreshNamespace()) << "a network namespace needs CAP_SYS_ADMIN"; }
  void TearDown() override { Shell("ip link del va"); }

  void MakeVeth() {
    ASSERT_TRUE(Shell("ip link add va mtu 9000 type veth peer name vb mtu 9000"));
    ASSERT_TRUE(Shell("ip link set va addrgenmode none up && ip link set vb addrgenmode none up"));
    // A port takes what it sends as errors before.
    ASSERT_TRUE(AwaitUp("va") && AwaitUp("vb"));
  }
  static std::unique_ptr<Driver> OpenOwn(const char* side, const std::string& address) {
    return MustOpenDpdk(
        DpdkOptionsOf(std::string("--vdev=net_af_packet_") + side + ",iface=v" + side + " address=" + address));
  }
};

// First in the file, so that DPDK's start is seen.
TEST_F(DpdkDriver, LeavesItsHostAsItWas) {
  cpu_set_t cpus_before;
  ASSERT_EQ(sched_getaffinity(0, sizeof(cpus_before), &cpus_before), 0);
  std::vector<struct sigaction> handlers(65);
  for (int number = 1; number <= 64; ++number) sigaction(number, nullptr, &handlers[static_cast<size_t>(number)]);
  testing::internal::CaptureStdout();
  testing::internal::CaptureStderr();
  ErrorOf("--vdev=net_nothing0 address=10.0.0.1/24");
  const auto driver = MustOpenDpdk(DpdkOptionsOf("--vdev=net_null0 address=10.0.0.1/24"));
  EXPECT_EQ(testing::internal::GetCapturedStdout(), "");
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "");
  cpu_set_t cpus_after;
  ASSERT_EQ(sched_getaffinity(0, sizeof(cpus_after), &cpus_after), 0);
  EXPECT_TRUE(CPU_EQUAL(&cpus_before, &cpus_after));
  for (int number = 1; number <= 64; ++number) {
    struct sigaction now {};
    sigaction(number, nullptr, &now);
    EXPECT_EQ(now.sa_handler, handlers[static_cast<size_t>(number)].sa_handler) << number;
  }
  EXPECT_FALSE(std::filesystem::exists("/var/run/dpdk/forgive-" + std::to_string(getpid())));
}

TEST_F(DpdkDriver, SaysInOneLineWhatIsWrongWithAPort) {
  EXPECT_NE(ErrorOf("--vdev=net_nothing0 address=10.0.0.1/24").find("\"net_nothing0\""), std::string::npos);
  EXPECT_NE(ErrorOf("--vdev=net_af_packet7,iface=nowhere address=10.0.0.1/24").find("\"nowhere\""),
            std::string::npos);
  EXPECT_NE(ErrorOf("--vdev=net_memif7,role=nobody address=10.0.0.1/24").find("\"net_memif7\""), std::string::npos);
  MakeVeth();
  EXPECT_NE(ErrorOf("--vdev=net_af_packet7,iface=va,framesz=8192 address=10.0.0.1/24").find("\"net_af_packet7\""),
            std::string::npos);
  ASSERT_TRUE(Shell("ip addr add 10.9.0.1/24 dev va && ip addr add 10.9.1.1/24 dev vb"));
  DpdkDriverOptions options = DpdkOptionsOf("--vdev=net_af_packet7,iface=vb");
  options.local_address = "10.9.0.1";
  std::string error;
  EXPECT_EQ(OpenDpdk(options, &error), nullptr);
  EXPECT_NE(error.find("is an address of va"), std::string::npos) << error;
  // And each name can be used rightly afterwards.
  EXPECT_NE(MustOpenDpdk(DpdkOptionsOf("--vdev=net_af_packet7,iface=va address=10.0.0.1/24")), nullptr);
}

TEST_F(DpdkDriver, SaysThatThereAreNoHugepagesWhereTheyAreAskedFor) {
  // DPDK runs in this process already and without them, or the machine has some and it runs with them.
  std::string error;
  const auto driver = OpenDpdk(DpdkOptionsOf("--in-memory --vdev=net_null1 address=10.0.0.1/24"), &error);
  if (driver == nullptr) {
    EXPECT_NE(error.find("hugepages"), std::string::npos) << error;
  } else {
    EXPECT_NE(driver->description().find(", hugepages"), std::string::npos);
  }
}

TEST_F(DpdkDriver, SwallowsEverythingOnANullPort) {
  const auto driver =
      MustOpenDpdk(DpdkOptionsOf("--vdev=net_null0,copy=1 address=10.0.0.1/24 neighbour=10.0.0.2@02:00:00:00:00:0b"));
  Address to = driver->local_address();
  to.bytes[7] = 2;
  const std::string bytes = PatternBytes(1, 4000);
  const std::vector<Transmit> packets(500, MakePacket(to, bytes, PacketClass::kData));
  for (int i = 0; i < 20; ++i) ASSERT_EQ(driver->SendBurst(packets), packets.size());
  std::array<Datagram, 64> burst;
  for (int i = 0; i < 100; ++i) ASSERT_EQ(driver->ReceiveBurst(burst), 0u);
  EXPECT_EQ(driver->counters(), DriverCounters{});
}

TEST_F(DpdkDriver, ListensWhereADeadProcessLeftItsMemifSocket) {
  const std::string folder = TemporaryFolder();
  sockaddr_un name{};
  name.sun_family = AF_UNIX;
  std::strncpy(name.sun_path, (folder + "/memif").c_str(), sizeof(name.sun_path) - 1);
  const int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
  ASSERT_EQ(bind(fd, reinterpret_cast<const sockaddr*>(&name), sizeof(name)), 0);
  close(fd);
  const std::string text = "--vdev=net_memif5,role=server,socket=" + folder + "/memif address=10.0.0.1/24";
  for (int round = 0; round < 2; ++round) EXPECT_NE(MustOpenDpdk(DpdkOptionsOf(text)), nullptr);
  EXPECT_EQ(rmdir(folder.c_str()), 0) << "the port left its socket in " << folder;
}

// DPDK unmaps a memif's memory in a thread of its own when the peer leaves.
TEST_F(DpdkDriver, LivesOnWhenAMemifPeerEndsWhileItsPacketsAreTaken) {
  const std::string folder = TemporaryFolder();
  const std::string bytes = PatternBytes(1, 4000);
  for (size_t round = 0; round < 20; ++round) {
    std::array<std::unique_ptr<Driver>, 2> ends;
    for (size_t side = 0; side < 2; ++side) {
      ends[side] = MustOpenDpdk(MemifEnd(side, folder, 13));
      ASSERT_NE(ends[side], nullptr);
    }
    ASSERT_TRUE(AwaitLink(*ends[0]) && AwaitLink(*ends[1]));
    const std::unique_ptr<Driver> stays = std::move(ends[round % 2]);
    std::unique_ptr<Driver> leaves = std::move(ends[1 - round % 2]);
    const std::vector<Transmit> packets(64, MakePacket(stays->local_address(), bytes, PacketClass::kData));
    const TimePoint deadline = TestDeadline();
    // A full ring, so that packets are being taken when the peer's end is told.
    while (leaves->SendBurst(packets) == packets.size() && MonotonicNow() < deadline) continue;
    std::atomic<uint64_t> taken = 0;
    std::atomic<bool> left = false;
    std::thread taker([&] {
      std::array<Datagram, 64> burst;
      while (!left) taken += stays->ReceiveBurst(burst);
    });
    while (taken == 0 && MonotonicNow() < deadline) continue;
    leaves.reset();
    left = true;
    taker.join();
    ASSERT_GT(taken, 0u);
    // The end is noticed, and the port lives.
    while (stays->description().find("link down") == std::string::npos && MonotonicNow() < deadline) {
      ReceiveRest(*stays);
    }
    ASSERT_NE(stays->description().find("link down"), std::string::npos) << "in round " << round;
  }
  EXPECT_EQ(rmdir(folder.c_str()), 0) << "a port left its socket in " << folder;
}

// An epoll lists a closed descriptor on while a forked process has its file, and its number is given out again.
TEST_F(DpdkDriver, OpensMemifPortsBesideAnEpollThatListsClosedDescriptors) {
  // The descriptor in question is the process's first memif port's for ever.
  if (getenv("FORGIVE_TEST_FRESH") == nullptr) {
    const std::string self = std::filesystem::read_symlink("/proc/self/exe").string();
    EXPECT_TRUE(Shell("FORGIVE_TEST_FRESH=1 timeout 60 " + self +
                      " --gtest_filter=DpdkDriver.OpensMemifPortsBesideAnEpollThatListsClosedDescriptors"));
    return;
  }
  const int epoll_fd = epoll_create1(EPOLL_CLOEXEC);
  std::array<int, 40> closed;
  for (int& fd : closed) {
    fd = eventfd(0, EFD_CLOEXEC);
    epoll_event event{};
    event.events = EPOLLIN;
    ASSERT_EQ(epoll_ctl(epoll_fd, EPOLL_CTL_ADD, fd, &event), 0);
  }
  const pid_t child = fork();
  if (child == 0) {
    alarm(50);
    while (true) pause();
  }
  for (const int fd : closed) close(fd);
  const std::string folder = TemporaryFolder();
  {
    const auto a = MustOpenDpdk(MemifEnd(0, folder, 12));
    const auto b = MustOpenDpdk(MemifEnd(1, folder, 12));
    EXPECT_TRUE(AwaitLink(*a) && AwaitLink(*b));
    // What DPDK's thread waits for must not seem to be awaited by our epoll.
    const std::map<int, std::set<int>> listed = ListedEventDescriptors();
    EXPECT_GE(listed.size(), 1u);
    for (const auto& [epoll, numbers] : listed) {
      if (epoll == epoll_fd) continue;
      for (const int number : numbers)
        EXPECT_FALSE(listed.contains(epoll_fd) && listed.at(epoll_fd).contains(number));
    }
  }
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
  EXPECT_EQ(rmdir(folder.c_str()), 0);
}

TEST_F(DpdkDriver, OpensAPortAgainAndKeepsNothingOpen) {
  MakeVeth();
  size_t descriptors = 0;
  for (int round = 0; round < 4; ++round) {
    {
      const auto a = OpenOwn("a", "10.9.0.1/24");
      const auto b = OpenOwn("b", "10.9.0.2/24");
      ASSERT_TRUE(Reaches(*a, *b));
    }
    if (round == 0) descriptors = OpenDescriptors();
  }
  EXPECT_EQ(OpenDescriptors(), descriptors);
}

TEST_F(DpdkDriver, AsksForANeighbourAndAnswersForItself) {
  MakeVeth();
  for (const bool ipv6 : {false, true}) {
    const auto a = OpenOwn("a", ipv6 ? "fd00:9::a/64" : "10.9.0.1/24");
    const auto b = OpenOwn("b", ipv6 ? "fd00:9::b/64" : "10.9.0.2/24");
    EXPECT_TRUE(Reaches(*a, *b));
    EXPECT_TRUE(Reaches(*b, *a));
    EXPECT_EQ(a->counters().send_errors, 0u);
  }
}

TEST_F(DpdkDriver, SendsInOrderWhatWaitedForANeighbour) {
  MakeVeth();
  const auto a = OpenOwn("a", "10.9.0.1/24");
  const auto b = OpenOwn("b", "10.9.0.2/24");
  std::vector<std::string> bytes;
  for (uint64_t i = 0; i < 500; ++i) bytes.push_back(PatternBytes(i, 900));
  std::vector<Received> received;
  const TimePoint deadline = TestDeadline();
  for (size_t sent = 0; received.size() < bytes.size() && MonotonicNow() < deadline;) {
    std::vector<Transmit> packets;
    for (size_t i = sent; i < bytes.size(); ++i) {
      packets.push_back(MakePacket(b->local_address(), bytes[i], PacketClass::kData));
    }
    sent += a->SendBurst(packets);
    std::vector<Received> none;
    ReceiveSome(*a, &none);  // the neighbour's answer
    ReceiveSome(*b, &received);
  }
  ASSERT_EQ(received.size(), bytes.size());
  for (size_t i = 0; i < bytes.size(); ++i) ASSERT_EQ(received[i].bytes, bytes[i]) << i;
}

TEST_F(DpdkDriver, KeepsTheOrderWhenANeighbourIsFoundAsWaitingPacketsAreLookedAt) {
  MakeVeth();
  // The kernel answers for all the neighbours and, from one CPU, delivers in order.
  ASSERT_TRUE(Shell("ip link set lo up && ip addr add 10.9.2.1/32 dev vb && ip route add local 10.9.1.0/24 dev vb"));
  cpu_set_t all_cpus;
  ASSERT_EQ(sched_getaffinity(0, sizeof(all_cpus), &all_cpus), 0);
  cpu_set_t this_cpu;
  CPU_ZERO(&this_cpu);
  CPU_SET(sched_getcpu(), &this_cpu);
  ASSERT_EQ(sched_setaffinity(0, sizeof(this_cpu), &this_cpu), 0);
  const int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  sockaddr_in any{};
  any.sin_family = AF_INET;
  any.sin_port = htons(4000);
  const int room = 1 << 20;
  ASSERT_EQ(setsockopt(fd, SOL_SOCKET, SO_RCVBUFFORCE, &room, sizeof(room)), 0);
  ASSERT_EQ(bind(fd, reinterpret_cast<const sockaddr*>(&any), sizeof(any)), 0);
  const auto a = OpenOwn("a", "10.9.0.1/16");
  std::vector<std::string> bytes;
  for (uint64_t i = 0; i < 202; ++i) bytes.push_back(PatternBytes(i, 100));
  // The driver looks for a neighbour again a millisecond after it did: about then it is called, with an answer there.
  for (uint8_t round = 1; round <= 240; ++round) {
    Address to = a->local_address();
    to.bytes[6] = 1;
    to.bytes[7] = round;
    SetAddressPort(4000, &to);
    std::vector<Transmit> packets;
    for (const std::string& packet : bytes) packets.push_back(MakePacket(to, packet, PacketClass::kData));
    const std::span<const Transmit> all(packets);
    const TimePoint call_at = MonotonicNow() + Microseconds(940 + round % 80);
    ASSERT_EQ(a->SendBurst(all.first(200)), 200u);
    std::vector<Received> none;
    for (int i = 0; i < 3; ++i) ReceiveSome(*a, &none);
    ASSERT_EQ(a->SendBurst(all.subspan(200, 1)), 1u);  // one that has to wait makes the next call look at all of them
    while (MonotonicNow() < call_at) continue;
    ASSERT_EQ(a->SendBurst(all.subspan(201)), 1u);
    std::vector<std::string> received;
    const TimePoint deadline = TestDeadline();
    while (received.size() < bytes.size() && MonotonicNow() < deadline) {
      ReceiveSome(*a, &none);
      std::string datagram(200, '\0');
      const ssize_t length = recv(fd, datagram.data(), datagram.size(), MSG_DONTWAIT);
      if (length >= 0) received.push_back(datagram.substr(0, static_cast<size_t>(length)));
    }
    ASSERT_EQ(received.size(), bytes.size());
    ASSERT_TRUE(received == bytes) << "in round " << int{round};
  }
  close(fd);
  sched_setaffinity(0, sizeof(all_cpus), &all_cpus);
}

TEST_F(DpdkDriver, CountsAsErrorsWhatANeighbourThatIsNotThereShouldHaveGot) {
  MakeVeth();
  const auto a = OpenOwn("a", "10.9.0.1/24");
  Address nobody = a->local_address();
  nobody.bytes[7] = 77;
  const std::string bytes = PatternBytes(1, 100);
  const Transmit packet = MakePacket(nobody, bytes, PacketClass::kData);
  ASSERT_EQ(a->SendBurst({&packet, 1}), 1u);
  EXPECT_NE(a->next_deadline(), kNever);
  const TimePoint deadline = TestDeadline();
  while (a->counters().send_errors == 0 && MonotonicNow() < deadline) ReceiveRest(*a);
  EXPECT_EQ(a->counters().send_errors, 1u);
  EXPECT_EQ(a->next_deadline(), kNever);
}

TEST_F(DpdkDriver, TalksToTheUdpDriverThroughTheKernelsRoutesAndNeighbours) {
  OtherNamespace other;
  ASSERT_TRUE(
      other.Shell("ip link add vb mtu 9000 type veth peer name va mtu 9000 netns " + std::to_string(getpid())));
  // The peer is two hops away: by a gateway's route, on an address that only a route leads to.
  ASSERT_TRUE(Shell("ip addr add 10.9.0.1/24 dev va && ip link set va up && ip route add 10.8.0.0/16 via 10.9.0.2"));
  ASSERT_TRUE(
      other.Shell("ip link set lo up && ip addr add 10.9.0.2/24 dev vb && ip link set vb up && "
                  "ip addr add 10.8.0.7/32 dev vb"));
  bool up = false;
  other.Run([&up] { up = AwaitUp("vb"); });
  ASSERT_TRUE(up && AwaitUp("va"));
  DpdkDriverOptions options = DpdkOptionsOf("--vdev=net_af_packet_a,iface=va");
  options.local_address = "10.9.0.1";
  const auto dpdk = MustOpenDpdk(options);
  std::unique_ptr<Driver> udp;
  other.Run([&] {
    UdpDriverOptions udp_options;
    udp_options.local_address = "10.8.0.7";
    std::string error;
    udp = OpenUdpDriver(udp_options, &error);
    EXPECT_NE(udp, nullptr) << error;
  });
  ASSERT_TRUE(Reaches(*dpdk, *udp));
  ASSERT_TRUE(Reaches(*udp, *dpdk));
  // Nobody else gets the port, and an address without a route is an error.
  options.port_low = options.port_high = AddressPort(dpdk->local_address());
  std::string error;
  EXPECT_EQ(OpenDpdk(options, &error), nullptr);
  EXPECT_NE(error.find("in use"), std::string::npos) << error;
  Address nowhere = udp->local_address();
  nowhere.bytes[4] = 172;
  const std::string bytes = PatternBytes(1, 100);
  const Transmit packet = MakePacket(nowhere, bytes, PacketClass::kData);
  ASSERT_EQ(dpdk->SendBurst({&packet, 1}), 1u);
  EXPECT_EQ(dpdk->counters().send_errors, 1u);
}

TEST_F(DpdkDriver, SeesACutPacketWhateverTheSwitchLeftStale) {
  MakeVeth();
  const auto a = OpenOwn("a", "10.9.0.1/24");
  const int fd = socket(AF_PACKET, SOCK_RAW | SOCK_CLOEXEC, 0);
  ASSERT_GE(fd, 0);
  sockaddr_ll to{};
  to.sll_family = AF_PACKET;
  to.sll_ifindex = static_cast<int>(if_nametoindex("vb"));
  Address peer = a->local_address();
  peer.bytes[7] = 2;
  SetAddressPort(4000, &peer);
  const std::string data = DataPacketBytes(7, 1, 0, 4096);
  const HeaderTemplate header({2, 0, 0, 0, 0, 1}, {2, 0, 0, 0, 0, 2}, peer, a->local_address());
  std::string frame(header.length(), '\0');
  header.Write(11 << 2, data.size(), true, reinterpret_cast<uint8_t*>(frame.data()));
  frame += data.substr(0, 96);
  ASSERT_EQ(sendto(fd, frame.data(), frame.size(), 0, reinterpret_cast<const sockaddr*>(&to), sizeof(to)),
            static_cast<ssize_t>(frame.size()));
  close(fd);
  const std::vector<Received> received = ReceiveCount(*a, 1);
  ASSERT_EQ(received.size(), 1u);
  EXPECT_EQ(received[0].bytes, data.substr(0, 96));
  EXPECT_EQ(received[0].source, peer);
  EXPECT_EQ(a->counters().raw_packets, 1u);
}

TEST_F(DpdkDriver, TakesPacketsAsErrorsWhileTheLinkIsDownAndSendsAgainAfterwards) {
  MakeVeth();
  const auto a = OpenOwn("a", "10.9.0.1/24");
  const auto b = OpenOwn("b", "10.9.0.2/24");
  ASSERT_TRUE(Reaches(*a, *b));
  ASSERT_TRUE(Shell("ip link set va down"));
  usleep(5000);
  ReceiveRest(*a);
  EXPECT_NE(a->description().find("link down"), std::string::npos);
  const std::string bytes = PatternBytes(1, 4000);
  const std::vector<Transmit> packets(64, MakePacket(b->local_address(), bytes, PacketClass::kData));
  for (int i = 0; i < 200; ++i) ASSERT_EQ(a->SendBurst(packets), packets.size());
  EXPECT_EQ(a->counters().send_errors, 200u * packets.size());
  ASSERT_TRUE(Shell("ip link set va up"));
  EXPECT_TRUE(Reaches(*a, *b));
}

TEST_F(DpdkDriver, OutlivesItsInterface) {
  MakeVeth();
  const auto a = OpenOwn("a", "10.9.0.1/24");
  auto b = OpenOwn("b", "10.9.0.2/24");
  ASSERT_TRUE(Reaches(*a, *b));
  ASSERT_TRUE(Shell("ip link del va"));
  const std::string bytes = PatternBytes(1, 4000);
  const std::vector<Transmit> packets(64, MakePacket(b->local_address(), bytes, PacketClass::kData));
  const TimePoint deadline = TestDeadline();
  while (a->description().find("the interface is gone") == std::string::npos && MonotonicNow() < deadline) {
    ASSERT_EQ(a->SendBurst(packets), packets.size());
    ReceiveRest(*a);
  }
  const uint64_t before = a->counters().send_errors;
  for (int i = 0; i < 200; ++i) ASSERT_EQ(a->SendBurst(packets), packets.size());
  EXPECT_EQ(a->counters().send_errors, before + 200 * packets.size());
  EXPECT_EQ(ReceiveRest(*a).size(), 0u);
  b.reset();
  MakeVeth();
  EXPECT_NE(OpenOwn("b", "10.9.0.2/24"), nullptr);
}

TEST_F(DpdkDriver, LosesPacketsInAFullRingAndCountsThem) {
  MakeVeth();
  const auto a = OpenOwn("a", "10.9.0.1/24");
  const auto b = MustOpenDpdk(
      DpdkOptionsOf("--vdev=net_af_packet_b,iface=vb,blocksz=36864,framesz=4608,framecnt=64 address=10.9.0.2/24"));
  ASSERT_TRUE(Reaches(*a, *b));
  ReceiveRest(*b);
  const std::string bytes = PatternBytes(1, 4000);
  const std::vector<Transmit> packets(200, MakePacket(b->local_address(), bytes, PacketClass::kData));
  ASSERT_EQ(a->SendBurst(packets), packets.size());
  const size_t arrived = ReceiveRest(*b).size();
  EXPECT_LE(arrived, 64u);
  EXPECT_EQ(b->counters().socket_drops, packets.size() - arrived);
}

}  // namespace
}  // namespace forgive
