// SPDX-License-Identifier: Apache-2.0
// Init, bad environments, fork, peer death, unloading and loading again.
#include <arpa/inet.h>
#include <dlfcn.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstring>
#include <thread>

#include "fake_nccl.h"

namespace forgive::testing {
namespace {

using Settings = std::vector<std::pair<std::string, std::string>>;

// Loads and initialises; returns init's result. The library stays loaded while `use` runs.
int InitWith(int version, const std::function<void(const Net&)>& use = {}) {
  const Library library;
  const Net net = library.Table(version);
  const int result = net.init();
  if (use) use(net);
  return result;
}

void SendOne(const Net& net, Pair* pair, size_t bytes) {
  FillPattern(&pair->source, 9);
  void* receive = nullptr;
  void* send = nullptr;
  ASSERT_EQ(Receive(net, pair, 0, static_cast<int>(bytes), &receive), nccl::kSuccess);
  ASSERT_EQ(Send(net, *pair, 0, static_cast<int>(bytes), &send), nccl::kSuccess);
  EXPECT_EQ(Wait(net, receive), nccl::kSuccess);
  EXPECT_EQ(Wait(net, send), nccl::kSuccess);
  EXPECT_TRUE(std::equal(pair->source.begin(), pair->source.begin() + static_cast<ptrdiff_t>(bytes),
                         pair->destination.begin()));
}

TEST(PluginInit, SaysInterfaceDriverVersionAndWhatIsEligibleInOneLineAndEachDevicesFactsInAnother) {
  ExpectInChild({}, [] {
    ASSERT_EQ(InitWith(7), nccl::kSuccess);
    ASSERT_EQ(LogLines().size(), 2u);
    for (const char* part :
         {"ncclNet v7", "driver udp", "lo 127.0.0.1", "eligible: nothing", "FORGIVE_GRADIENT_TRAFFIC"}) {
      EXPECT_NE(LogLines()[0].find(part), std::string::npos) << part << " in: " << LogLines()[0];
    }
    for (const char* part : {"device 0 is lo: ", "speed not known", "no PCI device", "from sysfs"}) {
      EXPECT_NE(LogLines()[1].find(part), std::string::npos) << part << " in: " << LogLines()[1];
    }
  });
  ExpectInChild({{"FORGIVE_GRADIENT_TRAFFIC", "all"}, {"FORGIVE_RING_RANKS", "4"}}, [] {
    ASSERT_EQ(InitWith(8), nccl::kSuccess);
    EXPECT_TRUE(LogContains("by the operator's word"));
    EXPECT_TRUE(LogContains("4 ranks"));
  });
}

TEST(PluginInit, MayBeCalledManyTimesAndFromManyThreads) {
  ExpectInChild({}, [] {
    const Library library;
    const Net net = library.Table(8);
    std::vector<std::thread> threads;
    for (int i = 0; i < 8; ++i) {
      threads.emplace_back([&net] {
        EXPECT_EQ(net.init(), nccl::kSuccess);
        int count = 0;
        EXPECT_EQ(net.devices(&count), nccl::kSuccess);
        EXPECT_EQ(count, 1);
        Pair pair = MakePair(net, 100000);
        SendOne(net, &pair, 100000);
        ClosePair(net, &pair);
      });
    }
    for (std::thread& thread : threads) thread.join();
    EXPECT_EQ(net.init(), nccl::kSuccess);
  });
}

TEST(PluginInit, InstallsNoSignalHandler) {
  ExpectInChild({}, [] {
    const auto handlers = [] {
      std::array<struct sigaction, 65> all{};
      for (int number = 1; number <= 64; ++number) sigaction(number, nullptr, &all[static_cast<size_t>(number)]);
      return all;
    };
    const auto before = handlers();
    ASSERT_EQ(InitWith(8), nccl::kSuccess);
    const auto after = handlers();
    for (size_t number = 1; number <= 64; ++number) {
      EXPECT_EQ(before[number].sa_handler, after[number].sa_handler) << "signal " << number;
    }
  });
}

// A bad value of every variable that can have one.
struct BadValue {
  const char* name;
  const char* value;
};
constexpr BadValue kBadValues[] = {
    {"FORGIVE_DRIVER", "tcp"},
    {"FORGIVE_DPDK", "--vdef=net_null0"},
    {"FORGIVE_INTERFACE", "no-such-interface"},
    {"FORGIVE_INTERFACE", "^"},
    {"FORGIVE_PORT_RANGE", "2000-1000"},
    {"FORGIVE_MTU", "100"},
    {"FORGIVE_MAX_PAYLOAD", "5000"},
    {"FORGIVE_P_LOW", "1.5"},
    {"FORGIVE_P_HIGH", "ten"},
    {"FORGIVE_P", "-0.1"},
    {"FORGIVE_GRADIENT_TRAFFIC", "yes"},
    {"FORGIVE_GRADIENT_TRAFFIC", "all"},  // without FORGIVE_RING_RANKS
    {"FORGIVE_RING_RANKS", "1"},
    {"FORGIVE_GRADIENT_RANKS", "0"},
    {"FORGIVE_ELIGIBLE", "some"},
    {"FORGIVE_STEP", "each"},
    {"FORGIVE_BUDGET_UNIT", "packets"},
    {"FORGIVE_COMMUNICATOR", "^,"},
    {"FORGIVE_TRAFFIC_CLASS", "256"},
    {"FORGIVE_LEAST_COUNT", "0"},
    {"FORGIVE_PROFILER", "yes"},
    {"FORGIVE_TRIM", "on"},
    {"FORGIVE_TRIM_NEEDS_DSCP", "2"},
    {"FORGIVE_DSCP_DATA", "64"},
    {"FORGIVE_DSCP_DATA", "11"},  // that of trimmed packets
    {"FORGIVE_DSCP_CONTROL", "x"},
    {"FORGIVE_DSCP_TRIMMED", "-1"},
    {"FORGIVE_CC", "reno"},
    {"FORGIVE_CC_RESTART", "always"},
    {"FORGIVE_LINK_RATE_MBPS", "0"},
    {"FORGIVE_BASE_RTT_US", "0"},
    {"FORGIVE_WINDOW_BYTES", "100"},
    {"FORGIVE_RTO_US", "1e3"},
    {"FORGIVE_REPORT_EVERY", "0"},
    {"FORGIVE_PEER_TIMEOUT_S", "0"},
    {"FORGIVE_CRC", "yes"},
    {"FORGIVE_RECEIVE_BUFFER_BYTES", "1"},
    {"FORGIVE_BUSY_POLL", ""},
    {"FORGIVE_CPU", "8191"},
    {"FORGIVE_SEED", "0x12"},
    {"FORGIVE_FAULT", "trim"},
    {"FORGIVE_FAULT", "trim=2"},
    {"FORGIVE_FAULT", "explode=0.1"},
    {"FORGIVE_FAULT_LOG", ""},
    {"FORGIVE_RELAY", "somewhere"},
    {"FORGIVE_STATS", "stats.%q"},
    {"FORGIVE_TRACE_INTERVAL_US", "1"},
    {"FORGIVE_LEDGER_LINES", "0"},
    {"FORGIVE_LOG", "loud"},
    {"FORGIVE_ABORT_ON_ERROR", "maybe"},
    {"NCCL_SOCKET_FAMILY", "AF_UNIX"},
};

void PrintTo(const BadValue& bad, std::ostream* out) { *out << bad.name << "=" << bad.value; }

class PluginEnvironment : public ::testing::TestWithParam<BadValue> {};

TEST_P(PluginEnvironment, ABadValueFailsInitWithOneLineThatNamesIt) {
  const BadValue bad = GetParam();
  ExpectInChild({{bad.name, bad.value}}, [&] {
    EXPECT_NE(InitWith(8), nccl::kSuccess);
    ASSERT_EQ(LogLines().size(), 1u);
    EXPECT_TRUE(LogContains(bad.name)) << LogLines()[0];
    EXPECT_TRUE(LogContains(bad.value)) << LogLines()[0];
  });
}

INSTANTIATE_TEST_SUITE_P(All, PluginEnvironment, ::testing::ValuesIn(kBadValues), [](const auto& parameter) {
  return std::string(parameter.param.name) + "_" + std::to_string(parameter.index);
});

TEST(PluginEnvironment, ALinesEndInAValueDoesNotMakeTwoLines) {
  ExpectInChild({{"FORGIVE_DRIVER", "udp\n2"}}, [] {
    EXPECT_NE(InitWith(8), nccl::kSuccess);
    EXPECT_TRUE(LogContains("FORGIVE_DRIVER=udp?2: accepted"));
  });
}

TEST(PluginEnvironment, AFailedInitMayBeTriedAgainWithABetterValue) {
  ExpectInChild({{"FORGIVE_P_LOW", "two"}}, [] {
    EXPECT_NE(InitWith(8), nccl::kSuccess);
    setenv("FORGIVE_P_LOW", "0.02", 1);
    EXPECT_EQ(InitWith(8), nccl::kSuccess);
  });
}

TEST(PluginEnvironment, WarnsOfAVariableThatIsNotKnownAndGoesOn) {
  ExpectInChild({{"FORGIVE_P_HIHG", "0.2"}}, [] {
    EXPECT_EQ(InitWith(8), nccl::kSuccess);
    EXPECT_TRUE(LogContains("FORGIVE_P_HIHG: no such variable"));
  });
}

TEST(PluginEnvironment, ABusyPortRangeFailsInitAndNamesThePorts) {
  const int busy = socket(AF_INET, SOCK_DGRAM, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t length = sizeof(address);
  ASSERT_EQ(bind(busy, reinterpret_cast<sockaddr*>(&address), length), 0);
  ASSERT_EQ(getsockname(busy, reinterpret_cast<sockaddr*>(&address), &length), 0);
  const std::string port = std::to_string(ntohs(address.sin_port));
  ExpectInChild({{"FORGIVE_PORT_RANGE", port + "-" + port}}, [&] {
    EXPECT_NE(InitWith(8), nccl::kSuccess);
    EXPECT_TRUE(LogContains(port)) << LogLines()[0];
    EXPECT_TRUE(LogContains("FORGIVE_PORT_RANGE"));
  });
  close(busy);
}

TEST(PluginEnvironment, ListensWithinItsPortRange) {
  ExpectInChild({{"FORGIVE_PORT_RANGE", "42100-42199"}}, [] {
    InitWith(8, [](const Net& net) {
      Pair pair = MakePair(net, 1000);
      SendOne(net, &pair, 1000);
      ClosePair(net, &pair);
    });
    std::FILE* sockets = std::fopen("/proc/net/udp", "r");
    ASSERT_NE(sockets, nullptr);
    char line[512];
    bool found = false;
    while (std::fgets(line, sizeof(line), sockets) != nullptr) {
      unsigned address = 0;
      unsigned port = 0;
      if (std::sscanf(line, " %*d: %x:%x", &address, &port) == 2) found = found || (port >= 42100 && port <= 42199);
    }
    std::fclose(sockets);
    EXPECT_TRUE(found);
  });
}

// Both ends of a connection are this process's, so two places are one pair.
TEST(PluginEnvironment, AConnectionBeyondItsOwnLimitIsAnErrorThatNamesTheVariableAndNotThePeer) {
  ExpectInChild({{"FORGIVE_MAX_CONNECTIONS", "2"}}, [] {
    InitWith(8, [](const Net& net) {
      Pair pair = MakePair(net, 1000);
      alignas(8) char handle[nccl::kHandleBytes];
      void* listen_comm = nullptr;
      ASSERT_EQ(net.listen(0, handle, &listen_comm), nccl::kSuccess);
      void* send_comm = nullptr;
      int result = nccl::kSuccess;
      ASSERT_TRUE(PollUntil([&] {
        result = net.connect(0, handle, &send_comm);
        return result != nccl::kSuccess || send_comm != nullptr;
      }));
      EXPECT_EQ(result, nccl::kSystemError);
      EXPECT_EQ(send_comm, nullptr);
      EXPECT_TRUE(LogContains("FORGIVE_MAX_CONNECTIONS")) << LogLines().back();
      EXPECT_TRUE(LogContains("(2 now)")) << LogLines().back();
      EXPECT_FALSE(LogContains("refused")) << LogLines().back();
      SendOne(net, &pair, 1000);
      EXPECT_EQ(net.close_listen(listen_comm), nccl::kSuccess);
      ClosePair(net, &pair);
    });
  });
}

TEST(PluginReload, KeepsWorkingAfterDlcloseAndDlopen) {
  ExpectInChild({}, [] {
    for (const int version : kVersions) {
      const int result = InitWith(version, [](const Net& net) {
        Pair pair = MakePair(net, 50000);
        SendOne(net, &pair, 50000);
        ClosePair(net, &pair);
      });
      EXPECT_EQ(result, nccl::kSuccess);
    }
  });
}

TEST(PluginReload, SurvivesUnloadingWithConnectionsOpen) {
  ExpectInChild({}, [] {
    Pair pair;
    InitWith(8, [&pair](const Net& net) {
      pair = MakePair(net, 100000);
      void* request = nullptr;
      EXPECT_EQ(Receive(net, &pair, 0, 100000, &request), nccl::kSuccess);
    });
    InitWith(8, [&pair](const Net& net) {
      EXPECT_EQ(net.close_receive(pair.receive_comm), nccl::kSuccess);
      EXPECT_EQ(net.close_send(pair.send_comm), nccl::kSuccess);
    });
  });
}

TEST(PluginFork, AChildInTheMiddleOfTrafficGetsErrorsAndTheParentGoesOn) {
  ExpectInChild({}, [] {
    const Library library;
    const Net net = library.Table(8);
    ASSERT_EQ(net.init(), nccl::kSuccess);
    Pair pair = MakePair(net, 8 << 20);
    FillPattern(&pair.source, 3);
    void* receive = nullptr;
    void* send = nullptr;
    ASSERT_EQ(Receive(net, &pair, 0, 8 << 20, &receive), nccl::kSuccess);
    ASSERT_EQ(Send(net, pair, 0, 8 << 20, &send), nccl::kSuccess);
    const pid_t child = fork();
    if (child == 0) {
      // As a data loader would: it may touch what it inherited, and must neither hang nor disturb the parent.
      int done = 0;
      void* request = nullptr;
      void* data = pair.source.data();
      bool good = net.send(pair.send_comm, data, 16, 0, pair.source_handle, &request) == nccl::kInternalError;
      good = good && library.Get<int(uint64_t)>("forgive_step_end")(1) == FORGIVE_ERROR_NOT_STARTED;
      good = good && net.close_send(pair.send_comm) == nccl::kSuccess;
      good = good && net.close_receive(pair.receive_comm) == nccl::kSuccess;
      good = good && net.devices(&done) == nccl::kSuccess && done == 0;
      std::exit(good ? 0 : 1);
    }
    EXPECT_EQ(Wait(net, receive), nccl::kSuccess);
    EXPECT_EQ(Wait(net, send), nccl::kSuccess);
    EXPECT_EQ(pair.destination, pair.source);
    int status = 0;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
    ClosePair(net, &pair);
  });
}

// The thread sanitizer does not let a child of a process with threads start one, and the address sanitizer's
// allocator may be locked for ever in such a child (GCC 12).
#if !defined(__SANITIZE_THREAD__) && !defined(__SANITIZE_ADDRESS__)
TEST(PluginFork, AChildMayInitialiseItsOwn) {
  ExpectInChild({}, [] {
    const Library library;
    const Net net = library.Table(8);
    ASSERT_EQ(net.init(), nccl::kSuccess);
    ExpectInChild({}, [&] {
      ASSERT_EQ(net.init(), nccl::kSuccess);
      Pair pair = MakePair(net, 10000);
      SendOne(net, &pair, 10000);
      ClosePair(net, &pair);
    });
    Pair pair = MakePair(net, 10000);
    SendOne(net, &pair, 10000);
    ClosePair(net, &pair);
  });
}
#endif

// A second process that listens, gives its handle through a pipe, and posts receives it never lives to see.
TEST(PluginPeer, ADeadPeerBecomesARemoteErrorAndTheProcessLivesOn) {
  int handles[2];
  ASSERT_EQ(pipe(handles), 0);
  const pid_t peer = fork();
  if (peer == 0) {
    setenv("FORGIVE_INTERFACE", "lo", 1);
    const Library library;
    const Net net = library.Table(8);
    net.init();
    alignas(8) char handle[nccl::kHandleBytes];
    void* listen_comm = nullptr;
    void* receive_comm = nullptr;
    net.listen(0, handle, &listen_comm);
    if (write(handles[1], handle, sizeof(handle)) != sizeof(handle)) _exit(1);
    PollUntil([&] { return net.accept(listen_comm, &receive_comm) != 0 || receive_comm != nullptr; });
    _exit(0);  // dies without a word
  }
  // Long enough for a peer that gets no processor while it still lives.
  ExpectInChild({{"FORGIVE_PEER_TIMEOUT_S", "5"}}, [&] {
    const Library library;
    const Net net = library.Table(8);
    ASSERT_EQ(net.init(), nccl::kSuccess);
    alignas(8) char handle[nccl::kHandleBytes];
    ASSERT_EQ(read(handles[0], handle, sizeof(handle)), static_cast<ssize_t>(sizeof(handle)));
    void* send_comm = nullptr;
    EXPECT_TRUE(PollUntil([&] { return net.connect(0, handle, &send_comm) != 0 || send_comm != nullptr; }));
    ASSERT_NE(send_comm, nullptr);
    std::vector<uint8_t> data(1000);
    void* memory = nullptr;
    ASSERT_EQ(net.register_memory(send_comm, data.data(), data.size(), nccl::kPointerHost, &memory), nccl::kSuccess);
    void* request = nullptr;
    ASSERT_EQ(net.send(send_comm, data.data(), 1000, 0, memory, &request), nccl::kSuccess);
    ASSERT_NE(request, nullptr);
    EXPECT_EQ(Wait(net, request), nccl::kRemoteError);
    EXPECT_TRUE(LogContains("FORGIVE_PEER_TIMEOUT_S"));
    EXPECT_EQ(net.send(send_comm, data.data(), 1000, 0, memory, &request), nccl::kRemoteError);
    EXPECT_EQ(net.close_send(send_comm), nccl::kSuccess);
    Pair pair = MakePair(net, 1000);
    SendOne(net, &pair, 1000);
    ClosePair(net, &pair);
  });
  int status = 0;
  ASSERT_EQ(waitpid(peer, &status, 0), peer);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
  close(handles[0]);
  close(handles[1]);
}

TEST(PluginPeer, AbortsTheProcessAtAnErrorWhereThatWasAskedFor) {
  const int status = RunInChild({{"FORGIVE_ABORT_ON_ERROR", "1"}}, [] {
    const Library library;
    const Net net = library.Table(8);
    net.init();
    Pair pair = MakePair(net, 1000);
    net.close_receive(pair.receive_comm);
    void* request = nullptr;
    if (Send(net, pair, 0, 1000, &request) == nccl::kSuccess) Wait(net, request);
  });
  EXPECT_TRUE(WIFSIGNALED(status));
  EXPECT_EQ(WTERMSIG(status), SIGABRT);
}

}  // namespace
}  // namespace forgive::testing
