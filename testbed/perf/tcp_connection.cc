// SPDX-License-Identifier: Apache-2.0
// A header and a payload a message, several of them a system call.
#include "testbed/perf/tcp_connection.h"

#include <fmt/format.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "testbed/perf/error.h"

namespace forgive::perf {

TcpConnection::~TcpConnection() {
  if (fd_ >= 0) close(fd_);
}

TcpRequest* TcpConnection::Take(void* data, std::size_t bytes) {
  const auto free = std::ranges::find_if(requests_, [](const TcpRequest& request) { return !request.used; });
  if (free == requests_.end()) return nullptr;
  free->connection = this;
  free->used = true;
  free->done.store(false, std::memory_order_relaxed);
  free->data = static_cast<char*>(data);
  free->posted = bytes;
  free->header.bytes = static_cast<std::uint32_t>(bytes);
  free->moved = 0;
  return &*free;
}

bool TcpConnection::Finished(TcpRequest* request, std::size_t* bytes) {
  if (!request->done.load(std::memory_order_acquire)) {
    if (broken_.load(std::memory_order_acquire)) throw RunError(reason_);
    return false;
  }
  *bytes = request->header.bytes;
  request->used = false;
  return true;
}

void TcpConnection::Break(const std::string& reason) {
  queue_.clear();
  reason_ = reason;
  broken_.store(true, std::memory_order_release);
}

void TcpConnection::FinishFront() {
  TcpRequest* const request = queue_.front();
  queue_.pop_front();
  request->done.store(true, std::memory_order_release);
}

// Sends what is queued, headers and payloads of several messages in one call.
bool TcpConnection::Flush() {
  bool moved = false;
  while (!queue_.empty()) {
    std::array<iovec, 8> parts;
    std::size_t count = 0;
    for (TcpRequest* const request : queue_) {
      if (count + 2 > parts.size()) break;
      const std::size_t head = std::min(request->moved, sizeof(TcpHeader));
      if (head < sizeof(TcpHeader)) {
        parts[count++] = {reinterpret_cast<char*>(&request->header) + head, sizeof(TcpHeader) - head};
      }
      const std::size_t body = request->moved - head;
      if (body < request->posted) parts[count++] = {request->data + body, request->posted - body};
    }
    msghdr message = {};
    message.msg_iov = parts.data();
    message.msg_iovlen = count;
    const ssize_t sent = sendmsg(fd_, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent < 0 && (errno == EAGAIN || errno == EINTR)) return moved;
    if (sent < 0) {
      Break(fmt::format("tcp: send failed: {}", std::strerror(errno)));
      return true;
    }
    Account(static_cast<std::size_t>(sent));
    moved = true;
  }
  return moved;
}

void TcpConnection::Account(std::size_t sent) {
  while (!queue_.empty()) {
    TcpRequest& request = *queue_.front();
    const std::size_t whole = sizeof(TcpHeader) + request.posted;
    const std::size_t part = std::min(sent, whole - request.moved);
    request.moved += part;
    sent -= part;
    if (request.moved < whole) return;
    FinishFront();
  }
}

// Receives into the posted buffers: the rest of a message and the header of the next in one call.
bool TcpConnection::Fill() {
  bool moved = false;
  while (!queue_.empty()) {
    if (!HeaderIsRight()) return true;
    if (FinishEmpty()) {
      moved = true;
      continue;
    }
    const bool headed = incoming_bytes_ == sizeof(TcpHeader);
    TcpHeader next;
    std::array<iovec, 2> parts;
    std::size_t count = 0;
    std::size_t rest = 0;
    if (headed) {
      const TcpRequest& request = *queue_.front();
      rest = incoming_.bytes - request.moved;
      if (rest > 0) parts[count++] = {request.data + request.moved, rest};
      parts[count++] = {&next, sizeof(next)};
    } else {
      parts[count++] = {reinterpret_cast<char*>(&incoming_) + incoming_bytes_, sizeof(TcpHeader) - incoming_bytes_};
    }
    msghdr message = {};
    message.msg_iov = parts.data();
    message.msg_iovlen = count;
    const ssize_t got = recvmsg(fd_, &message, MSG_DONTWAIT);
    if (got < 0 && (errno == EAGAIN || errno == EINTR)) return moved;
    if (got <= 0) {
      Break(got == 0 ? "tcp: the sender closed the connection"
                     : fmt::format("tcp: receive failed: {}", std::strerror(errno)));
      return true;
    }
    moved = true;
    if (headed) {
      TakeBody(static_cast<std::size_t>(got), rest, next);
    } else {
      incoming_bytes_ += static_cast<std::size_t>(got);
    }
  }
  return moved;
}

void TcpConnection::TakeBody(std::size_t got, std::size_t rest, const TcpHeader& next) {
  TcpRequest& request = *queue_.front();
  request.moved += std::min(got, rest);
  if (got < rest) return;
  request.header.bytes = incoming_.bytes;
  FinishFront();
  incoming_ = next;
  incoming_bytes_ = got - rest;
}

// A message without payload is whole with its header.
bool TcpConnection::FinishEmpty() {
  if (incoming_bytes_ < sizeof(TcpHeader) || incoming_.bytes != 0) return false;
  queue_.front()->header.bytes = 0;
  FinishFront();
  incoming_bytes_ = 0;
  return true;
}

bool TcpConnection::HeaderIsRight() {
  if (incoming_bytes_ < sizeof(TcpHeader)) return true;
  if (incoming_.magic != kTcpMagic) {
    Break("tcp: the stream carries what is no message of ours");
    return false;
  }
  if (incoming_.bytes > queue_.front()->posted) {
    Break(fmt::format("tcp: a message of {} bytes met a receive of {}", incoming_.bytes, queue_.front()->posted));
    return false;
  }
  return true;
}

}  // namespace forgive::perf
