// SPDX-License-Identifier: Apache-2.0
// Steps as the tests of the plugin drive them.
#include "ring_steps.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <map>

namespace forgive::testing {

std::vector<forgive_range_t> Ledger(const Interface& forgive) {
  std::vector<forgive_range_t> lines(100000);
  const int64_t count = forgive.ranges(0, lines.data(), lines.size());
  EXPECT_GE(count, 0);
  lines.resize(static_cast<size_t>(std::max<int64_t>(count, 0)));
  return lines;
}

RingConnection MakeRing(const Net& net) {
  RingConnection ring;
  ring.pair = MakePair(net, kBuffer);
  ring.small.resize(512 << 10);
  ring.middle.resize(4915200);
  EXPECT_EQ(net.register_memory(ring.pair.receive_comm, ring.small.data(), ring.small.size(), nccl::kPointerHost,
                                &ring.small_handle),
            nccl::kSuccess);
  EXPECT_EQ(net.register_memory(ring.pair.receive_comm, ring.middle.data(), ring.middle.size(), nccl::kPointerHost,
                                &ring.middle_handle),
            nccl::kSuccess);
  return ring;
}

void Transfer(const Net& net, Pair* pair, int count, int bytes, int posted,
              const std::function<void(int message, const uint8_t* got, const std::vector<uint8_t>& sent)>& check) {
  const int slots = kBuffer / kPosted;
  std::deque<void*> receives;
  std::map<int, std::vector<uint8_t>> sent;
  int next = 0;
  for (int done = 0; done < count && !::testing::Test::HasFailure(); ++done) {
    while (next < count && next < done + slots) {
      const size_t offset = static_cast<size_t>(next % slots) * kPosted;
      void* receive = nullptr;
      ASSERT_EQ(Receive(net, pair, offset, posted, &receive), nccl::kSuccess);
      receives.push_back(receive);
      ++next;
    }
    const size_t offset = static_cast<size_t>(done % slots) * kPosted;
    sent[done].resize(static_cast<size_t>(bytes));
    FillPattern(&sent[done], static_cast<uint64_t>(done) + 1);
    std::copy(sent[done].begin(), sent[done].end(), pair->source.begin() + static_cast<ptrdiff_t>(offset));
    void* send = nullptr;
    ASSERT_EQ(Send(net, *pair, offset, bytes, &send), nccl::kSuccess);
    ASSERT_EQ(Wait(net, send), nccl::kSuccess);
    int size = 0;
    ASSERT_EQ(Wait(net, receives.front(), &size), nccl::kSuccess);
    receives.pop_front();
    ASSERT_EQ(size, bytes);
    if (check) check(done, pair->destination.data() + offset, sent[done]);
  }
}

Variables operator+(Variables a, const Variables& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

void RunPlugin(const Variables& environment, const std::function<void(const Net&, const Interface&)>& body) {
  ExpectInChild(environment, [&] {
    const Library library;
    const Net net = library.Table(8);
    ASSERT_EQ(net.init(), nccl::kSuccess) << (LogLines().empty() ? "" : LogLines().back());
    body(net, Interface(library));
  });
}

uint64_t AllReduce(const Net& net, const Interface& forgive, RingConnection* ring, int loops, int bytes,
                   int first_message) {
  std::map<int, std::vector<uint8_t>> got;
  std::map<int, std::vector<uint8_t>> want;
  Transfer(net, &ring->pair, 4 * loops, bytes, kPosted, [&](int message, const uint8_t* data, const auto& sent) {
    got[message].assign(data, data + sent.size());
    want[message] = sent;
  });
  uint64_t forgiven = 0;
  for (const forgive_range_t& line : Ledger(forgive)) {
    const int message = static_cast<int>(line.message) - first_message;
    if (want.count(message) == 0) continue;
    EXPECT_EQ(line.receive_comm, reinterpret_cast<uint64_t>(ring->pair.receive_comm));
    EXPECT_LE(line.offset + line.length, want[message].size());
    for (uint32_t i = line.offset; i < line.offset + line.length; ++i) want[message][i] = 0;
    forgiven += line.length;
  }
  for (const auto& [message, data] : want) EXPECT_TRUE(data == got[message]) << "message " << message;
  return forgiven;
}

}  // namespace forgive::testing
