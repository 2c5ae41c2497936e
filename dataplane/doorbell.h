// SPDX-License-Identifier: Apache-2.0
// How a poster wakes the thread that reads its ring, and only where that thread sleeps.
#ifndef FORGIVE_DATAPLANE_DOORBELL_H_
#define FORGIVE_DATAPLANE_DOORBELL_H_

#include <sys/eventfd.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdint>

#include "dataplane/ring.h"
#include "transport/check.h"

namespace forgive {

// Many posters, one sleeper.
//
// No wake-up is lost: the sleeper announces its sleep and then looks at the ring; a poster fills its cell and then
// rings, which looks for the announcement. All four are sequentially consistent, so in their single order one of the
// two sees the other: either the sleeper sees the command and does not sleep, or the poster sees the sleeper and
// writes the eventfd. A poster that was overtaken (its cell claimed, not yet filled) rings after filling it, too.
class Doorbell {
 public:
  Doorbell() = default;
  ~Doorbell() {
    if (fd_ >= 0) close(fd_);
  }
  Doorbell(const Doorbell&) = delete;
  Doorbell& operator=(const Doorbell&) = delete;

  // False: no eventfd (errno).
  bool Open() {
    fd_ = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    return fd_ >= 0;
  }
  // Readable: somebody rang.
  int fd() const { return fd_; }

  // From any thread, after its push into the ring (seq_cst).
  void Ring() {
    if (!sleeping_.load(std::memory_order_seq_cst) || !sleeping_.exchange(false, std::memory_order_seq_cst)) return;
    const uint64_t one = 1;
    FORGIVE_CHECK(write(fd_, &one, sizeof(one)) == sizeof(one));
  }

  // The sleeper's half. False: there is a command, and the sleep is called off.
  template <typename T>
  bool AnnounceSleep(const CommandRing<T>& ring) {
    sleeping_.store(true, std::memory_order_seq_cst);
    if (ring.Empty()) return true;
    sleeping_.store(false, std::memory_order_relaxed);
    return false;
  }
  // After the sleep; `readable`: what poll said of fd(). A poster that took the announcement may write after this
  // look: then one later sleep ends early.
  void Awake(bool readable) {
    sleeping_.store(false, std::memory_order_seq_cst);
    uint64_t count = 0;
    if (readable) FORGIVE_CHECK(read(fd_, &count, sizeof(count)) == sizeof(count) || errno == EAGAIN);
  }

 private:
  int fd_ = -1;
  alignas(kCacheLineBytes) std::atomic<bool> sleeping_{false};
};

}  // namespace forgive

#endif  // FORGIVE_DATAPLANE_DOORBELL_H_
