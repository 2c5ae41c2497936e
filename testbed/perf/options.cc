// SPDX-License-Identifier: Apache-2.0
// Parses the command line and the environment, and refuses with one line what makes no sense.
#include "testbed/perf/options.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cstdlib>
#include <iostream>
#include <map>
#include <string_view>

#include "dataplane/parse_number.h"
#include "testbed/entry_lib/command_line.h"
#include "testbed/perf/error.h"

namespace forgive::perf {
namespace {

constexpr int kMostRanks = 256;
constexpr int kMostFactor = 1024;
constexpr std::int64_t kMostBytes = std::int64_t{4} << 30;

const std::map<std::string, Collective> kCollectives = {{"all_reduce", Collective::kAllReduce},
                                                        {"reduce_scatter", Collective::kReduceScatter},
                                                        {"all_gather", Collective::kAllGather},
                                                        {"broadcast", Collective::kBroadcast},
                                                        {"sendrecv", Collective::kSendRecv}};
const std::map<std::string, Algorithm> kAlgorithms = {{"ring", Algorithm::kRing}, {"direct", Algorithm::kDirect}};

// The arguments as typed, before they are checked.
struct Typed {
  std::string collective = "all_reduce", algorithm = "ring", api, first = "1K", last = "64M", bytes = "16M";
  std::string critical, expected = "schedule", scenario, proof = "word";
  int world = 0;
  bool help_only = false;
};

template <typename Value>
Value Choose(const std::map<std::string, Value>& choices, const std::string& text, const char* option) {
  const auto found = choices.find(text);
  if (found != choices.end()) return found->second;
  std::string names;
  for (const auto& [name, value] : choices) names += (names.empty() ? "" : ", ") + name;
  throw UsageError(fmt::format("{} {}: no such choice; give one of {}", option, text, names));
}

void AddOptions(CLI::App& app, Options& options, Typed& typed) {
  app.add_option("--plugin", options.plugin,
                 "ncclNet plugin to load (file or name); baselines: tcp, and\n"
                 "tcp-threaded: socket calls in a thread of their own")
      ->required();
  app.add_option("--collective", typed.collective, "all_reduce|reduce_scatter|all_gather|broadcast|sendrecv");
  app.add_option("--algorithm", typed.algorithm, "ring (NCCL's) or direct (every rank to every other)");
  AddNumber(app, "--ranks", options.ranks, "fork this many ranks on this host, over loopback");
  AddNumber(app, "--rank", options.rank, "be this rank of --world, one process a host");
  AddNumber(app, "--world", typed.world, "how many ranks there are, with --rank");
  app.add_option("--rendezvous", options.rendezvous, "HOST:PORT or unix:PATH where rank 0 listens, with --rank");
  AddNumber(app, "--timeout", options.timeout_s, "seconds without progress after which the run fails");
  app.add_option("-b", typed.first, "first size (bytes; K, M, G)");
  app.add_option("-e", typed.last, "last size");
  AddNumber(app, "-f", options.factor, "factor between sizes");
  AddNumber(app, "-n", options.iterations, "timed iterations a size");
  AddNumber(app, "-w", options.warmup, "warm-up iterations a size (steps: before the first; default 0 there)");
  app.add_option("--api", typed.api, "v6|v7|...|v12: use this version of the interface only");
  AddNumber(app, "--device", options.device, "device number of the plugin");
  app.add_option("--json", options.json_file, "write the results to this file");
  app.add_option("--ledger", options.ledger_file, "write every forgiven range to this file");
  app.add_option("--trims", options.trims, "what the switch or the fault driver trimmed: file, folder or pattern")
      ->allow_extra_args(true);
  AddNumber(app, "--seed", options.seed, "seed of the data");
  app.add_flag("--check,!--no-check", options.check, "check every result exactly (default)");
  AddNumber(app, "--steps", options.steps, "training-like run of this many steps, one all-reduce each");
  app.add_option("--critical", typed.critical, "numbers of the critical steps, such as 1,2,3,20");
  AddNumber(app, "--compute-ms", options.compute_ms, "pause before each step's all-reduce");
  app.add_option("--bytes", typed.bytes, "gradient size of a step");
  app.add_option("--proof", typed.proof, "word|attributes|profiler|nccl: who says what the messages are for");
  app.add_option("--expected", typed.expected, "schedule: declare a step's bytes; learn: leave it to the plugin");
  app.add_option("--scenario", typed.scenario, "mixed: all kinds of traffic on one set of connections");
}

std::vector<std::uint64_t> ParseSteps(const std::string& option, const std::string& text) {
  std::vector<std::uint64_t> steps;
  std::size_t at = 0;
  while (at < text.size()) {
    const std::size_t comma = std::min(text.find(',', at), text.size());
    std::uint64_t step = 0;
    if (!ParseNumber(std::string_view(text).substr(at, comma - at), 1, UINT64_MAX, &step)) {
      throw UsageError(fmt::format("{}{}: give step numbers from 1 separated by commas", option, text));
    }
    steps.push_back(step);
    at = comma + 1;
  }
  return steps;
}

void CheckRanks(Options& options, const Typed& typed, bool rank_given) {
  if (rank_given && options.rank < 0) throw UsageError(fmt::format("--rank {}: give 0 or more", options.rank));
  if (options.rank >= 0 || typed.world != 0 || !options.rendezvous.empty()) {
    if (options.ranks != 0) throw UsageError("--ranks forks all ranks here: leave out --rank, --world, --rendezvous");
    if (options.rank < 0 || typed.world == 0 || options.rendezvous.empty()) {
      throw UsageError("one process a host needs all three of --rank, --world and --rendezvous HOST:PORT");
    }
    if (options.rank >= typed.world) {
      throw UsageError(fmt::format("--rank {}: must be below --world {}", options.rank, typed.world));
    }
    options.ranks = typed.world;
  } else if (options.ranks == 0) {
    throw UsageError("say how many ranks: --ranks N here, or --rank R --world N --rendezvous HOST:PORT");
  }
  if (options.ranks < 2 || options.ranks > kMostRanks) {
    const char* const option = options.rank < 0 ? "--ranks" : "--world";
    throw UsageError(fmt::format("{} {}: give 2 to {} ranks", option, options.ranks, kMostRanks));
  }
}

void CheckSizes(Options& options, const Typed& typed) {
  options.first_bytes = ParseSize(typed.first, "-b");
  options.last_bytes = ParseSize(typed.last, "-e");
  options.step_bytes = ParseSize(typed.bytes, "--bytes");
  if (options.first_bytes > options.last_bytes) {
    throw UsageError(fmt::format("-b {} is more than -e {}: give the smaller size to -b", typed.first, typed.last));
  }
  if (options.factor < 2 || options.factor > kMostFactor) {
    throw UsageError(fmt::format("-f {}: give a factor from 2 to {}", options.factor, kMostFactor));
  }
  if (options.iterations < 1) throw UsageError(fmt::format("-n {}: give 1 or more", options.iterations));
  if (options.warmup < 0) throw UsageError(fmt::format("-w {}: give 0 or more", options.warmup));
  if (options.timeout_s < 1) throw UsageError(fmt::format("--timeout {}: give 1 or more", options.timeout_s));
  if (options.compute_ms < 0) throw UsageError(fmt::format("--compute-ms {}: give 0 or more", options.compute_ms));
  if (options.device < 0) throw UsageError(fmt::format("--device {}: give 0 or more", options.device));
}

void CheckMode(Options& options, const Typed& typed, bool warmup_given, bool steps_given) {
  if (!typed.scenario.empty() && typed.scenario != "mixed") {
    throw UsageError(fmt::format("--scenario {}: no such scenario; give mixed", typed.scenario));
  }
  if (typed.expected != "schedule" && typed.expected != "learn") {
    throw UsageError(fmt::format("--expected {}: give schedule or learn", typed.expected));
  }
  options.learn_expected = typed.expected == "learn";
  options.critical = ParseSteps("--critical ", typed.critical);
  if (steps_given) {
    if (options.steps < 1) throw UsageError(fmt::format("--steps {}: give 1 or more", options.steps));
    if (!typed.scenario.empty()) throw UsageError("--steps and --scenario exclude each other: give one");
    if (options.collective != Collective::kAllReduce) {
      throw UsageError("--steps runs one all_reduce a step: leave out --collective");
    }
    options.mode = Mode::kSteps;
    if (!warmup_given) options.warmup = 0;
  } else if (!typed.scenario.empty()) {
    if (options.algorithm != Algorithm::kRing)
      throw UsageError("--scenario mixed runs on rings: leave out --algorithm");
    options.mode = Mode::kMixed;
  }
}

}  // namespace

Baseline BaselineOf(const std::string& plugin) {
  if (plugin == "tcp") return Baseline::kTcp;
  return plugin == "tcp-threaded" ? Baseline::kTcpThreaded : Baseline::kNone;
}

const char* NameOf(Collective collective) {
  for (const auto& [name, value] : kCollectives) {
    if (value == collective) return name.c_str();
  }
  return "?";
}

const char* NameOf(Algorithm algorithm) { return algorithm == Algorithm::kRing ? "ring" : "direct"; }

std::int64_t ParseSize(const std::string& text, const std::string& what) {
  const std::string_view units = "KMG";
  const std::size_t unit = text.empty() ? std::string_view::npos : units.find(static_cast<char>(text.back() & ~0x20));
  const bool has_unit = unit != std::string_view::npos;
  const int shift = has_unit ? 10 * (static_cast<int>(unit) + 1) : 0;
  std::int64_t value = 0;
  if (!ParseNumber(std::string_view(text).substr(0, text.size() - has_unit), 1, kMostBytes >> shift, &value)) {
    throw UsageError(fmt::format("{} {}: not a size; give bytes from 4 to 4G, such as 4096, 64K or 16M", what, text));
  }
  value <<= shift;
  if (value < 4) throw UsageError(fmt::format("{} {}: smaller than one float32; give 4 or more", what, text));
  return value;
}

std::optional<Options> ParseOptions(int argc, const char* const* argv) {
  Options options;
  Typed typed;
  CLI::App app("Runs collectives over an ncclNet plugin as NCCL does, and checks every byte.", "forgive_perf");
  AddOptions(app, options, typed);
  try {
    app.parse(argc, argv);
    RefuseEmptyValues(app);
  } catch (const CLI::CallForHelp&) {
    std::cout << app.help();
    return std::nullopt;
  } catch (const CLI::ParseError& error) {
    throw UsageError(OneLine(error) + "; see forgive_perf --help");
  }
  options.collective = Choose(kCollectives, typed.collective, "--collective");
  options.algorithm = Choose(kAlgorithms, typed.algorithm, "--algorithm");
  if (!typed.api.empty()) {
    options.api = Choose<int>({{"v6", 6}, {"v7", 7}, {"v8", 8}, {"v9", 9}, {"v10", 10}, {"v11", 11}, {"v12", 12}},
                              typed.api, "--api");
  }
  options.proof = Choose<Proof>({{"word", Proof::kWord},
                                 {"attributes", Proof::kAttributes},
                                 {"profiler", Proof::kProfiler},
                                 {"nccl", Proof::kNccl}},
                                typed.proof, "--proof");
  if (options.proof != Proof::kWord && options.algorithm != Algorithm::kRing) {
    throw UsageError("--proof: NCCL has no direct all-reduce; leave out --algorithm");
  }
  CheckRanks(options, typed, app.count("--rank") > 0);
  CheckSizes(options, typed);
  CheckMode(options, typed, app.count("-w") > 0, app.count("--steps") > 0);
  return options;
}

std::optional<std::uint32_t> ParsePartsPerMillion(std::string_view text) {
  const std::size_t point = std::min(text.find('.'), text.size());
  const std::string_view whole = text.substr(0, point);
  const std::string_view digits = point < text.size() ? text.substr(point + 1) : std::string_view();
  if (whole.empty() && digits.empty()) return std::nullopt;
  for (const char letter : std::string(whole) + std::string(digits)) {
    if (letter < '0' || letter > '9') return std::nullopt;
  }
  std::uint32_t units = 0;
  for (const char letter : whole)
    units = std::min<std::uint32_t>(2, units * 10 + static_cast<std::uint32_t>(letter - '0'));
  std::uint32_t parts = 0;
  bool more = false;
  for (std::size_t i = 0; i < 6 || i < digits.size(); ++i) {
    const auto digit = i < digits.size() ? static_cast<std::uint32_t>(digits[i] - '0') : 0u;
    if (i < 6) parts = parts * 10 + digit;
    more = more || digit != 0;
  }
  if (units > 1 || (units == 1 && more)) return std::nullopt;
  return units * 1'000'000 + parts;
}

std::uint64_t BudgetBytes(std::uint32_t p_ppm, std::uint64_t expected_bytes) {
  return static_cast<std::uint64_t>(static_cast<unsigned __int128>(p_ppm) * expected_bytes / 1'000'000);
}

namespace {

const char* Variable(const char* name) {
  const char* const value = std::getenv(name);
  return value != nullptr && *value != '\0' ? value : nullptr;
}

void ReadFraction(const char* name, std::uint32_t& ppm) {
  const char* const value = Variable(name);
  if (value == nullptr) return;
  const std::optional<std::uint32_t> parsed = ParsePartsPerMillion(value);
  if (!parsed) throw UsageError(fmt::format("{}={}: give a decimal fraction from 0 to 1, such as 0.1", name, value));
  ppm = *parsed;
}

}  // namespace

Word ReadWord() {
  Word word;
  if (const char* const value = Variable("FORGIVE_GRADIENT_TRAFFIC")) {
    word.by_operator = Choose<int>({{"all", 1}, {"none", 0}}, value, "FORGIVE_GRADIENT_TRAFFIC") == 1;
  }
  word.gradient_traffic = word.by_operator;
  if (const char* const value = Variable("FORGIVE_TRAFFIC_CLASS")) {
    if (!ParseNumber(value, 0, 255, &word.traffic_class)) {
      throw UsageError(fmt::format("FORGIVE_TRAFFIC_CLASS={}: give 0 to 255", value));
    }
  }
  word.by_mark = word.traffic_class >= 0 || Variable("FORGIVE_COMMUNICATOR") != nullptr;
  if (const char* const value = Variable("FORGIVE_STEP")) {
    word.by_operation = Choose<int>({{"api", 0}, {"operation", 1}}, value, "FORGIVE_STEP") == 1;
  }
  if (const char* const value = Variable("FORGIVE_BUDGET_UNIT")) {
    word.contributions = Choose<int>({{"bytes", 0}, {"contributions", 1}}, value, "FORGIVE_BUDGET_UNIT") == 1;
  }
  const char* const detector = Variable("FORGIVE_DETECTOR");
  word.detector_lists_steps = detector != nullptr && std::string_view(detector) == "steps";
  if (const char* const value = Variable("FORGIVE_DETECTOR_STEPS")) {
    word.critical = ParseSteps("FORGIVE_DETECTOR_STEPS=", value);
  }
  if (const char* const value = Variable("FORGIVE_ELIGIBLE")) {
    word.eligible =
        Choose<Eligible>({{"reduce", Eligible::kReduce}, {"all", Eligible::kAll}, {"none", Eligible::kNone}}, value,
                         "FORGIVE_ELIGIBLE");
  }
  ReadFraction("FORGIVE_P_LOW", word.p_low_ppm);
  ReadFraction("FORGIVE_P_HIGH", word.p_high_ppm);
  return word;
}

}  // namespace forgive::perf
