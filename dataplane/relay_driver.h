// SPDX-License-Identifier: Apache-2.0
// A driver that sends every packet through a user-space relay, which stands for a trimming switch.
#ifndef FORGIVE_DATAPLANE_RELAY_DRIVER_H_
#define FORGIVE_DATAPLANE_RELAY_DRIVER_H_

#include <memory>

#include "dataplane/driver.h"
#include "dataplane/relay_prefix.h"

namespace forgive {

// Wraps a udp driver whose packets may be kRelayPrefixBytes longer. Datagrams that do not come from the relay, or do
// not begin with its prefix, are dropped and counted as truncated.
std::unique_ptr<Driver> MakeRelayDriver(std::unique_ptr<Driver> inner, const Address& relay);

}  // namespace forgive

#endif  // FORGIVE_DATAPLANE_RELAY_DRIVER_H_
