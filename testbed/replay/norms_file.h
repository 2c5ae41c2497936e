// SPDX-License-Identifier: Apache-2.0
// Reading recorded gradient norms, and labels of critical steps, from CSV and JSON lines.
#ifndef FORGIVE_TESTBED_REPLAY_NORMS_FILE_H_
#define FORGIVE_TESTBED_REPLAY_NORMS_FILE_H_

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace forgive::replay {

struct NormRow {
  uint64_t step = 0;
  std::vector<double> norms;  // one a layer; NaN, infinite and negative ones are kept: the detector counts them
};

// Reads `file`: names that end in .jsonl, .ndjson or .json are JSON lines ({"step": 1, "norm": 0.5} or
// {"step": 1, "norms": [0.5, 0.25]}), all others are CSV with the header "step,norm" (or "step,norm_0,norm_1", a
// column a layer). Step numbers rise; all rows have as many norms. Throws InputError: "FILE:LINE: what is wrong".
std::vector<NormRow> ReadNorms(const std::string& file);

// Reads labels in the same formats: the header "step,critical", or {"step": 1, "critical": 1}; 0 or 1 (JSON: also
// false or true).
std::map<uint64_t, bool> ReadLabels(const std::string& file);

}  // namespace forgive::replay

#endif  // FORGIVE_TESTBED_REPLAY_NORMS_FILE_H_
