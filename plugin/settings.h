// SPDX-License-Identifier: Apache-2.0
// Every environment variable of the plugin, read once at init; nothing else reads the environment.
#ifndef FORGIVE_PLUGIN_SETTINGS_H_
#define FORGIVE_PLUGIN_SETTINGS_H_

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "dataplane/engine.h"
#include "plugin/detector.h"
#include "plugin/log.h"
#include "plugin/name_patterns.h"

namespace forgive {

// Which phases of an all-reduce may lose bytes (docs/using.md, What may be forgiven).
enum class Eligible : uint8_t { kReduce, kAll, kNone };

// NCCL_SOCKET_IFNAME's syntax: names or prefixes by comma; "=" first: exact names; "^" first: all but these.
struct InterfaceFilter {
  std::string variable;  // which variable said so, for messages; empty: no filter
  std::string text;
  bool exclude = false;
  bool exact = false;
  std::vector<std::string> names;
};

enum class FamilyChoice : uint8_t { kAny, kIpv4, kIpv6 };

struct Settings {
  // The engine's and the transport's parameters; `devices` is filled by ToEngineOptions.
  EngineOptions engine;
  bool choose_driver = true;  // FORGIVE_DRIVER=auto: udp or uring, as docs/decisions/0090 says

  InterfaceFilter interfaces;
  FamilyChoice family = FamilyChoice::kAny;
  bool verbs = true;       // whether libibverbs is asked about the devices
  std::string dpdk_error;  // why FORGIVE_DPDK does not parse
  std::vector<std::string> rails;  // interfaces that are one device; none: each is its own
  uint16_t port_low = 0;   // 0: any port
  uint16_t port_high = 0;
  uint32_t mtu_bytes = 0;  // of the path; 0: the device's
  bool link_rate_set = false;
  std::optional<PathPolicy> path_policy;  // unset: by the number of paths

  // The seed's loss probabilities by class of step.
  Fraction p_low{5000};
  Fraction p_high{100000};

  // The operator's word.
  bool gradient_traffic_all = false;
  Eligible eligible = Eligible::kReduce;
  std::optional<int> traffic_class;  // of gradient communicators; unset: all of them, by the operator's word
  NamePatterns communicators;        // names of gradient communicators; none: the name does not matter
  bool step_by_operation = false;    // each proved gradient collective is a step of its own
  uint64_t least_count = 1024;       // elements of a gradient collective, where the profiler says them
  bool profiler = true;              // whether NCCL's profiler may be ours
  uint32_t ring_ranks = 0;           // k; 0: not said
  uint32_t gradient_ranks = 0;       // whose contributions a final value holds; 0: ring_ranks

  DetectorConfig detector;  // of forgive_step_begin_norm

  std::string statistics_file;  // expanded; empty: none
  uint64_t trace_interval_us = 0;
  uint64_t ledger_lines = 1u << 20;
  bool abort_on_error = false;
  std::optional<uint64_t> seed;  // of the draws; unset: the system's randomness
  LogLevel log = LogLevel::kError;

  // What was set, as it was set: for the statistics file.
  std::vector<std::pair<std::string, std::string>> given;
};

using Environment = std::map<std::string, std::string>;

// The process's environment: every FORGIVE_* variable, and the few others that settings take into account.
Environment ReadEnvironment();

// False: *error says in one line which variable, which value, and what is accepted. *warnings gets a line for each
// FORGIVE_* variable that is not known.
bool ParseSettings(const Environment& environment, Settings* out, std::vector<std::string>* warnings,
                   std::string* error);

// One row of the table of variables, for the documentation's check.
struct VariableDescription {
  std::string_view name;
  std::string_view default_text;
  std::string_view accepted;
};
std::vector<VariableDescription> DescribeVariables();

}  // namespace forgive

#endif  // FORGIVE_PLUGIN_SETTINGS_H_
