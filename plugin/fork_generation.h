// SPDX-License-Identifier: Apache-2.0
// How often this process was forked from one that had the library: what a parent made is not its child's to use.
#ifndef FORGIVE_PLUGIN_FORK_GENERATION_H_
#define FORGIVE_PLUGIN_FORK_GENERATION_H_

#include <cstdint>

namespace forgive {

// Whoever made something keeps the number of that time; another number says that this is a child of its process.
uint32_t ForkGeneration();
// In the child, right after fork.
void RaiseForkGeneration();

}  // namespace forgive

#endif  // FORGIVE_PLUGIN_FORK_GENERATION_H_
