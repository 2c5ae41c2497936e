// SPDX-License-Identifier: Apache-2.0
// A family's runs, some at a time, each a process of its own; what is finished stays, what is half vanishes.
#ifndef FORGIVE_TESTBED_SIMULATOR_SWEEP_H_
#define FORGIVE_TESTBED_SIMULATOR_SWEEP_H_

#include <string>
#include <vector>

#include "testbed/simulator/plan.h"

namespace forgive::sim {

struct SweepOptions {
  std::string program;  // this one's path
  std::string plans;    // the folder
  std::string family;
  std::string out;
  std::vector<uint64_t> seeds;  // empty: the families' own
  std::vector<std::string> assignments;
  double scale = 1;
  int jobs = 1;
  std::string emit_jobs;  // not empty: write the command lines of what is left there, and run nothing
};

// Returns the exit status: 0, 1 if a run failed, 130 if interrupted. Throws PlanError for what cannot be begun.
int Sweep(const SweepOptions& options);

// Where a run's output goes. Files are there when they are whole (under another name until then).
struct RunFiles {
  std::string json;    // the results; empty: standard output
  std::string ledger;  // a CSV line for each forgiven range; empty: none
};

// Runs one plan. Progress goes to standard error. The same exit statuses.
int RunToFile(const Plan& plan, uint64_t seed, const RunFiles& files, bool quiet);

// From now on SIGINT, SIGTERM and SIGHUP only ask: Interrupted() then says so.
void CatchInterrupts();
bool Interrupted();

}  // namespace forgive::sim

#endif  // FORGIVE_TESTBED_SIMULATOR_SWEEP_H_
