// SPDX-License-Identifier: Apache-2.0
// Counts every call of operator new in this program.
#include "allocations.h"

#include "allocation_hook.h"

namespace {

uint64_t allocations = 0;

}  // namespace

void forgive::OnAllocation() { ++allocations; }

uint64_t forgive::dst::Allocations() { return allocations; }
