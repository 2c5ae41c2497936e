// SPDX-License-Identifier: Apache-2.0
// What forgive_replay says: text on standard output, a row a step as CSV, everything as JSON.
#ifndef FORGIVE_TESTBED_REPLAY_REPORT_H_
#define FORGIVE_TESTBED_REPLAY_REPORT_H_

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "testbed/replay/classify.h"

namespace forgive::replay {

struct Findings {
  std::vector<NormRow> rows;
  Classes classes;
  std::map<uint64_t, bool> labels;  // empty: no truth was given
  Comparison comparison;
  std::vector<SweepPoint> sweep;
};

std::string ToText(const Options& options, const Findings& findings);
std::string ToCsv(const Options& options, const Findings& findings);
std::string ToJson(const Options& options, const Findings& findings);

// The budget of a step in bytes, as the plugin makes it: p x expected bytes, rounded down, p in millionths.
uint64_t BudgetOf(double p, uint64_t expected_bytes);

// "1-20, 41, 50-60".
std::string Ranges(const std::vector<uint64_t>& steps);

}  // namespace forgive::replay

#endif  // FORGIVE_TESTBED_REPLAY_REPORT_H_
