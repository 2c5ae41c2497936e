// SPDX-License-Identifier: Apache-2.0
// The table of environment variables and how each is read.
#include "plugin/settings.h"

#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <climits>
#include <cstring>

#include "dataplane/fault_driver.h"
#include "dataplane/parse_fraction.h"
#include "dataplane/parse_number.h"
#include "dataplane/socket_address.h"
#include "dataplane/udp_driver.h"
#include "plugin/parse.h"
#include "plugin/settings_check.h"

extern char** environ;

namespace forgive {
namespace {

enum class Outcome { kOk, kBad };

constexpr uint64_t kMaxMicroseconds = 1000000000;  // a thousand seconds
constexpr uint64_t kMaxBytes = uint64_t{1} << 40;
constexpr uint32_t kMaxRanks = 1u << 16;

struct Variable {
  const char* name;
  const char* default_text;
  const char* accepted;
  Outcome (*read)(const std::string& text, Settings* out);
};

Outcome Good(bool ok) { return ok ? Outcome::kOk : Outcome::kBad; }

// Reads an integer into a field of any integer type that holds `high`.
template <typename T>
Outcome Integer(const std::string& text, uint64_t low, uint64_t high, T* out) {
  uint64_t value = 0;
  if (!ParseNumber(text, low, high, &value)) return Outcome::kBad;
  *out = static_cast<T>(value);
  return Outcome::kOk;
}

Outcome Duration(const std::string& text, uint64_t low_us, Nanoseconds* out) {
  uint64_t value = 0;
  if (!ParseNumber(text, low_us, kMaxMicroseconds, &value)) return Outcome::kBad;
  *out = Microseconds(static_cast<int64_t>(value));
  return Outcome::kOk;
}

InterfaceFilter ParseInterfaces(const char* variable, const std::string& text) {
  InterfaceFilter filter;
  filter.variable = variable;
  filter.text = text;
  std::string_view rest = text;
  if (!rest.empty() && rest.front() == '^') {
    filter.exclude = true;
    rest.remove_prefix(1);
  }
  if (!rest.empty() && rest.front() == '=') {
    filter.exact = true;
    rest.remove_prefix(1);
  }
  for (std::string& name : SplitList(rest, ',')) {
    name.resize(std::min(name.size(), name.find(':')));  // NCCL allows name:port; the port is not ours
    if (!name.empty()) filter.names.push_back(name);
  }
  return filter;
}

Outcome Interface(const std::string& text, Settings* out) {
  out->interfaces = ParseInterfaces("FORGIVE_INTERFACE", text);
  return Good(!out->interfaces.names.empty());
}

Outcome Rails(const std::string& text, Settings* out) {
  out->rails = SplitList(text, ',');
  out->engine.transport.rails = static_cast<uint32_t>(out->rails.size());
  std::vector<std::string> names = out->rails;
  std::ranges::sort(names);
  const bool distinct = std::ranges::adjacent_find(names) == names.end();
  return Good(names.size() >= 2 && names.size() <= kMaxRails && distinct);
}

Outcome DriverName(const std::string& text, Settings* out) {
  out->choose_driver = text == "auto";
  if (!out->choose_driver) out->engine.driver = text;
  return Good(out->choose_driver || text == "udp" || text == "uring" || text == "dpdk");
}

// What is wrong with it is said by CheckTogether, word by word.
Outcome DpdkPorts(const std::string& text, Settings* out) {
  (void)ParseDpdkOptions(text, &out->engine.dpdk, &out->dpdk_error);
  return Good(!text.empty());
}

Outcome CongestionControlName(const std::string& text, Settings* out) {
  CongestionControlKind* kind = &out->engine.transport.congestion_control;
  if (text == "dcqcn-paper") {
    *kind = CongestionControlKind::kDcqcnPaper;
  } else if (text == "dcqcn-astra") {
    *kind = CongestionControlKind::kDcqcnAstra;
  } else if (text == "nscc") {
    *kind = CongestionControlKind::kNscc;
  } else if (text == "none") {
    *kind = CongestionControlKind::kNone;
  } else {
    return Outcome::kBad;
  }
  return Outcome::kOk;
}

Outcome EligibleName(const std::string& text, Settings* out) {
  if (text == "reduce") {
    out->eligible = Eligible::kReduce;
  } else if (text == "all") {
    out->eligible = Eligible::kAll;
  } else if (text == "none") {
    out->eligible = Eligible::kNone;
  } else {
    return Outcome::kBad;
  }
  return Outcome::kOk;
}

Outcome LogName(const std::string& text, Settings* out) {
  constexpr const char* kNames[] = {"none", "error", "warning", "info", "debug"};
  for (int i = 0; i < 5; ++i) {
    if (text == kNames[i]) {
      out->log = static_cast<LogLevel>(i);
      return Outcome::kOk;
    }
  }
  return Outcome::kBad;
}

Outcome LinkRate(const std::string& text, Settings* out) {
  uint64_t mbps = 0;
  if (!ParseNumber(text, 1, 10000000, &mbps)) return Outcome::kBad;
  out->engine.transport.link_rate.value = mbps * 1000000;
  out->link_rate_set = true;
  return Outcome::kOk;
}

Outcome MaxPayload(const std::string& text, Settings* out) {
  uint64_t bytes = 0;
  if (!ParseNumber(text, kUnitBytes, kMaxPayloadBytes, &bytes)) return Outcome::kBad;
  out->engine.transport.max_payload_bytes = static_cast<uint32_t>(bytes / kUnitBytes * kUnitBytes);
  return Outcome::kOk;
}

Outcome Cpu(const std::string& text, Settings* out) {
  uint64_t cpu = 0;
  cpu_set_t allowed;
  if (!ParseNumber(text, 0, CPU_SETSIZE - 1, &cpu)) return Outcome::kBad;
  out->engine.cpu = static_cast<int>(cpu);
  return Good(sched_getaffinity(0, sizeof(allowed), &allowed) == 0 && CPU_ISSET(cpu, &allowed));
}

Outcome Seed(const std::string& text, Settings* out) {
  uint64_t seed = 0;
  if (!ParseNumber(text, &seed)) return Outcome::kBad;
  out->seed = seed;
  return Outcome::kOk;
}

Outcome DetectorName(const std::string& text, Settings* out) {
  if (text == "accordion") {
    out->detector.kind = DetectorKind::kAccordion;
  } else if (text == "dblp") {
    out->detector.kind = DetectorKind::kDblp;
  } else if (text == "steps") {
    out->detector.kind = DetectorKind::kSteps;
  } else {
    return Outcome::kBad;
  }
  return Outcome::kOk;
}

Outcome DetectorThreshold(const std::string& text, Settings* out) {
  uint64_t millionths = 0;
  if (!ParseMillionths(text, 1000, &millionths) || millionths == 0) return Outcome::kBad;
  out->detector.threshold = static_cast<double>(millionths) / 1e6;
  return Outcome::kOk;
}

Outcome DetectorSteps(const std::string& text, Settings* out) {
  out->detector.steps.clear();
  for (const std::string& part : SplitList(text, ',')) {
    uint64_t step = 0;
    if (!ParseNumber(part, &step)) return Outcome::kBad;
    out->detector.steps.push_back(step);
  }
  return Good(!out->detector.steps.empty());
}

Outcome PeerTimeout(const std::string& text, Settings* out) {
  uint64_t seconds = 0;
  if (!ParseNumber(text, 1, 86400, &seconds)) return Outcome::kBad;
  out->engine.transport.peer_timeout = Seconds(static_cast<int64_t>(seconds));
  return Outcome::kOk;
}

Outcome PathPolicyName(const std::string& text, Settings* out) {
  if (text == "single") {
    out->path_policy = PathPolicy::kSingle;
  } else if (text == "oblivious") {
    out->path_policy = PathPolicy::kOblivious;
  } else if (text == "reps") {
    out->path_policy = PathPolicy::kReps;
  } else {
    return Outcome::kBad;
  }
  return Outcome::kOk;
}

Outcome Restart(const std::string& text, Settings* out) {
  out->engine.transport.congestion_restart = text == "step" ? CongestionRestart::kAtStep : CongestionRestart::kOff;
  return Good(text == "step" || text == "never");
}

// The one table of variables, in the order of docs/using.md.
constexpr Variable kVariables[] = {
    {"FORGIVE_DRIVER", "auto", "auto, udp, uring or dpdk", DriverName},
    {"FORGIVE_DPDK", "af_packet on each interface", "ports and memory of DPDK, as docs/dpdk.md says", DpdkPorts},
    {"FORGIVE_INTERFACE", "NCCL_SOCKET_IFNAME",
     "a list of interface names or prefixes by comma, after = exact names, after ^ all but these", Interface},
    {"FORGIVE_VERBS", "1", "0 or 1 (0: libibverbs is not asked)",
     [](const std::string& t, Settings* s) { return Good(ParseSwitch(t, &s->verbs)); }},
    {"FORGIVE_RAILS", "each interface is a device", "two to four interface names by comma", Rails},
    {"FORGIVE_PORT_RANGE", "any", "PORT or LOW-HIGH, from 1 to 65535",
     [](const std::string& t, Settings* s) { return Good(ParsePortRange(t, &s->port_low, &s->port_high)); }},
    {"FORGIVE_PATHS", "1", "an integer from 1 to 8",
     [](const std::string& t, Settings* s) { return Integer(t, 1, kMostUdpPaths, &s->engine.transport.paths); }},
    {"FORGIVE_PATH_POLICY", "single, or reps where FORGIVE_PATHS is above 1", "single, oblivious or reps",
     PathPolicyName},
    {"FORGIVE_MTU", "the device's", "the path's MTU in bytes, from 256 to 65535",
     [](const std::string& t, Settings* s) { return Integer(t, 256, 65535, &s->mtu_bytes); }},
    {"FORGIVE_MAX_PAYLOAD", "4096", "bytes from 16 to 4096 (rounded down to a multiple of 16)", MaxPayload},
    {"FORGIVE_MAX_CONNECTIONS", "4096", "an integer from 2 to 65536",
     [](const std::string& t, Settings* s) { return Integer(t, 2, 65536, &s->engine.transport.max_connections); }},
    {"FORGIVE_P_LOW", "0.005", "a fraction from 0 to 1 with at most six decimals",
     [](const std::string& t, Settings* s) { return Good(ParseFraction(t, &s->p_low)); }},
    {"FORGIVE_P_HIGH", "0.1", "a fraction from 0 to 1 with at most six decimals",
     [](const std::string& t, Settings* s) { return Good(ParseFraction(t, &s->p_high)); }},
    {"FORGIVE_P", "1", "a fraction from 0 to 1 with at most six decimals (0: exemption alone)",
     [](const std::string& t, Settings* s) {
       return Good(ParseFraction(t, &s->engine.transport.forgiveness_probability));
     }},
    {"FORGIVE_GRADIENT_TRAFFIC", "none", "all or none",
     [](const std::string& t, Settings* s) {
       s->gradient_traffic_all = t == "all";
       return Good(t == "all" || t == "none");
     }},
    {"FORGIVE_RING_RANKS", "not said", "an integer from 2 to 65536 (k of the ring; 2 for direct)",
     [](const std::string& t, Settings* s) { return Integer(t, 2, kMaxRanks, &s->ring_ranks); }},
    {"FORGIVE_GRADIENT_RANKS", "FORGIVE_RING_RANKS", "an integer from 2 to 65536",
     [](const std::string& t, Settings* s) { return Integer(t, 2, kMaxRanks, &s->gradient_ranks); }},
    {"FORGIVE_ELIGIBLE", "reduce", "reduce, all or none", EligibleName},
    {"FORGIVE_STEP", "api", "api or operation",
     [](const std::string& t, Settings* s) {
       s->step_by_operation = t == "operation";
       return Good(t == "api" || t == "operation");
     }},
    {"FORGIVE_BUDGET_UNIT", "bytes", "bytes or contributions",
     [](const std::string& t, Settings* s) {
       s->engine.transport.budget_unit = t == "contributions" ? BudgetUnit::kContributions : BudgetUnit::kBytes;
       return Good(t == "bytes" || t == "contributions");
     }},
    {"FORGIVE_DETECTOR", "accordion", "accordion, dblp or steps", DetectorName},
    {"FORGIVE_DETECTOR_WINDOW", "10", "steps from 1 to 1073741824",
     [](const std::string& t, Settings* s) { return Integer(t, 1, kMaxDetectorWindow, &s->detector.window); }},
    {"FORGIVE_DETECTOR_THRESHOLD", "0.5", "a number above 0 and up to 1000 with at most six decimals",
     DetectorThreshold},
    {"FORGIVE_DETECTOR_STEPS", "1,2,3,20", "step numbers by comma", DetectorSteps},
    {"FORGIVE_TRAFFIC_CLASS", "not said", "an integer from 0 to 255 (NCCL 2.26 and later say a communicator's)",
     [](const std::string& t, Settings* s) { return Integer(t, 0, 255, &s->traffic_class.emplace(0)); }},
    {"FORGIVE_COMMUNICATOR", "any",
     "a list of names by comma with * and ?, after ^ all but these (NCCL 2.27 and later say a name)",
     [](const std::string& t, Settings* s) { return Good(ParseNamePatterns(t, &s->communicators)); }},
    {"FORGIVE_LEAST_COUNT", "1024", "elements from 1 to 1099511627776",
     [](const std::string& t, Settings* s) { return Integer(t, 1, kMaxBytes, &s->least_count); }},
    {"FORGIVE_PROFILER", "1", "0 or 1 (0: stays out of the way of another profiler)",
     [](const std::string& t, Settings* s) { return Good(ParseSwitch(t, &s->profiler)); }},
    {"FORGIVE_TRIM", "1", "0 or 1 (1: the fabric trims)",
     [](const std::string& t, Settings* s) { return Good(ParseSwitch(t, &s->engine.transport.fabric_trims)); }},
    {"FORGIVE_TRIM_NEEDS_DSCP", "0", "0 or 1 (1: a trim also carries FORGIVE_DSCP_TRIMMED)",
     [](const std::string& t, Settings* s) { return Good(ParseSwitch(t, &s->engine.require_trimmed_dscp)); }},
    {"FORGIVE_DSCP_DATA", "10", "an integer from 0 to 63",
     [](const std::string& t, Settings* s) { return Integer(t, 0, 63, &s->engine.dscp_data); }},
    {"FORGIVE_DSCP_CONTROL", "46", "an integer from 0 to 63",
     [](const std::string& t, Settings* s) { return Integer(t, 0, 63, &s->engine.dscp_control); }},
    {"FORGIVE_DSCP_TRIMMED", "11", "an integer from 0 to 63",
     [](const std::string& t, Settings* s) { return Integer(t, 0, 63, &s->engine.dscp_trimmed); }},
    {"FORGIVE_CC", "dcqcn-paper", "dcqcn-paper, dcqcn-astra, nscc or none", CongestionControlName},
    {"FORGIVE_CC_RESTART", "step", "step or never", Restart},
    {"FORGIVE_LINK_RATE_MBPS", "the device's", "an integer from 1 to 10000000", LinkRate},
    {"FORGIVE_BASE_RTT_US", "the least measured", "microseconds from 1 to 1000000000",
     [](const std::string& t, Settings* s) { return Duration(t, 1, &s->engine.transport.base_rtt); }},
    {"FORGIVE_WINDOW_BYTES", "1048576", "bytes from 4096 to 1099511627776",
     [](const std::string& t, Settings* s) {
       return Integer(t, 4096, kMaxBytes, &s->engine.transport.window_bytes);
     }},
    {"FORGIVE_RTO_US", "20000", "microseconds from 100 to 1000000000 (the least retransmission timeout)",
     [](const std::string& t, Settings* s) { return Duration(t, 100, &s->engine.transport.min_rto); }},
    {"FORGIVE_REPORT_EVERY", "16", "packets from 1 to 1024",
     [](const std::string& t, Settings* s) {
       return Integer(t, 1, 1024, &s->engine.transport.report_every_packets);
     }},
    {"FORGIVE_PEER_TIMEOUT_S", "30", "seconds from 1 to 86400", PeerTimeout},
    {"FORGIVE_CRC", "1", "0 or 1 (0: payloads carry no CRC32C)",
     [](const std::string& t, Settings* s) { return Good(ParseSwitch(t, &s->engine.transport.payload_crc)); }},
    {"FORGIVE_RECEIVE_BUFFER_BYTES", "67108864", "bytes from 65536 to 1073741824",
     [](const std::string& t, Settings* s) { return Integer(t, 65536, 1u << 30, &s->engine.receive_buffer_bytes); }},
    {"FORGIVE_BUSY_POLL", "0", "0 or 1 (1: the poll thread never sleeps)",
     [](const std::string& t, Settings* s) { return Good(ParseSwitch(t, &s->engine.busy_poll)); }},
    {"FORGIVE_CPU", "any", "the number of a CPU that the process may use", Cpu},
    {"FORGIVE_SEED", "random", "an integer from 0 to 18446744073709551615", Seed},
    {"FORGIVE_FAULT", "none",
     "trim=, drop=, duplicate=, reorder=, corrupt= with fractions, delay_us=, seed=; by comma (tests)",
     [](const std::string& t, Settings* s) {
       s->engine.fault = t;
       FaultSpec spec;
       std::string detail;
       return Good(!t.empty() && ParseFaultSpec(t, &spec, &detail));
     }},
    {"FORGIVE_FAULT_LOG", "none", "the name of a file",
     [](const std::string& t, Settings* s) {
       s->engine.fault_log = t;
       return Good(!t.empty());
     }},
    {"FORGIVE_RELAY", "none", "ADDRESS:PORT of a user-space relay that stands for the switch",
     [](const std::string& t, Settings* s) {
       s->engine.relay = t;
       Address relay;
       return Good(ParseAddressAndPort(t, &relay));
     }},
    {"FORGIVE_STATS", "none", "the name of a file; %h: host, %p: process, %r: rank as the launcher says, %%: %",
     [](const std::string& t, Settings* s) {
       s->statistics_file = t;
       return Good(!t.empty());
     }},
    {"FORGIVE_TRACE_INTERVAL_US", "no samples", "microseconds from 100 to 1000000000",
     [](const std::string& t, Settings* s) { return Integer(t, 100, kMaxMicroseconds, &s->trace_interval_us); }},
    {"FORGIVE_LEDGER_LINES", "1048576", "an integer from 1 to 1073741824",
     [](const std::string& t, Settings* s) { return Integer(t, 1, 1u << 30, &s->ledger_lines); }},
    {"FORGIVE_LOG", "error", "none, error, warning, info or debug", LogName},
    {"FORGIVE_ABORT_ON_ERROR", "0", "0 or 1 (1: abort the process where NCCL would get an error)",
     [](const std::string& t, Settings* s) { return Good(ParseSwitch(t, &s->abort_on_error)); }},
};

constexpr const char* kForeignVariables[] = {"NCCL_SOCKET_IFNAME", "NCCL_SOCKET_FAMILY", "NCCL_DEBUG"};
// Names the library for the Python package; nothing to us.
constexpr const char* kPythonVariable = "FORGIVE_LIBRARY";
const Variable* FindVariable(const std::string& name) {
  for (const Variable& variable : kVariables) {
    if (name == variable.name) return &variable;
  }
  return nullptr;
}

// What NCCL's own variables say where ours are silent.
bool ReadNcclVariables(const Environment& environment, Settings* out, std::string* error) {
  const std::string* names = FindVariableIn(environment, "NCCL_SOCKET_IFNAME");
  if (out->interfaces.variable.empty() && names != nullptr && !names->empty()) {
    out->interfaces = ParseInterfaces("NCCL_SOCKET_IFNAME", *names);
  }
  if (const std::string* family = FindVariableIn(environment, "NCCL_SOCKET_FAMILY");
      family != nullptr && !family->empty()) {
    if (*family == "AF_INET") {
      out->family = FamilyChoice::kIpv4;
    } else if (*family == "AF_INET6") {
      out->family = FamilyChoice::kIpv6;
    } else {
      *error = "NCCL_SOCKET_FAMILY=" + *family + ": accepted are AF_INET and AF_INET6";
      return false;
    }
  }
  // NCCL shows our lines itself at these levels; then standard error would only repeat them.
  if (const std::string* debug = FindVariableIn(environment, "NCCL_DEBUG");
      debug != nullptr && FindVariableIn(environment, "FORGIVE_LOG") == nullptr) {
    std::string level = *debug;
    for (char& c : level) c = static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
    if (level == "WARN" || level == "INFO" || level == "ABORT" || level == "TRACE") out->log = LogLevel::kNone;
  }
  return true;
}

}  // namespace

Environment ReadEnvironment() {
  Environment environment;
  for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry) {
    const char* equals = std::strchr(*entry, '=');
    if (equals == nullptr) continue;
    const std::string name(*entry, static_cast<size_t>(equals - *entry));
    const auto named = [&name](const char* other) { return name == other; };
    if (name.starts_with("FORGIVE_") || std::ranges::any_of(kForeignVariables, named) ||
        std::ranges::any_of(kRankVariables, named)) {
      environment[name] = equals + 1;
    }
  }
  return environment;
}

bool ParseSettings(const Environment& environment, Settings* out, std::vector<std::string>* warnings,
                   std::string* error) {
  for (const auto& [name, text] : environment) {
    if (!name.starts_with("FORGIVE_") || name == kPythonVariable) continue;
    const Variable* variable = FindVariable(name);
    if (variable == nullptr) {
      warnings->push_back(name + ": no such variable, ignored (docs/using.md lists them)");
      continue;
    }
    const Outcome outcome = variable->read(text, out);
    if (outcome != Outcome::kOk) {
      *error = name + "=" + text + ": accepted: " + variable->accepted;
      return false;
    }
    out->given.emplace_back(name, text);
  }
  if (!ReadNcclVariables(environment, out, error)) return false;
  if (out->gradient_ranks == 0) out->gradient_ranks = out->ring_ranks;
  // A least timeout above the largest one there would be moves it up: who waits that long never backs off.
  Config& transport = out->engine.transport;
  transport.max_rto = std::max(transport.max_rto, transport.min_rto);
  // The variables say what one rail has.
  transport.paths *= transport.rails;
  transport.link_rate.value *= transport.rails;
  transport.path_policy = out->path_policy.value_or(transport.paths == 1 ? PathPolicy::kSingle : PathPolicy::kReps);
  return CheckTogether(*out, warnings, error) &&
         (out->statistics_file.empty() || ExpandFileName(environment, &out->statistics_file, error));
}

std::vector<VariableDescription> DescribeVariables() {
  std::vector<VariableDescription> rows;
  for (const Variable& variable : kVariables) {
    rows.push_back({variable.name, variable.default_text, variable.accepted});
  }
  return rows;
}

}  // namespace forgive
