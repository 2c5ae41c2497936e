// SPDX-License-Identifier: Apache-2.0
// What libibverbs knows of the ports of RDMA devices: opened by its name at run time, never needed, never waited for
// without end.
#ifndef FORGIVE_PLUGIN_VERBS_H_
#define FORGIVE_PLUGIN_VERBS_H_

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

namespace forgive {

// Everything but kActive carries no traffic.
enum class PortState : uint8_t { kUnknown, kNotActive, kActive };

// A port of an RDMA device, by the device's name in /sys/class/infiniband.
struct RdmaPort {
  std::string device;
  uint32_t number = 0;  // from 1; 0: no port
  friend bool operator==(const RdmaPort&, const RdmaPort&) = default;
};

struct PortFacts {
  std::string problem;  // why the rest is not known; empty: it is
  PortState state = PortState::kUnknown;
  uint32_t speed_mbps = 0;            // 0: not known
  bool speed_at_field_limit = false;  // the field's highest value, which faster links have too
  uint64_t guid = 0;                  // of the card, which all of its ports and functions share
};

// libibverbs' structures as far as they are read; its calls fill in all of the library's own, for which there is
// room. The binary interface of IBVERBS_1.1 is fixed.
namespace verbs {

struct DeviceAttributes {
  char firmware[64];
  uint64_t node_guid;          // big-endian
  uint64_t system_image_guid;  // big-endian
  char rest[432];
};

struct PortAttributes {
  int32_t state;
  char unread[39];
  uint8_t active_width;
  uint8_t active_speed;
  char rest[211];
};

inline constexpr int32_t kPortActive = 4;

}  // namespace verbs

// Lanes by speed of a lane, as InfiniBand codes them; 0: a code that is not known.
uint32_t LinkSpeedMbps(uint8_t active_width, uint8_t active_speed);

// The facts of each port, in the order of `ports`. Everything is asked by a thread of its own, and each device is
// open only while it is asked. If the library has not answered after `patience`, that is the problem of every port,
// and the thread is left behind.
std::vector<PortFacts> AskVerbs(const std::string& library, const std::vector<RdmaPort>& ports,
                                std::chrono::milliseconds patience);

}  // namespace forgive

#endif  // FORGIVE_PLUGIN_VERBS_H_
