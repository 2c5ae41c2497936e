// SPDX-License-Identifier: Apache-2.0
// A socket read by recvmmsg.
#include "dataplane/batch_lane.h"

#include <cerrno>

namespace forgive {

BatchLane::BatchLane(int fd, const LaneOptions& options)
    : ReceiveLane(options), fd_(fd), batch_(options.batch), stride_(BufferStride(options.message_bytes)) {
  buffers_.resize(stride_ * batch_);
  headers_.resize(batch_);
  vectors_.resize(batch_);
  names_.resize(batch_);
  controls_.resize(batch_);
  messages_.resize(batch_);
  for (uint32_t i = 0; i < batch_; ++i) {
    vectors_[i] = {buffers_.data() + stride_ * i, options.message_bytes};
    headers_[i].msg_hdr.msg_iov = &vectors_[i];
    headers_[i].msg_hdr.msg_iovlen = 1;
  }
}

bool BatchLane::Fill() {
  for (uint32_t i = 0; i < batch_; ++i) {
    msghdr& header = headers_[i].msg_hdr;
    header.msg_name = &names_[i];
    header.msg_namelen = sizeof(names_[i]);
    header.msg_control = controls_[i].bytes;
    header.msg_controllen = kReceiveControlBytes;
    header.msg_flags = 0;
  }
  next_ = filled_ = 0;
  int count = -1;
  // A pending ICMP error is handed to whoever asks first and is then gone: it says nothing that we believe.
  for (int attempt = 0; attempt < 3 && count < 0; ++attempt) {
    count = recvmmsg(fd_, headers_.data(), batch_, MSG_DONTWAIT, nullptr);
    if (count < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) break;
  }
  drained_ = count < static_cast<int>(batch_);
  if (count <= 0) return false;
  filled_ = static_cast<uint32_t>(count);
  for (uint32_t i = 0; i < filled_; ++i) {
    splitter_.Begin(headers_[i].msg_hdr, buffers_.data() + stride_ * i, headers_[i].msg_len, &messages_[i]);
  }
  return true;
}

size_t BatchLane::Receive(std::span<Datagram> out) {
  if (next_ == filled_ && !Fill()) return 0;
  size_t count = 0;
  while (count < out.size() && next_ < filled_) {
    ReceivedMessage& message = messages_[next_];
    if (splitter_.Take(&message, &out[count])) ++count;
    if (message.used_up) ++next_;
  }
  return count;
}

}  // namespace forgive
