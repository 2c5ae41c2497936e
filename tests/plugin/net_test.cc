// SPDX-License-Identifier: Apache-2.0
// The data path as NCCL's proxy uses it, for each API version, over loopback.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <deque>
#include <thread>

#include "api_versions.h"

namespace forgive::testing {
namespace {

class PluginNet : public ApiVersions {};

TEST_P(PluginNet, OffersTheInterfaceAsAHostMemoryDeviceWithOneReceiveARequest) {
  Run([](const Net& net) {
    EXPECT_STREQ(net.name, "forgive");
    int count = 0;
    ASSERT_EQ(net.devices(&count), nccl::kSuccess);
    ASSERT_EQ(count, 1);
    DeviceProperties properties;
    ASSERT_EQ(net.properties(0, &properties), nccl::kSuccess);
    EXPECT_EQ(properties.name, "lo");
    EXPECT_EQ(properties.pointer_support, nccl::kPointerHost);
    EXPECT_EQ(properties.max_receives, 1);
    EXPECT_GT(properties.speed_mbps, 0);
    EXPECT_GT(properties.max_comms, 256);
    if (net.version >= 9) {
      EXPECT_EQ(properties.merged_devices, 1);
      EXPECT_GE(properties.max_bytes, size_t{1} << 20);
      EXPECT_LE(properties.max_bytes, size_t{INT32_MAX}) << "test's sizes are int";
    }
    EXPECT_NE(net.properties(1, &properties), nccl::kSuccess);
    EXPECT_NE(net.properties(-1, &properties), nccl::kSuccess);
  });
}

TEST_P(PluginNet, ConnectAndAcceptSayNotYetInsteadOfWaiting) {
  Run([](const Net& net) {
    alignas(8) char handle[nccl::kHandleBytes];
    void* listen_comm = nullptr;
    ASSERT_EQ(net.listen(0, handle, &listen_comm), nccl::kSuccess);
    void* receive_comm = &receive_comm;
    ASSERT_EQ(net.accept(listen_comm, &receive_comm), nccl::kSuccess);
    EXPECT_EQ(receive_comm, nullptr);
    void* send_comm = &send_comm;
    EXPECT_TRUE(PollUntil([&] {
      EXPECT_EQ(net.connect(0, handle, &send_comm), nccl::kSuccess);
      return send_comm != nullptr;
    }));
    EXPECT_TRUE(PollUntil([&] {
      EXPECT_EQ(net.accept(listen_comm, &receive_comm), nccl::kSuccess);
      return receive_comm != nullptr;
    }));
    EXPECT_EQ(net.close_listen(listen_comm), nccl::kSuccess);
    EXPECT_EQ(net.close_send(send_comm), nccl::kSuccess);
    EXPECT_EQ(net.close_receive(receive_comm), nccl::kSuccess);
  });
}

// Both ends of `pair`, `depth` requests deep, message i of size sizes[i]; as the progress thread does it: posts what
// it can, tests what it has.
void Exchange(const Net& net, Pair* pair, const std::vector<int>& sizes, int posted_bytes, size_t depth,
              bool ask_sizes) {
  const size_t slots = pair->source.size() / static_cast<size_t>(posted_bytes);
  ASSERT_GE(slots, depth);
  size_t sent = 0;
  size_t received = 0;
  std::deque<std::pair<size_t, void*>> sends;
  std::deque<std::pair<size_t, void*>> receives;
  std::vector<std::vector<uint8_t>> expected(sizes.size());
  size_t done_messages = 0;
  const auto turn = [&] {
    if (received < sizes.size() && receives.size() < depth) {
      void* request = nullptr;
      EXPECT_EQ(Receive(net, pair, received % slots * static_cast<size_t>(posted_bytes), posted_bytes, &request), 0);
      receives.emplace_back(received++, request);
    }
    if (sent < sizes.size() && sends.size() < depth && sent < done_messages + depth) {
      const size_t offset = sent % slots * static_cast<size_t>(posted_bytes);
      expected[sent].resize(static_cast<size_t>(sizes[sent]));
      FillPattern(&expected[sent], sent + 1);
      std::copy(expected[sent].begin(), expected[sent].end(), pair->source.begin() + static_cast<ptrdiff_t>(offset));
      void* request = nullptr;
      EXPECT_EQ(Send(net, *pair, offset, sizes[sent], &request), 0);
      sends.emplace_back(sent++, request);
    }
    int done = 0;
    if (!sends.empty()) {
      EXPECT_EQ(net.test(sends.front().second, &done, nullptr), nccl::kSuccess);
      if (done != 0) sends.pop_front();
    }
    if (!receives.empty()) {
      int size = -1;
      EXPECT_EQ(net.test(receives.front().second, &done, ask_sizes ? &size : nullptr), nccl::kSuccess);
      if (done != 0) {
        const size_t message = receives.front().first;
        if (ask_sizes) {
          EXPECT_EQ(size, sizes[message]);
        }
        const auto* got = pair->destination.data() + message % slots * static_cast<size_t>(posted_bytes);
        EXPECT_TRUE(std::equal(expected[message].begin(), expected[message].end(), got)) << "message " << message;
        receives.pop_front();
        ++done_messages;
      }
    }
    return ::testing::Test::HasFailure() || (done_messages == sizes.size() && sends.empty());
  };
  EXPECT_TRUE(PollUntil(turn, 120));
}

std::vector<int> MixedSizes(size_t count, int most) {
  std::vector<int> sizes = {0, 1, 15, 16, 17, 512, 0, 4095, 4096, 4097, most, most - 1, 0};
  uint64_t state = 7;
  while (sizes.size() < count) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    sizes.push_back(static_cast<int>((state >> 33) % static_cast<uint64_t>(most + 1)));
  }
  return sizes;
}

TEST_P(PluginNet, CarriesZeroLengthAndShorterMessagesInOrderThirtyTwoDeep) {
  Run([](const Net& net) {
    constexpr int kPosted = 64 << 10;
    Pair pair = MakePair(net, 32 * kPosted);
    Exchange(net, &pair, MixedSizes(200, kPosted), kPosted, 32, true);
    ClosePair(net, &pair);
  });
}

TEST_P(PluginNet, CompletesWithoutBeingAskedForSizesOrForTheCompletion) {
  Run([](const Net& net) {
    net.communicator->optional_completion = true;
    constexpr int kPosted = 8 << 10;
    Pair pair = MakePair(net, 8 * kPosted);
    Exchange(net, &pair, MixedSizes(40, kPosted), kPosted, 8, false);
    ClosePair(net, &pair);
  });
}

TEST_P(PluginNet, DeliversEveryByteThroughTrimsDropsDuplicatesAndReordering) {
  Run(
      [](const Net& net) {
        constexpr int kPosted = 256 << 10;
        Pair pair = MakePair(net, 8 * kPosted);
        Exchange(net, &pair, MixedSizes(40, kPosted), kPosted, 8, true);
        ClosePair(net, &pair);
      },
      {{"FORGIVE_FAULT", "trim=0.05,drop=0.01,duplicate=0.02,reorder=0.05,corrupt=0.002,seed=3"}});
}

TEST_P(PluginNet, AnswersNullWhenItsRequestsAreUsedUpAndTakesMoreAfterwards) {
  Run([](const Net& net) {
    Pair pair = MakePair(net, 4096);
    std::vector<void*> receives;
    for (;;) {
      void* request = &pair;  // what NCCL may leave there
      void* data = pair.destination.data();
      int bytes = 16;
      int tag = 0;
      ASSERT_EQ(net.receive(pair.receive_comm, 1, &data, &bytes, &tag, &pair.destination_handle, &request), 0);
      if (request == nullptr) break;
      receives.push_back(request);
      ASSERT_LT(receives.size(), 10000u);
    }
    EXPECT_GE(receives.size(), static_cast<size_t>(nccl::kMaxRequestsPerComm));
    for (void* receive : receives) {
      void* send = nullptr;
      ASSERT_EQ(Send(net, pair, 0, 16, &send), nccl::kSuccess);
      EXPECT_EQ(Wait(net, send), nccl::kSuccess);
      EXPECT_EQ(Wait(net, receive), nccl::kSuccess);
    }
    void* again = nullptr;
    EXPECT_EQ(Receive(net, &pair, 0, 16, &again), nccl::kSuccess);
    ClosePair(net, &pair);
  });
}

TEST_P(PluginNet, FlushesHostMemoryWithoutARequest) {
  Run([](const Net& net) {
    Pair pair = MakePair(net, 64);
    void* request = &pair;
    void* data = pair.destination.data();
    int bytes = 64;
    EXPECT_EQ(net.flush(pair.receive_comm, 1, &data, &bytes, &pair.destination_handle, &request), nccl::kSuccess);
    EXPECT_EQ(request, nullptr);
    ClosePair(net, &pair);
  });
}

TEST_P(PluginNet, RefusesDeviceMemoryAndSaysWhichIsSupported) {
  Run([](const Net& net) {
    Pair pair = MakePair(net, 64);
    void* handle = &pair;
    EXPECT_EQ(net.register_memory(pair.send_comm, pair.source.data(), 64, nccl::kPointerCuda, &handle),
              nccl::kInternalError);
    EXPECT_EQ(handle, nullptr);
    EXPECT_TRUE(LogContains("NCCL_PTR_HOST"));
    EXPECT_EQ(net.register_dma_buffer(pair.send_comm, pair.source.data(), 64, nccl::kPointerDmaBuf, 0, 0, &handle),
              nccl::kInternalError);
    ClosePair(net, &pair);
  });
}

TEST_P(PluginNet, RefusesDataOutsideTheRegisteredMemory) {
  Run([](const Net& net) {
    Pair pair = MakePair(net, 64);
    void* request = &pair;
    EXPECT_EQ(net.send(pair.send_comm, pair.source.data() + 1, 64, 0, pair.source_handle, &request),
              nccl::kInternalError);
    EXPECT_EQ(request, nullptr);
    void* data = pair.destination.data();
    int bytes = 65;
    int tag = 0;
    EXPECT_EQ(net.receive(pair.receive_comm, 1, &data, &bytes, &tag, &pair.destination_handle, &request),
              nccl::kInternalError);
    EXPECT_EQ(request, nullptr);
    EXPECT_EQ(net.deregister_memory(pair.send_comm, &pair), nccl::kInternalError);
    ClosePair(net, &pair);
  });
}

TEST_P(PluginNet, FailsBothSidesWhenASendIsLongerThanItsReceive) {
  Run([](const Net& net) {
    Pair pair = MakePair(net, 1 << 20);
    void* send = nullptr;
    void* receive = nullptr;
    ASSERT_EQ(Receive(net, &pair, 0, 1000, &receive), nccl::kSuccess);
    ASSERT_EQ(Send(net, pair, 0, 100000, &send), nccl::kSuccess);
    EXPECT_EQ(Wait(net, receive), nccl::kInternalError);
    EXPECT_NE(Wait(net, send), nccl::kSuccess);
    EXPECT_TRUE(LogContains("longer than its posted receive"));
    EXPECT_TRUE(
        std::all_of(pair.destination.begin() + 1000, pair.destination.end(), [](uint8_t b) { return b == 0; }));
    ClosePair(net, &pair);
  });
}

TEST_P(PluginNet, ClosesASenderWithSendsInFlightAndItsPeerGetsAnError) {
  Run([](const Net& net) {
    Pair pair = MakePair(net, 1 << 20);
    void* send = nullptr;
    void* receive = nullptr;
    ASSERT_EQ(Send(net, pair, 0, 1 << 20, &send), nccl::kSuccess);
    EXPECT_EQ(net.close_send(pair.send_comm), nccl::kSuccess);
    const int result = Receive(net, &pair, 0, 1 << 20, &receive);
    EXPECT_EQ(result == nccl::kSuccess ? Wait(net, receive) : result, nccl::kRemoteError);
    EXPECT_EQ(net.close_receive(pair.receive_comm), nccl::kSuccess);
  });
}

TEST_P(PluginNet, WritesNothingIntoMemoryAfterItsReceiverWasClosed) {
  Run([](const Net& net) {
    for (int round = 0; round < 20; ++round) {
      Pair pair = MakePair(net, 4 << 20);
      FillPattern(&pair.source, 5);
      void* send = nullptr;
      void* receive = nullptr;
      ASSERT_EQ(Receive(net, &pair, 0, 4 << 20, &receive), nccl::kSuccess);
      ASSERT_EQ(Send(net, pair, 0, 4 << 20, &send), nccl::kSuccess);
      // At some moment of the transfer, a later one each round.
      for (int turns = 0; turns < round * 100; ++turns) std::this_thread::yield();
      EXPECT_EQ(net.close_receive(pair.receive_comm), nccl::kSuccess);
      std::fill(pair.destination.begin(), pair.destination.end(), uint8_t{0});
      int done = 0;
      EXPECT_TRUE(PollUntil([&] { return net.test(send, &done, nullptr) != nccl::kSuccess || done != 0; }));
      EXPECT_TRUE(std::all_of(pair.destination.begin(), pair.destination.end(), [](uint8_t b) { return b == 0; }));
      EXPECT_EQ(net.close_send(pair.send_comm), nccl::kSuccess);
    }
  });
}

TEST_P(PluginNet, WritesNothingIntoMemoryAfterItWasDeregisteredInFlight) {
  Run([](const Net& net) {
    Pair pair = MakePair(net, 4 << 20);
    FillPattern(&pair.source, 5);
    void* receive = nullptr;
    void* send = nullptr;
    ASSERT_EQ(Receive(net, &pair, 0, 4 << 20, &receive), nccl::kSuccess);
    EXPECT_EQ(net.deregister_memory(pair.receive_comm, pair.destination_handle), nccl::kSuccess);
    if (Send(net, pair, 0, 4 << 20, &send) == nccl::kSuccess) {
      EXPECT_NE(Wait(net, send), nccl::kSuccess);
    }
    EXPECT_NE(Wait(net, receive), nccl::kSuccess);
    EXPECT_TRUE(std::all_of(pair.destination.begin(), pair.destination.end(), [](uint8_t b) { return b == 0; }));
    EXPECT_EQ(net.deregister_memory(pair.send_comm, pair.source_handle), nccl::kSuccess);
    EXPECT_EQ(net.close_receive(pair.receive_comm), nccl::kSuccess);
    EXPECT_EQ(net.close_send(pair.send_comm), nccl::kSuccess);
  });
}

TEST_P(PluginNet, KeepsAConnectionWhoseMemoryIsDeregisteredAfterItsRequestsCompleted) {
  Run([](const Net& net) {
    Pair pair = MakePair(net, 4096);
    void* receive = nullptr;
    void* send = nullptr;
    ASSERT_EQ(Receive(net, &pair, 0, 4096, &receive), nccl::kSuccess);
    ASSERT_EQ(Send(net, pair, 0, 4096, &send), nccl::kSuccess);
    ASSERT_EQ(Wait(net, send), nccl::kSuccess);
    ASSERT_EQ(Wait(net, receive), nccl::kSuccess);
    void* other = nullptr;
    ASSERT_EQ(net.register_memory(pair.receive_comm, pair.destination.data(), 64, nccl::kPointerHost, &other), 0);
    ASSERT_EQ(net.deregister_memory(pair.receive_comm, other), nccl::kSuccess);
    ASSERT_EQ(Receive(net, &pair, 0, 4096, &receive), nccl::kSuccess);
    ASSERT_EQ(Send(net, pair, 0, 4096, &send), nccl::kSuccess);
    EXPECT_EQ(Wait(net, send), nccl::kSuccess);
    EXPECT_EQ(Wait(net, receive), nccl::kSuccess);
    ClosePair(net, &pair);
  });
}

TEST_P(PluginNet, TakesRegistrationsFromAnotherThreadBesideDataCalls) {
  Run([](const Net& net) {
    constexpr int kPosted = 16 << 10;
    Pair pair = MakePair(net, 16 * kPosted);
    std::atomic<bool> stop{false};
    std::thread service([&] {
      std::vector<uint8_t> other(4096);
      while (!stop.load()) {
        void* handle = nullptr;
        EXPECT_EQ(net.register_memory(pair.receive_comm, other.data(), 4096, nccl::kPointerHost, &handle), 0);
        EXPECT_EQ(net.deregister_memory(pair.receive_comm, handle), nccl::kSuccess);
      }
    });
    Exchange(net, &pair, MixedSizes(100, kPosted), kPosted, 16, true);
    stop.store(true);
    service.join();
    ClosePair(net, &pair);
  });
}

TEST_P(PluginNet, ServesHundredsOfCommunicatorsInOneProcess) {
  Run([](const Net& net) {
    std::vector<Pair> pairs;
    for (int i = 0; i < 300 && !::testing::Test::HasFailure(); ++i) pairs.push_back(MakePair(net, 8192));
    std::vector<std::array<void*, 2>> requests(pairs.size());
    for (size_t i = 0; i < pairs.size(); ++i) {
      FillPattern(&pairs[i].source, i + 1);
      ASSERT_EQ(Receive(net, &pairs[i], 0, 8192, &requests[i][0]), nccl::kSuccess);
      ASSERT_EQ(Send(net, pairs[i], 0, 8192, &requests[i][1]), nccl::kSuccess);
    }
    for (size_t i = 0; i < pairs.size(); ++i) {
      EXPECT_EQ(Wait(net, requests[i][0]), nccl::kSuccess);
      EXPECT_EQ(Wait(net, requests[i][1]), nccl::kSuccess);
      EXPECT_EQ(pairs[i].destination, pairs[i].source);
      ClosePair(net, &pairs[i]);
    }
  });
}

TEST_P(PluginNet, RefusesAHandleThatIsNotItsOwn) {
  Run([](const Net& net) {
    alignas(8) char handle[nccl::kHandleBytes];
    std::memset(handle, 0x5a, sizeof(handle));
    void* send_comm = &send_comm;
    EXPECT_NE(net.connect(0, handle, &send_comm), nccl::kSuccess);
    EXPECT_EQ(send_comm, nullptr);
    EXPECT_TRUE(LogContains("all hosts need the same plugin"));
  });
}

TEST_P(PluginNet, MayGiveUpAtEveryStageOfConnecting) {
  Run([](const Net& net) {
    alignas(8) char handle[nccl::kHandleBytes];
    for (int round = 0; round < 20; ++round) {
      // Only listening.
      void* listen_comm = nullptr;
      ASSERT_EQ(net.listen(0, handle, &listen_comm), nccl::kSuccess);
      // A handshake under way that nobody polls again.
      void* send_comm = nullptr;
      ASSERT_EQ(net.connect(0, handle, &send_comm), nccl::kSuccess);
      if (send_comm != nullptr) {
        ASSERT_EQ(net.close_send(send_comm), nccl::kSuccess);
      }
      ASSERT_EQ(net.close_listen(listen_comm), nccl::kSuccess);
      // Connected, and never accepted: the peer learns of it.
      ASSERT_EQ(net.listen(0, handle, &listen_comm), nccl::kSuccess);
      send_comm = nullptr;
      ASSERT_TRUE(PollUntil([&] { return net.connect(0, handle, &send_comm) != 0 || send_comm != nullptr; }));
      ASSERT_NE(send_comm, nullptr);
      ASSERT_EQ(net.close_listen(listen_comm), nccl::kSuccess);
      std::vector<uint8_t> data(100);
      void* memory = nullptr;
      ASSERT_EQ(net.register_memory(send_comm, data.data(), data.size(), nccl::kPointerHost, &memory), 0);
      void* request = nullptr;
      const int result = net.send(send_comm, data.data(), 100, 0, memory, &request);
      EXPECT_EQ(result == nccl::kSuccess && request != nullptr ? Wait(net, request) : result, nccl::kRemoteError);
      ASSERT_EQ(net.close_send(send_comm), nccl::kSuccess);
    }
    Pair pair = MakePair(net, 5000);
    Exchange(net, &pair, {5000, 0, 1}, 5000, 1, true);
    ClosePair(net, &pair);
  });
}

TEST_P(PluginNet, CarriesOverIpv6Loopback) {
  Run(
      [](const Net& net) {
        Pair pair = MakePair(net, 8 << 13);
        Exchange(net, &pair, MixedSizes(40, 8192), 8192, 8, true);
        ClosePair(net, &pair);
      },
      {{"NCCL_SOCKET_FAMILY", "AF_INET6"}});
}

TEST_P(PluginNet, FailsAConnectWhoseListenerIsGone) {
  Run(
      [](const Net& net) {
        alignas(8) char handle[nccl::kHandleBytes];
        void* listen_comm = nullptr;
        ASSERT_EQ(net.listen(0, handle, &listen_comm), nccl::kSuccess);
        ASSERT_EQ(net.close_listen(listen_comm), nccl::kSuccess);
        void* send_comm = nullptr;
        int result = nccl::kSuccess;
        EXPECT_TRUE(PollUntil([&] {
          result = net.connect(0, handle, &send_comm);
          return result != nccl::kSuccess || send_comm != nullptr;
        }));
        EXPECT_EQ(result, nccl::kRemoteError);
        EXPECT_EQ(send_comm, nullptr);
      },
      {{"FORGIVE_PEER_TIMEOUT_S", "2"}});
}

INSTANTIATE_TEST_SUITE_P(Api, PluginNet, ::testing::ValuesIn(kVersions), NameOfVersion);

}  // namespace
}  // namespace forgive::testing
