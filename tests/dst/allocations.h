// SPDX-License-Identifier: Apache-2.0
// How often this process has asked for memory: the transport may not, once a connection is there.
#ifndef FORGIVE_TESTS_DST_ALLOCATIONS_H_
#define FORGIVE_TESTS_DST_ALLOCATIONS_H_

#include <cstdint>

namespace forgive::dst {

uint64_t Allocations();

}  // namespace forgive::dst

#endif  // FORGIVE_TESTS_DST_ALLOCATIONS_H_
