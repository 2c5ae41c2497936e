// SPDX-License-Identifier: Apache-2.0
// Memory that runs out while a job runs: it ends what needed it, by name, and nothing else.
#include <gtest/gtest.h>
#include <pthread.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <new>

#include "allocation_hook.h"
#include "ranks.h"

namespace {

// The allocation that fails, counted down; 0: none does. Of the engines' threads, and of the test's own.
std::atomic<int64_t> g_failing_engine{0};
thread_local int64_t failing_here = 0;
std::atomic<uint64_t> g_failed{0};
std::atomic<uint64_t> g_engine_allocations{0};

bool OnAnEngineThread() {
  static thread_local int known = -1;
  if (known < 0) {
    char name[16] = "";
    pthread_getname_np(pthread_self(), name, sizeof(name));
    known = std::strcmp(name, "forgive-engine") == 0 ? 1 : 0;
  }
  return known == 1;
}

}  // namespace

void forgive::OnAllocation() {
  bool fails = false;
  if (OnAnEngineThread()) {
    g_engine_allocations.fetch_add(1);
    fails = g_failing_engine.load() > 0 && g_failing_engine.fetch_sub(1) == 1;
  } else {
    fails = failing_here > 0 && --failing_here == 0;
  }
  if (!fails) return;
  g_failed.fetch_add(1);
  throw std::bad_alloc();
}

namespace forgive {
namespace {

struct Message {
  RequestSlot slot;
  std::vector<uint8_t> bytes;
};

FailReason ReasonOf(const ConnectionSlot& slot) { return static_cast<FailReason>(slot.reason.load()); }

class EngineMemory : public testing::TestWithParam<const char*> {
 protected:
  static constexpr size_t kBytes = 100000;

  void SetUp() override {
    std::string why;
    if (!NetworkOffered(GetParam(), &why)) GTEST_SKIP() << why;
    RankOptions options;
    options.network = GetParam();
    options.fault = "trim=0.2,seed=5";
    options.config.max_connections = 128;
    a_ = StartEngine(options);
    b_ = StartEngine(options);
    other_ = MakeLink(*a_, *b_);
  }

  // A message over a connection that has nothing to do with what fails; every byte must be right.
  void SendOverTheOther(uint64_t seed) {
    SCOPED_TRACE("the other connection");
    const std::vector<uint8_t> sent = MessageBytes(seed, kBytes);
    Message receive{.slot = {}, .bytes = std::vector<uint8_t>(kBytes)};
    RequestSlot send;
    ReceiveRequest request;
    request.buffer = receive.bytes.data();
    request.capacity = kBytes;
    ASSERT_TRUE(b_->PostReceive(other_.receiver.get(), &receive.slot, request));
    ASSERT_TRUE(a_->PostSend(other_.sender.get(), &send, SendRequest{0, sent.data(), kBytes}));
    ASSERT_TRUE(WaitFor([&] { return Finished(receive.slot) && Finished(send); }));
    EXPECT_EQ(send.state.load(), uint32_t{RequestSlot::kDone});
    ASSERT_EQ(receive.slot.state.load(), uint32_t{RequestSlot::kDone});
    EXPECT_EQ(receive.bytes, sent);
  }

  // Connects and accepts. Either both ends are ready, or both have heard why not: an empty link. Where one end has
  // heard and the other is ready, that one's requests fail.
  Link TryLink(std::vector<FailReason>* reasons) {
    ListenTicket ticket;
    const auto listener = b_->Listen(0, &ticket);
    EXPECT_NE(listener, nullptr);
    Link link;
    link.sender = a_->Connect(0, b_->local_address(0), ticket, 0);
    const auto settled = [&] {
      if (link.receiver == nullptr) link.receiver = b_->Accept(listener);
      const uint32_t state = link.sender->state.load();
      return state == ConnectionSlot::kFailed || (state == ConnectionSlot::kReady && link.receiver != nullptr);
    };
    EXPECT_TRUE(WaitFor(settled));
    b_->EndOperations();  // a turn: what the peer has heard, whoever accepts can hear
    if (link.receiver == nullptr) link.receiver = b_->Accept(listener);
    for (const auto& end : {link.sender, link.receiver}) {
      if (end != nullptr && end->state.load() == ConnectionSlot::kFailed) reasons->push_back(ReasonOf(*end));
    }
    b_->CloseListener(listener);
    return link;
  }

  // A message of an open step. What was forgiven is zero, and the rest is as it was sent.
  void SendForgivable(const Link& link, uint64_t step, std::vector<FailReason>* reasons) {
    const std::vector<uint8_t> sent = MessageBytes(step, kBytes);
    Message receive{.slot = {}, .bytes = std::vector<uint8_t>(kBytes, 0xaa)};
    RequestSlot send;
    ReceiveRequest request;
    request.buffer = receive.bytes.data();
    request.capacity = kBytes;
    request.has_step = request.exempt_eligible = request.forgivable = true;
    request.step = step;
    ASSERT_TRUE(b_->PostReceive(link.receiver.get(), &receive.slot, request));
    ASSERT_TRUE(a_->PostSend(link.sender.get(), &send, SendRequest{0, sent.data(), kBytes}));
    ASSERT_TRUE(WaitFor([&] { return Finished(receive.slot) && Finished(send); }));
    for (const RequestSlot* slot : {&receive.slot, &send}) {
      if (slot->state.load() == RequestSlot::kFailed) reasons->push_back(slot->reason);
    }
    if (receive.slot.state.load() != RequestSlot::kDone) return;
    std::vector<uint8_t> expected = sent;
    for (Event line; b_->NextLedgerLine(&line);) {
      std::fill_n(expected.begin() + static_cast<ptrdiff_t>(line.offset), line.length, uint8_t{0});
      forgiven_ += line.length;
    }
    EXPECT_EQ(receive.bytes, expected);
  }

  // What a training process does with a connection, from its step's begin to its end, with the n-th allocation of the
  // engines' threads failing.
  void LiveOnce(uint64_t n, std::vector<FailReason>* reasons) {
    StepPlan plan;
    plan.step = n;
    plan.p = Fraction{100000};
    plan.expected_bytes = kBytes;
    StepAccount account;
    ASSERT_EQ(b_->BeginStep(plan, nullptr), StepResult::kOk);
    const Link link = TryLink(reasons);
    if (link.sender->state.load() == ConnectionSlot::kReady && link.receiver != nullptr &&
        link.receiver->state.load() != ConnectionSlot::kFailed) {
      SendForgivable(link, n, reasons);
    } else if (link.receiver != nullptr && link.receiver->state.load() == ConnectionSlot::kReady) {
      RequestSlot receive;
      ASSERT_TRUE(b_->PostReceive(link.receiver.get(), &receive, ReceiveRequest{}));
      ASSERT_TRUE(WaitFor([&] { return Finished(receive); })) << "its peer has ended, and it waits";
      EXPECT_EQ(receive.reason, FailReason::kReset);
    } else if (link.sender->state.load() == ConnectionSlot::kReady) {
      RequestSlot send;
      const uint8_t byte = 0;
      ASSERT_TRUE(a_->PostSend(link.sender.get(), &send, SendRequest{0, &byte, 1}));
      ASSERT_TRUE(WaitFor([&] { return Finished(send); })) << "its peer has ended, and it waits";
      EXPECT_EQ(send.reason, FailReason::kReset);
    }
    SendOverTheOther(n);
    try {
      EXPECT_GE(b_->SampleConnections().size(), 1u);
      EXPECT_NE(b_->driver_description(0), "");
    } catch (const std::bad_alloc&) {
      reasons->push_back(FailReason::kNoMemory);
    }
    a_->CloseIdle(link.sender);
    if (link.receiver != nullptr) b_->Close(link.receiver);
    ASSERT_EQ(b_->EndStep(n, &account), StepResult::kOk);
    EXPECT_LE(account.forgiven, account.budget);
    EXPECT_EQ(account.forgiven, forgiven_);
    EXPECT_EQ(account.outstanding, 0u);
    total_forgiven_ += std::exchange(forgiven_, 0);
  }

  std::unique_ptr<Engine> a_;
  std::unique_ptr<Engine> b_;
  Link other_;
  uint64_t forgiven_ = 0;  // by the ledger, in this step
  uint64_t total_forgiven_ = 0;
};

TEST_P(EngineMemory, ThatRunsOutAtAnyAllocationOfTheEngineEndsWhatNeededItAndSaysSo) {
  uint64_t n = 1;
  uint64_t said = 0;
  for (; n < 1000; ++n) {
    SCOPED_TRACE("allocation " + std::to_string(n));
    std::vector<FailReason> reasons;
    g_failed.store(0);
    g_failing_engine.store(static_cast<int64_t>(n));
    LiveOnce(n, &reasons);
    g_failing_engine.store(0);
    if (HasFatalFailure()) return;
    if (g_failed.load() == 0) {
      EXPECT_TRUE(reasons.empty());
      break;
    }
    // One of the two ends names the memory, or the other end's refusal.
    const bool named = std::ranges::find(reasons, FailReason::kNoMemory) != reasons.end();
    EXPECT_TRUE(named) << reasons.size() << " reasons";
    said += named ? 1 : 0;
  }
  EXPECT_GE(said, 20u) << "the engines' allocations are not this program's";
  EXPECT_EQ(said, n - 1);
  EXPECT_GT(total_forgiven_, 0u) << "no step forgave anything";
  // And with memory again, everything works.
  std::vector<FailReason> reasons;
  LiveOnce(n + 1, &reasons);
  EXPECT_TRUE(reasons.empty());
}

TEST_P(EngineMemory, IsNotNeededByTheEngineToListenToCloseAndToRunSteps) {
  ListenTicket ticket;
  const auto busy = b_->Listen(0, &ticket);
  std::vector<std::shared_ptr<ConnectionSlot>> connections;
  for (int i = 0; i < 40; ++i) connections.push_back(a_->Connect(0, b_->local_address(0), ticket, 0));
  for (const auto& connection : connections) {
    ASSERT_TRUE(WaitFor([&] { return connection->state.load() == ConnectionSlot::kReady; }));
  }
  g_engine_allocations.store(0);
  const auto listener = b_->Listen(0, &ticket);
  b_->CloseListener(listener);
  b_->CloseListener(busy);  // with what nobody accepted
  StepPlan plan;
  plan.step = 1;
  ASSERT_EQ(b_->BeginStep(plan, nullptr), StepResult::kOk);
  ASSERT_EQ(b_->EndStep(1, nullptr), StepResult::kOk);
  for (const auto& connection : connections) a_->CloseIdle(connection);
  a_->EndOperations();
  b_->EndOperations();
  EXPECT_EQ(g_engine_allocations.load(), 0u);
}

TEST_P(EngineMemory, ThatWhoeverAsksDoesNotHaveIsTheirsToKnowAndNothingIsLostByIt) {
  RankOptions options;
  options.network = GetParam();
  options.config.max_listeners = 3;
  const auto engine = StartEngine(options);
  uint64_t refusals = 0;
  ListenTicket ticket;
  for (int64_t n = 1; n < 100; ++n) {
    std::shared_ptr<ListenerSlot> listener;
    std::shared_ptr<ConnectionSlot> connection;
    g_failed.store(0);
    failing_here = n;
    try {
      listener = engine->Listen(0, &ticket);
      connection = engine->Connect(0, engine->local_address(0), ticket, 0);
    } catch (const std::bad_alloc&) {
      ++refusals;
    }
    failing_here = 1;
    // Nothing is left to fail where something ends.
    if (listener != nullptr) engine->CloseListener(listener);
    if (connection != nullptr) engine->CloseIdle(connection);
    if (connection != nullptr) engine->Close(connection);
    StepPlan plan;
    plan.step = static_cast<uint64_t>(n);
    EXPECT_EQ(engine->BeginStep(plan, nullptr), StepResult::kOk);
    EXPECT_EQ(engine->EndStep(plan.step, nullptr), StepResult::kOk);
    EXPECT_EQ(failing_here, 1) << "an end allocates";
    failing_here = 0;
    if (g_failed.load() == 0) break;
  }
  EXPECT_GE(refusals, 4u);
  std::vector<std::shared_ptr<ListenerSlot>> listeners;
  for (int i = 0; i < 3; ++i) listeners.push_back(engine->Listen(0, &ticket));
  for (const auto& listener : listeners) EXPECT_NE(listener, nullptr) << "a place was drawn and not given back";
  EXPECT_EQ(engine->SampleConnections().size(), 0u);
}

INSTANTIATE_TEST_SUITE_P(Networks, EngineMemory, testing::Values("memory", "udp_ipv4", "uring_ipv4"),
                         [](const auto& instance) { return std::string(instance.param); });

}  // namespace
}  // namespace forgive
