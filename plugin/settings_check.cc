// SPDX-License-Identifier: Apache-2.0
// Settings against each other, and file names that need the environment.
#include "plugin/settings_check.h"

#include <unistd.h>

#include <climits>

#include "dataplane/udp_driver.h"
#include "plugin/traffic_class.h"

namespace forgive {

const std::string* FindVariableIn(const Environment& environment, const char* name) {
  const auto found = environment.find(name);
  return found == environment.end() ? nullptr : &found->second;
}

bool ExpandFileName(const Environment& environment, std::string* name, std::string* error) {
  std::string expanded;
  for (size_t i = 0; i < name->size(); ++i) {
    if ((*name)[i] != '%') {
      expanded += (*name)[i];
      continue;
    }
    const char letter = i + 1 < name->size() ? (*name)[++i] : '\0';
    char host[HOST_NAME_MAX + 1] = {};
    const std::string* rank = nullptr;
    for (const char* variable : kRankVariables) rank = rank != nullptr ? rank : FindVariableIn(environment, variable);
    if (letter == 'p') {
      expanded += std::to_string(getpid());
    } else if (letter == 'h' && gethostname(host, sizeof(host) - 1) == 0) {
      expanded += host;
    } else if (letter == 'r' && rank != nullptr) {
      expanded += *rank;
    } else if (letter == '%') {
      expanded += '%';
    } else {
      *error = "FORGIVE_STATS=" + *name +
               (letter == 'r' ? ": %r needs RANK (or a launcher's rank variable) to be set"
                              : ": accepted after % are h, p, r and %");
      return false;
    }
  }
  *name = expanded;
  return true;
}

bool CheckTogether(const Settings& settings, std::vector<std::string>* warnings, std::string* error) {
  if (!settings.dpdk_error.empty()) {
    *error = settings.dpdk_error;
    return false;
  }
  if (settings.gradient_traffic_all && settings.eligible != Eligible::kNone && settings.ring_ranks == 0) {
    *error =
        "FORGIVE_GRADIENT_TRAFFIC=all: needs FORGIVE_RING_RANKS, the number of ranks of the gradient ring (2 for "
        "direct)";
    return false;
  }
  if (!settings.profiler && (settings.step_by_operation || settings.communicators.given())) {
    *error =
        settings.step_by_operation
            ? "FORGIVE_STEP=operation: needs FORGIVE_PROFILER=1, since the profiler says where an operation begins"
            : "FORGIVE_COMMUNICATOR: needs FORGIVE_PROFILER=1, since NCCL tells names to its profiler only";
    return false;
  }
  const EngineOptions& engine = settings.engine;
  if (!settings.rails.empty() && settings.interfaces.variable == "FORGIVE_INTERFACE") {
    *error = "FORGIVE_RAILS: names the interfaces of the one device there is: unset FORGIVE_INTERFACE";
    return false;
  }
  const uint32_t rails = engine.transport.rails;
  const bool sprays = engine.transport.path_policy != PathPolicy::kSingle;
  if (sprays != (engine.transport.paths != 1)) {
    *error = sprays ? "FORGIVE_PATH_POLICY=oblivious or reps: needs FORGIVE_PATHS from 2 to 8, or FORGIVE_RAILS"
                    : "FORGIVE_PATH_POLICY=single: is one path: unset it, or unset " +
                          (rails > 1 ? "FORGIVE_RAILS" : "FORGIVE_PATHS=" + std::to_string(engine.transport.paths));
    return false;
  }
  if (engine.transport.paths > kMostUdpPaths) {
    *error = "FORGIVE_PATHS=" + std::to_string(engine.transport.paths / rails) + ": are those of each of " +
             std::to_string(rails) + " rails: accepted: an integer from 1 to " + std::to_string(kMostUdpPaths / rails);
    return false;
  }
  if (engine.dscp_data == engine.dscp_trimmed || engine.dscp_control == engine.dscp_data) {
    *error = "FORGIVE_DSCP_DATA=" + std::to_string(engine.dscp_data) +
             ": must differ from FORGIVE_DSCP_CONTROL and FORGIVE_DSCP_TRIMMED";
    return false;
  }
  uint8_t dscp = 0;
  if (!FindDscp(settings, net::kTrafficClassUntold, &dscp, error)) {
    *error = "FORGIVE_TRAFFIC_CLASS: " + *error;
    return false;
  }
  if (settings.p_low > settings.p_high) {
    warnings->push_back("FORGIVE_P_LOW is above FORGIVE_P_HIGH: critical steps would lose more than the others");
  }
  return true;
}

}  // namespace forgive
