// SPDX-License-Identifier: Apache-2.0
// Memory that runs out in a call of NCCL's, the start or a later one: one line and an error, never an exception in
// NCCL, and the next call works.
#include <gtest/gtest.h>
#include <unistd.h>

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

// Listens, connects and accepts, and registers memory, until the first error.
int Open(const Net& net, uint8_t* byte, void** listen, void** send, void** receive) {
  unsigned char handle[nccl::kHandleBytes];
  int result = net.listen(0, handle, listen);
  if (result != nccl::kSuccess) return result;
  // Nothing here allocates but the calls.
  for (int turn = 0; turn < 1000000 && result == nccl::kSuccess && (*send == nullptr || *receive == nullptr);
       ++turn) {
    if (*send == nullptr) result = net.connect(0, handle, send);
    if (result == nccl::kSuccess && *receive == nullptr) result = net.accept(*listen, receive);
    usleep(20);
  }
  void* memory = nullptr;
  if (result == nccl::kSuccess) result = net.register_memory(*send, byte, 1, nccl::kPointerHost, &memory);
  if (memory != nullptr) {
    EXPECT_EQ(net.deregister_memory(*send, memory), nccl::kSuccess);
  }
  return result;
}

TEST(CallWithoutMemory, IsAnErrorWithOneLineAtWhateverAllocationItRunsOutAndTheNextOneWorks) {
  ExpectInChild({{"FORGIVE_INTERFACE", "=lo"}}, [] {
    const Library library;
    const Net net = library.Table(8);
    ASSERT_EQ(net.init(), nccl::kSuccess);
    uint64_t refusals = 0;
    for (uint64_t n = 1; n < 1000; ++n) {
      ClearLog();
      failed = false;
      failing = n;
      uint8_t byte = 0;
      void* listen = nullptr;
      void* send = nullptr;
      void* receive = nullptr;
      const int result = Open(net, &byte, &listen, &send, &receive);
      failing = 1;  // what closes needs no memory
      if (send != nullptr) {
        EXPECT_EQ(net.close_send(send), nccl::kSuccess);
      }
      if (receive != nullptr) {
        EXPECT_EQ(net.close_receive(receive), nccl::kSuccess);
      }
      if (listen != nullptr) {
        EXPECT_EQ(net.close_listen(listen), nccl::kSuccess);
      }
      failing = 0;
      if (!failed) break;
      if (result == nccl::kSuccess) continue;
      ++refusals;
      ASSERT_EQ(result, nccl::kSystemError);
      ASSERT_TRUE(LogContains("no memory is left in this process")) << "allocation " << n;
    }
    EXPECT_GE(refusals, 8u) << "the library's allocations are not this program's";
    Pair pair = MakePair(net, 1);
    ClosePair(net, &pair);
  });
}

}  // namespace
}  // namespace forgive::testing
