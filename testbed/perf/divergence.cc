// SPDX-License-Identifier: Apache-2.0
// The spread of the replayed results over the ranks.
#include "testbed/perf/divergence.h"

#include <algorithm>
#include <vector>

namespace forgive::perf {
namespace {

// The values of one element on the ranks that lost something of it.
struct Spread {
  float low = 0;
  float high = 0;
  std::uint32_t ranks = 0;

  void Add(float value) {
    low = ranks == 0 ? value : std::min(low, value);
    high = ranks == 0 ? value : std::max(high, value);
    ++ranks;
  }
};

}  // namespace

Divergence MeasureDivergence(const Schedule& schedule, const Inputs& inputs, std::int64_t rotation,
                             std::span<const Loss> losses) {
  Divergence divergence;
  if (losses.empty()) return divergence;
  const auto ranks = static_cast<std::uint32_t>(inputs.ranks());
  std::vector<Spread> spreads(static_cast<std::size_t>(schedule.shape().elements));
  for (int rank = 0; rank < inputs.ranks(); ++rank) {
    for (const Patch& patch : Replay(schedule, inputs, rotation, losses, rank).patches) {
      auto spread = spreads.begin() + static_cast<std::ptrdiff_t>(patch.first);
      for (const float value : patch.values) (spread++)->Add(value);
    }
  }
  // Where a rank lost nothing it has the lossless value.
  for (const PlainStretch& stretch : PlainResult(schedule, inputs, 0)) {
    for (std::int64_t i = 0; i < stretch.interval.count; ++i) {
      const std::int64_t element = stretch.interval.first + i;
      Spread& spread = spreads[static_cast<std::size_t>(element)];
      if (spread.ranks == 0) continue;
      if (spread.ranks < ranks) spread.Add(stretch.table[(element + rotation) % Inputs::kPeriod]);
      if (spread.low == spread.high) continue;
      ++divergence.elements;
      divergence.largest_difference = std::max(divergence.largest_difference, double{spread.high} - spread.low);
    }
  }
  return divergence;
}

}  // namespace forgive::perf
