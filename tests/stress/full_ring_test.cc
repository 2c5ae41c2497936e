// SPDX-License-Identifier: Apache-2.0
// Requests that come faster than the engine takes them: a post is refused, and whoever tries again loses nothing.
#include <thread>

#include "ranks.h"

namespace forgive {
namespace {

TEST(FullRing, RefusesPostsAndLosesNoneThatItTook) {
  RankOptions options;
  options.command_ring = 2;
  const auto a = StartEngine(options);
  const auto b = StartEngine(options);
  const Link link = MakeLink(*a, *b);
  constexpr size_t kMessages = 3000;
  constexpr size_t kBytes = 300;
  std::vector<std::vector<uint8_t>> sources(8), buffers(8, std::vector<uint8_t>(kBytes));
  std::vector<RequestSlot> sends(8), receives(8);
  uint64_t refused = 0;
  const TimePoint deadline = Patience();
  for (size_t m = 0; m < kMessages; m += 8) {
    for (size_t i = 0; i < 8; ++i) {
      sources[i] = MessageBytes(m + i, kBytes);
      ReceiveRequest receive;
      receive.buffer = buffers[i].data();
      receive.capacity = kBytes;
      while (!b->PostReceive(link.receiver.get(), &receives[i], receive)) ++refused;
      SendRequest send;
      send.buffer = sources[i].data();
      send.length = kBytes;
      while (!a->PostSend(link.sender.get(), &sends[i], send)) ++refused;
    }
    for (size_t i = 0; i < 8; ++i) {
      ASSERT_TRUE(WaitFor([&] { return Finished(sends[i]) && Finished(receives[i]); })) << "message " << m + i;
      ASSERT_EQ(receives[i].state.load(), uint32_t{RequestSlot::kDone});
      ASSERT_EQ(buffers[i], sources[i]);
    }
    ASSERT_LT(MonotonicNow(), deadline);
  }
  EXPECT_GT(refused, 0u) << "the ring was never full: this proves nothing";
}

TEST(FullRing, IsSharedByManyThreadsWithoutStarvingAny) {
  RankOptions options;
  options.command_ring = 2;
  const auto a = StartEngine(options);
  const auto b = StartEngine(options);
  std::deque<Stream> streams;
  for (int i = 0; i < 3; ++i)
    streams.emplace_back(*a, *b, MakeLink(*a, *b), std::vector<size_t>(1000, size_t{200}), size_t{16});
  std::vector<std::thread> threads;
  for (Stream& stream : streams) {
    threads.emplace_back([&stream] {
      const TimePoint deadline = Patience();
      while (!stream.done() && stream.Step() && MonotonicNow() < deadline) {
      }
      EXPECT_TRUE(stream.done()) << "checked " << stream.checked();
    });
  }
  for (std::thread& thread : threads) thread.join();
}

}  // namespace
}  // namespace forgive
