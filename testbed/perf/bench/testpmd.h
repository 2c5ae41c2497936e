// SPDX-License-Identifier: Apache-2.0
// DPDK's own traffic program over the ports of a wire.
#ifndef FORGIVE_TESTBED_PERF_BENCH_TESTPMD_H_
#define FORGIVE_TESTBED_PERF_BENCH_TESTPMD_H_

#include "testbed/perf/bench/wires.h"

namespace forgive::perf {

// False: it is not installed.
bool HasTestpmd();

// Two processes of dpdk-testpmd, one sending from end 0 and one receiving at end 1, frames as large as an engine's
// full data packets, in bursts of 64 as well, on the wire's own ports. Gbit/s that arrived, counted as if each frame
// carried an engine's payload. Throws RunError.
double RunTestpmd(Wire& wire, double seconds);

}  // namespace forgive::perf

#endif  // FORGIVE_TESTBED_PERF_BENCH_TESTPMD_H_
