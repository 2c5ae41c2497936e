// SPDX-License-Identifier: Apache-2.0
// The oracle: what a collective's result must be, bit for bit, when the ledger's ranges arrived as zeros.
#ifndef FORGIVE_TESTBED_PERF_REPLAY_H_
#define FORGIVE_TESTBED_PERF_REPLAY_H_

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "testbed/perf/inputs.h"
#include "testbed/perf/schedule.h"

namespace forgive::perf {

// Bytes [offset, offset + length) of one message of the operation that the receiver zero-filled.
struct Loss {
  int source = 0;
  int destination = 0;
  std::int64_t message = 0;  // within the operation, on the connection
  std::int64_t offset = 0;
  std::int64_t length = 0;
};

// What one rank's result holds at `first`, first + 1, ... instead of the lossless values.
struct Patch {
  std::int64_t first = 0;  // element of the whole vector
  std::vector<float> values;
};

struct Replayed {
  std::vector<Patch> patches;  // of the rank asked for, by rising element, disjoint
  // Bytes x contributions that they still carried when they were lost, over all ranks: the exact figure of which the
  // ledger's is an upper bound.
  std::uint64_t contributions_lost = 0;
};

// Replays in plain memory the flows that lost something; the others have their lossless values. Losses must lie in
// messages of the schedule. Thread-compatible, O(lost flows x ranks).
Replayed Replay(const Schedule& schedule, const Inputs& inputs, std::int64_t rotation, std::span<const Loss> losses,
                int rank);

struct Verdict {
  std::uint64_t wrong = 0;         // elements that differ from the replay
  std::int64_t first_element = 0;  // the first of them, in the whole vector
  float value = 0;
  float replayed = 0;
};

// Compares a rank's result, which begins with element ResultOf(rank).first, with the lossless values and patches.
Verdict Verify(const Schedule& schedule, const Inputs& inputs, std::int64_t rotation, int rank, const float* result,
               std::span<const Patch> patches);

// A 64-bit hash of a result, to compare ranks with each other.
std::uint64_t HashOf(const float* values, std::int64_t count);

}  // namespace forgive::perf

#endif  // FORGIVE_TESTBED_PERF_REPLAY_H_
