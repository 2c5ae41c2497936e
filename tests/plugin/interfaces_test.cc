// SPDX-License-Identifier: Apache-2.0
// Two hosts, as network namespaces joined by veth pairs: two interfaces on one subnet, IPv6, link-local, small MTUs.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <sstream>

#include "fake_nccl.h"

namespace forgive::testing {
namespace {

using Settings = std::vector<std::pair<std::string, std::string>>;

constexpr int kMessageBytes = 1 << 20;
constexpr int kMessages = 8;
constexpr unsigned kMostSeconds = 120;

// A one-way pipe for small fixed records.
class Pipe {
 public:
  Pipe() { EXPECT_EQ(pipe2(ends_.data(), O_CLOEXEC), 0); }
  ~Pipe() {
    close(ends_[0]);
    close(ends_[1]);
  }
  Pipe(const Pipe&) = delete;
  Pipe& operator=(const Pipe&) = delete;
  bool Write(const void* bytes, size_t count) { return write(ends_[1], bytes, count) == static_cast<ssize_t>(count); }
  bool Read(void* bytes, size_t count) { return read(ends_[0], bytes, count) == static_cast<ssize_t>(count); }

 private:
  std::array<int, 2> ends_{};
};

uint64_t TransmittedBytes(const std::string& interface) {
  std::ifstream file("/proc/self/net/dev");
  for (std::string line; std::getline(file, line);) {
    std::replace(line.begin(), line.end(), ':', ' ');
    std::istringstream fields(line);
    std::string name;
    fields >> name;
    if (name != interface) continue;
    std::array<uint64_t, 9> columns{};
    for (uint64_t& column : columns) fields >> column;
    return columns[8];
  }
  ADD_FAILURE() << "no interface " << interface;
  return 0;
}

class PluginInterfaces : public ::testing::Test {
 protected:
  void SetUp() override {
    if (geteuid() != 0) GTEST_SKIP() << "needs root to make network namespaces";
    const int status = RunInChild({}, [] { std::_Exit(unshare(CLONE_NEWNET) == 0 ? 0 : 1); });
    if (status != 0) GTEST_SKIP() << "network namespaces are not permitted here";
  }

  // Starts a process in a network namespace of its own, which waits for the links and then runs `body`.
  pid_t StartHost(Pipe* ready, Pipe* go, const Settings& settings, const std::function<void()>& body) {
    std::fflush(nullptr);
    const pid_t child = fork();
    if (child != 0) return child;
    alarm(kMostSeconds);  // whatever the other host did
    char byte = unshare(CLONE_NEWNET) == 0 ? 1 : 0;
    if (!ready->Write(&byte, 1) || !go->Read(&byte, 1)) std::_Exit(2);
    for (const auto& [name, value] : settings) setenv(name.c_str(), value.c_str(), 1);
    body();
    std::fflush(nullptr);
    std::exit(::testing::Test::HasFailure() ? 1 : 0);
  }

  // $A and $B in the commands are the two hosts' process numbers.
  void RunHosts(const std::vector<std::string>& commands, const Settings& settings, const std::function<void()>& a,
                const std::function<void()>& b) {
    Pipe ready;
    Pipe go;
    const std::array<pid_t, 2> hosts = {StartHost(&ready, &go, settings, a), StartHost(&ready, &go, settings, b)};
    std::array<char, 2> made{};
    EXPECT_TRUE(ready.Read(&made[0], 1) && ready.Read(&made[1], 1) && made[0] == 1 && made[1] == 1);
    const std::string prefix = "A=" + std::to_string(hosts[0]) + "; B=" + std::to_string(hosts[1]) + "; ";
    for (const std::string& command : commands) EXPECT_EQ(std::system((prefix + command).c_str()), 0) << command;
    EXPECT_TRUE(go.Write("12", 2));
    for (const pid_t host : hosts) {
      int status = 0;
      EXPECT_EQ(waitpid(host, &status, 0), host);
      EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << "status " << status;
    }
  }

  // One connection from host A's device to host B's, and messages over it; `after` sees what went out.
  void Carry(const std::vector<std::string>& commands, const Settings& settings, int device, int devices,
             const std::function<void()>& after_send = {}) {
    Pipe handles;
    Pipe done;
    const auto send = [&] {
      const Library library;
      const Net net = library.Table(8);
      ASSERT_EQ(net.init(), nccl::kSuccess);
      int count = 0;
      ASSERT_EQ(net.devices(&count), nccl::kSuccess);
      ASSERT_EQ(count, devices);
      alignas(8) char handle[nccl::kHandleBytes];
      ASSERT_TRUE(handles.Read(handle, sizeof(handle)));
      Pair pair;
      ASSERT_TRUE(PollUntil([&] { return net.connect(device, handle, &pair.send_comm) != 0 || pair.send_comm; }));
      ASSERT_NE(pair.send_comm, nullptr);
      pair.source.resize(kMessageBytes);
      FillPattern(&pair.source, 11);
      ASSERT_EQ(net.register_memory(pair.send_comm, pair.source.data(), kMessageBytes, nccl::kPointerHost,
                                    &pair.source_handle),
                nccl::kSuccess);
      for (int message = 0; message < kMessages; ++message) {
        void* request = nullptr;
        ASSERT_EQ(Send(net, pair, 0, kMessageBytes, &request), nccl::kSuccess);
        ASSERT_EQ(Wait(net, request), nccl::kSuccess);
      }
      if (after_send) after_send();
      char byte;
      EXPECT_TRUE(done.Read(&byte, 1));
      EXPECT_EQ(net.close_send(pair.send_comm), nccl::kSuccess);
    };
    const auto receive = [&] {
      const Library library;
      const Net net = library.Table(8);
      ASSERT_EQ(net.init(), nccl::kSuccess);
      alignas(8) char handle[nccl::kHandleBytes];
      void* listen_comm = nullptr;
      ASSERT_EQ(net.listen(device, handle, &listen_comm), nccl::kSuccess);
      ASSERT_TRUE(handles.Write(handle, sizeof(handle)));
      Pair pair;
      ASSERT_TRUE(PollUntil([&] { return net.accept(listen_comm, &pair.receive_comm) != 0 || pair.receive_comm; }));
      ASSERT_NE(pair.receive_comm, nullptr);
      EXPECT_EQ(net.close_listen(listen_comm), nccl::kSuccess);
      std::vector<uint8_t> expected(kMessageBytes);
      FillPattern(&expected, 11);
      pair.destination.resize(kMessageBytes);
      ASSERT_EQ(net.register_memory(pair.receive_comm, pair.destination.data(), kMessageBytes, nccl::kPointerHost,
                                    &pair.destination_handle),
                nccl::kSuccess);
      for (int message = 0; message < kMessages; ++message) {
        std::fill(pair.destination.begin(), pair.destination.end(), uint8_t{0});
        void* request = nullptr;
        ASSERT_EQ(Receive(net, &pair, 0, kMessageBytes, &request), nccl::kSuccess);
        ASSERT_EQ(Wait(net, request), nccl::kSuccess);
        EXPECT_TRUE(pair.destination == expected) << "message " << message;
      }
      EXPECT_TRUE(done.Write("1", 1));
      EXPECT_EQ(net.close_receive(pair.receive_comm), nccl::kSuccess);
    };
    RunHosts(commands, settings, send, receive);
  }
};

// A veth pair NAME-in-A <-> NAME-in-B, up, with one address each.
std::vector<std::string> Link(const std::string& name, const std::string& address_a, const std::string& address_b,
                              const std::string& more = "") {
  const auto set_up = [&](const std::string& host, const std::string& address) {
    return "nsenter -t " + host + " -n sh -c 'ip link set lo up && ip link set " + name + " addrgenmode none && " +
           "ip link set " + name + " up && ip addr add " + address + " dev " + name + more + "'";
  };
  return {"ip link add " + name + " netns $A type veth peer name " + name + " netns $B", set_up("$A", address_a),
          set_up("$B", address_b)};
}

std::vector<std::string> operator+(std::vector<std::string> a, const std::vector<std::string>& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

TEST_F(PluginInterfaces, TwoOnOneSubnetEachCarryTheirOwnTraffic) {
  // Devices stand by their names, whatever the kernel made first.
  const auto links = Link("rail1", "10.77.0.2/24", "10.77.0.4/24") + Link("rail0", "10.77.0.1/24", "10.77.0.3/24");
  for (int device = 0; device < 2; ++device) {
    Carry(links, {{"FORGIVE_INTERFACE", "rail"}}, device, 2, [device] {
      const uint64_t own = TransmittedBytes("rail" + std::to_string(device));
      const uint64_t other = TransmittedBytes("rail" + std::to_string(1 - device));
      EXPECT_GE(own, uint64_t{kMessages} * kMessageBytes);
      EXPECT_LT(other, uint64_t{kMessageBytes} / 16);
    });
  }
}

TEST_F(PluginInterfaces, CarryOverGlobalIpv6) {
  Carry(Link("eth", "2001:db8::1/64", "2001:db8::2/64", " nodad"),
        {{"FORGIVE_INTERFACE", "eth"}, {"NCCL_SOCKET_FAMILY", "AF_INET6"}}, 0, 1);
}

TEST_F(PluginInterfaces, CarryOverLinkLocalAddressesWhateverTheInterfacesAreNumbered) {
  const std::vector<std::string> spare = {"nsenter -t $A -n ip link add spare type veth peer name spare2"};
  Carry(spare + Link("eth", "fe80::1/64", "fe80::2/64", " nodad"), {{"FORGIVE_INTERFACE", "=eth"}}, 0, 1);
}

TEST_F(PluginInterfaces, CarryAcrossAPathWhoseMtuIsSmallerThanTheSenders) {
  // Host A believes in 9000 bytes; what is above 1500 is lost on the way to B, without a word.
  Carry(Link("eth", "10.78.0.1/24", "10.78.0.2/24") +
            std::vector<std::string>{"nsenter -t $A -n ip link set eth mtu 9000"},
        {{"FORGIVE_INTERFACE", "eth"}}, 0, 1);
}

TEST_F(PluginInterfaces, ReachTheSameHostThroughAnInterfaceThatSharesItsSubnet) {
  Pipe done;  // the links go with host B
  RunHosts(
      Link("rail0", "10.77.0.1/24", "10.77.0.3/24") + Link("rail1", "10.77.0.2/24", "10.77.0.4/24"),
      {{"FORGIVE_INTERFACE", "rail"}},
      [&] {
        const Library library;
        const Net net = library.Table(8);
        ASSERT_EQ(net.init(), nccl::kSuccess);
        Pair pair = MakePair(net, 100000);
        FillPattern(&pair.source, 2);
        void* receive = nullptr;
        void* send = nullptr;
        ASSERT_EQ(Receive(net, &pair, 0, 100000, &receive), nccl::kSuccess);
        ASSERT_EQ(Send(net, pair, 0, 100000, &send), nccl::kSuccess);
        EXPECT_EQ(Wait(net, receive), nccl::kSuccess);
        EXPECT_EQ(Wait(net, send), nccl::kSuccess);
        EXPECT_EQ(pair.source, pair.destination);
        ClosePair(net, &pair);
        EXPECT_TRUE(done.Write("1", 1));
      },
      [&] {
        char byte;
        EXPECT_TRUE(done.Read(&byte, 1));
      });
}

}  // namespace
}  // namespace forgive::testing
