// SPDX-License-Identifier: Apache-2.0
// Memory that runs out while the plugin starts: one line and an error, never an exception in NCCL, and a later start works.
#include <gtest/gtest.h>

#include <new>

#include "allocation_hook.h"
#include "fake_nccl.h"

namespace {

// The allocation of this thread that fails, counted down; 0: none does.
thread_local uint64_t failing = 0;
thread_local bool failed = false;

}  // namespace

void forgive::OnAllocation() {
  if (failing == 0 || --failing != 0) return;
  failed = true;
  throw std::bad_alloc();
}

namespace forgive::testing {
namespace {

TEST(StartWithoutMemory, IsAnErrorWithOneLineAtWhateverAllocationItRunsOut) {
  ExpectInChild({{"FORGIVE_INTERFACE", "=lo"}}, [] {
    const Library library;
    const Net net = library.Table(8);
    uint64_t refusals = 0;
    for (uint64_t n = 1; n < 100000; ++n) {
      ClearLog();
      failed = false;
      failing = n;
      const int result = net.init();
      failing = 0;
      if (!failed) {
        EXPECT_EQ(result, nccl::kSuccess);
        break;
      }
      // Where it is not the start itself that ran out, as in NCCL's own logger, init goes on.
      if (result == nccl::kSuccess) continue;
      ++refusals;
      ASSERT_EQ(result, nccl::kSystemError);
      ASSERT_TRUE(LogContains("out of memory while starting")) << "allocation " << n;
    }
    EXPECT_GT(refusals, 20u) << "the library's allocations are not this program's";
    Pair pair = MakePair(net, 100000);
    FillPattern(&pair.source, 3);
    void* receive = nullptr;
    void* send = nullptr;
    ASSERT_EQ(Receive(net, &pair, 0, 100000, &receive), nccl::kSuccess);
    ASSERT_EQ(Send(net, pair, 0, 100000, &send), nccl::kSuccess);
    EXPECT_EQ(Wait(net, receive), nccl::kSuccess);
    EXPECT_EQ(Wait(net, send), nccl::kSuccess);
    EXPECT_EQ(pair.source, pair.destination);
    ClosePair(net, &pair);
  });
}

}  // namespace
}  // namespace forgive::testing
