// SPDX-License-Identifier: Apache-2.0
// A stand-in for the library's step functions: every step forgave STAND_IN_LOST_r bytes, as STAND_IN_LIE says or not.
#include <cstdlib>
#include <cstring>
#include <string>

#include "plugin/forgive.h"

namespace {

uint64_t steps = 0;

uint64_t LostBytes() {
  const char* const host = std::getenv("NCCL_HOSTID");
  const bool first = host != nullptr && std::string(host).ends_with("0");
  const char* const lost = std::getenv(first ? "STAND_IN_LOST_0" : "STAND_IN_LOST_1");
  return lost == nullptr ? 0 : std::strtoull(lost, nullptr, 10);
}

bool Lies(const char* about) {
  const char* const lie = std::getenv("STAND_IN_LIE");
  return lie != nullptr && std::strcmp(lie, about) == 0;
}

}  // namespace

extern "C" {
const char* forgive_last_error(void) { return "the stand-in refuses"; }

int forgive_step_begin(uint64_t step, int, uint64_t) {
  steps = step;
  return Lies("begin") ? FORGIVE_ERROR_LATCHED : FORGIVE_OK;
}

int forgive_step_end(uint64_t) { return FORGIVE_OK; }

int forgive_step_stats(uint64_t step, forgive_step_stats_t* out) {
  *out = {};
  out->step = step;
  out->forgiven = LostBytes() + (Lies("account") ? 16 : 0);
  out->budget_violations = Lies("budget") ? 1 : 0;
  return FORGIVE_OK;
}

// One line a step.
int64_t forgive_forgiven_ranges(uint64_t first, forgive_range_t* out, uint64_t capacity) {
  if (first >= steps || capacity == 0) return 0;
  out[0] = {};
  out[0].step = first + 1;
  out[0].length = static_cast<uint32_t>(LostBytes() + (Lies("ledger") ? 16 : 0));
  return 1;
}
}
