// SPDX-License-Identifier: Apache-2.0
// The relay's command line and its TOML file.
#ifndef FORGIVE_TESTBED_LAB_RELAY_RELAY_OPTIONS_H_
#define FORGIVE_TESTBED_LAB_RELAY_RELAY_OPTIONS_H_

#include <cstdint>
#include <string>

#include "testbed/lab/relay/relay_switch.h"

namespace forgive::lab {

struct RelayOptions {
  RelayParameters parameters;
  std::string listen_host = "127.0.0.1";
  uint16_t listen_port = 0;
  std::string trims_log;   // empty: none
  std::string statistics;  // empty: none
  int64_t max_seconds = 3600;
  bool help = false;
};

extern const char kRelayUsage[];

// False: *error says in one line what is wrong and what to do.
bool ParseRelayOptions(int argc, const char* const* argv, RelayOptions* out, std::string* error);

}  // namespace forgive::lab

#endif  // FORGIVE_TESTBED_LAB_RELAY_RELAY_OPTIONS_H_
