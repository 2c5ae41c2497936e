// SPDX-License-Identifier: Apache-2.0
// What the command line asks of forgive_replay.
#ifndef FORGIVE_TESTBED_REPLAY_OPTIONS_H_
#define FORGIVE_TESTBED_REPLAY_OPTIONS_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace forgive::replay {

struct Options {
  std::string norms_file;
  std::string truth_file;  // empty: none
  std::string detector = "accordion";
  uint64_t window = 10;  // steps
  double threshold = 0.5;
  std::vector<uint64_t> steps{1, 2, 3, 20};
  double p_low = 0.005;
  double p_high = 0.1;
  uint64_t expected_bytes = 0;  // a step's; 0: not said, and budgets are shown as fractions
  bool sweep = false;
  std::vector<uint64_t> windows{1, 2, 5, 10, 20, 50, 100};
  std::vector<double> thresholds{0.1, 0.2, 0.3, 0.4, 0.5, 0.75, 1};
  std::string json_file;
  std::string csv_file;
  std::vector<std::string> plots;  // names that end in .png or .html
};

// Throws InputError; nullopt: help was asked for and printed.
std::optional<Options> ParseOptions(int argc, const char* const* argv);

}  // namespace forgive::replay

#endif  // FORGIVE_TESTBED_REPLAY_OPTIONS_H_
