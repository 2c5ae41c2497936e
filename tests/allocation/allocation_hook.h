// SPDX-License-Identifier: Apache-2.0
// What a program with forgive_allocation_hook does at each allocation.
#ifndef FORGIVE_TESTS_ALLOCATION_ALLOCATION_HOOK_H_
#define FORGIVE_TESTS_ALLOCATION_ALLOCATION_HOOK_H_

namespace forgive {

// Called by operator new before each allocation, on its thread; the program defines it. May throw std::bad_alloc.
void OnAllocation();

}  // namespace forgive

#endif  // FORGIVE_TESTS_ALLOCATION_ALLOCATION_HOOK_H_
