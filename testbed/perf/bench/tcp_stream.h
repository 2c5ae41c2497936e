// SPDX-License-Identifier: Apache-2.0
// One stream of TCP over a wire, by iperf3.
#ifndef FORGIVE_TESTBED_PERF_BENCH_TCP_STREAM_H_
#define FORGIVE_TESTBED_PERF_BENCH_TCP_STREAM_H_

#include "testbed/perf/bench/wires.h"

namespace forgive::perf {

// Gbit/s that arrived. Throws RunError: iperf3 is missing, or said what is wrong.
double RunTcpStream(Wire& wire, double seconds);

}  // namespace forgive::perf

#endif  // FORGIVE_TESTBED_PERF_BENCH_TCP_STREAM_H_
