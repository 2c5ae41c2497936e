// SPDX-License-Identifier: Apache-2.0
// How the progress thread waits while another thread of its rank does the work.
#ifndef FORGIVE_TESTBED_PERF_PROXY_IDLE_H_
#define FORGIVE_TESTBED_PERF_PROXY_IDLE_H_

#include <sched.h>
#include <time.h>

namespace forgive::perf {

// After `rounds` turns in a row in which nothing moved (Net::Idle).
inline void ProxyIdle(int rounds) {
  constexpr int kYieldRounds = 200;  // turns of sched_yield before the thread sleeps between turns
  // After these a wait is a long one, and looking often only takes CPUs from the network's threads.
  constexpr int kShortPauses = 50;
  if (rounds < kYieldRounds) {
    sched_yield();
    return;
  }
  // NCCL would go on yielding; with fewer cores than threads that starves the network's own threads.
  const timespec pause = {0, rounds < kYieldRounds + kShortPauses ? 20'000 : 200'000};
  nanosleep(&pause, nullptr);
}

}  // namespace forgive::perf

#endif  // FORGIVE_TESTBED_PERF_PROXY_IDLE_H_
