// SPDX-License-Identifier: Apache-2.0
// Loops over float32 elements, kept apart so that they alone are compiled for speed.
#ifndef FORGIVE_TESTBED_PERF_ELEMENTS_H_
#define FORGIVE_TESTBED_PERF_ELEMENTS_H_

#include <cstdint>
#include <span>

namespace forgive::perf {

// A slot is read again at once by the network; a result is read much later, so where the machine can, it is written
// past the caches: that halves the cost, and leaves the caches to the slots.

// slot = result = a; either may be null.
void CopyElements(const float* a, std::int64_t count, float* slot, float* result);
// slot = result = a + b; either may be null.
void AddElements(const float* a, const float* b, std::int64_t count, float* slot, float* result);
// sum = the sum of all parts, added in their order. Written through the caches: it is sent on at once.
void SumElements(std::span<const float* const> parts, std::int64_t count, float* sum);

}  // namespace forgive::perf

#endif  // FORGIVE_TESTBED_PERF_ELEMENTS_H_
