// SPDX-License-Identifier: Apache-2.0
// Any environment to the plugin's settings: what is accepted is in bounds, what is refused is named in one line.
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "plugin/settings.h"
#include "script.h"
#include "transport/check.h"

namespace forgive {
namespace {

// Lines of a number and a value: the number-th variable there is. Other lines are NAME=VALUE as they stand.
Environment EnvironmentOf(const std::string& text) {
  static const std::vector<VariableDescription> variables = DescribeVariables();
  Environment environment;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    const std::string line = text.substr(begin, end - begin);
    begin = end + 1;
    const size_t equals = line.find('=');
    if (line.empty() || line.find('\0') != std::string::npos) continue;
    if (equals != std::string::npos && equals > 1) {
      environment[line.substr(0, equals)] = line.substr(equals + 1);
    } else {
      const auto& variable = variables[static_cast<uint8_t>(line[0]) % variables.size()];
      environment[std::string(variable.name)] = line.substr(line.size() > 1 && line[1] == '=' ? 2 : 1);
    }
  }
  return environment;
}

void CheckBounds(const Settings& settings) {
  const Config& config = settings.engine.transport;
  FORGIVE_CHECK(config.max_payload_bytes >= kUnitBytes && config.max_payload_bytes <= kMaxPayloadBytes);
  FORGIVE_CHECK(config.max_payload_bytes % kUnitBytes == 0);
  FORGIVE_CHECK(config.max_connections >= 2 && config.max_connections <= 65536);
  FORGIVE_CHECK(config.forgiveness_probability.ppm <= Fraction::kOne);
  FORGIVE_CHECK(config.window_bytes >= 4096);
  FORGIVE_CHECK(config.rails >= 1 && config.rails <= kMaxRails);
  FORGIVE_CHECK(config.paths >= config.rails && config.paths <= 8 && config.paths % config.rails == 0);
  FORGIVE_CHECK(config.min_rto >= Microseconds(100) && config.max_rto >= config.min_rto);
  FORGIVE_CHECK(config.peer_timeout >= Seconds(1));
  FORGIVE_CHECK(config.report_every_packets >= 1);
  FORGIVE_CHECK(settings.p_low.ppm <= Fraction::kOne && settings.p_high.ppm <= Fraction::kOne);
  FORGIVE_CHECK(settings.engine.dscp_data < 64 && settings.engine.dscp_control < 64);
  FORGIVE_CHECK(settings.engine.dscp_trimmed < 64);
  FORGIVE_CHECK(settings.port_low <= settings.port_high);
  FORGIVE_CHECK(!settings.traffic_class || (*settings.traffic_class >= 0 && *settings.traffic_class < 256));
}

}  // namespace
}  // namespace forgive

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace forgive;
  const std::string text(reinterpret_cast<const char*>(data), size);
  const Environment environment = EnvironmentOf(text);
  Settings settings;
  std::vector<std::string> warnings;
  std::string error;
  const bool good = ParseSettings(environment, &settings, &warnings, &error);
  FORGIVE_CHECK(good == error.empty());
  for (const std::string& warning : warnings) FORGIVE_CHECK(!warning.empty());
  if (!good) {
    FORGIVE_CHECK(error.find('\n') == std::string::npos);
    FORGIVE_CHECK(error.find("FORGIVE_") != std::string::npos || error.find("NCCL_") != std::string::npos);
    return 0;
  }
  CheckBounds(settings);
  // What was set is remembered as it was: given back, with what is not ours, it means the same.
  Environment given(settings.given.begin(), settings.given.end());
  for (const auto& [name, value] : environment) {
    if (!name.starts_with("FORGIVE_")) given[name] = value;
  }
  Settings again;
  FORGIVE_CHECK(ParseSettings(given, &again, &warnings, &error));
  FORGIVE_CHECK(again.given == settings.given);
  return 0;
}
