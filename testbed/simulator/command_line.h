// SPDX-License-Identifier: Apache-2.0
// What the program's user says.
#ifndef FORGIVE_TESTBED_SIMULATOR_COMMAND_LINE_H_
#define FORGIVE_TESTBED_SIMULATOR_COMMAND_LINE_H_

namespace forgive::sim {

// Parses and obeys. Returns the exit status: 0; 1 a run failed; 2 a plan or an option is wrong; 130 interrupted.
int Main(int argc, char** argv);

}  // namespace forgive::sim

#endif  // FORGIVE_TESTBED_SIMULATOR_COMMAND_LINE_H_
