// SPDX-License-Identifier: Apache-2.0
// Figures taken in turns: the samples of each contestant, their medians, and ratios within a round.
#ifndef FORGIVE_TESTBED_PERF_BENCH_TURNS_H_
#define FORGIVE_TESTBED_PERF_BENCH_TURNS_H_

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace forgive::perf {

// The middle one; of an even number the mean of the two in the middle. `samples` is not empty.
double Median(std::vector<double> samples);

// One table of contestants by rounds. A contestant that had no turn in a round has no sample there.
class Turns {
 public:
  // `name` names a row, such as "engine"; `unit` its figures.
  void Add(const std::string& name, const std::string& unit, double sample);

  bool Has(const std::string& name) const { return Find(name) != nullptr; }
  double MedianOf(const std::string& name) const;
  // The median over rounds of one row's figure by another's of the same round: what is slow for both in a round
  // leaves no trace. Both rows have a sample for each round.
  double Ratio(const std::string& name, const std::string& by) const;

  // Prints name, median, least and largest of every row.
  void Print() const;
  // {"name": {"unit", "median", "least", "largest", "samples"}, ...}
  nlohmann::json Json() const;

 private:
  struct Row {
    std::string name, unit;
    std::vector<double> samples;
  };
  const Row* Find(const std::string& name) const;

  std::vector<Row> rows_;
};

}  // namespace forgive::perf

#endif  // FORGIVE_TESTBED_PERF_BENCH_TURNS_H_
