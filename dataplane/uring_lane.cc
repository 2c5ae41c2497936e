// SPDX-License-Identifier: Apache-2.0
// A socket read by one multishot receive of io_uring into a ring of provided buffers.
#include "dataplane/uring_lane.h"

#ifdef FORGIVE_HAVE_URING

#include <netinet/in.h>

#include <atomic>
#include <bit>
#include <cerrno>
#include <cstring>

namespace forgive {
namespace {

constexpr uint16_t kGroup = 0;
// What the kernel writes into a buffer: its own header, source, control messages, payload. Three cache lines before
// the payload, so that it begins on one.
constexpr uint32_t kNameRoom = 32;
constexpr uint32_t kControlRoom = kReceiveControlBytes + 16;
constexpr uint32_t kBeforePayload = sizeof(io_uring_recvmsg_out) + kNameRoom + kControlRoom;
static_assert(kBeforePayload % 64 == 0);
static_assert(kNameRoom >= sizeof(sockaddr_in6) && kNameRoom % alignof(cmsghdr) == 0);

}  // namespace

UringLane::UringLane(int fd, const LaneOptions& options)
    : ReceiveLane(options),
      fd_(fd),
      message_bytes_(options.message_bytes),
      buffer_count_(std::bit_ceil(options.batch)),
      stride_(BufferStride(kBeforePayload + options.message_bytes)) {
  current_.used_up = true;
}

std::unique_ptr<UringLane> UringLane::Open(int fd, const LaneOptions& options, std::string* error) {
  std::unique_ptr<UringLane> lane(new UringLane(fd, options));
  if (!lane->Prepare(error)) return nullptr;
  return lane;
}

bool UringLane::Prepare(std::string* error) {
  // A completion for each buffer, one for the end of the receive, and one for that of its cancellation.
  if (!ring_.Open(4, std::bit_ceil(buffer_count_ + 4), error)) return false;
  if (!buffer_ring_.Map(buffer_count_ * sizeof(io_uring_buf), -1, 0)) {
    *error = std::string("receive buffers of io_uring: ") + std::strerror(errno);
    return false;
  }
  const int refused = ring_.RegisterBuffers(buffer_ring_.data(), buffer_count_, kGroup);
  if (refused != 0) {
    *error = std::string("receive buffers of io_uring: ") + std::strerror(refused) + ": use FORGIVE_DRIVER=udp";
    return false;
  }
  buffers_.resize(stride_ * buffer_count_);
  used_.reserve(buffer_count_);
  for (uint32_t i = 0; i < buffer_count_; ++i) used_.push_back(static_cast<uint16_t>(i));
  HandBackBuffers();
  shape_.msg_namelen = kNameRoom;
  shape_.msg_controllen = kControlRoom;
  return true;
}

UringLane::~UringLane() {
  // The socket must be free when its descriptor is closed: its port may be wanted again at once.
  ring_.CancelAll(armed_ ? 1 : 0);
}

void UringLane::HandBackBuffers() {
  if (used_.empty()) return;
  auto* entries = reinterpret_cast<io_uring_buf*>(buffer_ring_.data());
  for (const uint16_t buffer : used_) {
    io_uring_buf& entry = entries[buffer_tail_++ & (buffer_count_ - 1)];
    entry.addr = reinterpret_cast<uint64_t>(buffers_.data() + stride_ * buffer);
    entry.len = kBeforePayload + message_bytes_;
    entry.bid = buffer;
  }
  used_.clear();
  // The tail lies in what would be the first entry's last field.
  auto* ring = reinterpret_cast<io_uring_buf_ring*>(buffer_ring_.data());
  std::atomic_ref<uint16_t>(ring->tail).store(buffer_tail_, std::memory_order_release);
}

void UringLane::Arm() {
  io_uring_sqe* entry = ring_.NextSubmission();
  entry->opcode = IORING_OP_RECVMSG;
  entry->ioprio = IORING_RECV_MULTISHOT;
  entry->flags = IOSQE_BUFFER_SELECT;
  entry->fd = fd_;
  entry->addr = reinterpret_cast<uint64_t>(&shape_);
  entry->len = 1;
  entry->buf_group = kGroup;
}

bool UringLane::ReadCompletion(const IoRing::Completion& completion) {
  if ((completion.flags & IORING_CQE_F_MORE) == 0) armed_ = false;
  if (completion.result == -ENOBUFS) ++exhausted_;
  // Other errors are what an ICMP message left at the socket: they say nothing that we believe.
  if ((completion.flags & IORING_CQE_F_BUFFER) == 0) return false;
  const auto buffer = static_cast<uint16_t>(completion.flags >> IORING_CQE_BUFFER_SHIFT);
  if (completion.result < static_cast<int32_t>(kBeforePayload)) {
    used_.push_back(buffer);
    return false;
  }
  uint8_t* bytes = buffers_.data() + stride_ * buffer;
  io_uring_recvmsg_out out;
  std::memcpy(&out, bytes, sizeof(out));
  msghdr header{};
  header.msg_name = bytes + sizeof(out);
  header.msg_namelen = out.namelen;
  header.msg_control = bytes + sizeof(out) + kNameRoom;
  header.msg_controllen = out.controllen;
  header.msg_flags = static_cast<int>(out.flags);
  const uint32_t length = static_cast<uint32_t>(completion.result) - kBeforePayload;
  splitter_.Begin(header, bytes + kBeforePayload, length, &current_);
  current_buffer_ = buffer;
  return true;
}

bool UringLane::NextMessage() {
  IoRing::Completion completion;
  while (ring_.Pop(&completion)) {
    if (ReadCompletion(completion)) return true;
  }
  return false;
}

size_t UringLane::Receive(std::span<Datagram> out) {
  HandBackBuffers();
  size_t count = 0;
  bool entered = false;
  while (count < out.size()) {
    if (current_.used_up && !NextMessage()) {
      // Once a call: what is handed out now must not be overwritten, and a full burst is enough.
      if (entered || count != 0) break;
      const bool arm = !armed_;
      if (!arm && !ring_.work_pending()) break;
      if (arm) Arm();
      entered = true;
      if (ring_.Enter(0) != 0) {
        ring_.DropSubmissions();
        break;
      }
      if (arm) armed_ = true;
      continue;
    }
    if (splitter_.Take(&current_, &out[count])) ++count;
    if (current_.used_up) used_.push_back(current_buffer_);
  }
  drained_ = current_.used_up && armed_ && ring_.empty() && !ring_.work_pending();
  return count;
}

std::string UringLane::note() const {
  return ", " + std::to_string(buffer_count_) + " receive buffers, ran out of them " + std::to_string(exhausted_) +
         " times";
}

}  // namespace forgive

#endif  // FORGIVE_HAVE_URING
