// SPDX-License-Identifier: Apache-2.0
// forgive.h's arguments, the ledger's limit, and the statistics file.
#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string_view>
#include <thread>

#include "ring_steps.h"

namespace forgive::testing {
namespace {

TEST(PluginInterface, ChecksItsArgumentsAndSaysWhatIsWrong) {
  RunPlugin({}, [](const Net&, const Interface& forgive) {
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
    EXPECT_EQ(forgive.begin_norm(1, 0.5, 0), FORGIVE_ERROR_NOT_STARTED);
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

bool FileHolds(const std::string& name, const std::string& text) {
  std::ifstream file(name);
  for (std::string line; std::getline(file, line);) {
    if (line.find(text) != std::string::npos) return true;
  }
  return false;
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
                  // The first step's budget is less than a segment.
                  ASSERT_EQ(forgive.begin(step, step == 1, step == 1 ? 400000 : 4 << 20), FORGIVE_OK);
                  AllReduce(net, forgive, &ring, 2, kPosted, static_cast<int>(step - 1) * 8);
                  // It stays open until a sample of it is written, however late the thread is that takes them.
                  const std::string own = stem + "." + std::to_string(self);
                  EXPECT_TRUE(step > 1 || PollUntil([&] { return FileHolds(own, "\"exhausted\":true"); }));
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
  uint64_t exhausted = 0;
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
      // As the reports of these connections say it.
      const uint64_t used = line["forgiven"].get<uint64_t>() + line["outstanding"].get<uint64_t>();
      EXPECT_EQ(line["exhausted"], line["open"] == true && used + 4096 > line["budget"].get<uint64_t>()) << line;
      exhausted += line["exhausted"] == true;
      for (const auto& connection : line["connections"]) {
        EXPECT_TRUE(connection.contains("rate_bps") && connection.contains("exempt") && connection.contains("sends"));
        EXPECT_EQ(connection["id"].get<std::string>().size(), 16u);
      }
    }
  }
  EXPECT_EQ(steps, 3u);
  EXPECT_TRUE(sampled_connections);
  EXPECT_GT(exhausted, 0u);
  EXPECT_GT(forgiven, 0u);
  EXPECT_EQ(lines.back()["totals"]["forgiven_bytes"], forgiven);
  EXPECT_EQ(lines.back()["totals"]["steps"], 3u);
  EXPECT_GT(lines.back()["ledger_lines"], 0u);
  EXPECT_GT(lines.back()["totals"]["faults_injected"], 0u);
  for (const char* name :
       {"socket_drops", "send_errors", "truncated", "raw_packets", "stale_reports", "events_full"}) {
    EXPECT_TRUE(lines.back()["totals"].contains(name)) << name;
  }
}

// ---- What drivers and engine count ----

forgive_stats_t Totals(const Interface& forgive) {
  forgive_stats_t totals{};
  totals.size = sizeof(totals);
  EXPECT_EQ(forgive.stats(&totals), FORGIVE_OK) << forgive.last_error();
  return totals;
}

// Asks until the totals say so: they are a little behind.
bool Say(const Interface& forgive, const std::function<bool(const forgive_stats_t&)>& expected) {
  return PollUntil([&] { return expected(Totals(forgive)); }, 20);
}

// The UDP port of the engine, from the line at init.
uint16_t EnginePort() {
  constexpr std::string_view kBefore = "udp 127.0.0.1:";
  for (const std::string& line : LogLines()) {
    const size_t at = line.find(kBefore);
    if (at != std::string::npos) return static_cast<uint16_t>(std::stoi(line.substr(at + kBefore.size())));
  }
  ADD_FAILURE() << "no line names the engine's port";
  return 0;
}

TEST(PluginCounters, CountACutPacketThatNoSwitchAnswersForAsTruncated) {
  RunPlugin({{"FORGIVE_TRIM_NEEDS_DSCP", "1"}}, [](const Net&, const Interface& forgive) {
    // The header of a data packet of 4,096 bytes that are not there, without the trimmed code point.
    uint8_t header[56] = {1, 1, 0, 0, 0x10, 0};
    sockaddr_in engine{};
    engine.sin_family = AF_INET;
    engine.sin_port = htons(EnginePort());
    engine.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    const int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    // The engine sleeps by now: it must wake, and publish though there was nothing to do.
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    ASSERT_EQ(sendto(fd, header, sizeof(header), 0, reinterpret_cast<const sockaddr*>(&engine), sizeof(engine)),
              static_cast<ssize_t>(sizeof(header)));
    close(fd);
    // Where the raw path is permitted it has seen the packet, and nobody else; perhaps in the engine's next turn.
    const uint64_t raw = LogContains("raw path for cut packets") ? 1 : 0;
    EXPECT_TRUE(Say(forgive, [raw](const forgive_stats_t& totals) {
      return totals.truncated == 1 && totals.raw_packets >= raw;
    }));
    EXPECT_EQ(Totals(forgive).truncated, 1u);
    EXPECT_EQ(Totals(forgive).raw_packets, raw);
    EXPECT_EQ(Totals(forgive).send_errors, 0u);
  });
}

TEST(PluginCounters, CountPacketsThatTheKernelRefusesAsSendErrors) {
  // From 127.0.0.1 nothing leaves the machine: the kernel refuses every packet to this relay.
  RunPlugin({{"FORGIVE_RELAY", "192.0.2.1:9"}}, [](const Net& net, const Interface& forgive) {
    alignas(8) char handle[nccl::kHandleBytes];
    void* listen_comm = nullptr;
    ASSERT_EQ(net.listen(0, handle, &listen_comm), nccl::kSuccess);
    void* send_comm = nullptr;
    ASSERT_EQ(net.connect(0, handle, &send_comm), nccl::kSuccess);
    EXPECT_TRUE(Say(forgive, [](const forgive_stats_t& totals) { return totals.send_errors > 0; }));
    EXPECT_EQ(net.close_listen(listen_comm), nccl::kSuccess);
  });
}

TEST(PluginCounters, CountInjectedFaultsAndTheReportsThatAreNotActedOnTwice) {
  RunPlugin({{"FORGIVE_FAULT", "duplicate=1,seed=3"}}, [](const Net& net, const Interface& forgive) {
    RingConnection ring = MakeRing(net);
    Transfer(net, &ring.pair, 4, kPosted, kPosted, nullptr);
    EXPECT_TRUE(Say(forgive, [](const forgive_stats_t& totals) { return totals.stale_reports > 0; }));
    const forgive_stats_t totals = Totals(forgive);
    EXPECT_GT(totals.faults_injected, totals.reports_received);
    EXPECT_EQ(totals.truncated + totals.send_errors + totals.events_full, 0u);
  });
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
    EXPECT_TRUE(PollUntil([&] { return said() > 0; }));
    EXPECT_EQ(said(), 1);
  };
  RunPlugin(kWord + Variables{{"FORGIVE_STATS", "/no/such/folder/stats"}}, body);
  RunPlugin(kWord + Variables{{"FORGIVE_STATS", "/dev/full"}}, body);
}

}  // namespace
}  // namespace forgive::testing
