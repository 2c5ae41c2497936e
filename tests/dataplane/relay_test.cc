// SPDX-License-Identifier: Apache-2.0
// Tests of the relay program and the relay driver: engines that reach each other through it only.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <fstream>
#include <sstream>

#include "dataplane/engine.h"
#include "ranks.h"

namespace forgive {
namespace {

// One relay process, ended with its owner.
class RelayProcess {
 public:
  explicit RelayProcess(std::vector<std::string> words) {
    words.insert(words.begin(), FORGIVE_RELAY_PROGRAM);
    words.insert(words.end(), {"--max-seconds", "120"});
    std::vector<char*> argv;
    for (std::string& word : words) argv.push_back(word.data());
    argv.push_back(nullptr);
    int fds[2];
    EXPECT_EQ(pipe(fds), 0);
    process_ = fork();
    if (process_ == 0) {
      dup2(fds[1], STDOUT_FILENO);
      close(fds[0]);
      execv(argv[0], argv.data());
      _exit(127);
    }
    close(fds[1]);
    FILE* output = fdopen(fds[0], "r");
    char line[200] = "";
    EXPECT_NE(std::fgets(line, sizeof(line), output), nullptr);
    std::fclose(output);
    std::istringstream words_of_line(line);
    std::string ready;
    words_of_line >> ready >> address_;
    EXPECT_EQ(ready, "ready");
  }
  ~RelayProcess() { End(); }

  // Ends it as a user does; returns its exit status.
  int End() {
    if (process_ <= 0) return 0;
    kill(process_, SIGTERM);
    int status = -1;
    waitpid(process_, &status, 0);
    process_ = -1;
    return status;
  }
  const std::string& address() const { return address_; }

 private:
  pid_t process_ = -1;
  std::string address_;
};

std::unique_ptr<Engine> StartBehind(const RelayProcess& relay) {
  EngineOptions options;
  options.relay = relay.address();
  options.transport.min_rto = Milliseconds(50);
  options.transport.congestion_control = CongestionControlKind::kNone;
  options.transport.window_bytes = 200000;
  options.devices.emplace_back();
  options.devices[0].local_address = "127.0.0.1";
  std::string error;
  std::unique_ptr<Engine> engine = Engine::Start(options, &error);
  EXPECT_NE(engine, nullptr) << error;
  return engine;
}

// The number behind `name` in the relay's statistics.
uint64_t Statistic(const std::string& path, const std::string& name) {
  std::ostringstream text;
  text << std::ifstream(path).rdbuf();
  const size_t at = text.str().find("\"" + name + "\": ");
  return at == std::string::npos ? UINT64_MAX : std::stoull(text.str().substr(at + name.size() + 4));
}

TEST(Relay, CutsUnderIncastAndEveryByteStillArrives) {
  const std::string base = testing::TempDir() + "forgive_relay_test." + std::to_string(getpid());
  const std::string statistics = base + ".json";
  const std::string log = base + ".log";
  RelayProcess relay({"--rate_mbps", "200", "--rtt_us", "2000", "--ecn_min_bytes", "20000", "--ecn_max_bytes",
                      "60000", "--trim_threshold_bytes", "80000", "--queue_bytes", "80000", "--statistics",
                      statistics, "--trims-log", log});
  const auto receiver = StartBehind(relay);
  std::vector<std::unique_ptr<Engine>> senders;
  std::deque<Stream> streams;
  for (int i = 0; i < 3; ++i) {
    senders.push_back(StartBehind(relay));
    streams.emplace_back(*senders.back(), *receiver, MakeLink(*senders.back(), *receiver),
                         std::vector<size_t>{200000, 0, 17, 300000, 100000}, 3);
  }
  RunStreams(streams);
  ASSERT_TRUE(WaitFor([&] { return receiver->Snapshot().counters.trims == Statistic(statistics, "trimmed"); }));
  const EngineSnapshot snapshot = receiver->Snapshot();
  EXPECT_GT(snapshot.counters.trims, 0u);
  EXPECT_GT(snapshot.counters.marks, 0u);
  EXPECT_EQ(snapshot.counters.bad_tag + snapshot.counters.malformed + snapshot.counters.bad_crc, 0u);
  // Lingering connections may still say something; what was cut by now is in the log.
  senders.clear();
  EXPECT_EQ(relay.End(), 0);
  std::ifstream lines(log);
  uint64_t count = 0;
  for (std::string line; std::getline(lines, line); ++count) EXPECT_EQ(line.rfind("trim ", 0), 0u) << line;
  EXPECT_EQ(count, Statistic(statistics, "trimmed"));
  std::remove(statistics.c_str());
  std::remove(log.c_str());
}

TEST(Relay, SaysInOneLineWhatItDoesNotUnderstand) {
  const std::pair<const char*, const char*> cases[] = {
      {"--rate_mbps 0", "--rate_mbps 0"},
      {"--nonsense 1", "--nonsense"},
      {"--rate_mbps", "--rate_mbps"},
      {"--config /no/such/file", "/no/such/file"},
      {"--config /proc/self/exe", "/proc/self/exe:1: a letter beyond ASCII"},
      {"--variant light", "--variant light"},
      {"--listen here", "--listen here"},
      {"--listen 192.0.2.77:5", "192.0.2.77"},
      {"--trims-log /no/such/file", "/no/such/file"},
      {"--statistics /no/such/file", "/no/such/file"},
  };
  for (const auto& [arguments, named] : cases) {
    const std::string command = std::string(FORGIVE_RELAY_PROGRAM) + " --max-seconds 1 " + arguments + " 2>&1";
    FILE* pipe = popen(command.c_str(), "r");
    ASSERT_NE(pipe, nullptr);
    std::string output;
    char buffer[500];
    while (std::fgets(buffer, sizeof(buffer), pipe) != nullptr) output += buffer;
    EXPECT_NE(pclose(pipe), 0) << arguments;
    EXPECT_EQ(std::count(output.begin(), output.end(), '\n'), 1) << output;
    EXPECT_NE(output.find(named), std::string::npos) << output;
  }
}

}  // namespace
}  // namespace forgive
