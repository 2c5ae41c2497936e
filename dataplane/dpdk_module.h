// SPDX-License-Identifier: Apache-2.0
// The dpdk driver as seen from this library: a module beside it, loaded only when it is asked for.
#ifndef FORGIVE_DATAPLANE_DPDK_MODULE_H_
#define FORGIVE_DATAPLANE_DPDK_MODULE_H_

#include <memory>
#include <string>

#include "dataplane/dpdk_options.h"
#include "dataplane/driver.h"

namespace forgive {

struct DpdkDriverOptions {
  DpdkPortOptions port;
  HugePages huge_pages = HugePages::kAuto;
  std::vector<std::string> eal;
  std::string local_address;  // numeric; link-local with %scope
  uint16_t port_low = 0;      // 0: any port
  uint16_t port_high = 0;
  uint8_t dscp_data = 10;
  uint8_t data_ecn = 2;  // ECT(0); tests send Congestion Experienced (3)
  uint8_t dscp_control = 46;
  uint8_t dscp_trimmed = 11;
  bool require_trimmed_dscp = false;  // a cut packet without dscp_trimmed is a drop
};

// Loads `module` (empty: libforgive_dpdk.so beside this library), starts DPDK once a process and opens the port. The
// first thread that calls ReceiveBurst or SendBurst owns the driver, as of all drivers; drivers on one port must
// share that thread. nullptr: *error says in one line what is wrong and what to do.
std::unique_ptr<Driver> OpenDpdkDriver(const DpdkDriverOptions& options, const std::string& module,
                                       std::string* error);

// The one symbol of the module, and what both sides must agree on: C++ objects cross, so it is one build.
inline constexpr const char* kDpdkModuleName = "libforgive_dpdk.so";
inline constexpr const char* kDpdkModuleSymbol = "forgive_dpdk_open";
inline constexpr uint64_t kDpdkModuleBuild =
    1u << 20 | sizeof(DpdkDriverOptions) << 8 | sizeof(DriverCounters);  // changes with what crosses
using DpdkModuleOpen = Driver* (*)(uint64_t build, const DpdkDriverOptions* options, std::string* error);

}  // namespace forgive

#endif  // FORGIVE_DATAPLANE_DPDK_MODULE_H_
