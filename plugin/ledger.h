// SPDX-License-Identifier: Apache-2.0
// The ledger: which ranges of which message were zero-filled instead of received, in the order of decision.
#ifndef FORGIVE_PLUGIN_LEDGER_H_
#define FORGIVE_PLUGIN_LEDGER_H_

#include <cstdint>
#include <deque>
#include <mutex>
#include <span>

#include "dataplane/engine.h"
#include "plugin/forgive.h"

namespace forgive {

// Thread-safe. Keeps the first `capacity` lines, while there is memory, and counts the rest.
class Ledger {
 public:
  explicit Ledger(uint64_t capacity) : capacity_(capacity) {}

  // Takes what the engine has written since the last call.
  void Drain(Engine* engine);
  // Copies lines from `first` on; returns how many.
  uint64_t Copy(uint64_t first, std::span<forgive_range_t> out) const;
  uint64_t lines() const;
  uint64_t lost() const;

 private:
  bool Keep(const Event& event);

  const uint64_t capacity_;
  mutable std::mutex mutex_;
  std::deque<forgive_range_t> lines_;  // grows by its lines alone, without a copy of what is there
  uint64_t lost_ = 0;
};

}  // namespace forgive

#endif  // FORGIVE_PLUGIN_LEDGER_H_
