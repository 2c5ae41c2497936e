// SPDX-License-Identifier: Apache-2.0
// Tests of the engine at work: messages, connections, steps, the ledger, sleep and wake-ups.
#include "dataplane/engine.h"

#include <gtest/gtest.h>
#include <signal.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <thread>
#include <utility>

#include "ranks.h"

namespace forgive {
namespace {

// How many turns the engine has taken. Asking wakes it.
uint64_t CountTurns(Engine& engine) {
  const uint64_t before = engine.Snapshot().turns;
  engine.SampleConnections();
  EXPECT_TRUE(WaitFor([&] { return engine.Snapshot().turns != before; }));
  return engine.Snapshot().turns;
}

class EngineOver : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    std::string why;
    if (!NetworkOffered(GetParam(), &why)) GTEST_SKIP() << why;
  }
  RankOptions Options() const {
    RankOptions options;
    options.network = GetParam();
    options.hub = hub_;
    return options;
  }

 private:
  std::shared_ptr<MemoryHub> hub_ = MemoryHub::Make();
};

TEST_P(EngineOver, CarriesMessagesOfAllSizesWhole) {
  const auto a = StartEngine(Options());
  const auto b = StartEngine(Options());
  std::deque<Stream> streams;
  streams.emplace_back(
      *a, *b, MakeLink(*a, *b),
      std::vector<size_t>{0, 1, 15, 16, 17, 4095, 4096, 4097, 0, 0, 65536, 1 << 20, 3, (4u << 20) + 5, 0, 100000}, 8,
      64);
  RunStreams(streams);
}

TEST_P(EngineOver, CarriesThirtyTwoRequestsDeepOnManyConnectionsBothWays) {
  const auto a = StartEngine(Options());
  const auto b = StartEngine(Options());
  std::deque<Stream> streams;
  for (uint64_t i = 0; i < 12; ++i) {
    std::vector<size_t> sizes;
    for (uint64_t m = 0; m < 80; ++m) sizes.push_back((m * 7919 + i * 104729) % 40000);
    if (i % 2 == 0) {
      streams.emplace_back(*a, *b, MakeLink(*a, *b), sizes, 32);
    } else {
      streams.emplace_back(*b, *a, MakeLink(*b, *a), sizes, 32);
    }
  }
  RunStreams(streams);
  EXPECT_EQ(a->SampleConnections().size(), 12u);
}

TEST_P(EngineOver, RepairsWhatFaultsTakeAway) {
  RankOptions options = Options();
  options.fault = "trim=0.02,drop=0.02,duplicate=0.02,reorder=0.02,corrupt=0.01,delay_us=100,seed=5";
  options.config.min_rto = Milliseconds(5);
  const auto a = StartEngine(options);
  const auto b = StartEngine(options);
  std::deque<Stream> streams;
  for (uint64_t i = 0; i < 3; ++i) {
    streams.emplace_back(*a, *b, MakeLink(*a, *b), std::vector<size_t>{300000, 0, 50000, 17, 300001}, 4);
  }
  RunStreams(streams);
  ASSERT_TRUE(WaitFor([&] { return b->Snapshot().counters.trims > 0 && b->Snapshot().driver.faults_injected > 0; }));
  EXPECT_EQ(b->Snapshot().counters.forgiven_bytes, 0u);  // no step was open
}

TEST_P(EngineOver, CarriesTheTrafficClassAndTheConnectionId) {
  const auto a = StartEngine(Options());
  const auto b = StartEngine(Options());
  const Link link = MakeLink(*a, *b, 0, 0, 42);
  EXPECT_EQ(link.receiver->peer_traffic_class, 42u);
  EXPECT_NE(link.receiver->connection_id, 0u);
  EXPECT_EQ(link.sender->connection_id, link.receiver->connection_id);
}

TEST_P(EngineOver, SharesOneStepTableAmongItsDevices) {
  RankOptions options = Options();
  options.devices = 2;
  options.fault = "trim=0.2,seed=9";
  const auto a = StartEngine(options);
  options.fault.clear();
  const auto b = StartEngine(options);
  StepPlan plan;
  plan.step = 1;
  plan.p = Fraction{500000};
  plan.expected_bytes = 2u << 20;
  StepAccount account;
  ASSERT_EQ(a->BeginStep(plan, &account), StepResult::kOk);
  EXPECT_EQ(account.budget, 1u << 20);
  EXPECT_EQ(a->BeginStep(plan, &account), StepResult::kStepOpen);

  std::vector<uint8_t> sent = MessageBytes(3, 1 << 20);
  std::vector<std::vector<uint8_t>> got(2, std::vector<uint8_t>(1 << 20, 0xaa));
  RequestSlot send_slots[2];
  RequestSlot receive_slots[2];
  int users[2];
  std::vector<Link> links;
  for (uint32_t i = 0; i < 2; ++i) {
    links.push_back(MakeLink(*b, *a, i, i));
    links[i].receiver->user = &users[i];
    ReceiveRequest receive;
    receive.buffer = got[i].data();
    receive.capacity = got[i].size();
    receive.has_step = receive.exempt_eligible = receive.forgivable = true;
    receive.step = 1;
    ASSERT_TRUE(a->PostReceive(links[i].receiver.get(), &receive_slots[i], receive));
    ASSERT_TRUE(b->PostSend(links[i].sender.get(), &send_slots[i],
                            SendRequest{0, sent.data(), static_cast<uint32_t>(sent.size())}));
  }
  ASSERT_TRUE(WaitFor([&] { return Finished(receive_slots[0]) && Finished(receive_slots[1]); }));
  ASSERT_TRUE(WaitFor([&] { return Finished(send_slots[0]) && Finished(send_slots[1]); }));
  ASSERT_EQ(a->EndStep(1, &account), StepResult::kOk);
  EXPECT_EQ(a->EndStep(1, &account), StepResult::kNotOpen);
  EXPECT_EQ(account.received + account.forgiven, 2u << 20);
  EXPECT_GT(account.forgiven, 0u);
  EXPECT_LE(account.forgiven, account.budget);

  // Every wrong byte is a zero in a line of the ledger that names its communicator, and the lines add up.
  std::vector<Event> ledger;
  for (Event line; a->NextLedgerLine(&line);) ledger.push_back(line);
  uint64_t sum = 0;
  std::vector<std::vector<bool>> forgiven(2, std::vector<bool>(1 << 20));
  for (const Event& line : ledger) {
    const size_t which = line.cookie == reinterpret_cast<uint64_t>(&users[0]) ? 0 : 1;
    ASSERT_EQ(line.cookie, reinterpret_cast<uint64_t>(&users[which]));
    EXPECT_EQ(line.connection_id, links[which].receiver->connection_id);
    EXPECT_EQ(line.step, 1u);
    sum += line.length;
    for (uint32_t i = 0; i < line.length; ++i) forgiven[which][line.offset + i] = true;
  }
  EXPECT_EQ(sum, account.forgiven);
  for (size_t which = 0; which < 2; ++which) {
    for (size_t i = 0; i < sent.size(); ++i) {
      ASSERT_EQ(got[which][i], forgiven[which][i] ? 0 : sent[i]) << i;
    }
  }
}

TEST_P(EngineOver, SleepsWhileNothingHappensAndWakesForAPost) {
  RankOptions options = Options();
  const auto a = StartEngine(options);
  const auto b = StartEngine(options);
  const Link link = MakeLink(*a, *b);
  {
    std::deque<Stream> streams;
    streams.emplace_back(*a, *b, link, std::vector<size_t>{100000, 100000}, 2);
    RunStreams(streams);
  }
  // A control call wakes the engine for a few turns; a turn of an engine that spins takes microseconds.
  for (Engine* engine : {a.get(), b.get()}) {
    ASSERT_TRUE(WaitFor([&] {  // reports and retransmission timers come to an end
      const uint64_t before = CountTurns(*engine);
      usleep(500000);
      return CountTurns(*engine) - before < 1000;
    }));
  }
  std::deque<Stream> streams;
  streams.emplace_back(*a, *b, MakeLink(*a, *b), std::vector<size_t>{5000}, 1);
  RunStreams(streams);
}

TEST_P(EngineOver, RefusesMorePostsThanItsLimitAsTryAgain) {
  RankOptions options = Options();
  options.config.max_messages = 8;
  const auto a = StartEngine(options);
  const auto b = StartEngine(options);
  const Link link = MakeLink(*a, *b);
  const std::vector<uint8_t> bytes = MessageBytes(1, 100);
  std::vector<RequestSlot> slots(9);
  const SendRequest send{0, bytes.data(), 100};
  for (size_t i = 0; i < 8; ++i) ASSERT_TRUE(a->PostSend(link.sender.get(), &slots[i], send));
  EXPECT_FALSE(a->PostSend(link.sender.get(), &slots[8], send));
  EXPECT_EQ(slots[8].state.load(), uint32_t{RequestSlot::kIdle});
  std::vector<uint8_t> got(100);
  RequestSlot receive_slot;
  ReceiveRequest receive;
  receive.buffer = got.data();
  receive.capacity = got.size();
  ASSERT_TRUE(b->PostReceive(link.receiver.get(), &receive_slot, receive));
  ASSERT_TRUE(WaitFor([&] { return a->PostSend(link.sender.get(), &slots[8], send); }));
  // Its place may be free a moment before its state says so.
  EXPECT_TRUE(WaitFor([&] { return slots[0].state.load() == uint32_t{RequestSlot::kDone}; }));
  a->Close(link.sender);
  b->Close(link.receiver);
}

INSTANTIATE_TEST_SUITE_P(Networks, EngineOver,
                         testing::Values("memory", "udp_ipv4", "udp_ipv6", "uring_ipv4", "udp_paths", "uring_paths",
                                         "udp_rails", "uring_rails"),
                         [](const auto& instance) { return std::string(instance.param); });

// A post that falls into the moment when the engine goes to sleep must wake it: many posts, each after a pause of
// another length, and each must be answered with nobody else to wake the engine.
TEST(Engine, LosesNoWakeUp) {
  RankOptions options;
  options.config.min_rto = Seconds(100);  // no timer helps
  options.config.max_rto = Seconds(200);
  options.config.initial_rtt = Seconds(1);
  options.config.peer_timeout = Seconds(1000);
  const auto a = StartEngine(options);
  const auto b = StartEngine(options);
  const Link link = MakeLink(*a, *b);
  const std::vector<uint8_t> bytes = MessageBytes(1, 64);
  std::vector<uint8_t> got(64);
  for (int i = 0; i < 3000; ++i) {
    RequestSlot send_slot;
    RequestSlot receive_slot;
    ReceiveRequest receive;
    receive.buffer = got.data();
    receive.capacity = got.size();
    const TimePoint pause = MonotonicNow() + Microseconds(i % 150);
    while (MonotonicNow() < pause) {
    }
    ASSERT_TRUE(b->PostReceive(link.receiver.get(), &receive_slot, receive));
    ASSERT_TRUE(a->PostSend(link.sender.get(), &send_slot, SendRequest{0, bytes.data(), 64}));
    const TimePoint deadline = MonotonicNow() + Seconds(20);
    while (!Finished(receive_slot) || !Finished(send_slot)) {
      ASSERT_LT(MonotonicNow(), deadline) << "round " << i;
      sched_yield();
    }
  }
}

std::vector<uint64_t> RatesByDevice(Engine& engine) {
  std::vector<uint64_t> rates(2);
  for (const ConnectionSample& sample : engine.SampleConnections()) {
    rates[sample.device] = sample.facts.rate.value;
  }
  return rates;
}

TEST(Engine, SendsFromEachDeviceAtItsOwnLinkRate) {
  RankOptions options;
  options.devices = 2;
  options.config.link_rate = {7000000000};
  const auto peer = StartEngine(options);
  const auto same = StartEngine(options);
  options.link_rates = {{1000000000}, {25000000000}};
  const auto own = StartEngine(options);
  std::vector<Link> links;
  for (uint32_t device = 0; device < 2; ++device) {
    links.push_back(MakeLink(*same, *peer, device));
    links.push_back(MakeLink(*own, *peer, device));
  }
  EXPECT_EQ(RatesByDevice(*same), (std::vector<uint64_t>{7000000000, 7000000000}));
  EXPECT_EQ(RatesByDevice(*own), (std::vector<uint64_t>{1000000000, 25000000000}));
}

// More lines than the ledger's ring holds, and nobody who drains it: the engine stops taking datagrams, and goes on
// where it stopped.
TEST(Engine, LosesNoLineOfALedgerThatNobodyDrains) {
  RankOptions options;
  options.config.max_payload_bytes = 16;
  options.config.payload_crc = false;
  options.fault = "trim=0.6,seed=11";
  const auto a = StartEngine(options);
  options.fault.clear();
  const auto b = StartEngine(options);
  const Link link = MakeLink(*b, *a);
  StepPlan plan;
  plan.step = 1;
  plan.p = Fraction{500000};
  constexpr size_t kMessages = 100;
  constexpr size_t kBytes = 32768;
  plan.expected_bytes = kMessages * kBytes;
  ASSERT_EQ(a->BeginStep(plan, nullptr), StepResult::kOk);
  const std::vector<uint8_t> sent(kBytes, 0x77);
  std::vector<std::vector<uint8_t>> got(kMessages, std::vector<uint8_t>(kBytes, 0xaa));
  std::vector<RequestSlot> sends(kMessages);
  std::vector<RequestSlot> receives(kMessages);
  size_t posted_sends = 0;
  size_t posted_receives = 0;
  const auto post = [&] {
    ReceiveRequest receive;
    receive.capacity = kBytes;
    receive.has_step = receive.exempt_eligible = receive.forgivable = true;
    receive.step = 1;
    while (posted_receives < kMessages) {
      receive.buffer = got[posted_receives].data();
      if (!a->PostReceive(link.receiver.get(), &receives[posted_receives], receive)) break;
      ++posted_receives;
    }
    while (posted_sends < kMessages && b->PostSend(link.sender.get(), &sends[posted_sends],
                                                   SendRequest{0, sent.data(), static_cast<uint32_t>(kBytes)})) {
      ++posted_sends;
    }
  };
  std::vector<Event> ledger;
  const auto all_done = [&] {
    post();
    return std::all_of(receives.begin(), receives.end(), [](const RequestSlot& slot) { return Finished(slot); });
  };
  // Until it stands still, or is done: nothing is drained.
  uint64_t forgiven = UINT64_MAX;
  ASSERT_TRUE(WaitFor([&] {
    all_done();
    usleep(100000);
    const uint64_t now = a->Snapshot().counters.forgiven_bytes;
    return now == std::exchange(forgiven, now) && now >= 65536 * 16;
  }));
  EXPECT_FALSE(all_done());
  ASSERT_TRUE(WaitFor([&] {
    for (Event line; a->NextLedgerLine(&line);) ledger.push_back(line);
    return all_done();
  }));
  StepAccount account;
  ASSERT_EQ(a->EndStep(1, &account), StepResult::kOk);
  for (Event line; a->NextLedgerLine(&line);) ledger.push_back(line);
  uint64_t sum = 0;
  for (const Event& line : ledger) sum += line.length;
  EXPECT_EQ(sum, account.forgiven);
  EXPECT_GT(ledger.size(), 65536u);
  uint64_t zeros = 0;
  for (const std::vector<uint8_t>& message : got) {
    zeros += static_cast<uint64_t>(std::count(message.begin(), message.end(), 0));
  }
  EXPECT_EQ(zeros, account.forgiven);
}

TEST(Engine, TakesPostsFromManyThreadsAtOnce) {
  RankOptions options;
  const auto a = StartEngine(options);
  const auto b = StartEngine(options);
  std::vector<Link> links;
  for (int i = 0; i < 4; ++i) links.push_back(MakeLink(*a, *b));
  std::vector<std::thread> threads;
  for (const Link& link : links) {
    threads.emplace_back([&, link] {
      std::deque<Stream> streams;
      streams.emplace_back(*a, *b, link, std::vector<size_t>(150, 3000), 16);
      RunStreams(streams);
    });
  }
  // Control calls in between.
  for (int i = 0; i < 100; ++i) {
    a->SampleConnections();
    StepAccount account;
    EXPECT_FALSE(b->FindStep(77, &account));
    b->Snapshot();
  }
  for (std::thread& thread : threads) thread.join();
}

TEST(Engine, SaysInOneLineWhyItDoesNotStart) {
  EngineOptions options;
  std::string error;
  EXPECT_EQ(Engine::Start(options, &error), nullptr);
  EXPECT_NE(error.find("FORGIVE_INTERFACE"), std::string::npos);
  options.devices.emplace_back();
  options.devices[0].local_address = "127.0.0.1";
  options.driver = "dpdk";
  EXPECT_EQ(Engine::Start(options, &error), nullptr);
  EXPECT_NE(error.find("dpdk"), std::string::npos);
  options.driver = "udp";
  options.fault = "trim=7";
  EXPECT_EQ(Engine::Start(options, &error), nullptr);
  EXPECT_NE(error.find("trim=7"), std::string::npos);
  options.fault.clear();
  options.cpu = 100000;
  EXPECT_EQ(Engine::Start(options, &error), nullptr);
  EXPECT_NE(error.find("100000"), std::string::npos);
  options.cpu = -1;
  options.relay = "nonsense";
  EXPECT_EQ(Engine::Start(options, &error), nullptr);
  EXPECT_NE(error.find("nonsense"), std::string::npos);
}

TEST(Engine, NamesItsThreadAndBlocksSignalsOnIt) {
  const auto engine = StartEngine(RankOptions{});
  engine->SampleConnections();  // the thread runs by now
  bool found = false;
  for (const auto& task : std::filesystem::directory_iterator("/proc/self/task")) {
    std::ifstream comm(task.path() / "comm");
    std::string name;
    if (!std::getline(comm, name) || name != "forgive-engine") continue;
    found = true;
    std::ifstream status(task.path() / "status");
    for (std::string line; std::getline(status, line);) {
      if (line.rfind("SigBlk:", 0) != 0) continue;
      const uint64_t blocked = std::stoull(line.substr(7), nullptr, 16);
      EXPECT_NE(blocked & (1u << (SIGINT - 1)), 0u);
      EXPECT_NE(blocked & (1u << (SIGTERM - 1)), 0u);
    }
  }
  EXPECT_TRUE(found);
}

}  // namespace
}  // namespace forgive
