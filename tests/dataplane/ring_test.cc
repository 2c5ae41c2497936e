// SPDX-License-Identifier: Apache-2.0
// Tests of the rings and of the published record, one thread and many.
#include "dataplane/ring.h"

#include <gtest/gtest.h>
#include <sched.h>

#include <thread>
#include <vector>

namespace forgive {
namespace {

TEST(CommandRing, RefusesWhenFullAndTakesAgainAfterAPop) {
  CommandRing<int> ring(4);
  for (int i = 0; i < 4; ++i) EXPECT_TRUE(ring.Push(i));
  EXPECT_FALSE(ring.Push(4));
  int value = -1;
  EXPECT_TRUE(ring.Pop(&value));
  EXPECT_EQ(value, 0);
  EXPECT_TRUE(ring.Push(4));
  for (int i = 1; i <= 4; ++i) {
    EXPECT_TRUE(ring.Pop(&value));
    EXPECT_EQ(value, i);
  }
  EXPECT_FALSE(ring.Pop(&value));
}

TEST(CommandRing, IsEmptyExactlyWhenPopFindsNothing) {
  CommandRing<int> ring(2);
  EXPECT_TRUE(ring.Empty());
  for (int i = 0; i < 9; ++i) {
    EXPECT_TRUE(ring.Push(i));
    EXPECT_FALSE(ring.Empty());
    int value;
    EXPECT_TRUE(ring.Pop(&value));
    EXPECT_TRUE(ring.Empty());
  }
}

TEST(CommandRing, KeepsEachProducersOrderAndLosesNothing) {
  constexpr uint64_t kProducers = 4;
  constexpr uint64_t kEach = 50000;
  struct Item {
    uint64_t producer = 0;
    uint64_t number = 0;
    uint64_t check = 0;
  };
  CommandRing<Item> ring(64);
  std::vector<std::thread> producers;
  for (uint64_t p = 0; p < kProducers; ++p) {
    producers.emplace_back([&ring, p] {
      for (uint64_t n = 0; n < kEach; ++n) {
        while (!ring.Push({p, n, p * 1000003 ^ n})) sched_yield();
      }
    });
  }
  std::vector<uint64_t> next(kProducers, 0);
  for (uint64_t got = 0; got < kProducers * kEach;) {
    Item item;
    if (!ring.Pop(&item)) {
      sched_yield();
      continue;
    }
    ASSERT_EQ(item.check, item.producer * 1000003 ^ item.number);
    ASSERT_EQ(item.number, next[item.producer]++);
    ++got;
  }
  for (std::thread& producer : producers) producer.join();
  EXPECT_TRUE(ring.Empty());
}

TEST(SpscRing, KeepsTheOrderBetweenTwoThreads) {
  constexpr uint64_t kItems = 200000;
  SpscRing<uint64_t> ring(16);
  std::thread producer([&ring] {
    for (uint64_t i = 0; i < kItems; ++i) {
      while (!ring.Push(i)) sched_yield();
    }
  });
  for (uint64_t expected = 0; expected < kItems;) {
    uint64_t value;
    if (ring.Pop(&value)) {
      ASSERT_EQ(value, expected++);
    } else {
      sched_yield();
    }
  }
  producer.join();
}

TEST(SpscRing, HoldsExactlyItsCapacity) {
  SpscRing<int> ring(8);
  for (int i = 0; i < 8; ++i) EXPECT_TRUE(ring.Push(i));
  EXPECT_FALSE(ring.Push(8));
  int value;
  EXPECT_TRUE(ring.Pop(&value));
  EXPECT_TRUE(ring.Push(8));
}

TEST(Published, IsNeverReadHalfWritten) {
  struct Record {
    uint64_t a = 0;
    uint64_t b = 0;
    uint64_t more[30] = {};
  };
  Published<Record> published;
  std::atomic<bool> stop{false};
  std::thread writer([&] {
    Record record;
    for (uint64_t i = 1; !stop.load(std::memory_order_relaxed); ++i) {
      record.a = i;
      for (uint64_t& word : record.more) word = i;
      record.b = i;
      published.Store(record);
      if (i % 16 == 0) sched_yield();
    }
  });
  uint64_t newest = 0;
  for (int i = 0; i < 20000; ++i) {
    const Record record = published.Load();
    ASSERT_EQ(record.a, record.b);
    for (uint64_t word : record.more) ASSERT_EQ(word, record.a);
    ASSERT_GE(record.a, newest);
    newest = record.a;
  }
  stop.store(true);
  writer.join();
}

}  // namespace
}  // namespace forgive
