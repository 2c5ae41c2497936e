// SPDX-License-Identifier: Apache-2.0
// Blocks all signals while a thread is started, so that the host's handlers never run on a thread of ours.
#ifndef FORGIVE_DATAPLANE_THREAD_SIGNALS_H_
#define FORGIVE_DATAPLANE_THREAD_SIGNALS_H_

#include <pthread.h>
#include <signal.h>

namespace forgive {

// A thread inherits the mask of the one that starts it; the starter's own mask returns with the scope.
class BlockedSignals {
 public:
  BlockedSignals() {
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before_);
  }
  ~BlockedSignals() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  BlockedSignals(const BlockedSignals&) = delete;
  BlockedSignals& operator=(const BlockedSignals&) = delete;

 private:
  sigset_t before_;
};

}  // namespace forgive

#endif  // FORGIVE_DATAPLANE_THREAD_SIGNALS_H_
