// SPDX-License-Identifier: Apache-2.0
// Copies and sums of float32 elements.
#include "testbed/perf/elements.h"

#include <algorithm>
#include <cstring>

#ifdef __SSE2__
#include <emmintrin.h>
#endif

namespace forgive::perf {
namespace {

constexpr std::int64_t kBlock = 2048;            // elements that stay in the first cache
constexpr std::int64_t kStreamsFrom = 16 << 10;  // elements; less is likely to be read from the cache again

#ifdef __SSE2__

bool Streams(const float* result, std::int64_t count) {
  return count >= kStreamsFrom && reinterpret_cast<std::uintptr_t>(result) % 16 == 0;
}

// result = a, past the caches.
void StreamCopy(const float* a, std::int64_t count, float* result) {
  std::int64_t i = 0;
  for (; i + 4 <= count; i += 4) _mm_stream_ps(result + i, _mm_loadu_ps(a + i));
  for (; i < count; ++i) result[i] = a[i];
  _mm_sfence();
}

#else

bool Streams(const float*, std::int64_t) { return false; }
void StreamCopy(const float* a, std::int64_t count, float* result) {
  std::memcpy(result, a, static_cast<std::size_t>(count) * sizeof(float));
}

#endif

void Add(const float* __restrict a, const float* __restrict b, std::int64_t count, float* __restrict sum) {
  for (std::int64_t i = 0; i < count; ++i) sum[i] = a[i] + b[i];
}

void Accumulate(const float* __restrict a, std::int64_t count, float* __restrict sum) {
  for (std::int64_t i = 0; i < count; ++i) sum[i] += a[i];
}

void WriteResult(const float* a, std::int64_t count, float* result, bool streams) {
  if (streams) {
    StreamCopy(a, count, result);
  } else {
    std::memcpy(result, a, static_cast<std::size_t>(count) * sizeof(float));
  }
}

}  // namespace

void CopyElements(const float* a, std::int64_t count, float* slot, float* result) {
  if (count == 0) return;
  if (slot != nullptr) std::memcpy(slot, a, static_cast<std::size_t>(count) * sizeof(float));
  if (result != nullptr) WriteResult(slot != nullptr ? slot : a, count, result, Streams(result, count));
}

void AddElements(const float* a, const float* b, std::int64_t count, float* slot, float* result) {
  alignas(64) float block[kBlock];
  const bool streams = result != nullptr && Streams(result, count);
  for (std::int64_t at = 0; at < count; at += kBlock) {
    const std::int64_t part = std::min(kBlock, count - at);
    float* const sum = slot != nullptr ? slot + at : block;
    Add(a + at, b + at, part, sum);
    if (result != nullptr) WriteResult(sum, part, result + at, streams);
  }
}

void SumElements(std::span<const float* const> parts, std::int64_t count, float* sum) {
  for (std::int64_t at = 0; at < count; at += kBlock) {
    const std::int64_t part = std::min(kBlock, count - at);
    std::memcpy(sum + at, parts[0] + at, static_cast<std::size_t>(part) * sizeof(float));
    for (const float* const next : parts.subspan(1)) Accumulate(next + at, part, sum + at);
  }
}

}  // namespace forgive::perf
