// SPDX-License-Identifier: Apache-2.0
// The baselines' sockets: listening, connecting, accepting, and where.
#include "testbed/perf/tcp_net.h"

#include <fmt/format.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <utility>

#include "testbed/perf/error.h"

namespace forgive::perf {
namespace {

struct TcpHandle {
  std::uint32_t magic = kTcpMagic;
  std::uint32_t length = 0;
  sockaddr_storage address = {};
};

struct Listener {
  explicit Listener(int socket) : fd(socket) {}
  ~Listener() {
    if (fd >= 0) close(fd);
  }
  const int fd;
};

SocketAddress LocalAddress(const std::string& default_address) {
  for (const char* variable : {"FORGIVE_INTERFACE", "NCCL_SOCKET_IFNAME"}) {
    const char* const names = std::getenv(variable);
    if (names == nullptr || *names == '\0') continue;
    std::optional<SocketAddress> address = AddressOfInterface(names);
    if (!address) {
      throw UsageError(
          fmt::format("{}={}: no interface of that name is up with an address; see ip address", variable, names));
    }
    address->SetPort(0);
    return *address;
  }
  const bool bracketed = default_address.find(':') != std::string::npos;
  return ParseAddress(bracketed ? "[" + default_address + "]:0" : default_address + ":0", "address");
}

}  // namespace

TcpNet::TcpNet(std::string name, const SocketAddress& address) : name_(std::move(name)), address_(address) {
  const int probe = socket(address_.family(), SOCK_STREAM | SOCK_CLOEXEC, 0);
  char congestion_control[32] = "unknown";
  socklen_t length = sizeof(congestion_control) - 1;
  getsockopt(probe, IPPROTO_TCP, TCP_CONGESTION, congestion_control, &length);
  if (probe >= 0) close(probe);
  congestion_control_ = congestion_control;
}

std::string TcpNet::Description() const {
  return fmt::format("{}, congestion control {}, address {}", name_, congestion_control_, address_.Host());
}

void TcpNet::Listen(Handle& handle, void** listen_comm) {
  auto listener =
      std::make_unique<Listener>(socket(address_.family(), SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (listener->fd < 0 || bind(listener->fd, address_.get(), address_.length()) != 0 ||
      listen(listener->fd, 16) != 0) {
    throw RunError(fmt::format("tcp: cannot listen at {}: {}", address_.Host(), std::strerror(errno)));
  }
  const SocketAddress bound = SocketAddress::OfSocket(listener->fd);
  TcpHandle filled;
  filled.length = bound.length();
  std::memcpy(&filled.address, bound.get(), bound.length());
  // sockaddr_storage is as large as the handle; both families' addresses are far smaller.
  static_assert(offsetof(TcpHandle, address) + sizeof(sockaddr_in6) <= abi::kHandleBytes);
  std::memcpy(handle.data(), &filled, std::min(sizeof(filled), handle.size()));
  *listen_comm = listener.release();
}

void TcpNet::Connect(Handle& handle, void** send_comm) {
  TcpHandle wanted;
  std::memcpy(&wanted, handle.data(), std::min(sizeof(wanted), handle.size()));
  if (wanted.magic != kTcpMagic) throw RunError("tcp: the handle is not one of ours");
  const SocketAddress address(reinterpret_cast<const sockaddr*>(&wanted.address), wanted.length);
  // A loopback or rack connection is there at once; a second is far beyond both.
  std::string reason;
  const int fd = ConnectWithin(address, std::chrono::seconds(1), reason);
  if (fd < 0) throw RunError(fmt::format("tcp: cannot connect to {}: {}", address.Text(), reason));
  SetNoDelay(fd);
  auto* const connection = new TcpConnection(fd, true);
  Enter(connection);
  *send_comm = connection;
}

void TcpNet::Accept(void* listen_comm, void** receive_comm) {
  *receive_comm = nullptr;
  const int fd = accept4(static_cast<Listener*>(listen_comm)->fd, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK);
  if (fd < 0 && (errno == EAGAIN || errno == EINTR)) return;
  if (fd < 0) throw RunError(fmt::format("tcp: accept failed: {}", std::strerror(errno)));
  SetNoDelay(fd);
  auto* const connection = new TcpConnection(fd, false);
  Enter(connection);
  *receive_comm = connection;
}

void TcpNet::CloseListen(void* comm) { delete static_cast<Listener*>(comm); }

std::unique_ptr<Net> MakeTcpNet(Baseline baseline, const std::string& default_address) {
  const SocketAddress address = LocalAddress(default_address);
  return baseline == Baseline::kTcpThreaded ? MakeTcpThreadedNet(address) : MakeTcpCallerNet(address);
}

}  // namespace forgive::perf
