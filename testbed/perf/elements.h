// SPDX-License-Identifier: Apache-2.0
// Loops over float32 elements, kept apart so that they alone are compiled for speed.
#ifndef FORGIVE_TESTBED_PERF_ELEMENTS_H_
#define FORGIVE_TESTBED_PERF_ELEMENTS_H_

#include <cstdint>

namespace forgive::perf {

// second may be null. first = second = a.
void CopyElements(const float* a, std::int64_t count, float* first, float* second);
// first = second = a + b; either may be null.
void AddElements(const float* a, const float* b, std::int64_t count, float* first, float* second);
// sum += a.
void Accumulate(const float* a, std::int64_t count, float* sum);

}  // namespace forgive::perf

#endif  // FORGIVE_TESTBED_PERF_ELEMENTS_H_
