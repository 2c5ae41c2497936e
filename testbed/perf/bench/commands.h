// SPDX-License-Identifier: Apache-2.0
// Other programs, run by the shell: where a wire's ends are, with what they print.
#ifndef FORGIVE_TESTBED_PERF_BENCH_COMMANDS_H_
#define FORGIVE_TESTBED_PERF_BENCH_COMMANDS_H_

#include <array>
#include <string>

#include "testbed/perf/bench/wires.h"

namespace forgive::perf {

// What one command printed, and how it ended, as waitpid says.
struct CommandResult {
  std::string output;
  int status = 0;
};

// Runs the command here, where the calling thread is. Throws RunError: no shell.
CommandResult RunCommand(const std::string& command);
// Runs one command at each end of the wire at the same time, until both have ended.
std::array<CommandResult, 2> RunAtBothEnds(Wire& wire, const std::array<std::string, 2>& commands);

// The word as the shell must see it.
std::string Quoted(const std::string& word);
// Where this program lies among the build's: the build folder, with a / at its end; empty: elsewhere.
std::string BuildFolder();

}  // namespace forgive::perf

#endif  // FORGIVE_TESTBED_PERF_BENCH_COMMANDS_H_
