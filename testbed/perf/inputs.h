// SPDX-License-Identifier: Apache-2.0
// The data that ranks put in: periodic tables of small integers, so that every sum is exact and cheap to predict.
#ifndef FORGIVE_TESTBED_PERF_INPUTS_H_
#define FORGIVE_TESTBED_PERF_INPUTS_H_

#include <cstdint>
#include <vector>

#include "testbed/perf/schedule.h"

namespace forgive::perf {

// The input of rank r at element e in an operation with rotation t is tables[r][(e + t) mod kPeriod]: 1 to 251, so
// that a lost contribution always shows, and sums of 256 ranks are exact in float32. The period is a prime, so that
// a slice put in a wrong place shows too; rotations tell successive operations apart.
class Inputs {
 public:
  static constexpr std::int64_t kPeriod = 65521;

  Inputs(int ranks, std::uint64_t seed);

  int ranks() const { return static_cast<int>(tables_.size()); }
  static std::int64_t RotationOf(std::uint64_t operation) {
    return static_cast<std::int64_t>(operation * 7919 % static_cast<std::uint64_t>(kPeriod));
  }

  // One period of a rank's values, followed by the same period again: a view at any rotation needs no wrap.
  const float* TableOf(int rank) const { return tables_[static_cast<std::size_t>(rank)].data(); }
  const float* SumTable() const { return sum_.data(); }

  // Writes `interval` of the rank's input.
  void Write(int rank, std::int64_t rotation, Interval interval, float* out) const;

  // A buffer in which the input for rotation t starts at element t, long enough for `elements`.
  std::vector<float> MakeBuffer(int rank, std::int64_t elements) const;

 private:
  std::vector<std::vector<float>> tables_;
  std::vector<float> sum_;
};

// A stretch of a rank's result as it must be if nothing is lost: `table` read at (element + rotation) mod kPeriod.
struct PlainStretch {
  Interval interval;
  const float* table = nullptr;
};
std::vector<PlainStretch> PlainResult(const Schedule& schedule, const Inputs& inputs, int rank);

}  // namespace forgive::perf

#endif  // FORGIVE_TESTBED_PERF_INPUTS_H_
