// SPDX-License-Identifier: Apache-2.0
// The relay's one UDP socket: batches in and out.
#include "testbed/lab/relay/relay_socket.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

namespace forgive::lab {
namespace {

constexpr int kBufferBytes = 64 << 20;

RelayAddress AddressOf(const sockaddr_storage& name) {
  RelayAddress address{};
  sockaddr_in ipv4;
  std::memcpy(&ipv4, &name, sizeof(ipv4));
  std::memset(ipv4.sin_zero, 0, sizeof(ipv4.sin_zero));
  std::memcpy(address.data(), &ipv4, sizeof(ipv4));
  return address;
}

}  // namespace

RelaySocket::RelaySocket() : buffers_(kBatch * kMostBytes) {}

RelaySocket::~RelaySocket() {
  if (fd_ >= 0) close(fd_);
}

bool RelaySocket::Open(const std::string& host, uint16_t port, std::string* error) {
  sockaddr_in local{};
  local.sin_family = AF_INET;
  local.sin_port = htons(port);
  if (inet_pton(AF_INET, host.c_str(), &local.sin_addr) != 1) {
    *error = "--listen " + host + ": not a numeric IPv4 address";
    return false;
  }
  fd_ = socket(AF_INET, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  for (const auto& [force, plain] : {std::pair{SO_RCVBUFFORCE, SO_RCVBUF}, {SO_SNDBUFFORCE, SO_SNDBUF}}) {
    if (setsockopt(fd_, SOL_SOCKET, force, &kBufferBytes, sizeof(kBufferBytes)) != 0) {
      setsockopt(fd_, SOL_SOCKET, plain, &kBufferBytes, sizeof(kBufferBytes));
    }
  }
  const int on = 1;
  setsockopt(fd_, SOL_SOCKET, SO_RXQ_OVFL, &on, sizeof(on));
  if (bind(fd_, reinterpret_cast<const sockaddr*>(&local), sizeof(local)) != 0) {
    *error = "--listen " + host + ":" + std::to_string(port) + ": " + std::strerror(errno) + ": choose another";
    return false;
  }
  return true;
}

std::string RelaySocket::name() const {
  sockaddr_in local{};
  socklen_t length = sizeof(local);
  getsockname(fd_, reinterpret_cast<sockaddr*>(&local), &length);
  char host[INET_ADDRSTRLEN] = "";
  inet_ntop(AF_INET, &local.sin_addr, host, sizeof(host));
  return std::string(host) + ":" + std::to_string(ntohs(local.sin_port));
}

size_t RelaySocket::Receive(int64_t now_ns, RelaySwitch* to) {
  for (size_t i = 0; i < kBatch; ++i) {
    vectors_[i] = {buffers_.data() + i * kMostBytes, kMostBytes};
    headers_[i].msg_hdr = msghdr{};
    headers_[i].msg_hdr.msg_name = &names_[i];
    headers_[i].msg_hdr.msg_namelen = sizeof(names_[i]);
    headers_[i].msg_hdr.msg_iov = &vectors_[i];
    headers_[i].msg_hdr.msg_iovlen = 1;
    headers_[i].msg_hdr.msg_control = controls_[i].bytes;
    headers_[i].msg_hdr.msg_controllen = sizeof(controls_[i].bytes);
  }
  const int count = recvmmsg(fd_, headers_.data(), kBatch, MSG_DONTWAIT, nullptr);
  for (int n = 0; n < count; ++n) {
    const auto i = static_cast<size_t>(n);
    msghdr* header = &headers_[i].msg_hdr;
    for (cmsghdr* control = CMSG_FIRSTHDR(header); control != nullptr; control = CMSG_NXTHDR(header, control)) {
      if (control->cmsg_level != SOL_SOCKET || control->cmsg_type != SO_RXQ_OVFL) continue;
      uint32_t drops;
      std::memcpy(&drops, CMSG_DATA(control), sizeof(drops));
      socket_drops_ = drops;
    }
    to->Arrive(now_ns, AddressOf(names_[i]), buffers_.data() + i * kMostBytes, headers_[i].msg_len);
  }
  return count > 0 ? static_cast<size_t>(count) : 0;
}

size_t RelaySocket::Send(RelaySwitch* from) {
  size_t total = 0;
  while (true) {
    size_t count = 0;
    RelayAddress to;
    while (count < kBatch && from->NextDelivery(&to, &out_bytes_[count])) {
      std::memcpy(&names_[count], to.data(), to.size());
      vectors_[count] = {out_bytes_[count].data(), out_bytes_[count].size()};
      msghdr& header = headers_[count].msg_hdr;
      header = msghdr{};
      header.msg_name = &names_[count];
      header.msg_namelen = sizeof(sockaddr_in);
      header.msg_iov = &vectors_[count];
      header.msg_iovlen = 1;
      ++count;
    }
    for (size_t next = 0; next < count;) {
      const int sent = sendmmsg(fd_, headers_.data() + next, static_cast<unsigned>(count - next), 0);
      if (sent <= 0) ++send_errors_;
      next += sent > 0 ? static_cast<size_t>(sent) : 1;
    }
    total += count;
    if (count < kBatch) return total;
  }
}

}  // namespace forgive::lab
