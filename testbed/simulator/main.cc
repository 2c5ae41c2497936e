// SPDX-License-Identifier: Apache-2.0
// forgive_sim: the simulator's program.
#include "testbed/simulator/command_line.h"

int main(int argc, char** argv) { return forgive::sim::Main(argc, argv); }
