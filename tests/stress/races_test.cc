// SPDX-License-Identifier: Apache-2.0
// Threads that open, connect, send, abort and close in random order over the plugin: bounded time, and nothing half done.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <filesystem>
#include <mutex>
#include <random>
#include <thread>

#include "ring_steps.h"

namespace forgive::testing {
namespace {

constexpr int kThreads = 4;
constexpr auto kDuration = std::chrono::milliseconds(2500);
constexpr int kRequests = 6;
constexpr int kBytes = 1 << 16;

struct Totals {
  std::atomic<uint64_t> opened{0};
  std::atomic<uint64_t> delivered{0};
  std::atomic<uint64_t> aborted{0};
  std::atomic<uint64_t> wrong{0};
};

// One connection's life; each end's calls come from one thread at a time, as from NCCL's proxy.
class Life {
 public:
  Life(const Net& net, uint64_t seed, Totals* totals) : net_(net), random_(seed), totals_(totals) {
    pair_ = MakePair(net, kRequests * kBytes);
    FillPattern(&pair_.source, seed);
    ++totals_->opened;
  }

  // Posts, and looks at some of what was posted. Some sends have no receive, and some receives no send.
  void Work() {
    const int count = 1 + static_cast<int>(random_() % kRequests);
    const int missing = random_() % 4 == 0 ? 1 : 0;  // a request that never ends by itself
    for (int i = 0; i < count; ++i) {
      if (missing == 0 || i + 1 < count || random_() % 2 == 0) Receive(net_, &pair_, At(i), kBytes, &receives_[i]);
      if (missing == 0 || i + 1 < count || receives_[i] == nullptr) Send(net_, pair_, At(i), kBytes, &sends_[i]);
    }
    const uint64_t looks = random_() % 400;
    for (uint64_t look = 0; look < looks; ++look) {
      for (int i = 0; i < count; ++i) Look(i);
      if (look % 16 == 0) std::this_thread::yield();
    }
    // Half of the lives end in peace: everything that can end has ended.
    if (missing != 0 || random_() % 2 == 0) {
      ++totals_->aborted;
      return;
    }
    for (int i = 0; i < count; ++i) {
      EXPECT_TRUE(PollUntil([&] {
        Look(i);
        return receives_[i] == nullptr && sends_[i] == nullptr;
      }));
    }
  }

  // Ends both sides at once from two threads, or one after the other in either order.
  void Close() {
    const uint64_t order = random_() % 3;
    if (order == 0) {
      std::thread other([this] { CloseSend(); });
      CloseReceive();
      other.join();
    } else if (order == 1) {
      CloseSend();
      CloseReceive();
    } else {
      CloseReceive();
      CloseSend();
    }
    // From here on nobody may write: the buffers are somebody else's.
    std::fill(pair_.destination.begin(), pair_.destination.end(), uint8_t{0xdd});
    std::this_thread::yield();
    for (const uint8_t byte : pair_.destination) totals_->wrong += byte != 0xdd;
  }

 private:
  static size_t At(int i) { return static_cast<size_t>(i) * kBytes; }

  void Look(int i) {
    int done = 0;
    int size = 0;
    if (sends_[i] != nullptr) {
      EXPECT_EQ(net_.test(sends_[i], &done, &size), nccl::kSuccess);
      if (done != 0) sends_[i] = nullptr;
    }
    if (receives_[i] == nullptr) return;
    EXPECT_EQ(net_.test(receives_[i], &done, &size), nccl::kSuccess);
    if (done == 0) return;
    receives_[i] = nullptr;
    ++totals_->delivered;
    const auto at = static_cast<ptrdiff_t>(At(i));
    totals_->wrong += !std::equal(pair_.source.begin() + at, pair_.source.begin() + at + kBytes,
                                  pair_.destination.begin() + at);
  }
  // Sometimes memory goes first: NCCL's abort deregisters what requests still use.
  void CloseSend() {
    if (deregister_first_) net_.deregister_memory(pair_.send_comm, pair_.source_handle);
    EXPECT_EQ(net_.close_send(pair_.send_comm), nccl::kSuccess);
  }
  void CloseReceive() {
    if (deregister_first_) net_.deregister_memory(pair_.receive_comm, pair_.destination_handle);
    EXPECT_EQ(net_.close_receive(pair_.receive_comm), nccl::kSuccess);
  }

  const Net& net_;
  std::mt19937_64 random_;
  Totals* totals_;
  Pair pair_;
  void* sends_[kRequests] = {};
  void* receives_[kRequests] = {};
  const bool deregister_first_ = random_() % 3 == 0;
};

// A listener that nobody connects to, a handshake that nobody accepts.
void OpenAndLeave(const Net& net, uint64_t seed) {
  std::array<uint8_t, nccl::kHandleBytes> handle{};
  void* listen = nullptr;
  ASSERT_EQ(net.listen(0, handle.data(), &listen), nccl::kSuccess);
  void* send = nullptr;
  if (seed % 2 == 0) {
    PollUntil([&] { return net.connect(0, handle.data(), &send) != nccl::kSuccess || send != nullptr; });
  }
  EXPECT_EQ(net.close_listen(listen), nccl::kSuccess);
  if (send == nullptr) return;
  EXPECT_EQ(net.close_send(send), nccl::kSuccess);
}

size_t OpenDescriptors() {
  const std::filesystem::directory_iterator open("/proc/self/fd");
  return static_cast<size_t>(std::distance(begin(open), end(open)));
}

TEST(PluginRaces, OpenSendAbortAndCloseInEveryOrderEndInTimeAndLeaveNothing) {
  const Variables variables = {{"FORGIVE_FAULT", "drop=0.01,duplicate=0.02,reorder=0.05,seed=3"},
                               {"FORGIVE_PEER_TIMEOUT_S", "10"},
                               {"FORGIVE_LOG", "none"}};
  RunPlugin(variables, [](const Net& net, const Interface& forgive) {
    Totals totals;
    const size_t descriptors = OpenDescriptors();
    const auto end = std::chrono::steady_clock::now() + kDuration;
    const auto last_end = end + std::chrono::seconds(60);
    // For a while, and on a machine without a processor for it until enough has happened.
    const auto goes_on = [&] {
      const auto now = std::chrono::steady_clock::now();
      return now < end || (now < last_end && !(totals.opened > 20 && totals.delivered > 20 && totals.aborted > 5));
    };
    std::vector<std::thread> threads;
    for (uint64_t t = 0; t < kThreads; ++t) {
      threads.emplace_back([&, t] {
        for (uint64_t round = 0; goes_on(); ++round) {
          const uint64_t seed = t << 32 | round;
          Life life(net, seed, &totals);
          life.Work();
          life.Close();
          if (round % 5 == 0) OpenAndLeave(net, round / 5 + t);
        }
      });
    }
    threads.emplace_back([&] {  // and somebody who looks at the numbers meanwhile
      while (goes_on()) {
        forgive_stats_t stats{};
        stats.size = sizeof stats;
        EXPECT_EQ(forgive.stats(&stats), FORGIVE_OK);
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
      }
    });
    for (std::thread& thread : threads) thread.join();
    EXPECT_EQ(totals.wrong.load(), 0u);
    EXPECT_EQ(OpenDescriptors(), descriptors);
    EXPECT_GT(totals.opened.load(), 20u);
    EXPECT_GT(totals.delivered.load(), 20u);
    EXPECT_GT(totals.aborted.load(), 5u);
    // The engine is well: a whole life in peace.
    RingConnection ring = MakeRing(net);
    Transfer(net, &ring.pair, 8, 100000, kPosted, [](int, const uint8_t* got, const std::vector<uint8_t>& sent) {
      EXPECT_TRUE(std::equal(got, got + 100000, sent.begin()));
    });
  });
}

}  // namespace
}  // namespace forgive::testing
