// SPDX-License-Identifier: Apache-2.0
// Figures taken in turns: medians and ratios.
#include "testbed/perf/bench/turns.h"

#include <fmt/format.h>

#include <algorithm>

#include "transport/check.h"

namespace forgive::perf {

double Median(std::vector<double> samples) {
  FORGIVE_CHECK(!samples.empty());
  std::sort(samples.begin(), samples.end());
  const size_t middle = samples.size() / 2;
  return samples.size() % 2 == 1 ? samples[middle] : (samples[middle - 1] + samples[middle]) / 2;
}

void Turns::Add(const std::string& name, const std::string& unit, double sample) {
  for (Row& row : rows_) {
    if (row.name != name) continue;
    row.samples.push_back(sample);
    return;
  }
  rows_.push_back({name, unit, {sample}});
}

const Turns::Row* Turns::Find(const std::string& name) const {
  const auto found = std::find_if(rows_.begin(), rows_.end(), [&](const Row& row) { return row.name == name; });
  return found == rows_.end() ? nullptr : &*found;
}

double Turns::MedianOf(const std::string& name) const {
  const Row* row = Find(name);
  FORGIVE_CHECK(row != nullptr);
  return Median(row->samples);
}

double Turns::Ratio(const std::string& name, const std::string& by) const {
  const Row* row = Find(name);
  const Row* base = Find(by);
  FORGIVE_CHECK(row != nullptr);
  FORGIVE_CHECK(base != nullptr);
  FORGIVE_CHECK(row->samples.size() == base->samples.size());
  std::vector<double> ratios;
  for (size_t i = 0; i < row->samples.size(); ++i) ratios.push_back(row->samples[i] / base->samples[i]);
  return Median(ratios);
}

void Turns::Print() const {
  for (const Row& row : rows_) {
    const auto [least, largest] = std::minmax_element(row.samples.begin(), row.samples.end());
    fmt::print("{:<28}{:>12.3f} {:<7} ({:.3f} to {:.3f} in {} rounds)\n", row.name, Median(row.samples), row.unit,
               *least, *largest, row.samples.size());
  }
}

nlohmann::json Turns::Json() const {
  nlohmann::json json;
  for (const Row& row : rows_) {
    const auto [least, largest] = std::minmax_element(row.samples.begin(), row.samples.end());
    json[row.name] = {{"unit", row.unit},
                      {"median", Median(row.samples)},
                      {"least", *least},
                      {"largest", *largest},
                      {"samples", row.samples}};
  }
  return json;
}

}  // namespace forgive::perf
