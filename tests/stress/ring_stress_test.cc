// SPDX-License-Identifier: Apache-2.0
// The rings under stress: tiny and full, many producers, a consumer that sleeps, and every element once and in order.
#include <gtest/gtest.h>
#include <poll.h>
#include <sched.h>

#include <atomic>
#include <random>
#include <thread>
#include <vector>

#include "dataplane/doorbell.h"
#include "dataplane/ring.h"

namespace forgive {
namespace {

struct Item {
  uint64_t producer = 0;
  uint64_t number = 0;
  uint64_t more[6] = {};  // as long as a command: a half written one would be seen
  static Item Of(uint64_t producer, uint64_t number) {
    Item item{producer, number, {}};
    for (uint64_t& word : item.more) word = producer * 1000003 + number;
    return item;
  }
  bool whole() const {
    for (const uint64_t word : more) {
      if (word != producer * 1000003 + number) return false;
    }
    return true;
  }
};

// Gives way at random, so that threads meet in every state of the ring.
class Pauses {
 public:
  explicit Pauses(uint64_t seed) : random_(seed) {}
  void Maybe() {
    const uint64_t dice = random_() % 64;
    if (dice == 0) {
      sched_yield();
    } else if (dice < 8) {
      for (uint64_t i = random_() % 200; i > 0; --i) std::atomic_signal_fence(std::memory_order_seq_cst);
    }
  }

 private:
  std::mt19937_64 random_;
};

// The consumer's sleep, as the engine's.
class Sleeper {
 public:
  Sleeper() { EXPECT_TRUE(bell_.Open()); }
  void Wake() { bell_.Ring(); }
  // False: nobody woke it for ten seconds.
  template <typename T>
  bool SleepUnlessFull(const CommandRing<T>& ring) {
    if (!bell_.AnnounceSleep(ring)) return true;
    ++sleeps;
    pollfd poll_fd{bell_.fd(), POLLIN, 0};
    const int woken = poll(&poll_fd, 1, 10000);
    bell_.Awake(woken == 1);
    return woken == 1;
  }
  uint64_t sleeps = 0;

 private:
  Doorbell bell_;
};

class CommandRingStress : public ::testing::TestWithParam<std::pair<uint32_t, uint64_t>> {};

TEST_P(CommandRingStress, LosesNothingKeepsEachOrderAndAlwaysWakesItsConsumer) {
  const auto [capacity, producers] = GetParam();
  constexpr uint64_t kEach = 8000;
  CommandRing<Item> ring(capacity);
  Sleeper sleeper;
  std::atomic<uint64_t> refused{0};
  std::vector<std::thread> threads;
  for (uint64_t p = 0; p < producers; ++p) {
    threads.emplace_back([&, p] {
      Pauses pauses(p + 1);
      for (uint64_t n = 0; n < kEach; ++n) {
        while (!ring.Push(Item::Of(p, n))) {
          refused.fetch_add(1, std::memory_order_relaxed);
          sched_yield();
        }
        sleeper.Wake();
        pauses.Maybe();
      }
    });
  }
  Pauses pauses(99);
  std::vector<uint64_t> next(producers, 0);
  bool right = true;
  bool woken = true;
  for (uint64_t got = 0; got < producers * kEach && woken;) {
    Item item;
    if (!ring.Pop(&item)) {
      woken = sleeper.SleepUnlessFull(ring);
      continue;
    }
    ++got;
    right = right && item.whole() && item.number == next[item.producer]++;
    pauses.Maybe();
  }
  EXPECT_TRUE(woken) << "an element was in the ring and its consumer slept on";
  if (!woken) std::abort();  // the producers wait for room for ever
  for (std::thread& thread : threads) thread.join();
  EXPECT_TRUE(right);
  EXPECT_TRUE(ring.Empty());
  RecordProperty("refused", std::to_string(refused.load()));
  EXPECT_GT(sleeper.sleeps + refused.load(), 0u) << "the ring was never empty and never full: this proves little";
}

INSTANTIATE_TEST_SUITE_P(Shapes, CommandRingStress,
                         ::testing::Values(std::pair{2u, uint64_t{1}}, std::pair{2u, uint64_t{4}},
                                           std::pair{8u, uint64_t{2}}, std::pair{64u, uint64_t{6}}));

TEST(SpscRingStress, HandsOverEveryElementWholeThroughTheSmallestRing) {
  constexpr uint64_t kItems = 50000;
  SpscRing<Item> ring(2);
  std::thread producer([&ring] {
    Pauses pauses(1);
    for (uint64_t n = 0; n < kItems; ++n) {
      while (!ring.Push(Item::Of(1, n))) sched_yield();
      pauses.Maybe();
    }
  });
  Pauses pauses(2);
  bool right = true;
  for (uint64_t expected = 0; expected < kItems;) {
    Item item;
    if (!ring.Pop(&item)) {
      sched_yield();
      continue;
    }
    right = right && item.whole() && item.number == expected;
    ++expected;
    pauses.Maybe();
  }
  producer.join();
  EXPECT_TRUE(right);
}

TEST(PublishedStress, GivesManyReadersWholeRecordsThatNeverGoBack) {
  constexpr int kReaders = 3;
  Published<Item> published;
  std::atomic<bool> stop{false};
  std::vector<std::thread> readers;
  std::atomic<uint64_t> broken{0};
  for (int r = 0; r < kReaders; ++r) {
    readers.emplace_back([&] {
      uint64_t newest = 0;
      while (!stop.load(std::memory_order_relaxed)) {
        const Item item = published.Load();
        if (!item.whole() || item.number < newest) broken.fetch_add(1);
        newest = item.number;
      }
    });
  }
  Pauses pauses(7);
  for (uint64_t n = 1; n < 30000; ++n) {
    published.Store(Item::Of(0, n));
    pauses.Maybe();
  }
  stop.store(true);
  for (std::thread& reader : readers) reader.join();
  EXPECT_EQ(broken.load(), 0u);
}

}  // namespace
}  // namespace forgive
