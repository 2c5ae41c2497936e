// SPDX-License-Identifier: Apache-2.0
// The table of contexts, and each thread's values beside it.
#include "plugin/context.h"

#include <algorithm>
#include <array>

namespace forgive {
namespace {

// Kept per thread and not per context: the service thread sets a value too, while it connects, and the progress
// thread's posts are not its.
struct ThreadValue {
  uint64_t number = 0;  // of the context it is for; 0: none
  Collective collective;
};
thread_local std::array<ThreadValue, kMaxContexts> thread_values;

}  // namespace

ContextTable::ContextTable() {
  for (uint32_t slot = kMaxContexts; slot > 0; --slot) free_slots_.push_back(slot - 1);
}

std::shared_ptr<Context> ContextTable::Add(uint64_t comm_id, int traffic_class, nccl::ProfilerCallback profiler,
                                           bool* twice) {
  auto context = std::make_shared<Context>();
  context->comm_id = comm_id;
  context->traffic_class = traffic_class;
  context->profiler = profiler;
  const std::lock_guard<std::mutex> lock(mutex_);
  *twice = std::ranges::any_of(contexts_, [comm_id](const auto& other) { return other->comm_id == comm_id; });
  contexts_.push_back(context);  // the last that may throw
  context->number = next_number_++;
  if (!free_slots_.empty()) {
    context->slot = free_slots_.back();
    free_slots_.pop_back();
  }
  return context;
}

std::shared_ptr<Context> ContextTable::Find(const void* context) const {
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto found = std::ranges::find_if(contexts_, [context](const auto& live) { return live.get() == context; });
  return found == contexts_.end() ? nullptr : *found;
}

std::shared_ptr<Context> ContextTable::FindComm(uint64_t comm_id) const {
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto found =
      std::ranges::find_if(contexts_, [comm_id](const auto& live) { return live->comm_id == comm_id; });
  return found == contexts_.end() ? nullptr : *found;
}

bool ContextTable::Remove(const void* context) {
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto found = std::ranges::find_if(contexts_, [context](const auto& live) { return live.get() == context; });
  if (found == contexts_.end()) return false;
  if ((*found)->slot < kMaxContexts) free_slots_.push_back((*found)->slot);
  contexts_.erase(found);
  return true;
}

void SetThreadCollective(const Context& context, const Collective& collective) {
  if (context.slot < kMaxContexts) thread_values[context.slot] = {context.number, collective};
}

bool FindThreadCollective(const Context& context, Collective* out) {
  if (context.slot >= kMaxContexts || thread_values[context.slot].number != context.number) return false;
  *out = thread_values[context.slot].collective;
  return true;
}

}  // namespace forgive
