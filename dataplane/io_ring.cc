// SPDX-License-Identifier: Apache-2.0
// One io_uring by its system calls.
#include "dataplane/io_ring.h"

#ifdef FORGIVE_HAVE_URING

#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <utility>

#include "transport/check.h"

namespace forgive {
namespace {

// The numbers are the same on every architecture; old C libraries lack the names.
constexpr long kSetupCall = 425;
constexpr long kEnterCall = 426;
constexpr long kRegisterCall = 427;

// All work in the reading thread's own calls, and a flag that says when there is some: no interrupt, no call for
// nothing. Disabled until the first Enter, which settles whose thread that is.
constexpr uint32_t kSetupFlags = IORING_SETUP_R_DISABLED | IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_DEFER_TASKRUN |
                                 IORING_SETUP_TASKRUN_FLAG | IORING_SETUP_CQSIZE;

// How often CancelAll looks for the end of what it has cancelled.
constexpr int kCancelRounds = 100;

uint32_t LoadAcquire(uint32_t* word) { return std::atomic_ref<uint32_t>(*word).load(std::memory_order_acquire); }
void StoreRelease(uint32_t* word, uint32_t value) {
  std::atomic_ref<uint32_t>(*word).store(value, std::memory_order_release);
}

std::string WhyRefused(int error_number) {
  std::string disabled;
  std::ifstream("/proc/sys/kernel/io_uring_disabled") >> disabled;
  if (error_number == EPERM && (disabled == "1" || disabled == "2")) {
    return "io_uring is switched off by kernel.io_uring_disabled=" + disabled +
           ": set it to 0, or use FORGIVE_DRIVER=udp";
  }
  if (error_number == EPERM || error_number == EACCES) {
    return "io_uring is refused to this process (a container's seccomp profile): allow it there, or use "
           "FORGIVE_DRIVER=udp";
  }
  if (error_number == ENOSYS) return "this kernel has no io_uring: use FORGIVE_DRIVER=udp";
  if (error_number == EINVAL) {
    return "this kernel's io_uring is too old (Linux 6.1 has what is needed): use FORGIVE_DRIVER=udp";
  }
  if (error_number == EMFILE || error_number == ENFILE) {
    return std::string("io_uring: ") + std::strerror(error_number) + ": raise the limit of open files (ulimit -n)";
  }
  return std::string("io_uring: ") + std::strerror(error_number) +
         ": give more memory (ulimit -l), or use FORGIVE_DRIVER=udp";
}

}  // namespace

SharedMapping::SharedMapping(SharedMapping&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}

SharedMapping& SharedMapping::operator=(SharedMapping&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(bytes_, other.bytes_);
  return *this;
}

SharedMapping::~SharedMapping() {
  if (data_ != nullptr) munmap(data_, bytes_);
}

bool SharedMapping::Map(size_t bytes, int fd, uint64_t offset) {
  const int flags = fd < 0 ? MAP_PRIVATE | MAP_ANONYMOUS : MAP_SHARED | MAP_POPULATE;
  void* const mapped = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, flags, fd, static_cast<off_t>(offset));
  if (mapped == MAP_FAILED) return false;
  madvise(mapped, bytes, MADV_DONTFORK);
  data_ = static_cast<uint8_t*>(mapped);
  bytes_ = bytes;
  return true;
}

bool IoRing::Open(uint32_t submissions, uint32_t completions, std::string* error) {
  io_uring_params parameters{};
  parameters.flags = kSetupFlags;
  parameters.cq_entries = completions;
  fd_ = UniqueFd(static_cast<int>(syscall(kSetupCall, submissions, &parameters)));
  if (!fd_.valid()) {
    *error = WhyRefused(errno);
    return false;
  }
  // Since Linux 5.4 both rings are in one mapping.
  const size_t ring_bytes = std::max<size_t>(parameters.sq_off.array + parameters.sq_entries * sizeof(uint32_t),
                                             parameters.cq_off.cqes + parameters.cq_entries * sizeof(io_uring_cqe));
  if (!rings_.Map(ring_bytes, fd_.get(), IORING_OFF_SQ_RING) ||
      !entries_.Map(parameters.sq_entries * sizeof(io_uring_sqe), fd_.get(), IORING_OFF_SQES)) {
    *error = WhyRefused(errno);
    return false;
  }
  const auto word = [&](uint32_t offset) { return reinterpret_cast<uint32_t*>(rings_.data() + offset); };
  sq_head_ = word(parameters.sq_off.head);
  sq_tail_ = word(parameters.sq_off.tail);
  sq_flags_ = word(parameters.sq_off.flags);
  sq_mask_ = parameters.sq_entries - 1;
  for (uint32_t i = 0; i < parameters.sq_entries; ++i) word(parameters.sq_off.array)[i] = i;
  cq_head_ = word(parameters.cq_off.head);
  cq_tail_ = word(parameters.cq_off.tail);
  cqes_ = reinterpret_cast<io_uring_cqe*>(rings_.data() + parameters.cq_off.cqes);
  cq_mask_ = parameters.cq_entries - 1;
  return true;
}

io_uring_sqe* IoRing::NextSubmission() {
  FORGIVE_CHECK(sq_next_ - LoadAcquire(sq_head_) <= sq_mask_);
  auto* entry = reinterpret_cast<io_uring_sqe*>(entries_.data()) + (sq_next_++ & sq_mask_);
  *entry = io_uring_sqe{};
  return entry;
}

int IoRing::Enter(uint32_t wait_for) {
  if (!enabled_) {
    if (syscall(kRegisterCall, fd_.get(), IORING_REGISTER_ENABLE_RINGS, nullptr, 0) < 0) return errno;
    enabled_ = true;
  }
  StoreRelease(sq_tail_, sq_next_);
  const uint32_t submit = sq_next_ - LoadAcquire(sq_head_);
  long result;
  do {
    result = syscall(kEnterCall, fd_.get(), submit, wait_for, IORING_ENTER_GETEVENTS, nullptr, 0);
  } while (result < 0 && errno == EINTR);
  return result < 0 ? errno : 0;
}

uint32_t IoRing::DropSubmissions() {
  // The kernel looks at the tail only within Enter.
  const uint32_t taken = LoadAcquire(sq_head_);
  const uint32_t dropped = sq_next_ - taken;
  sq_next_ = taken;
  StoreRelease(sq_tail_, taken);
  return dropped;
}

bool IoRing::Pop(Completion* out) {
  const uint32_t head = *cq_head_;  // only we write it
  if (head == LoadAcquire(cq_tail_)) return false;
  const io_uring_cqe& entry = cqes_[head & cq_mask_];
  *out = {entry.user_data, entry.res, entry.flags};
  StoreRelease(cq_head_, head + 1);
  return true;
}

bool IoRing::empty() const { return *cq_head_ == LoadAcquire(cq_tail_); }

bool IoRing::work_pending() const {
  constexpr uint32_t kPending = IORING_SQ_TASKRUN | IORING_SQ_CQ_OVERFLOW;
  return (std::atomic_ref<uint32_t>(*sq_flags_).load(std::memory_order_relaxed) & kPending) != 0;
}

int IoRing::RegisterBuffers(uint8_t* memory, uint32_t entries, uint16_t group) {
  io_uring_buf_reg registration{};
  registration.ring_addr = reinterpret_cast<uint64_t>(memory);
  registration.ring_entries = entries;
  registration.bgid = group;
  return syscall(kRegisterCall, fd_.get(), IORING_REGISTER_PBUF_RING, &registration, 1) < 0 ? errno : 0;
}

void IoRing::CancelAll(uint32_t in_flight) {
  if (!enabled_ || in_flight == 0) return;
  DropSubmissions();
  io_uring_sqe* entry = NextSubmission();
  entry->opcode = IORING_OP_ASYNC_CANCEL;
  entry->cancel_flags = IORING_ASYNC_CANCEL_ALL | IORING_ASYNC_CANCEL_ANY;
  entry->user_data = UINT64_MAX;
  uint32_t left = in_flight + 1;
  for (int round = 0; round < kCancelRounds && left != 0; ++round) {
    if (Enter(1) != 0) return;  // not our thread
    Completion completion;
    while (left != 0 && Pop(&completion)) left -= (completion.flags & IORING_CQE_F_MORE) == 0 ? 1 : 0;
  }
}

bool ProbeIoRing(std::string* error) {
  // A ring of its own, since the real one belongs to the thread that first enters it. Setup may be permitted where
  // entering and registering are not.
  IoRing ring;
  if (!ring.Open(1, 2, error)) return false;
  SharedMapping memory;
  int refused = memory.Map(4096, -1, 0) ? ring.RegisterBuffers(memory.data(), 1, 0) : errno;
  if (refused == 0) {
    ring.NextSubmission()->opcode = IORING_OP_NOP;
    refused = ring.Enter(1);
  }
  IoRing::Completion completion;
  if (refused == 0 && !ring.Pop(&completion)) refused = EINVAL;
  if (refused != 0) *error = WhyRefused(refused);
  return refused == 0;
}

}  // namespace forgive

#endif  // FORGIVE_HAVE_URING
