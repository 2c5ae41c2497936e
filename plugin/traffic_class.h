// SPDX-License-Identifier: Apache-2.0
// What a communicator's traffic class means for its packets: their code point.
#ifndef FORGIVE_PLUGIN_TRAFFIC_CLASS_H_
#define FORGIVE_PLUGIN_TRAFFIC_CLASS_H_

#include <cstdint>
#include <string>

#include "plugin/net.h"
#include "plugin/settings.h"

namespace forgive {

// The code point of the data packets of a communicator. As on RoCE the class is the IP type of service, whose upper
// six bits are the DSCP; the lower two are ECN's and stay ours. A negative class: none, so the DSCP of all data;
// net::kTrafficClassUntold: FORGIVE_TRAFFIC_CLASS, where it is set.
// False: *error is one line. Data must not pass for what was trimmed, nor for control packets.
bool FindDscp(const Settings& settings, int traffic_class, uint8_t* dscp, std::string* error);

}  // namespace forgive

#endif  // FORGIVE_PLUGIN_TRAFFIC_CLASS_H_
