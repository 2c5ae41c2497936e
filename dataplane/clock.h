// SPDX-License-Identifier: Apache-2.0
// The one clock of the data plane: CLOCK_MONOTONIC, read once a turn.
#ifndef FORGIVE_DATAPLANE_CLOCK_H_
#define FORGIVE_DATAPLANE_CLOCK_H_

#include <time.h>

#include "transport/units.h"

namespace forgive {

inline TimePoint MonotonicNow() {
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return {now.tv_sec * 1000000000 + now.tv_nsec};
}

}  // namespace forgive

#endif  // FORGIVE_DATAPLANE_CLOCK_H_
