// SPDX-License-Identifier: Apache-2.0
// The baseline: NCCL's plugin operations over plain TCP sockets, straight from and into the posted buffers.
#include <fmt/format.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sched.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <memory>
#include <mutex>
#include <set>

#include "testbed/perf/error.h"
#include "testbed/perf/net.h"
#include "testbed/perf/socket_address.h"

namespace forgive::perf {
namespace {

constexpr std::uint32_t kMagic = 0x46544350;
constexpr std::size_t kMostRequests = 32;
constexpr int kPollMilliseconds = 1;
constexpr int kYieldRounds = 4;  // turns of sched_yield before the thread waits in poll

struct MessageHeader {
  std::uint32_t magic = kMagic;
  std::uint32_t bytes = 0;
};

struct TcpHandle {
  std::uint32_t magic = kMagic;
  std::uint32_t length = 0;
  sockaddr_storage address = {};
};

struct Comm;

struct Request {
  Comm* comm = nullptr;
  bool used = false;
  bool done = false;
  char* data = nullptr;
  std::size_t posted = 0;
  MessageHeader header;
  std::size_t moved = 0;  // header and payload bytes sent, or payload bytes received
};

struct Comm {
  int fd = -1;
  bool sends = false;
  std::array<Request, kMostRequests> requests;
  std::deque<Request*> queue;      // not done, in order
  MessageHeader incoming;          // receive side: the header of the message now arriving
  std::size_t incoming_bytes = 0;  // how much of that header is there

  ~Comm() {
    if (fd >= 0) close(fd);
  }
  Request* Take() {
    for (Request& request : requests) {
      if (!request.used) {
        request = Request();
        request.used = true;
        request.comm = this;
        return &request;
      }
    }
    return nullptr;
  }
};

class TcpNet final : public Net {
 public:
  explicit TcpNet(SocketAddress address) : address_(address) {
    const int probe = socket(address_.family(), SOCK_STREAM | SOCK_CLOEXEC, 0);
    char name[32] = "unknown";
    socklen_t length = sizeof(name) - 1;
    getsockopt(probe, IPPROTO_TCP, TCP_CONGESTION, name, &length);
    if (probe >= 0) close(probe);
    congestion_control_ = name;
  }

  std::string Description() const override {
    return fmt::format("tcp, congestion control {}, address {}", congestion_control_, address_.Host());
  }

  void Listen(Handle& handle, void** listen_comm) override {
    auto comm = std::make_unique<Comm>();
    comm->fd = socket(address_.family(), SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (comm->fd < 0 || bind(comm->fd, address_.get(), address_.length()) != 0 || listen(comm->fd, 16) != 0) {
      throw RunError(fmt::format("tcp: cannot listen at {}: {}", address_.Host(), std::strerror(errno)));
    }
    const SocketAddress bound = SocketAddress::OfSocket(comm->fd);
    TcpHandle filled;
    filled.length = bound.length();
    std::memcpy(&filled.address, bound.get(), bound.length());
    // sockaddr_storage is as large as the handle; both families' addresses are far smaller.
    static_assert(offsetof(TcpHandle, address) + sizeof(sockaddr_in6) <= abi::kHandleBytes);
    std::memcpy(handle.data(), &filled, std::min(sizeof(filled), handle.size()));
    *listen_comm = comm.release();
  }

  void Connect(Handle& handle, void** send_comm) override {
    TcpHandle wanted;
    std::memcpy(&wanted, handle.data(), std::min(sizeof(wanted), handle.size()));
    if (wanted.magic != kMagic) throw RunError("tcp: the handle is not one of ours");
    const SocketAddress address(reinterpret_cast<const sockaddr*>(&wanted.address), wanted.length);
    // A loopback or rack connection is there at once; a second is far beyond both.
    std::string reason;
    auto comm = std::make_unique<Comm>();
    comm->fd = ConnectWithin(address, std::chrono::seconds(1), reason);
    if (comm->fd < 0) throw RunError(fmt::format("tcp: cannot connect to {}: {}", address.Text(), reason));
    comm->sends = true;
    SetNoDelay(comm->fd);
    *send_comm = Enter(std::move(comm));
  }

  void Accept(void* listen_comm, void** receive_comm) override {
    *receive_comm = nullptr;
    const int fd = accept4(static_cast<Comm*>(listen_comm)->fd, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (fd < 0 && (errno == EAGAIN || errno == EINTR)) return;
    if (fd < 0) throw RunError(fmt::format("tcp: accept failed: {}", std::strerror(errno)));
    auto comm = std::make_unique<Comm>();
    comm->fd = fd;
    SetNoDelay(fd);
    *receive_comm = Enter(std::move(comm));
  }

  void* Register(void*, void* data, std::size_t) override { return data; }
  void Deregister(void*, void*) override {}
  void CloseSend(void* comm) override { Leave(static_cast<Comm*>(comm)); }
  void CloseReceive(void* comm) override { Leave(static_cast<Comm*>(comm)); }
  void CloseListen(void* comm) override { delete static_cast<Comm*>(comm); }

  void* Isend(void* comm_pointer, void* data, std::size_t bytes, int, void*) override {
    auto* const comm = static_cast<Comm*>(comm_pointer);
    Request* const request = comm->Take();
    if (request == nullptr) return nullptr;
    request->data = static_cast<char*>(data);
    request->posted = bytes;
    request->header.bytes = static_cast<std::uint32_t>(bytes);
    comm->queue.push_back(request);
    Flush(*comm);
    return request;
  }

  void* Irecv(void* comm_pointer, void* data, std::size_t bytes, int, void*) override {
    auto* const comm = static_cast<Comm*>(comm_pointer);
    Request* const request = comm->Take();
    if (request == nullptr) return nullptr;
    request->data = static_cast<char*>(data);
    request->posted = bytes;
    comm->queue.push_back(request);
    return request;
  }

  bool Test(void* request_pointer, std::size_t* bytes) override {
    auto* const request = static_cast<Request*>(request_pointer);
    Comm& comm = *request->comm;
    if (!request->done) {
      if (comm.sends) {
        Flush(comm);
      } else {
        Fill(comm);
      }
    }
    if (!request->done) return false;
    *bytes = request->header.bytes;
    request->used = false;
    return true;
  }

  void Idle(int rounds) override {
    if (rounds < kYieldRounds) {
      sched_yield();
      return;
    }
    std::vector<pollfd> items;
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      for (const Comm* comm : comms_) {
        if (!comm->queue.empty()) items.push_back({comm->fd, static_cast<short>(comm->sends ? POLLOUT : POLLIN), 0});
      }
    }
    poll(items.data(), items.size(), kPollMilliseconds);
  }

 private:
  void* Enter(std::unique_ptr<Comm> comm) {
    const std::lock_guard<std::mutex> lock(mutex_);
    comms_.insert(comm.get());
    return comm.release();
  }
  void Leave(Comm* comm) {
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      comms_.erase(comm);
    }
    delete comm;
  }

  // Sends what is queued, headers and payloads of several messages in one call.
  static void Flush(Comm& comm) {
    while (!comm.queue.empty()) {
      std::array<iovec, 8> parts;
      std::size_t count = 0;
      for (const Request* request : comm.queue) {
        if (count + 2 > parts.size()) break;
        const std::size_t head = std::min(request->moved, sizeof(MessageHeader));
        if (head < sizeof(MessageHeader)) {
          auto* const header = const_cast<char*>(reinterpret_cast<const char*>(&request->header));
          parts[count++] = {header + head, sizeof(MessageHeader) - head};
        }
        const std::size_t body = request->moved - head;
        if (body < request->posted) parts[count++] = {request->data + body, request->posted - body};
      }
      msghdr message = {};
      message.msg_iov = parts.data();
      message.msg_iovlen = count;
      const ssize_t sent = sendmsg(comm.fd, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
      if (sent < 0 && (errno == EAGAIN || errno == EINTR)) return;
      if (sent < 0) throw RunError(fmt::format("tcp: send failed: {}", std::strerror(errno)));
      Account(comm, static_cast<std::size_t>(sent));
    }
  }

  static void Account(Comm& comm, std::size_t sent) {
    while (!comm.queue.empty()) {
      Request& request = *comm.queue.front();
      const std::size_t whole = sizeof(MessageHeader) + request.posted;
      const std::size_t part = std::min(sent, whole - request.moved);
      request.moved += part;
      sent -= part;
      if (request.moved < whole) return;
      request.done = true;
      comm.queue.pop_front();
    }
  }

  // Receives into the posted buffers: the rest of a message and the header of the next in one call.
  static void Fill(Comm& comm) {
    while (!comm.queue.empty()) {
      CheckHeader(comm);
      if (FinishEmpty(comm)) continue;
      const bool headed = comm.incoming_bytes == sizeof(MessageHeader);
      Request& request = *comm.queue.front();
      MessageHeader next;
      std::array<iovec, 2> parts;
      std::size_t count = 0;
      std::size_t rest = 0;
      if (headed) {
        rest = comm.incoming.bytes - request.moved;
        if (rest > 0) parts[count++] = {request.data + request.moved, rest};
        parts[count++] = {&next, sizeof(next)};
      } else {
        parts[count++] = {reinterpret_cast<char*>(&comm.incoming) + comm.incoming_bytes,
                          sizeof(MessageHeader) - comm.incoming_bytes};
      }
      msghdr message = {};
      message.msg_iov = parts.data();
      message.msg_iovlen = count;
      const ssize_t got = recvmsg(comm.fd, &message, MSG_DONTWAIT);
      if (got < 0 && (errno == EAGAIN || errno == EINTR)) return;
      if (got < 0) throw RunError(fmt::format("tcp: receive failed: {}", std::strerror(errno)));
      if (got == 0) throw RunError("tcp: the sender closed the connection");
      if (headed) {
        TakeBody(comm, request, static_cast<std::size_t>(got), rest, next);
      } else {
        comm.incoming_bytes += static_cast<std::size_t>(got);
      }
    }
  }

  static void TakeBody(Comm& comm, Request& request, std::size_t got, std::size_t rest, const MessageHeader& next) {
    request.moved += std::min(got, rest);
    if (got < rest) return;
    request.header.bytes = comm.incoming.bytes;
    request.done = true;
    comm.queue.pop_front();
    comm.incoming = next;
    comm.incoming_bytes = got - rest;
  }

  // A message without payload is whole with its header.
  static bool FinishEmpty(Comm& comm) {
    if (comm.incoming_bytes < sizeof(MessageHeader) || comm.incoming.bytes != 0) return false;
    Request& request = *comm.queue.front();
    request.header.bytes = 0;
    request.done = true;
    comm.queue.pop_front();
    comm.incoming_bytes = 0;
    return true;
  }

  static void CheckHeader(const Comm& comm) {
    if (comm.incoming_bytes < sizeof(MessageHeader)) return;
    if (comm.incoming.magic != kMagic) throw RunError("tcp: the stream carries what is no message of ours");
    if (comm.incoming.bytes > comm.queue.front()->posted) {
      throw RunError(fmt::format("tcp: a message of {} bytes met a receive of {}", comm.incoming.bytes,
                                 comm.queue.front()->posted));
    }
  }

  SocketAddress address_;
  std::string congestion_control_;
  std::mutex mutex_;
  std::set<Comm*> comms_;
};

}  // namespace

std::unique_ptr<Net> MakeTcpNet(const std::string& default_address) {
  for (const char* variable : {"FORGIVE_INTERFACE", "NCCL_SOCKET_IFNAME"}) {
    const char* const names = std::getenv(variable);
    if (names == nullptr || *names == '\0') continue;
    const std::optional<SocketAddress> address = AddressOfInterface(names);
    if (!address) {
      throw UsageError(
          fmt::format("{}={}: no interface of that name is up with an address; see ip address", variable, names));
    }
    SocketAddress any_port = *address;
    any_port.SetPort(0);
    return std::make_unique<TcpNet>(any_port);
  }
  const bool bracketed = default_address.find(':') != std::string::npos;
  return std::make_unique<TcpNet>(
      ParseAddress(bracketed ? "[" + default_address + "]:0" : default_address + ":0", "address"));
}

}  // namespace forgive::perf
