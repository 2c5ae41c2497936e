// SPDX-License-Identifier: Apache-2.0
// How fast the simulator is, with the whole transport: packets and events a second of user time.
#ifndef FORGIVE_TESTBED_SIMULATOR_BENCH_H_
#define FORGIVE_TESTBED_SIMULATOR_BENCH_H_

#include <string>

namespace forgive::sim {

// The worst fabric (at `scale` of its bytes), a permutation of 64 flows and an incast of 7, 32 MiB a flow. Prints a
// table, or JSON. Returns the exit status.
int Bench(const std::string& plans, double scale, bool json);

}  // namespace forgive::sim

#endif  // FORGIVE_TESTBED_SIMULATOR_BENCH_H_
