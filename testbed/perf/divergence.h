// SPDX-License-Identifier: Apache-2.0
// How far the ranks' results of one operation lie apart, where a loss of final values makes them differ.
#ifndef FORGIVE_TESTBED_PERF_DIVERGENCE_H_
#define FORGIVE_TESTBED_PERF_DIVERGENCE_H_

#include <cstdint>
#include <span>

#include "testbed/perf/replay.h"

namespace forgive::perf {

struct Divergence {
  std::uint64_t elements = 0;     // that are not the same on all ranks
  double largest_difference = 0;  // between two ranks' values of one element
};

// Of an operation whose result all ranks should have alike. From the replays of all ranks: each rank's own result was
// compared with its own, bit for bit. O(elements + lost flows x ranks squared).
Divergence MeasureDivergence(const Schedule& schedule, const Inputs& inputs, std::int64_t rotation,
                             std::span<const Loss> losses);

}  // namespace forgive::perf

#endif  // FORGIVE_TESTBED_PERF_DIVERGENCE_H_
