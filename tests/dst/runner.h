// SPDX-License-Identifier: Apache-2.0
// Many schedules over several processes: the first failure by seed, or the sum of what happened.
#ifndef FORGIVE_TESTS_DST_RUNNER_H_
#define FORGIVE_TESTS_DST_RUNNER_H_

#include <cstdint>
#include <string>
#include <vector>

#include "journal.h"

namespace forgive::dst {

struct Task {
  uint64_t seed = 0;
  bool large = false;
};

struct Job {
  // Either consecutive seeds, or a list.
  Task first;
  uint64_t runs = 0;
  std::vector<Task> list;
  uint32_t workers = 1;
  bool traces = false;

  uint64_t size() const { return list.empty() ? runs : list.size(); }
  Task at(uint64_t n) const { return list.empty() ? Task{first.seed + n, first.large} : list[n]; }
};

struct Outcome {
  bool failed = false;
  Task task;            // the one that failed: of several the earliest
  std::string failure;  // in one line
  Tally tally;          // of all, if none failed
  double seconds = 0;
  double cpu_seconds = 0;  // of all its processes
};

// Shows on standard error how far it is, and how long it will take. With `traces` the last events of a failure, or of
// the last schedule, go there too. Throws std::runtime_error if there is no process or memory for it.
Outcome RunJob(const Job& job);

}  // namespace forgive::dst

#endif  // FORGIVE_TESTS_DST_RUNNER_H_
