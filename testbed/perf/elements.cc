// SPDX-License-Identifier: Apache-2.0
// Copies and sums of float32 elements.
#include "testbed/perf/elements.h"

#include <cstring>

namespace forgive::perf {

void CopyElements(const float* a, std::int64_t count, float* first, float* second) {
  const auto bytes = static_cast<std::size_t>(count) * sizeof(float);
  if (bytes == 0) return;
  if (first != nullptr) std::memcpy(first, a, bytes);
  if (second != nullptr) std::memcpy(second, a, bytes);
}

void AddElements(const float* __restrict a, const float* __restrict b, std::int64_t count, float* __restrict first,
                 float* __restrict second) {
  if (first == nullptr) {
    first = second;
    second = nullptr;
  }
  if (first == nullptr) return;
  if (second == nullptr) {
    for (std::int64_t i = 0; i < count; ++i) first[i] = a[i] + b[i];
    return;
  }
  for (std::int64_t i = 0; i < count; ++i) {
    const float sum = a[i] + b[i];
    first[i] = sum;
    second[i] = sum;
  }
}

void Accumulate(const float* __restrict a, std::int64_t count, float* __restrict sum) {
  for (std::int64_t i = 0; i < count; ++i) sum[i] += a[i];
}

}  // namespace forgive::perf
