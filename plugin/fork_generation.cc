// SPDX-License-Identifier: Apache-2.0
// The number, and nothing else: it outlives every object of the plugin.
#include "plugin/fork_generation.h"

#include <atomic>

namespace forgive {
namespace {

std::atomic<uint32_t> fork_generation{0};

}  // namespace

uint32_t ForkGeneration() { return fork_generation.load(std::memory_order_relaxed); }

void RaiseForkGeneration() { fork_generation.fetch_add(1, std::memory_order_relaxed); }

}  // namespace forgive
