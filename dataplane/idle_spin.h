// SPDX-License-Identifier: Apache-2.0
// When a poll thread that finds nothing to do goes on looking, and when it sleeps.
#ifndef FORGIVE_DATAPLANE_IDLE_SPIN_H_
#define FORGIVE_DATAPLANE_IDLE_SPIN_H_

#include <sched.h>

#include <cstdint>

#include "dataplane/clock.h"
#include "transport/units.h"

namespace forgive {

// A thread spins for a while, yielding every turn, and then sleeps in the kernel. By one thread.
class IdleSpin {
 public:
  // The thread may use one CPU only: whoever it waits for needs that one.
  void ShareOneCpu() { contended_ = UINT32_MAX; }

  void OnWork() { idle_ = false; }
  // The turn that began at `now` found nothing.
  void OnIdleTurn(TimePoint now) {
    if (idle_) return;
    idle_ = true;
    idle_since_ = now;
  }
  Nanoseconds IdleTime(TimePoint now) const { return now - idle_since_; }

  // Whether to sleep now until `deadline`, the next moment at which there is something to do.
  bool IsOver(TimePoint now, TimePoint deadline) const {
    const bool contended = contended_ > 0;
    return IdleTime(now) >= (contended ? kSpinTimeContended : kSpinTime) &&
           deadline > now + (contended ? Nanoseconds{0} : kNear);
  }
  void OnSlept() {
    if (contended_ > 0 && contended_ != UINT32_MAX) --contended_;
  }
  // One turn of spinning, which began at `now`.
  void Yield(TimePoint now) {
    sched_yield();
    if (contended_ != UINT32_MAX && MonotonicNow() - now > kYielded) contended_ = kContendedSleeps;
  }

 private:
  // A wake-up from the kernel costs tens of microseconds where a CPU is free, so spin about as long; where another
  // thread took the CPU at a yield, spinning only takes it back from whoever has work.
  static constexpr Nanoseconds kSpinTime = Microseconds(100);
  static constexpr Nanoseconds kSpinTimeContended = Microseconds(4);
  // An idle turn that took longer than this gave the CPU to somebody else.
  static constexpr Nanoseconds kYielded = Microseconds(25);
  // For how many sleeps after such a turn the CPU counts as contended.
  static constexpr uint32_t kContendedSleeps = 64;
  // A deadline nearer than this is waited for by spinning: sleeping and waking would take longer.
  static constexpr Nanoseconds kNear = Microseconds(20);

  TimePoint idle_since_{};
  uint32_t contended_ = 0;
  bool idle_ = false;
};

}  // namespace forgive

#endif  // FORGIVE_DATAPLANE_IDLE_SPIN_H_
