// SPDX-License-Identifier: Apache-2.0
// What driver_bench runs over: a veth pair between two network namespaces, or a pair of memif ports.
#ifndef FORGIVE_TESTBED_PERF_BENCH_WIRES_H_
#define FORGIVE_TESTBED_PERF_BENCH_WIRES_H_

#include <functional>
#include <memory>
#include <string>

#include "dataplane/engine.h"

namespace forgive::perf {

// Of the ends, on every wire.
inline constexpr const char* kWireAddresses[] = {"10.9.0.1", "10.9.0.2"};

// Two ends, 0 and 1. Everything that is made ends with the object or, at the latest, with the process.
class Wire {
 public:
  virtual ~Wire() = default;
  // Runs `work` where that end's interface is, in a thread of its own; rethrows what it throws.
  virtual void At(int end, const std::function<void()>& work) = 0;
  // The options of an engine or driver at that end.
  virtual EngineOptions OptionsAt(int end) const = 0;
  // The same for a process that loads the plugin there: its FORGIVE_DPDK; empty: not set.
  virtual std::string DpdkPortAt(int end) const = 0;
  // The kernel's interface over which two processes, one at each end, may speak TCP.
  virtual std::string KernelInterfaceAt(int end) const = 0;
  // The kernel's address at that end; empty: the kernel has none there, and no TCP.
  virtual std::string KernelAddressAt(int end) const = 0;
};

// Throws UsageError: no such driver or network, or not together.
void CheckWire(const std::string& driver, const std::string& network);
// `network`: veth, where dpdk means af_packet; memif; or null: a port of DPDK that swallows everything, at end 0
// only. `window_bytes`: Config::window_bytes of the options. Throws RunError: namespaces need root.
std::unique_ptr<Wire> MakeWire(const std::string& driver, const std::string& network, const std::string& dpdk_module,
                               uint64_t window_bytes);

}  // namespace forgive::perf

#endif  // FORGIVE_TESTBED_PERF_BENCH_WIRES_H_
