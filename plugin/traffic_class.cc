// SPDX-License-Identifier: Apache-2.0
// The code point of a traffic class, and which classes are refused.
#include "plugin/traffic_class.h"

namespace forgive {
namespace {

constexpr int kMaxTrafficClass = 255;

}  // namespace

bool FindDscp(const Settings& settings, int traffic_class, uint8_t* dscp, std::string* error) {
  *dscp = kDscpOfDriver;
  if (traffic_class == net::kTrafficClassUntold && settings.traffic_class.has_value()) {
    traffic_class = *settings.traffic_class;
  }
  if (traffic_class < 0) return true;
  const std::string name = "traffic class " + std::to_string(traffic_class);
  if (traffic_class > kMaxTrafficClass) {
    *error = name + ": accepted are 0 to 255, the IP type of service whose upper six bits become the packets' DSCP";
    return false;
  }
  const int code = traffic_class >> 2;
  const bool trimmed = code == settings.engine.dscp_trimmed;
  if (trimmed || code == settings.engine.dscp_control) {
    *error = name + " is DSCP " + std::to_string(code) + ", which is that of " +
             (trimmed ? "trimmed packets (FORGIVE_DSCP_TRIMMED)" : "control packets (FORGIVE_DSCP_CONTROL)") +
             ": give the communicator another class, or change the variable";
    return false;
  }
  *dscp = static_cast<uint8_t>(code);
  return true;
}

}  // namespace forgive
