// SPDX-License-Identifier: Apache-2.0
// What NCCL expects of a plugin around the data path, for each version of the table; no call may block.
#include <gtest/gtest.h>
#include <time.h>

#include <array>
#include <atomic>
#include <cstdlib>
#include <thread>

#include "api_versions.h"

namespace forgive::testing {
namespace {

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

class Conformance : public ApiVersions {};

TEST_P(Conformance, InitialisesManyCommunicatorsAtOnceAndEndsThemInAnyOrder) {
  Run([](const Library& library, const Net& net) {
    std::vector<std::thread> threads;
    for (uint64_t id = 1; id <= 8; ++id) {
      threads.emplace_back([&library, &net, id] {
        CallClock clock;
        const Net own = clock.Wrap(library.Table(net.version, 100 + id));
        ASSERT_EQ(own.init(), nccl::kSuccess);
        int count = 0;
        EXPECT_EQ(own.devices(&count), nccl::kSuccess);
        EXPECT_EQ(count, 1);
        Pair pair = MakePair(own, 50000);
        SendOne(own, &pair, 50000);
        // With connections open or closed: NCCL may end the network first when it aborts.
        if (own.finalize && id % 2 == 0) {
          EXPECT_EQ(own.finalize(), nccl::kSuccess);
        }
        SendOne(own, &pair, 50000);
        ClosePair(own, &pair);
        if (own.finalize && id % 2 != 0) {
          EXPECT_EQ(own.finalize(), nccl::kSuccess);
        }
        clock.ExpectNothingBlocked();
      });
    }
    for (std::thread& thread : threads) thread.join();
    Pair pair = MakePair(net, 1000);
    SendOne(net, &pair, 1000);
    ClosePair(net, &pair);
  });
}

TEST_P(Conformance, ConnectsFromOneThreadWhileAnotherMovesData) {
  Run([](const Library&, const Net& net) {
    Pair moving = MakePair(net, 1 << 20);
    std::atomic<bool> stop{false};
    std::thread service([&] {
      for (int round = 0; round < 50; ++round) {
        Pair pair = MakePair(net, 4096);
        ClosePair(net, &pair);
      }
      stop.store(true);
    });
    while (!stop.load() && !::testing::Test::HasFailure()) SendOne(net, &moving, 1 << 20);
    service.join();
    ClosePair(net, &moving);
  });
}

TEST_P(Conformance, RepeatsAPostThatWasRefusedForWantOfRequestsWithTheSameArguments) {
  Run([](const Library&, const Net& net) {
    Pair pair = MakePair(net, 64 << 10);
    FillPattern(&pair.source, 2);
    std::vector<void*> sends;
    std::vector<void*> receives;
    size_t refused = 0;
    size_t done_count = 0;
    constexpr size_t kMessages = 400;
    size_t posted = 0;
    ASSERT_TRUE(PollUntil([&] {
      void* request = &pair;
      if (posted < kMessages) {
        EXPECT_EQ(net.send(pair.send_comm, pair.source.data(), 512, 0, pair.source_handle, &request), 0);
        posted += request != nullptr;
        refused += request == nullptr;
        if (request != nullptr) sends.push_back(request);
      }
      if (receives.size() < 4 && done_count + receives.size() < kMessages) {
        EXPECT_EQ(Receive(net, &pair, 0, 512, &request), nccl::kSuccess);
        receives.push_back(request);
      }
      int done = 0;
      if (!receives.empty() && refused > 3) {
        EXPECT_EQ(net.test(receives.front(), &done, nullptr), nccl::kSuccess);
        if (done != 0) {
          receives.erase(receives.begin());
          ++done_count;
        }
      }
      if (!sends.empty() && refused > 3) {
        EXPECT_EQ(net.test(sends.front(), &done, nullptr), nccl::kSuccess);
        if (done != 0) sends.erase(sends.begin());
      }
      return ::testing::Test::HasFailure() || (done_count == kMessages && sends.empty());
    }));
    EXPECT_GT(refused, 3u);
    ClosePair(net, &pair);
  });
}

TEST_P(Conformance, RefusesASecondCloseOfTheSameCommunicator) {
  Run([](const Library&, const Net& net) {
    alignas(8) char handle[nccl::kHandleBytes];
    void* listen_comm = nullptr;
    ASSERT_EQ(net.listen(0, handle, &listen_comm), nccl::kSuccess);
    EXPECT_EQ(net.close_listen(listen_comm), nccl::kSuccess);
    EXPECT_NE(net.close_listen(listen_comm), nccl::kSuccess);
    Pair pair = MakePair(net, 1000);
    SendOne(net, &pair, 1000);
    EXPECT_NE(net.close_receive(pair.send_comm), nccl::kSuccess) << "the wrong kind";
    EXPECT_EQ(net.close_send(pair.send_comm), nccl::kSuccess);
    EXPECT_NE(net.close_send(pair.send_comm), nccl::kSuccess);
    EXPECT_EQ(net.close_receive(pair.receive_comm), nccl::kSuccess);
    EXPECT_NE(net.close_receive(pair.receive_comm), nccl::kSuccess);
    EXPECT_TRUE(LogContains("closeSend: not an open send communicator"));
    EXPECT_NE(net.close_send(nullptr), nccl::kSuccess);
    EXPECT_NE(net.close_listen(nullptr), nccl::kSuccess);
  });
}

TEST_P(Conformance, ClosesWithRequestsInFlightOnBothSidesWithoutWaitingForThePeer) {
  Run([](const Library&, const Net& net) {
    for (int round = 0; round < 8; ++round) {
      Pair pair = MakePair(net, 4 << 20);
      std::array<void*, 4> requests{};
      ASSERT_EQ(Send(net, pair, 0, 1 << 20, &requests[0]), nccl::kSuccess);
      ASSERT_EQ(Receive(net, &pair, 0, 1 << 20, &requests[1]), nccl::kSuccess);
      if (round % 2 == 1) {
        ASSERT_EQ(Send(net, pair, 1 << 20, 1 << 20, &requests[2]), nccl::kSuccess);
        ASSERT_EQ(Receive(net, &pair, 1 << 20, 1 << 20, &requests[3]), nccl::kSuccess);
      }
      ClosePair(net, &pair);  // deregisters first, as NCCL does
    }
    Pair pair = MakePair(net, 1000);
    SendOne(net, &pair, 1000);
    ClosePair(net, &pair);
  });
}

// What NCCL's own exit handlers do after the plugin's have run.
Net* net_at_exit = nullptr;
Pair* pair_at_exit = nullptr;
Library* library_at_exit = nullptr;

void CloseAtExit() {
  if (net_at_exit == nullptr) return;
  int done = 0;
  void* request = nullptr;
  bool good = net_at_exit->devices(&done) == nccl::kSuccess;
  void* data = pair_at_exit->source.data();
  const int sent = net_at_exit->send(pair_at_exit->send_comm, data, 16, 0, pair_at_exit->source_handle, &request);
  good = good && sent == nccl::kSuccess;
  good = good && net_at_exit->close_send(pair_at_exit->send_comm) == nccl::kSuccess;
  good = good && net_at_exit->close_receive(pair_at_exit->receive_comm) == nccl::kSuccess;
  if (net_at_exit->finalize) good = good && net_at_exit->finalize() == nccl::kSuccess;
  delete library_at_exit;
  std::fflush(nullptr);
  _exit(good && !::testing::Test::HasFailure() ? 0 : 1);
}

TEST_P(Conformance, StillAnswersAfterItsOwnExitHandlersHaveRun) {
  const int version = GetParam();
  ExpectInChild({}, [&] {
    // Registered before the library is there, so called after its handlers.
    std::atexit(CloseAtExit);
    library_at_exit = new Library;
    auto* clock = new CallClock;  // as long as the table
    net_at_exit = new Net(clock->Wrap(library_at_exit->Table(version)));
    ASSERT_EQ(net_at_exit->init(), nccl::kSuccess);
    pair_at_exit = new Pair(MakePair(*net_at_exit, 4096));
    void* request = nullptr;
    ASSERT_EQ(Receive(*net_at_exit, pair_at_exit, 0, 4096, &request), nccl::kSuccess);
  });
}

class ConformanceWithContext : public ::testing::TestWithParam<int> {};

TEST_P(ConformanceWithContext, EndsAContextThatWasNeverMadeAndForgetsOneThatWas) {
  ExpectInChild({{"FORGIVE_P_LOW", "two"}}, [&] {
    CallClock clock;
    const Library library;
    const Net net = clock.Wrap(library.Table(GetParam()));
    EXPECT_NE(net.init(), nccl::kSuccess);
    EXPECT_EQ(net.communicator->context, nullptr);
    EXPECT_EQ(net.finalize(), nccl::kSuccess) << "NCCL ends it after a failed init too";
    const nccl::Attributes attributes{};
    EXPECT_EQ(net.set_attributes(&attributes), nccl::kSuccess);
    setenv("FORGIVE_P_LOW", "0.01", 1);
    ASSERT_EQ(net.init(), nccl::kSuccess);
    EXPECT_EQ(net.finalize(), nccl::kSuccess);
    EXPECT_EQ(net.finalize(), nccl::kInternalError) << "twice";
    alignas(8) char handle[nccl::kHandleBytes];
    void* listen_comm = nullptr;
    EXPECT_EQ(net.listen(0, handle, &listen_comm), nccl::kInternalError) << "of a context that has ended";
    EXPECT_EQ(listen_comm, nullptr);
  });
}

TEST_P(Conformance, ReloadsBetweenCommunicators) {
  ExpectInChild({}, [&] {
    CallClock clock;
    for (int round = 0; round < 3; ++round) {
      const Library library;
      const Net net = clock.Wrap(library.Table(GetParam()));
      ASSERT_EQ(net.init(), nccl::kSuccess);
      Pair pair = MakePair(net, 20000);
      SendOne(net, &pair, 20000);
      ClosePair(net, &pair);
      if (net.finalize) {
        EXPECT_EQ(net.finalize(), nccl::kSuccess);
      }
    }
  });
}

// In pieces: a thread that is preempted on its way into a sleep may come out without having given the processor up.
void SleepALittle() {
  const timespec pause = {0, 2000000};
  for (int i = 0; i < 8; ++i) nanosleep(&pause, nullptr);
}

TEST(CallClock, SeesACallThatSleepsAndOneThatComputesTooLong) {
  CallClock clock;
  Net net;
  net.devices = [](int*) {
    SleepALittle();
    return 0;
  };
  net.close_send = [](void*) {
    timespec now{};
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    const timespec begin = now;
    while ((now.tv_sec - begin.tv_sec) * 1000000000 + now.tv_nsec - begin.tv_nsec < 3000000)
      clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return 0;
  };
  net.close_listen = [](void*) { return 0; };
  const Net timed = clock.Wrap(net);
  for (int i = 0; i < 10; ++i) {
    timed.devices(nullptr);
    timed.close_send(nullptr);
    timed.close_listen(nullptr);
  }
  const std::string blocking = clock.Blocking();
  EXPECT_NE(blocking.find("devices:"), std::string::npos) << blocking;
  EXPECT_NE(blocking.find("closeSend: 10 of 10"), std::string::npos) << blocking;
  EXPECT_EQ(blocking.find("closeListen"), std::string::npos) << blocking;
}

TEST(CallClock, SeesAConnectThatSleepsAmongManyPollsThatDoNot) {
  CallClock clock;
  Net net;
  bool under_way = false;
  int polls = 0;
  net.listen = [&](int, void*, void**) {
    under_way = false;
    polls = 0;
    return 0;
  };
  net.connect = [&](int, void* handle, void** comm) {
    if (!under_way) SleepALittle();
    under_way = true;
    *comm = ++polls == 10 ? handle : nullptr;
    return 0;
  };
  const Net timed = clock.Wrap(net);
  char handle = 0;
  for (int i = 0; i < 10; ++i) {
    void* comm = nullptr;
    timed.listen(0, &handle, &comm);
    for (int poll = 0; poll < 10; ++poll) timed.connect(0, &handle, &comm);
  }
  const std::string blocking = clock.Blocking();
  EXPECT_NE(blocking.find("connect: "), std::string::npos) << blocking;
  EXPECT_EQ(blocking.find("connect again"), std::string::npos) << blocking;
}

INSTANTIATE_TEST_SUITE_P(Api, ConformanceWithContext, ::testing::Values(11, 12), NameOfVersion);
INSTANTIATE_TEST_SUITE_P(Api, Conformance, ::testing::ValuesIn(kVersions), NameOfVersion);

}  // namespace
}  // namespace forgive::testing
