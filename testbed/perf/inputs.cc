// SPDX-License-Identifier: Apache-2.0
// Makes the ranks' data from a seed, and says what a collective makes of it when nothing is lost.
#include "testbed/perf/inputs.h"

#include <algorithm>
#include <random>

namespace forgive::perf {

Inputs::Inputs(int ranks, std::uint64_t seed) : tables_(static_cast<std::size_t>(ranks)) {
  const auto period = static_cast<std::size_t>(kPeriod);
  sum_.assign(2 * period, 0.0F);
  std::mt19937_64 generator(seed);
  for (std::vector<float>& table : tables_) {
    table.resize(2 * period);
    for (std::size_t i = 0; i < period; ++i) {
      table[i] = static_cast<float>(generator() % 251 + 1);
      table[i + period] = table[i];
      sum_[i] += table[i];
      sum_[i + period] = sum_[i];
    }
  }
}

void Inputs::Write(int rank, std::int64_t rotation, Interval interval, float* out) const {
  const float* const table = TableOf(rank);
  for (std::int64_t done = 0; done < interval.count;) {
    const std::int64_t at = (interval.first + done + rotation) % kPeriod;
    const std::int64_t count = std::min(interval.count - done, kPeriod);
    std::copy_n(table + at, count, out + done);
    done += count;
  }
}

std::vector<float> Inputs::MakeBuffer(int rank, std::int64_t elements) const {
  std::vector<float> buffer(static_cast<std::size_t>(elements + kPeriod));
  Write(rank, 0, {0, elements + kPeriod}, buffer.data());
  return buffer;
}

std::vector<PlainStretch> PlainResult(const Schedule& schedule, const Inputs& inputs, int rank) {
  const Shape& shape = schedule.shape();
  const Interval result = schedule.ResultOf(rank);
  switch (shape.collective) {
    case Collective::kAllReduce:
    case Collective::kReduceScatter:
      return {{result, inputs.SumTable()}};
    case Collective::kBroadcast:
      return {{result, inputs.TableOf(shape.root)}};
    case Collective::kSendRecv:
      return {{result, inputs.TableOf((rank + shape.ranks - 1) % shape.ranks)}};
    case Collective::kAllGather:
      break;
  }
  std::vector<PlainStretch> stretches;
  const std::int64_t shard = shape.elements / shape.ranks;
  for (int owner = 0; owner < shape.ranks; ++owner) {
    stretches.push_back({{owner * shard, shard}, inputs.TableOf(owner)});
  }
  return stretches;
}

}  // namespace forgive::perf
