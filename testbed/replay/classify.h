// SPDX-License-Identifier: Apache-2.0
// The detector over recorded norms: each step's class, and how the classes compare with labels.
#ifndef FORGIVE_TESTBED_REPLAY_CLASSIFY_H_
#define FORGIVE_TESTBED_REPLAY_CLASSIFY_H_

#include <cstdint>
#include <map>
#include <vector>

#include "testbed/replay/norms_file.h"
#include "testbed/replay/options.h"

namespace forgive::replay {

// The classes of a recorded run by one setting of the detector.
struct Classes {
  std::vector<bool> critical;  // by row
  uint64_t bad_norms = 0;
};

// Each step is classified by the norms of the steps before it, as in a job. Throws InputError if the detector refuses
// its settings.
Classes Classify(const std::vector<NormRow>& rows, const Options& options, uint64_t window, double threshold);

// Steps that have a label, by what the detector made of them.
struct Comparison {
  uint64_t labelled = 0;
  uint64_t critical = 0;      // by label
  uint64_t missed = 0;        // critical by label, not by the detector: loses P_high where P_low was right
  uint64_t false_alarms = 0;  // the reverse: only time is lost
};

Comparison Compare(const std::vector<NormRow>& rows, const Classes& classes, const std::map<uint64_t, bool>& labels);

// One point of the sweep.
struct SweepPoint {
  uint64_t window = 0;
  double threshold = 0;
  uint64_t critical = 0;
  Comparison comparison;
};

std::vector<SweepPoint> Sweep(const std::vector<NormRow>& rows, const Options& options,
                              const std::map<uint64_t, bool>& labels);

}  // namespace forgive::replay

#endif  // FORGIVE_TESTBED_REPLAY_CLASSIFY_H_
