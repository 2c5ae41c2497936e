// SPDX-License-Identifier: Apache-2.0
// Steps by the operator's word: what is forgiven, every latch, the ledger, the statistics and their file.
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <deque>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <thread>

#include "fake_nccl.h"

namespace forgive::testing {
namespace {

using Variables = std::vector<std::pair<std::string, std::string>>;

constexpr int kPosted = 1 << 20;  // what NCCL posts in a ring's Simple protocol
constexpr int kBuffer = 4 * kPosted;

// forgive.h of the loaded library.
struct Interface {
  explicit Interface(const Library& library)
      : last_error(library.Get<const char*()>("forgive_last_error")),
        begin(library.Get<int(uint64_t, int, uint64_t)>("forgive_step_begin")),
        begin_norm(library.Get<int(uint64_t, double, uint64_t)>("forgive_step_begin_norm")),
        end(library.Get<int(uint64_t)>("forgive_step_end")),
        stats(library.Get<int(forgive_stats_t*)>("forgive_stats")),
        step_stats(library.Get<int(uint64_t, forgive_step_stats_t*)>("forgive_step_stats")),
        ranges(library.Get<int64_t(uint64_t, forgive_range_t*, uint64_t)>("forgive_forgiven_ranges")),
        lost(library.Get<uint64_t()>("forgive_ledger_lost")) {}

  const char* (*last_error)();
  int (*begin)(uint64_t, int, uint64_t);
  int (*begin_norm)(uint64_t, double, uint64_t);
  int (*end)(uint64_t);
  int (*stats)(forgive_stats_t*);
  int (*step_stats)(uint64_t, forgive_step_stats_t*);
  int64_t (*ranges)(uint64_t, forgive_range_t*, uint64_t);
  uint64_t (*lost)();
};

std::vector<forgive_range_t> Ledger(const Interface& forgive) {
  std::vector<forgive_range_t> lines(100000);
  const int64_t count = forgive.ranges(0, lines.data(), lines.size());
  EXPECT_GE(count, 0);
  lines.resize(static_cast<size_t>(std::max<int64_t>(count, 0)));
  return lines;
}

// A receive connection as NCCL's ring has it: three registered host buffers, the last of 4 MiB.
struct RingConnection {
  Pair pair;
  std::vector<uint8_t> small;
  std::vector<uint8_t> middle;
  void* small_handle = nullptr;
  void* middle_handle = nullptr;
};

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

// `count` messages of `bytes` each, posted with `posted` bytes, four deep; whatever arrives is given to `check`.
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

const Variables kWord = {{"FORGIVE_GRADIENT_TRAFFIC", "all"}, {"FORGIVE_RING_RANKS", "2"}, {"FORGIVE_SEED", "1"}};
const Variables kTrims = {{"FORGIVE_FAULT", "trim=0.2,seed=5"}};

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

// An all-reduce's worth of messages on one connection with k = 2: two of reduce-scatter, two of all-gather. Checks
// that a byte differs exactly where the ledger says so, and is zero there; returns the bytes forgiven.
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

TEST(PluginSteps, ForgivesTrimsOfTheReducePhaseWithinTheBudgetAndKeepsTheLedger) {
  RunPlugin(kWord + kTrims, [](const Net& net, const Interface& forgive) {
    RingConnection ring = MakeRing(net);
    ASSERT_EQ(forgive.begin(1, 0, 8 << 20), FORGIVE_OK) << forgive.last_error();
    const uint64_t forgiven = AllReduce(net, forgive, &ring, 4, kPosted, 0);
    ASSERT_EQ(forgive.end(1), FORGIVE_OK) << forgive.last_error();
    EXPECT_GT(forgiven, 0u);
    for (const forgive_range_t& line : Ledger(forgive)) {
      EXPECT_LT(line.message % 4, 2u) << "an all-gather slice was forgiven";
      EXPECT_EQ(line.contributions, 1u);
      EXPECT_EQ(line.step, 1u);
    }
    forgive_step_stats_t step{};
    ASSERT_EQ(forgive.step_stats(1, &step), FORGIVE_OK);
    EXPECT_EQ(step.forgiven, forgiven);
    EXPECT_EQ(step.contributions_lost, forgiven);
    EXPECT_EQ(step.expected, uint64_t{8} << 20);
    EXPECT_EQ(step.budget, (uint64_t{8} << 20) / 10);
    EXPECT_LE(step.forgiven, step.budget);
    EXPECT_LE(step.forgiven * 9, step.received);
    EXPECT_EQ(step.received + step.forgiven, uint64_t{8} << 20);
    EXPECT_EQ(step.settled, uint64_t{8} << 20);
    EXPECT_EQ(step.outstanding, 0u);
    EXPECT_EQ(step.open, 0u);
    EXPECT_EQ(step.budget_violations, 0u);
    EXPECT_GT(step.trims, 0u);
    EXPECT_GE(step.end_ns, step.begin_ns);
    EXPECT_EQ(forgive.lost(), 0u);
  });
}

TEST(PluginSteps, ForgivesBothPhasesWhereAllIsEligibleAndCountsEveryRankOfAFinalValue) {
  RunPlugin(kWord + kTrims + Variables{{"FORGIVE_ELIGIBLE", "all"}, {"FORGIVE_GRADIENT_RANKS", "4"}},
            [](const Net& net, const Interface& forgive) {
              RingConnection ring = MakeRing(net);
              ASSERT_EQ(forgive.begin(1, 0, 16 << 20), FORGIVE_OK);
              EXPECT_GT(AllReduce(net, forgive, &ring, 4, kPosted, 0), 0u);
              EXPECT_EQ(forgive.end(1), FORGIVE_OK) << forgive.last_error();
              std::map<uint32_t, uint64_t> bytes;
              for (const forgive_range_t& line : Ledger(forgive)) {
                EXPECT_EQ(line.contributions, line.message % 4 < 2 ? 1u : 4u);
                bytes[line.message % 4 < 2 ? 0 : 1] += line.length;
              }
              EXPECT_GT(bytes[0], 0u);
              EXPECT_GT(bytes[1], 0u);
            });
}

TEST(PluginSteps, ForgivesNothingOutsideAStepOrWithoutTheOperatorsWord) {
  const auto body = [](const Net& net, const Interface& forgive) {
    RingConnection ring = MakeRing(net);
    EXPECT_EQ(AllReduce(net, forgive, &ring, 2, kPosted, 0), 0u);
    ASSERT_EQ(forgive.begin(1, 0, 4 << 20), FORGIVE_OK);
    const char* word = std::getenv("FORGIVE_GRADIENT_TRAFFIC");
    if (word == nullptr) {
      EXPECT_EQ(AllReduce(net, forgive, &ring, 2, kPosted, 8), 0u);
    }
    EXPECT_EQ(forgive.end(1), FORGIVE_OK);
    EXPECT_EQ(AllReduce(net, forgive, &ring, 2, kPosted, word == nullptr ? 16 : 8), 0u);
  };
  RunPlugin(kTrims, body);
  RunPlugin(kWord + kTrims, body);
}

TEST(PluginSteps, ForgivesNothingWhereTheProbabilityOfForgivingIsZeroButStaysExempt) {
  RunPlugin(kWord + kTrims + Variables{{"FORGIVE_P", "0"}}, [](const Net& net, const Interface& forgive) {
    RingConnection ring = MakeRing(net);
    ASSERT_EQ(forgive.begin(1, 0, 8 << 20), FORGIVE_OK);
    EXPECT_EQ(AllReduce(net, forgive, &ring, 4, kPosted, 0), 0u);
    EXPECT_EQ(forgive.end(1), FORGIVE_OK);
    forgive_stats_t totals{};
    totals.size = sizeof(totals);
    EXPECT_TRUE(
        PollUntil([&] { return forgive.stats(&totals) == FORGIVE_OK && totals.decided_draw_refused > 0; }, 10));
    EXPECT_GT(totals.sent_exempt_bytes, 0u);
    EXPECT_EQ(totals.forgiven_bytes, 0u);
  });
}

TEST(PluginSteps, LearnsTheExpectedBytesFromTheLastStep) {
  RunPlugin(kWord, [](const Net& net, const Interface& forgive) {
    RingConnection ring = MakeRing(net);
    ASSERT_EQ(forgive.begin(1, 0, 0), FORGIVE_OK);
    AllReduce(net, forgive, &ring, 1, 1000, 0);
    ASSERT_EQ(forgive.end(1), FORGIVE_OK);
    ASSERT_EQ(forgive.begin(2, 1, 0), FORGIVE_OK);
    forgive_step_stats_t step{};
    ASSERT_EQ(forgive.step_stats(2, &step), FORGIVE_OK);
    EXPECT_EQ(step.expected, 2000u);  // two reduce-scatter slices: what was sent, not what was posted
    EXPECT_EQ(step.budget, 10u);
    EXPECT_EQ(step.critical, 1u);
    EXPECT_EQ(step.open, 1u);
    EXPECT_EQ(forgive.end(2), FORGIVE_OK);
  });
}

TEST(PluginLatch, RefusesABeginWhileReceivesArePostedAndTheStepStaysReliable) {
  RunPlugin(kWord + kTrims, [](const Net& net, const Interface& forgive) {
    RingConnection ring = MakeRing(net);
    void* receive = nullptr;
    ASSERT_EQ(Receive(net, &ring.pair, 0, kPosted, &receive), nccl::kSuccess);
    EXPECT_EQ(forgive.begin(1, 0, 8 << 20), FORGIVE_ERROR_RECEIVES_POSTED);
    EXPECT_NE(std::string(forgive.last_error()).find("receives are posted"), std::string::npos);
    EXPECT_EQ(forgive.end(1), FORGIVE_ERROR_STEP_OPEN);
    void* send = nullptr;
    ASSERT_EQ(Send(net, ring.pair, 0, kPosted, &send), nccl::kSuccess);
    EXPECT_EQ(Wait(net, send), nccl::kSuccess);
    EXPECT_EQ(Wait(net, receive), nccl::kSuccess);
    EXPECT_EQ(Ledger(forgive).size(), 0u);
    EXPECT_EQ(forgive.begin(1, 0, 8 << 20), FORGIVE_OK) << forgive.last_error();
    EXPECT_GT(AllReduce(net, forgive, &ring, 4, kPosted, 1), 0u);
    EXPECT_EQ(forgive.end(1), FORGIVE_OK);
  });
}

TEST(PluginLatch, ForgetsReceivesThatWereClosedInFlight) {
  RunPlugin(kWord, [](const Net& net, const Interface& forgive) {
    RingConnection ring = MakeRing(net);
    void* receive = nullptr;
    ASSERT_EQ(Receive(net, &ring.pair, 0, kPosted, &receive), nccl::kSuccess);
    EXPECT_EQ(forgive.begin(1, 0, 1), FORGIVE_ERROR_RECEIVES_POSTED);
    EXPECT_EQ(net.close_receive(ring.pair.receive_comm), nccl::kSuccess);
    EXPECT_EQ(forgive.begin(1, 0, 1), FORGIVE_OK);
  });
}

TEST(PluginLatch, RefusesABeginWhileAStepIsOpenAndNumbersThatDoNotRise) {
  RunPlugin(kWord, [](const Net&, const Interface& forgive) {
    EXPECT_EQ(forgive.end(1), FORGIVE_ERROR_STEP_OPEN);
    EXPECT_EQ(forgive.begin(5, 0, 0), FORGIVE_OK);
    EXPECT_EQ(forgive.begin(6, 0, 0), FORGIVE_ERROR_STEP_OPEN);
    EXPECT_EQ(forgive.end(6), FORGIVE_ERROR_STEP_OPEN);
    EXPECT_EQ(forgive.end(5), FORGIVE_OK);
    EXPECT_EQ(forgive.begin(5, 0, 0), FORGIVE_ERROR_BAD_ARGUMENT);
    EXPECT_EQ(forgive.begin(6, 0, 0), FORGIVE_OK);
    EXPECT_EQ(forgive.end(6), FORGIVE_OK);
  });
}

TEST(PluginLatch, APostThatFailsTheRuleInAStepMakesItsConnectionReliable) {
  RunPlugin(kWord + kTrims, [](const Net& net, const Interface& forgive) {
    RingConnection latched = MakeRing(net);
    RingConnection good = MakeRing(net);
    ASSERT_EQ(forgive.begin(1, 0, 8 << 20), FORGIVE_OK);
    // A Tree or a broadcast posts half a slice.
    Transfer(net, &latched.pair, 4, 1000, kPosted / 2, nullptr);
    EXPECT_EQ(AllReduce(net, forgive, &latched, 2, kPosted, 4), 0u);
    EXPECT_EQ(forgive.end(1), FORGIVE_OK) << forgive.last_error();
    ASSERT_EQ(forgive.begin(2, 0, 8 << 20), FORGIVE_OK);
    EXPECT_EQ(AllReduce(net, forgive, &latched, 2, kPosted, 12), 0u);
    EXPECT_GT(AllReduce(net, forgive, &good, 4, kPosted, 0), 0u);
    EXPECT_EQ(forgive.end(2), FORGIVE_OK) << forgive.last_error();
    int said = 0;
    for (const std::string& line : LogLines()) said += line.find("is not Ring and Simple") != std::string::npos;
    EXPECT_EQ(said, 1);
    forgive_stats_t totals{};
    totals.size = sizeof(totals);
    ASSERT_EQ(forgive.stats(&totals), FORGIVE_OK);
    EXPECT_EQ(totals.not_posted_operator_latch, 4u + 8u + 8u);
  });
}

TEST(PluginLatch, APostThatFailsTheRuleOutsideAStepLatchesNothing) {
  RunPlugin(kWord + kTrims, [](const Net& net, const Interface& forgive) {
    RingConnection ring = MakeRing(net);
    Transfer(net, &ring.pair, 3, 1000, kPosted / 2, nullptr);
    ASSERT_EQ(forgive.begin(1, 0, 8 << 20), FORGIVE_OK);
    // The counter starts at the step: the phase is right although three messages went before.
    EXPECT_GT(AllReduce(net, forgive, &ring, 4, kPosted, 3), 0u);
    for (const forgive_range_t& line : Ledger(forgive)) EXPECT_LT((line.message - 3) % 4, 2u);
    EXPECT_EQ(forgive.end(1), FORGIVE_OK);
  });
}

TEST(PluginLatch, AConnectionWithoutThreeRegistrationsIsReliable) {
  RunPlugin(kWord + kTrims, [](const Net& net, const Interface& forgive) {
    RingConnection point_to_point;
    point_to_point.pair = MakePair(net, kBuffer);
    ASSERT_EQ(forgive.begin(1, 0, 8 << 20), FORGIVE_OK);
    EXPECT_EQ(AllReduce(net, forgive, &point_to_point, 2, kPosted, 0), 0u);
    EXPECT_EQ(forgive.end(1), FORGIVE_OK);
  });
}

TEST(PluginLatch, AnAllGatherInsideAStepLatchesTheProcessAtItsEnd) {
  RunPlugin(kWord + kTrims, [](const Net& net, const Interface& forgive) {
    RingConnection ring = MakeRing(net);
    ASSERT_EQ(forgive.begin(1, 0, 8 << 20), FORGIVE_OK);
    Transfer(net, &ring.pair, 4 + 2, kPosted, kPosted, nullptr);  // an all-reduce, and half of one
    EXPECT_EQ(forgive.end(1), FORGIVE_ERROR_LATCHED);
    EXPECT_TRUE(LogContains("6 messages in the step, not a multiple of 4"));
    EXPECT_EQ(forgive.begin(2, 0, 8 << 20), FORGIVE_ERROR_LATCHED);
    const size_t lines = Ledger(forgive).size();
    AllReduce(net, forgive, &ring, 2, kPosted, 6);
    EXPECT_EQ(Ledger(forgive).size(), lines);
    EXPECT_EQ(forgive.end(2), FORGIVE_ERROR_LATCHED);
  });
}

TEST(PluginLatch, AConnectionClosedInTheMiddleOfAnAllReduceLatchesTheProcess) {
  RunPlugin(kWord, [](const Net& net, const Interface& forgive) {
    RingConnection ring = MakeRing(net);
    ASSERT_EQ(forgive.begin(1, 0, 8 << 20), FORGIVE_OK);
    Transfer(net, &ring.pair, 1, kPosted, kPosted, nullptr);
    EXPECT_EQ(net.close_receive(ring.pair.receive_comm), nccl::kSuccess);
    EXPECT_EQ(forgive.end(1), FORGIVE_ERROR_LATCHED);
  });
}

TEST(PluginInterface, ChecksItsArgumentsAndSaysWhatIsWrong) {
  RunPlugin({}, [](const Net&, const Interface& forgive) {
    EXPECT_EQ(forgive.begin_norm(1, 0.5, 0), FORGIVE_ERROR_NOT_BUILT);
    EXPECT_NE(std::string(forgive.last_error()).find("not built"), std::string::npos);
    EXPECT_EQ(forgive.stats(nullptr), FORGIVE_ERROR_BAD_ARGUMENT);
    forgive_stats_t totals{};
    EXPECT_EQ(forgive.stats(&totals), FORGIVE_ERROR_BAD_ARGUMENT);
    EXPECT_EQ(forgive.step_stats(1, nullptr), FORGIVE_ERROR_BAD_ARGUMENT);
    forgive_step_stats_t step{};
    EXPECT_EQ(forgive.step_stats(1, &step), FORGIVE_ERROR_BAD_ARGUMENT);
    EXPECT_EQ(forgive.ranges(0, nullptr, 1), FORGIVE_ERROR_BAD_ARGUMENT);
    EXPECT_EQ(forgive.ranges(0, nullptr, 0), 0);
  });
}

TEST(PluginInterface, AnswersNotStartedBeforeInit) {
  ExpectInChild({}, [] {
    const Library library;
    const Interface forgive(library);
    EXPECT_EQ(forgive.begin(1, 0, 0), FORGIVE_ERROR_NOT_STARTED);
    EXPECT_EQ(forgive.end(1), FORGIVE_ERROR_NOT_STARTED);
    EXPECT_NE(std::string(forgive.last_error()).find("NCCL_NET=forgive"), std::string::npos);
    EXPECT_EQ(forgive.lost(), 0u);
  });
}

TEST(PluginInterface, FillsOnlyTheFieldsThatAnOlderCallerKnows) {
  RunPlugin({}, [](const Net&, const Interface& forgive) {
    forgive_stats_t totals;
    std::fill_n(reinterpret_cast<uint8_t*>(&totals), sizeof(totals), uint8_t{0xee});
    totals.size = 3 * sizeof(uint64_t);
    ASSERT_EQ(forgive.stats(&totals), FORGIVE_OK);
    EXPECT_EQ(totals.api_version, uint64_t{FORGIVE_API_VERSION});
    EXPECT_EQ(totals.steps, 0u);
    EXPECT_EQ(totals.sent_bytes, 0xeeeeeeeeeeeeeeeeu);
  });
}

TEST(PluginInterface, KeepsTheLast256Steps) {
  RunPlugin({}, [](const Net&, const Interface& forgive) {
    for (uint64_t step = 1; step <= 300; ++step) {
      ASSERT_EQ(forgive.begin(step, 0, step), FORGIVE_OK);
      ASSERT_EQ(forgive.end(step), FORGIVE_OK);
    }
    forgive_step_stats_t step{};
    EXPECT_EQ(forgive.step_stats(44, &step), FORGIVE_ERROR_BAD_ARGUMENT);
    ASSERT_EQ(forgive.step_stats(45, &step), FORGIVE_OK);
    EXPECT_EQ(step.expected, 45u);
    ASSERT_EQ(forgive.step_stats(300, &step), FORGIVE_OK);
    EXPECT_EQ(step.open, 0u);
  });
}

TEST(PluginLedger, KeepsAsManyLinesAsAskedForAndCountsTheRest) {
  RunPlugin(kWord + kTrims + Variables{{"FORGIVE_LEDGER_LINES", "3"}}, [](const Net& net, const Interface& forgive) {
    RingConnection ring = MakeRing(net);
    ASSERT_EQ(forgive.begin(1, 0, 8 << 20), FORGIVE_OK);
    Transfer(net, &ring.pair, 16, kPosted, kPosted, nullptr);
    ASSERT_EQ(forgive.end(1), FORGIVE_OK);
    EXPECT_EQ(Ledger(forgive).size(), 3u);
    EXPECT_GT(forgive.lost(), 0u);
    forgive_range_t last{};
    EXPECT_EQ(forgive.ranges(2, &last, 1), 1);
    EXPECT_GT(last.length, 0u);
    EXPECT_EQ(forgive.ranges(3, &last, 1), 0);
  });
}

std::string TemporaryFile(const std::string& name) {
  const char* folder = std::getenv("TMPDIR");
  return std::string(folder == nullptr ? "/tmp" : folder) + "/forgive-" + name + "-" + std::to_string(getpid());
}

TEST(PluginStatistics, WritesInitStepsSamplesAndAFinalLineAsJson) {
  const std::string stem = TemporaryFile("stats");
  pid_t writer = 0;
  std::string file;
  {
    // The child's process number is part of the name: the parent learns it through a pipe.
    int numbers[2];
    ASSERT_EQ(pipe(numbers), 0);
    RunPlugin(kWord + kTrims + Variables{{"FORGIVE_STATS", stem + ".%p"}, {"FORGIVE_TRACE_INTERVAL_US", "500"}},
              [&](const Net& net, const Interface& forgive) {
                const pid_t self = getpid();
                ASSERT_EQ(write(numbers[1], &self, sizeof(self)), static_cast<ssize_t>(sizeof(self)));
                RingConnection ring = MakeRing(net);
                for (uint64_t step = 1; step <= 3; ++step) {
                  ASSERT_EQ(forgive.begin(step, step == 1, 4 << 20), FORGIVE_OK);
                  AllReduce(net, forgive, &ring, 2, kPosted, static_cast<int>(step - 1) * 8);
                  ASSERT_EQ(forgive.end(step), FORGIVE_OK);
                }
              });
    ASSERT_EQ(read(numbers[0], &writer, sizeof(writer)), static_cast<ssize_t>(sizeof(writer)));
    close(numbers[0]);
    close(numbers[1]);
    file = stem + "." + std::to_string(writer);
  }
  std::ifstream stream(file);
  ASSERT_TRUE(stream.good()) << file;
  std::vector<nlohmann::json> lines;
  for (std::string text; std::getline(stream, text);) lines.push_back(nlohmann::json::parse(text));
  unlink(file.c_str());
  ASSERT_GE(lines.size(), 5u);
  EXPECT_EQ(lines.front()["type"], "init");
  EXPECT_EQ(lines.front()["pid"], writer);
  EXPECT_EQ(lines.front()["settings"]["FORGIVE_RING_RANKS"], "2");
  EXPECT_EQ(lines.back()["type"], "final");
  uint64_t steps = 0;
  uint64_t forgiven = 0;
  bool sampled_connections = false;
  for (const nlohmann::json& line : lines) {
    if (line["type"] == "step") {
      EXPECT_EQ(line["step"], ++steps);
      EXPECT_EQ(line["critical"], steps == 1);
      EXPECT_EQ(line["latched"], false);
      EXPECT_LE(line["forgiven"], line["budget"]);
      forgiven += line["forgiven"].get<uint64_t>();
    }
    if (line["type"] == "sample" && !line["connections"].empty()) {
      sampled_connections = true;
      for (const auto& connection : line["connections"]) {
        EXPECT_TRUE(connection.contains("rate_bps") && connection.contains("exempt") && connection.contains("sends"));
        EXPECT_EQ(connection["id"].get<std::string>().size(), 16u);
      }
    }
  }
  EXPECT_EQ(steps, 3u);
  EXPECT_TRUE(sampled_connections);
  EXPECT_GT(forgiven, 0u);
  EXPECT_EQ(lines.back()["totals"]["forgiven_bytes"], forgiven);
  EXPECT_EQ(lines.back()["totals"]["steps"], 3u);
  EXPECT_GT(lines.back()["ledger_lines"], 0u);
}

TEST(PluginStatistics, AFileThatCannotBeWrittenIsSaidOnceAndDoesNotStopTheJob) {
  const auto body = [](const Net& net, const Interface& forgive) {
    RingConnection ring = MakeRing(net);
    for (uint64_t step = 1; step <= 3; ++step) {
      ASSERT_EQ(forgive.begin(step, 0, 4 << 20), FORGIVE_OK);
      AllReduce(net, forgive, &ring, 1, 1000, static_cast<int>(step - 1) * 4);
      ASSERT_EQ(forgive.end(step), FORGIVE_OK);
    }
    const auto said = [] {
      int count = 0;
      for (const std::string& line : LogLines()) count += line.find("FORGIVE_STATS") != std::string::npos;
      return count;
    };
    EXPECT_TRUE(PollUntil([&] { return said() > 0; }, 10));
    EXPECT_EQ(said(), 1);
  };
  RunPlugin(kWord + Variables{{"FORGIVE_STATS", "/no/such/folder/stats"}}, body);
  RunPlugin(kWord + Variables{{"FORGIVE_STATS", "/dev/full"}}, body);
}

}  // namespace
}  // namespace forgive::testing
