// SPDX-License-Identifier: Apache-2.0
// The engine's thread: a step for each operation, begun by its first receive and ended when later ones have come.
#include "dataplane/poll_loop.h"

namespace forgive {
namespace {

// Of a connection that lags behind the others by less than this many operations, nothing is late for its step.
constexpr size_t kYoungOperations = 2;

}  // namespace

void PollLoop::BeginOperation(TimePoint now, const StepPlan& plan) {
  if (steps_.FindOpen(plan.step).has_value()) return;  // by another connection's receive
  // Each is ended as soon as it may be, so that there is little to look at; never more than the limit.
  for (size_t i = 0; i + kYoungOperations <= operations_.size();) {
    const StepAccount* account = steps_.Find(operations_[i].step);
    const bool idle = account == nullptr || account->messages == 0;
    if (idle || operations_.size() == kMostOpenOperations) {
      EndOperation(now, i);
    } else {
      ++i;
    }
  }
  if (steps_.Begin(plan, true) != StepResult::kOk) return;
  operations_.push_back({plan.step, now});
}

void PollLoop::EndOperation(TimePoint now, size_t index) {
  const OpenOperation operation = operations_[index];
  operations_.erase(operations_.begin() + static_cast<ptrdiff_t>(index));
  if (steps_.End(operation.step) != StepResult::kOk) return;
  const StepAccount* account = steps_.Find(operation.step);
  if (account != nullptr) operation_lines_.Push({*account, operation.begin, now});
}

void PollLoop::EndOperationsHere(TimePoint now) {
  while (!operations_.empty()) EndOperation(now, 0);
}

}  // namespace forgive
