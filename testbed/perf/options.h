// SPDX-License-Identifier: Apache-2.0
// What the command line and the environment ask of forgive_perf.
#ifndef FORGIVE_TESTBED_PERF_OPTIONS_H_
#define FORGIVE_TESTBED_PERF_OPTIONS_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace forgive::perf {

enum class Collective : std::uint8_t { kAllReduce, kReduceScatter, kAllGather, kBroadcast, kSendRecv };
enum class Algorithm : std::uint8_t { kRing, kDirect };
enum class Mode : std::uint8_t { kSweep, kSteps, kMixed };

// Who says what a message is for: the operator, NCCL's attributes, its profiler's events, or all that NCCL of the
// table's age says.
enum class Proof : std::uint8_t { kWord, kAttributes, kProfiler, kNccl };

// What --plugin names instead of a plugin: TCP, its socket calls in the thread that posts and tests, or in a thread of
// their own, to which requests go as to the plugin's engine.
enum class Baseline : std::uint8_t { kNone, kTcp, kTcpThreaded };
Baseline BaselineOf(const std::string& plugin);

const char* NameOf(Collective collective);
const char* NameOf(Algorithm algorithm);

struct Options {
  std::string plugin;  // a file, a plugin's name, or a baseline's
  int api = 0;         // 0: the highest that the plugin offers
  int device = 0;
  Collective collective = Collective::kAllReduce;
  Algorithm algorithm = Algorithm::kRing;
  Mode mode = Mode::kSweep;
  Proof proof = Proof::kWord;
  int traffic_class = -1;  // of the communicator, from v10 on: FORGIVE_TRAFFIC_CLASS

  int ranks = 0;           // all ranks of the run
  int rank = -1;           // -1: this process forks all of them
  std::string rendezvous;  // HOST:PORT or unix:PATH; empty when forking
  int timeout_s = 60;      // the longest wait without any progress

  std::int64_t first_bytes = 1024;
  std::int64_t last_bytes = 64 << 20;
  int factor = 2;
  int iterations = 20;
  int warmup = 5;

  int steps = 0;
  std::vector<std::uint64_t> critical;  // step numbers, from 1
  int compute_ms = 0;
  std::int64_t step_bytes = 16 << 20;
  bool learn_expected = false;  // pass 0 as the expected bytes: the plugin uses the last step's

  std::uint64_t seed = 1;
  bool check = true;
  std::string json_file;
  std::string ledger_file;
  std::vector<std::string> trims;  // files, folders or patterns with * and ?
};

// Parses the command line. Throws UsageError; nullopt: help or version was asked for and printed.
std::optional<Options> ParseOptions(int argc, const char* const* argv);

// "4096", "1K", "64M" or "2G" as bytes. Throws UsageError that names `what`.
std::int64_t ParseSize(const std::string& text, const std::string& what);

// Which messages of an all-reduce may be forgiven: FORGIVE_ELIGIBLE.
enum class Eligible : std::uint8_t { kReduce, kAll, kNone };

// What the environment says of the loss budget, read here independently of the plugin.
struct Word {
  bool gradient_traffic = false;  // this run's communicator carries gradients
  bool by_operator = false;       // because FORGIVE_GRADIENT_TRAFFIC=all
  bool by_mark = false;           // because FORGIVE_TRAFFIC_CLASS or FORGIVE_COMMUNICATOR is set: where NCCL proves
  int traffic_class = -1;
  bool by_operation = false;          // FORGIVE_STEP=operation
  bool detector_lists_steps = false;  // FORGIVE_DETECTOR=steps; else no norms are seen and all are critical
  std::vector<std::uint64_t> critical = {1, 2, 3, 20};  // FORGIVE_DETECTOR_STEPS
  bool contributions = false;                           // FORGIVE_BUDGET_UNIT
  Eligible eligible = Eligible::kReduce;
  std::uint32_t p_low_ppm = 5'000;
  std::uint32_t p_high_ppm = 100'000;
};

// Reads the environment. Throws UsageError that names the variable.
Word ReadWord();

// A decimal fraction in [0, 1] as parts per million, digits beyond the sixth dropped; nullopt: not one.
std::optional<std::uint32_t> ParsePartsPerMillion(std::string_view text);

// The budget of a step: floor(p x expected), in integers.
std::uint64_t BudgetBytes(std::uint32_t p_ppm, std::uint64_t expected_bytes);

}  // namespace forgive::perf

#endif  // FORGIVE_TESTBED_PERF_OPTIONS_H_
