// SPDX-License-Identifier: Apache-2.0
// One io_uring by its system calls, without liburing: submissions, completions, a ring of provided buffers.
#ifndef FORGIVE_DATAPLANE_IO_RING_H_
#define FORGIVE_DATAPLANE_IO_RING_H_

// Linux 6.1 is the first whose rings do all of their work in the calls of the thread that reads them; headers of an
// older kernel lack the names.
#if !defined(FORGIVE_WITHOUT_URING) && __has_include(<linux/io_uring.h>)
#include <linux/io_uring.h>
#endif
#if !defined(FORGIVE_WITHOUT_URING) && defined(IORING_SETUP_DEFER_TASKRUN) && defined(IORING_RECV_MULTISHOT)
#define FORGIVE_HAVE_URING 1

#include <cstddef>
#include <cstdint>
#include <string>

#include "dataplane/udp_socket.h"

namespace forgive {

// Memory shared with the kernel; a child of a fork does not get it.
class SharedMapping {
 public:
  SharedMapping() = default;
  SharedMapping(SharedMapping&& other) noexcept;
  SharedMapping& operator=(SharedMapping&& other) noexcept;
  ~SharedMapping();
  // `fd` -1: anonymous memory. False: errno says why.
  bool Map(size_t bytes, int fd, uint64_t offset);
  uint8_t* data() const { return data_; }

 private:
  uint8_t* data_ = nullptr;
  size_t bytes_ = 0;
};

// Opened by any thread; from the first Enter on it belongs to the thread that called it. Requests that are in flight
// at its end keep their socket, and so its port, for some milliseconds more: CancelAll ends them before.
class IoRing {
 public:
  struct Completion {
    uint64_t user_data;
    int32_t result;
    uint32_t flags;
  };

  // Room for `submissions` and `completions` (powers of two). False: *error says in one line what is wrong and what
  // to do.
  bool Open(uint32_t submissions, uint32_t completions, std::string* error);

  // A zeroed entry, which the next Enter submits; there must be room.
  io_uring_sqe* NextSubmission();
  // Submits, runs what work is pending, and waits until `wait_for` completions are there. 0, or an errno: then
  // submissions may be left.
  int Enter(uint32_t wait_for);
  // Takes back the submissions that the kernel has not taken; returns how many they were.
  uint32_t DropSubmissions();
  bool Pop(Completion* out);
  bool empty() const;  // Pop would find nothing
  // The kernel has something that the next Enter would turn into completions.
  bool work_pending() const;

  // Registers `entries` (a power of two) buffers as group `group`, whose ring is at the front of `memory`.
  int RegisterBuffers(uint8_t* memory, uint32_t entries, uint16_t group);
  // Cancels every request and waits for its end; from another thread than the ring's own it does nothing.
  void CancelAll(uint32_t in_flight);

  int fd() const { return fd_.get(); }

 private:
  UniqueFd fd_;
  SharedMapping rings_;
  SharedMapping entries_;
  bool enabled_ = false;
  uint32_t* sq_head_ = nullptr;
  uint32_t* sq_tail_ = nullptr;
  uint32_t* sq_flags_ = nullptr;
  uint32_t sq_mask_ = 0;
  uint32_t sq_next_ = 0;  // our tail; the kernel's follows at Enter
  uint32_t* cq_head_ = nullptr;
  uint32_t* cq_tail_ = nullptr;
  io_uring_cqe* cqes_ = nullptr;
  uint32_t cq_mask_ = 0;
};

// Whether this kernel lets this process use what IoRing needs. False: *error says in one line why not.
bool ProbeIoRing(std::string* error);

}  // namespace forgive

#endif  // FORGIVE_HAVE_URING
#endif  // FORGIVE_DATAPLANE_IO_RING_H_
