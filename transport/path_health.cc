// SPDX-License-Identifier: Apache-2.0
// Which paths of a spraying sender lose everything: they are left alone, and tried again now and then.
#include "transport/path_health.h"

#include <algorithm>

namespace forgive {

bool PathHealth::OnTimeout(uint16_t path, TimePoint now, TimePoint last_progress) {
  Record& record = records_[path];
  if (last_progress > record.last_timeout) record.silent_timeouts = 0;
  record.last_timeout = now;
  if (record.rest != 0) return false;
  if (++record.silent_timeouts < kSilentTimeouts) return false;
  if (given_up_ + 1 == records_.size()) {
    std::fill(records_.begin(), records_.end(), Record{});
    given_up_ = 0;
    return false;
  }
  record.rest = kFirstRest;
  record.skipped = 0;
  ++given_up_;
  return true;
}

bool PathHealth::MayTake(uint16_t path, TimePoint last_progress) {
  Record& record = records_[path];
  if (record.rest == 0) return true;
  if (last_progress > record.last_timeout) {
    record.rest = 0;
    --given_up_;
    return true;
  }
  if (++record.skipped < record.rest) return false;
  record.skipped = 0;
  record.rest = std::min(2 * record.rest, kLongestRest);
  return true;
}

}  // namespace forgive
