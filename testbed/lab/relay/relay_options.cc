// SPDX-License-Identifier: Apache-2.0
// The relay's command line and its TOML file.
#include "testbed/lab/relay/relay_options.h"

#include <cstddef>
#include <fstream>
#include <sstream>
#include <string_view>
#include <vector>

#include "dataplane/parse_number.h"
#include "testbed/entry_lib/plain_toml.h"
#include "testbed/entry_lib/toml_plus_plus.h"

namespace forgive::lab {

const char kRelayUsage[] =
    "forgive_relay: a trimming switch in user space, on loopback, for machines where nobody is root.\n"
    "\n"
    "  --config FILE       parameters: the table [lab] of a TOML file, as `lab up` reads it\n"
    "  --variant NAME      [NAME.lab] overrides [lab]; [userspace.lab] overrides both\n"
    "  --listen HOST:PORT  numeric IPv4 (127.0.0.1:0: any free port)\n"
    "  --trims-log FILE    appends a line for each cut: trim CONNECTION MESSAGE OFFSET LENGTH\n"
    "  --statistics FILE   counters as JSON, rewritten while they change and at the end\n"
    "  --max-seconds N     ends by itself (3600)\n"
    "  --KEY VALUE         one parameter: rate_mbps, uplink_share, rtt_us, ecn_min_bytes, ecn_max_bytes,\n"
    "                      ecn_probability, trim_threshold_bytes, queue_bytes, header_queue_bytes, header_share, "
    "seed\n"
    "\n"
    "Prints `ready HOST:PORT` (the value for FORGIVE_RELAY) once it listens. Ends on SIGINT and SIGTERM.\n";

namespace {

struct WholeKey {
  std::string_view name;
  int64_t RelayParameters::*member;
  int64_t least;
  int64_t most;
};
struct ShareKey {
  std::string_view name;
  double RelayParameters::*member;
  double least;  // excluded
  double most;
};

constexpr WholeKey kWholeKeys[] = {
    {"rate_mbps", &RelayParameters::rate_mbps, 1, 100000},
    {"rtt_us", &RelayParameters::rtt_us, 0, 10000000},
    {"ecn_min_bytes", &RelayParameters::ecn_min_bytes, 0, 1 << 30},
    {"ecn_max_bytes", &RelayParameters::ecn_max_bytes, 1, 1 << 30},
    {"trim_threshold_bytes", &RelayParameters::trim_threshold_bytes, 0, 1 << 30},
    {"queue_bytes", &RelayParameters::queue_bytes, 1, 1 << 30},
    {"header_queue_bytes", &RelayParameters::header_queue_bytes, 1, 1 << 30},
};
constexpr ShareKey kShareKeys[] = {
    {"uplink_share", &RelayParameters::uplink_share, 0.01, 100},
    {"ecn_probability", &RelayParameters::ecn_probability, -1e-9, 1},
    {"header_share", &RelayParameters::header_share, 0.001, 1},
};

// Sets one parameter. False with *known set: the value is out of range.
bool SetParameter(std::string_view name, double value, RelayParameters* parameters, bool* known,
                  std::string* allowed) {
  *known = true;
  std::ostringstream range;
  for (const WholeKey& key : kWholeKeys) {
    if (key.name != name) continue;
    range << "a whole number from " << key.least << " to " << key.most;
    *allowed = range.str();
    const auto whole = static_cast<int64_t>(value);
    parameters->*key.member = whole;
    return static_cast<double>(whole) == value && whole >= key.least && whole <= key.most;
  }
  for (const ShareKey& key : kShareKeys) {
    if (key.name != name) continue;
    range << "a number above " << (key.least < 0 ? 0 : key.least) << ", at most " << key.most;
    *allowed = range.str();
    parameters->*key.member = value;
    return value > key.least && value <= key.most;
  }
  if (name == "seed") {
    *allowed = "a whole number";
    parameters->seed = static_cast<uint64_t>(value);
    return value >= 0 && value <= 0x1p53;
  }
  *known = false;
  return false;
}

// Reads one table. What the relay has no use for (hosts, trim_mode, ...) is left to other readers.
bool ReadTable(const toml::node_view<toml::node>& table, const std::string& where, RelayParameters* parameters,
               std::string* error) {
  if (!table) return true;
  if (!table.is_table()) {
    *error = where + " is not a table";
    return false;
  }
  for (const auto& [key, node] : *table.as_table()) {
    const std::string name(key.str());
    const auto value = node.value<double>();
    bool known = false;
    std::string allowed;
    // The lab counts in milliseconds.
    const bool milliseconds = name == "rtt_ms";
    RelayParameters changed = *parameters;
    const bool good = SetParameter(milliseconds ? "rtt_us" : name, value.value_or(-1) * (milliseconds ? 1000 : 1),
                                   &changed, &known, &allowed);
    if (!known) continue;
    if (!good || !value) {
      *error = where + "." + name + ": give " + allowed;
      return false;
    }
    *parameters = changed;
  }
  return true;
}

bool ReadConfig(const std::string& path, const std::string& variant, RelayParameters* parameters,
                std::string* error) {
  try {
    std::ifstream stream(path);
    std::ostringstream content;
    if (!(stream && content << stream.rdbuf())) {
      *error = path + ": cannot be read";
      return false;
    }
    const size_t line = LineBeyondAscii(content.view());
    if (line != 0) {
      *error = path + ":" + std::to_string(line) + ": " + std::string(kNotPlainToml);
      return false;
    }
    toml::table file = toml::parse(content.view(), path);
    if (!file["lab"]) {
      *error = path + ": the table [lab] is missing";
      return false;
    }
    if (!variant.empty() && !file[variant]) {
      *error = path + ": there is no variant " + variant + " ([" + variant + ".lab])";
      return false;
    }
    if (!ReadTable(file["lab"], path + ": lab", parameters, error)) return false;
    if (!variant.empty() && !ReadTable(file[variant]["lab"], path + ": " + variant + ".lab", parameters, error)) {
      return false;
    }
    return ReadTable(file["userspace"]["lab"], path + ": userspace.lab", parameters, error);
  } catch (const toml::parse_error& problem) {
    std::ostringstream text;
    text << path << ": " << problem.description() << " (" << problem.source().begin << ")";
    *error = text.str();
    return false;
  }
}

bool ParseListen(const std::string& text, RelayOptions* out) {
  const size_t colon = text.rfind(':');
  if (colon == std::string::npos) return false;
  out->listen_host = text.substr(0, colon);
  return ParseNumber(std::string_view(text).substr(colon + 1), &out->listen_port);
}

}  // namespace

bool ParseRelayOptions(int argc, const char* const* argv, RelayOptions* out, std::string* error) {
  std::string config;
  std::string variant;
  std::vector<std::pair<std::string, std::string>> parameters;
  for (int i = 1; i < argc; ++i) {
    const std::string flag = argv[i];
    if (flag == "--help" || flag == "-h") {
      out->help = true;
      return true;
    }
    if (flag.rfind("--", 0) != 0 || i + 1 == argc) {
      *error = flag + ": options are --NAME VALUE; see --help";
      return false;
    }
    const std::string value = argv[++i];
    bool good = true;
    if (flag == "--config") {
      config = value;
    } else if (flag == "--variant") {
      variant = value;
    } else if (flag == "--listen") {
      good = ParseListen(value, out);
    } else if (flag == "--trims-log") {
      out->trims_log = value;
    } else if (flag == "--statistics") {
      out->statistics = value;
    } else if (flag == "--max-seconds") {
      good = ParseNumber(value, 1, INT64_MAX, &out->max_seconds);
    } else {
      parameters.emplace_back(flag.substr(2), value);
    }
    if (!good) {
      *error = flag + " " + value + ": not understood; see --help";
      return false;
    }
  }
  if (config.empty() && !variant.empty()) {
    *error = "--variant " + variant + ": give the file that has it with --config";
    return false;
  }
  if (!config.empty() && !ReadConfig(config, variant, &out->parameters, error)) return false;
  for (const auto& [name, value] : parameters) {
    double number = -1;
    bool known = true;
    std::string allowed = "a number";
    if (ParseNumber(value, &number) && SetParameter(name, number, &out->parameters, &known, &allowed)) continue;
    *error = known ? "--" + name + " " + value + ": give " + allowed : "--" + name + ": not known; see --help";
    return false;
  }
  return true;
}

}  // namespace forgive::lab
