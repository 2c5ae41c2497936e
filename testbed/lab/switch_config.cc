// SPDX-License-Identifier: Apache-2.0
// Reads the loader's configuration file.
#include "testbed/lab/switch_config.h"

#include <cstdio>
#include <fstream>
#include <sstream>

#include "dataplane/parse_number.h"

namespace forgive::lab {
namespace {

struct NumberKey {
  const char* name;
  std::uint32_t forgive_switch_parameters::*field;
  std::uint32_t least;
  std::uint32_t most;
};

constexpr std::uint32_t kMostQueueBytes = 1u << 30;

constexpr NumberKey kNumberKeys[] = {
    {"trim_enabled", &forgive_switch_parameters::trim_enabled, 0, 1},
    {"trim_mode", &forgive_switch_parameters::trim_mode, FORGIVE_TRIM_FULL, FORGIVE_TRIM_RAW},
    // Ethernet, IPv6, UDP and the 56 bytes of a data header must survive.
    {"trim_length", &forgive_switch_parameters::trim_length, 14 + 40 + 8 + 56, 9000},
    {"trim_threshold_bytes", &forgive_switch_parameters::trim_threshold_bytes, 1, kMostQueueBytes},
    {"queue_bytes", &forgive_switch_parameters::queue_bytes, 1, kMostQueueBytes},
    {"ecn_min_bytes", &forgive_switch_parameters::ecn_min_bytes, 0, kMostQueueBytes},
    {"ecn_max_bytes", &forgive_switch_parameters::ecn_max_bytes, 0, kMostQueueBytes},
    {"ecn_probability_ppm", &forgive_switch_parameters::ecn_probability_ppm, 0, 1000000},
    {"dscp_data", &forgive_switch_parameters::dscp_data, 0, 63},
    {"dscp_control", &forgive_switch_parameters::dscp_control, 0, 63},
    {"dscp_trimmed", &forgive_switch_parameters::dscp_trimmed, 0, 63},
    {"header_priority", &forgive_switch_parameters::header_priority, 0, ~0u},
    {"data_priority", &forgive_switch_parameters::data_priority, 0, ~0u},
};

// A file name is the rest of its line: it may hold spaces.
std::string FileName(const std::string& line, const std::string& key) {
  const std::size_t begin = line.find_first_not_of(" \t", line.find(key) + key.size());
  return begin == std::string::npos ? "" : line.substr(begin);
}

// Returns an empty string or what is wrong with this line.
std::string ReadLine(const std::string& key, const std::string& value, const std::string& second,
                     SwitchConfig* config) {
  if (value.empty()) return "has no value";
  if (key == "pins") {
    config->pins = value;
    return "";
  }
  if (key == "trims_log") {
    config->trims_log = value;
    return "";
  }
  if (key == "line") {
    config->line = value;
    return "";
  }
  if (key == "uplink") {
    config->uplinks.push_back(value);
    return "";
  }
  if (key == "port") {
    SwitchPort port{value, {}};
    if (!ParseEthernetAddress(second, &port.host_address)) return "needs an interface and an Ethernet address";
    config->ports.push_back(port);
    return "";
  }
  std::uint64_t number = 0;
  if (key == "virtual_queue" || key == "routed") {
    if (!ParseNumber(value, 0, 1, &number)) return "must be 0 or 1";
    (key == "routed" ? config->routed : config->virtual_queue) = number == 1;
    return "";
  }
  if (key == "drain_bytes_per_second") {
    if (!ParseNumber(value, 0, 1ull << 40, &number)) return "is not a rate";
    config->parameters.drain_bytes_per_second = number;
    return "";
  }
  for (const NumberKey& known : kNumberKeys) {
    if (key != known.name) continue;
    if (!ParseNumber(value, known.least, known.most, &number)) {
      return "must be a number from " + std::to_string(known.least) + " to " + std::to_string(known.most);
    }
    config->parameters.*known.field = static_cast<std::uint32_t>(number);
    return "";
  }
  return "is not a known key";
}

}  // namespace

bool ParseEthernetAddress(const std::string& text, std::array<std::uint8_t, 6>* address) {
  unsigned byte[6];
  int used = 0;
  if (std::sscanf(text.c_str(), "%2x:%2x:%2x:%2x:%2x:%2x%n", &byte[0], &byte[1], &byte[2], &byte[3], &byte[4],
                  &byte[5], &used) != 6 ||
      static_cast<std::size_t>(used) != text.size()) {
    return false;
  }
  for (std::size_t i = 0; i < address->size(); ++i) (*address)[i] = static_cast<std::uint8_t>(byte[i]);
  return true;
}

std::string ReadSwitchConfig(const std::string& path, SwitchConfig* config) {
  std::ifstream file(path);
  if (!file) return path + ": cannot be read";
  std::string line;
  for (int number = 1; std::getline(file, line); ++number) {
    std::istringstream words(line);
    std::string key, value, second;
    words >> key >> value >> second;
    if (key == "pins" || key == "trims_log") value = FileName(line, key);
    if (key.empty() || key[0] == '#') continue;
    const std::string error = ReadLine(key, value, second, config);
    if (!error.empty()) return path + ":" + std::to_string(number) + ": " + key + " " + error;
  }
  const forgive_switch_parameters& parameters = config->parameters;
  if (config->pins.empty()) return path + ": pins is missing";
  if (config->trims_log.empty()) return path + ": trims_log is missing";
  if (config->ports.empty() && config->uplinks.empty()) return path + ": port is missing";
  if (!config->uplinks.empty() && !config->routed) return path + ": uplink needs routed 1";
  if (config->ports.size() + config->uplinks.size() > FORGIVE_SWITCH_MAX_PORTS) {
    return path + ": at most " + std::to_string(FORGIVE_SWITCH_MAX_PORTS) + " ports";
  }
  if (parameters.trim_length == 0) return path + ": trim_length is missing";
  if (parameters.trim_threshold_bytes == 0) return path + ": trim_threshold_bytes is missing";
  if (parameters.queue_bytes == 0) return path + ": queue_bytes is missing";
  if (parameters.ecn_max_bytes < parameters.ecn_min_bytes) return path + ": ecn_max_bytes is below ecn_min_bytes";
  return "";
}

}  // namespace forgive::lab
