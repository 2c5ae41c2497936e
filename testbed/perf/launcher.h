// SPDX-License-Identifier: Apache-2.0
// Runs one rank, or forks all of them and watches over them.
#ifndef FORGIVE_TESTBED_PERF_LAUNCHER_H_
#define FORGIVE_TESTBED_PERF_LAUNCHER_H_

#include "testbed/perf/options.h"

namespace forgive::perf {

// This process is one rank, as --rank says. Returns the exit status, after one line on standard error if it failed.
int RunOneRank(const Options& options, const Word& word);

// Forks options.ranks processes and waits for them. The first failure is said in one line; then all ranks end.
// SIGINT and SIGTERM end them too. Nothing is left behind.
int RunLocalRanks(const Options& options, const Word& word);

}  // namespace forgive::perf

#endif  // FORGIVE_TESTBED_PERF_LAUNCHER_H_
