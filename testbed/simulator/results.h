// SPDX-License-Identifier: Apache-2.0
// A finished run as lines of JSON: what was run, each step, and a summary. The same bytes for the same run.
#ifndef FORGIVE_TESTBED_SIMULATOR_RESULTS_H_
#define FORGIVE_TESTBED_SIMULATOR_RESULTS_H_

#include <string>

#include "testbed/simulator/run.h"

namespace forgive::sim {

// The first line: plan, seed, scale, commit and every parameter. Two runs with equal first lines are equal.
std::string RunLine(const Plan& plan, uint64_t seed);

// All lines of a run that has ended. Nothing in them depends on the machine or on how long it took.
std::string ResultLines(const Simulation& run);

// The forgiven ranges of a run that kept its ledger: CSV with a header, in the order of decision. Times in
// nanoseconds; offset and length in bytes of the message.
std::string LedgerLines(const Simulation& run);

// Broken budgets of a run that has ended: steps on which some rank's bound did not hold though its policy promises
// it.
uint64_t BudgetViolations(const Simulation& run);

// One paragraph for a person.
std::string Summary(const Simulation& run);

}  // namespace forgive::sim

#endif  // FORGIVE_TESTBED_SIMULATOR_RESULTS_H_
