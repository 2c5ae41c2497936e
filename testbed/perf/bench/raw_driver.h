// SPDX-License-Identifier: Apache-2.0
// A driver's ceiling: data packets from one driver to another without any protocol.
#ifndef FORGIVE_TESTBED_PERF_BENCH_RAW_DRIVER_H_
#define FORGIVE_TESTBED_PERF_BENCH_RAW_DRIVER_H_

#include "testbed/perf/bench/transfer.h"
#include "testbed/perf/bench/wires.h"

namespace forgive::perf {

// The least memory that is sent, again and again: as large as NCCL's buffer of a connection.
inline constexpr uint64_t kLeastSourceBytes = 4u << 20;

// Opens a driver at both ends of the wire, made as an engine makes it, and sends full data packets in bursts from end
// 0 to end 1, each end in a thread of its own: `source_bytes` of memory, again and again. No more is on the way than
// the windows of as many connections of an engine; they are kept by a counter in memory instead of reports. `bytes`
// are payload bytes that arrived. Throws RunError.
Moved RunRawDriver(Wire& wire, uint32_t connections, uint64_t source_bytes, double warm_seconds, double seconds);

// Sends full data packets from end 0 for `seconds`, as fast as the driver takes them, and nobody receives them.
// Processor time of this thread a packet, in nanoseconds. Throws RunError.
double RunSendOnly(Wire& wire, double seconds);

}  // namespace forgive::perf

#endif  // FORGIVE_TESTBED_PERF_BENCH_RAW_DRIVER_H_
