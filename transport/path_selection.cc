// SPDX-License-Identifier: Apache-2.0
// Which path the next packet takes: one, all in turn, or those that last brought a packet through without a mark.
#include "transport/path_selection.h"

#include "transport/check.h"
#include "transport/draw.h"

namespace forgive {

PathSelector::PathSelector(PathPolicy policy, uint32_t paths, uint64_t seed)
    : policy_(policy), paths_(paths), turn_(static_cast<uint32_t>(Draw(seed).Below(paths))) {
  FORGIVE_CHECK(paths != 0);
  FORGIVE_CHECK(paths <= kMaxPaths);
}

uint16_t PathSelector::NextInTurn() {
  const uint32_t path = turn_;
  turn_ = turn_ + 1 == paths_ ? 0 : turn_ + 1;
  return static_cast<uint16_t>(path);
}

uint16_t PathSelector::Next() {
  if (policy_ == PathPolicy::kSingle) return 0;
  if (first_ == end_) return NextInTurn();
  return waiting_[first_++ % kWaiting];
}

void PathSelector::OnArrived(uint16_t path, bool marked) {
  if (policy_ != PathPolicy::kReps || marked) return;
  if (end_ - first_ == kWaiting) ++first_;
  waiting_[end_++ % kWaiting] = path;
}

}  // namespace forgive
