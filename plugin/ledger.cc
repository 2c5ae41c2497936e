// SPDX-License-Identifier: Apache-2.0
// The ledger: draining the engine's events into lines that stay.
#include "plugin/ledger.h"

#include <algorithm>
#include <new>

namespace forgive {

void Ledger::Drain(Engine* engine) {
  const std::lock_guard<std::mutex> lock(mutex_);
  for (Event event; engine->NextLedgerLine(&event);) {
    if (!Keep(event)) ++lost_;
  }
}

// False: the ledger is full, or no memory is left.
bool Ledger::Keep(const Event& event) {
  if (lines_.size() == capacity_) return false;
  try {
    // The engine puts ConnectionSlot::user into the cookie of a ledger line.
    lines_.push_back({.receive_comm = event.cookie,
                      .connection_id = event.connection_id,
                      .step = event.step,
                      .message = event.message,
                      .offset = event.offset,
                      .length = event.length,
                      .contributions = event.contributions});
  } catch (const std::bad_alloc&) {
    return false;
  }
  return true;
}

uint64_t Ledger::Copy(uint64_t first, std::span<forgive_range_t> out) const {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (first >= lines_.size()) return 0;
  const uint64_t count = std::min<uint64_t>(out.size(), lines_.size() - first);
  std::copy_n(lines_.begin() + static_cast<ptrdiff_t>(first), count, out.begin());
  return count;
}

uint64_t Ledger::lines() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return lines_.size();
}

uint64_t Ledger::lost() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return lost_;
}

}  // namespace forgive
