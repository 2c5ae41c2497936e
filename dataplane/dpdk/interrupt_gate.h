// SPDX-License-Identifier: Apache-2.0
// Keeps bursts and the handlers of EAL's interrupt thread apart, for ports whose memory those handlers unmap.
#ifndef FORGIVE_DATAPLANE_DPDK_INTERRUPT_GATE_H_
#define FORGIVE_DATAPLANE_DPDK_INTERRUPT_GATE_H_

#include <pthread.h>

#include <string>

namespace forgive {

// DPDK's memif tears a connection down on EAL's interrupt thread when the peer's socket closes, and unmaps the rings
// and buffers with it, whether or not a burst reads them. EAL lets nobody stand between it and a handler; but it
// calls its handlers one after another, and one of them is ours, which waits until another has something to do.
//
// Invariant, from Enter to Leave: no handler but ours runs while anybody holds a Pass.
class InterruptGate {
 public:
  // EAL runs. Returns when the invariant holds. False: *error says in one line why not.
  static bool Enter(std::string* error);
  static void Leave();

  // One burst's; never waits: false while handlers run, which is as long as they take.
  class Pass {
   public:
    explicit Pass(bool needed) : held_(needed && pthread_rwlock_tryrdlock(&lock_) == 0), given_(held_ || !needed) {}
    ~Pass() {
      if (held_) pthread_rwlock_unlock(&lock_);
    }
    Pass(const Pass&) = delete;
    Pass& operator=(const Pass&) = delete;
    explicit operator bool() const { return given_; }

   private:
    const bool held_;
    const bool given_;
  };

 private:
  static void OnTurn(void*);

  // Written by the interrupt thread alone. Passes of two busy engines overlap without an end: the writer goes first.
  static pthread_rwlock_t lock_;
};

}  // namespace forgive

#endif  // FORGIVE_DATAPLANE_DPDK_INTERRUPT_GATE_H_
