// SPDX-License-Identifier: Apache-2.0
// The file by which `lab up` tells the switch's loader what to build.
#ifndef FORGIVE_TESTBED_LAB_SWITCH_CONFIG_H_
#define FORGIVE_TESTBED_LAB_SWITCH_CONFIG_H_

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "testbed/lab/switch_layout.h"

namespace forgive::lab {

struct SwitchPort {
  std::string interface;
  std::array<std::uint8_t, 6> host_address;
};

struct SwitchConfig {
  std::string pins;       // a folder: becomes the mount point of a BPF file system
  std::string trims_log;  // a file
  std::string line;       // interface of the delay line; empty: none
  bool virtual_queue = false;
  // The kernel's routes forward, not the program: it only queues, at the egress hook of ports and uplinks.
  bool routed = false;
  std::vector<SwitchPort> ports;     // to hosts
  std::vector<std::string> uplinks;  // interfaces to other switches; only of a routed one
  forgive_switch_parameters parameters{};
};

// Reads lines of "key value..." from `path`; an empty line and one that begins with # say nothing. Every number of
// forgive_switch_parameters is a key of its name. Returns an empty string, or the error, which names the line.
std::string ReadSwitchConfig(const std::string& path, SwitchConfig* config);

// "02:00:00:00:00:01" to bytes; false if it is none.
bool ParseEthernetAddress(const std::string& text, std::array<std::uint8_t, 6>* address);

}  // namespace forgive::lab

#endif  // FORGIVE_TESTBED_LAB_SWITCH_CONFIG_H_
