// SPDX-License-Identifier: Apache-2.0
// How fast the fabric alone is: raw packets and their acknowledgements, without a transport.
#ifndef FORGIVE_TESTBED_SIMULATOR_FABRIC_BENCH_H_
#define FORGIVE_TESTBED_SIMULATOR_FABRIC_BENCH_H_

#include <cstdint>
#include <vector>

#include "testbed/simulator/fabric.h"

namespace forgive::sim {

// One flow of raw packets, acknowledged one by one, with at most `window_packets` of them unanswered.
struct BenchFlow {
  uint32_t source = 0;
  uint32_t destination = 0;
  uint64_t packets = 0;
};

struct BenchResult {
  uint64_t data_packets = 0;  // delivered, trimmed ones too
  uint64_t link_hops = 0;     // of data and acknowledgements
  uint64_t events = 0;
  uint64_t trims = 0;
  uint64_t drops = 0;      // such a packet is never answered, and its place in the window is lost
  double cpu_seconds = 0;  // of this thread
  double simulated_seconds = 0;

  double data_packets_per_second() const { return static_cast<double>(data_packets) / cpu_seconds; }
  double events_per_second() const { return static_cast<double>(events) / cpu_seconds; }
};

// Every host to one other, on the next leaf where there is one.
std::vector<BenchFlow> PermutationFlows(const FabricPlan& plan, uint64_t packets, uint64_t seed);
// `fan_in` hosts, of different leaves as far as they last, into host 0.
std::vector<BenchFlow> IncastFlows(const FabricPlan& plan, uint32_t fan_in, uint64_t packets);

// Runs the flows until each packet is delivered or trimmed and acknowledged. Packets carry `payload_bytes`.
BenchResult BenchFabric(const FabricPlan& plan, const std::vector<BenchFlow>& flows, uint32_t payload_bytes,
                        uint32_t window_packets, uint64_t seed);

}  // namespace forgive::sim

#endif  // FORGIVE_TESTBED_SIMULATOR_FABRIC_BENCH_H_
