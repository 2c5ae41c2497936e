// SPDX-License-Identifier: Apache-2.0
// The public C interface: argument checks, and the thread's last error. None of these calls needs memory.
#include "plugin/forgive.h"

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "plugin/last_error.h"
#include "plugin/process.h"

namespace {

using forgive::LastError;
using forgive::Process;

int Fail(int code, const char* what) {
  LastError().Write("%s", what);
  return code;
}

int NotStarted() {
  return Fail(
      FORGIVE_ERROR_NOT_STARTED,
      "the plugin has not been initialised in this process: create an NCCL communicator with NCCL_NET=forgive "
      "first");
}

}  // namespace

extern "C" {

int forgive_step_begin(uint64_t step, int critical, uint64_t expected_bytes) {
  Process* process = Process::Get();
  if (process == nullptr) return NotStarted();
  return process->BeginStep(step, critical != 0, expected_bytes, &LastError());
}

int forgive_step_begin_norm(uint64_t step, double gradient_norm, uint64_t expected_bytes) {
  Process* process = Process::Get();
  if (process == nullptr) return NotStarted();
  return process->BeginStepByNorm(step, gradient_norm, expected_bytes, &LastError());
}

forgive_detector_t* forgive_detector_of_process(void) {
  Process* process = Process::Get();
  if (process != nullptr) return process->detector();
  NotStarted();
  return nullptr;
}

int forgive_step_end(uint64_t step) {
  Process* process = Process::Get();
  if (process == nullptr) return NotStarted();
  return process->EndStep(step, &LastError());
}

int forgive_stats(forgive_stats_t* out) {
  if (out == nullptr || out->size < sizeof(out->size)) {
    return Fail(FORGIVE_ERROR_BAD_ARGUMENT, "forgive_stats: set out->size to sizeof(forgive_stats_t) first");
  }
  Process* process = Process::Get();
  if (process == nullptr) return NotStarted();
  forgive_stats_t totals{};
  process->statistics()->FillTotals(&totals);
  const uint64_t size = std::min<uint64_t>(out->size, sizeof(totals));
  totals.size = size;
  std::memcpy(out, &totals, size);
  return FORGIVE_OK;
}

int forgive_step_stats(uint64_t step, forgive_step_stats_t* out) {
  if (out == nullptr) return Fail(FORGIVE_ERROR_BAD_ARGUMENT, "forgive_step_stats: out is null");
  Process* process = Process::Get();
  if (process == nullptr) return NotStarted();
  if (process->statistics()->FindStep(step, out)) return FORGIVE_OK;
  return Fail(FORGIVE_ERROR_BAD_ARGUMENT, "forgive_step_stats: not one of the last 256 steps");
}

int64_t forgive_forgiven_ranges(uint64_t first, forgive_range_t* out, uint64_t capacity) {
  if (out == nullptr && capacity > 0) return Fail(FORGIVE_ERROR_BAD_ARGUMENT, "forgive_forgiven_ranges: out is null");
  Process* process = Process::Get();
  if (process == nullptr) return NotStarted();
  process->ledger()->Drain(process->engine());
  return static_cast<int64_t>(process->ledger()->Copy(first, {out, capacity}));
}

uint64_t forgive_ledger_lost(void) {
  Process* process = Process::Get();
  return process == nullptr ? 0 : process->ledger()->lost();
}

}  // extern "C"
