// SPDX-License-Identifier: Apache-2.0
// Socket addresses and the choice of an interface.
#include "testbed/perf/socket_address.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <vector>

#include "dataplane/parse_number.h"
#include "testbed/perf/error.h"

namespace forgive::perf {
namespace {

bool InterfaceMatches(const std::string& names, const std::string& interface) {
  const bool exclude = names.starts_with("^");
  const bool exact = names.starts_with("=") || names.starts_with("^=");
  std::size_t at = (exclude ? 1u : 0u) + (exact ? 1u : 0u);
  bool listed = false;
  while (at < names.size()) {
    const std::size_t comma = std::min(names.find(',', at), names.size());
    const std::string name = names.substr(at, comma - at);
    if (exact ? interface == name : (!name.empty() && interface.starts_with(name))) listed = true;
    at = comma + 1;
  }
  return listed != exclude;
}

SocketAddress ParseUnix(const std::string& path, const std::string& what) {
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  if (path.empty() || path.size() >= sizeof(address.sun_path)) {
    throw UsageError(
        fmt::format("{} unix:{}: give a path of 1 to {} letters", what, path, sizeof(address.sun_path) - 1));
  }
  std::memcpy(address.sun_path, path.c_str(), path.size() + 1);
  return {reinterpret_cast<const sockaddr*>(&address), sizeof(address)};
}

}  // namespace

SocketAddress::SocketAddress(const sockaddr* address, socklen_t length)
    : length_(std::min<socklen_t>(length, sizeof(storage_))) {
  std::memcpy(&storage_, address, length_);
}

SocketAddress SocketAddress::OfSocket(int fd) {
  SocketAddress address;
  address.length_ = sizeof(address.storage_);
  if (getsockname(fd, reinterpret_cast<sockaddr*>(&address.storage_), &address.length_) != 0) address.length_ = 0;
  return address;
}

void SocketAddress::SetPort(std::uint16_t port) {
  if (family() == AF_INET6) {
    reinterpret_cast<sockaddr_in6*>(&storage_)->sin6_port = htons(port);
  } else {
    reinterpret_cast<sockaddr_in*>(&storage_)->sin_port = htons(port);
  }
}

std::string SocketAddress::Host() const {
  char host[NI_MAXHOST] = "?";
  getnameinfo(get(), length_, host, sizeof(host), nullptr, 0, NI_NUMERICHOST);
  return host;
}

std::string SocketAddress::Path() const { return reinterpret_cast<const sockaddr_un*>(&storage_)->sun_path; }

std::string SocketAddress::Text() const {
  if (family() == AF_UNIX) return "unix:" + Path();
  char port[NI_MAXSERV] = "?";
  getnameinfo(get(), length_, nullptr, 0, port, sizeof(port), NI_NUMERICSERV);
  return family() == AF_INET6 ? fmt::format("[{}]:{}", Host(), port) : fmt::format("{}:{}", Host(), port);
}

SocketAddress ParseAddress(const std::string& text, const std::string& what) {
  if (text.starts_with("unix:")) return ParseUnix(text.substr(5), what);
  const std::size_t colon = text.rfind(':');
  std::string host = text.substr(0, std::min(colon, text.size()));
  const std::string port = colon == std::string::npos ? "" : text.substr(colon + 1);
  if (host.size() > 1 && host.front() == '[' && host.back() == ']') host = host.substr(1, host.size() - 2);
  std::uint16_t number = 0;
  if (host.empty() || !ParseNumber(port, &number)) {
    throw UsageError(fmt::format("{} {}: give HOST:PORT, [IPv6]:PORT or unix:PATH", what, text));
  }
  addrinfo hints = {};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_NUMERICSERV;
  addrinfo* found = nullptr;
  const int error = getaddrinfo(host.c_str(), port.c_str(), &hints, &found);
  if (error != 0) {
    throw UsageError(fmt::format("{} {}: {} for host {}; give an address", what, text, gai_strerror(error), host));
  }
  const SocketAddress address(found->ai_addr, found->ai_addrlen);
  freeaddrinfo(found);
  return address;
}

std::optional<SocketAddress> AddressOfInterface(const std::string& names) {
  ifaddrs* all = nullptr;
  if (getifaddrs(&all) != 0) return std::nullopt;
  std::optional<SocketAddress> best;
  for (const ifaddrs* item = all; item != nullptr; item = item->ifa_next) {
    if (item->ifa_addr == nullptr || (item->ifa_flags & IFF_UP) == 0) continue;
    const sa_family_t family = item->ifa_addr->sa_family;
    if (family != AF_INET && family != AF_INET6) continue;
    if (!InterfaceMatches(names, item->ifa_name)) continue;
    if (best && (best->family() == AF_INET || family == AF_INET6)) continue;
    best.emplace(item->ifa_addr,
                 static_cast<socklen_t>(family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6)));
  }
  freeifaddrs(all);
  return best;
}

int ConnectWithin(const SocketAddress& address, std::chrono::milliseconds wait, std::string& reason) {
  const int fd = socket(address.family(), SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  int error = fd < 0 ? errno : 0;
  if (error == 0 && connect(fd, address.get(), address.length()) != 0) {
    error = errno;
    pollfd item = {fd, POLLOUT, 0};
    if (error == EINPROGRESS && poll(&item, 1, static_cast<int>(wait.count())) > 0) {
      socklen_t length = sizeof(error);
      getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &length);
    } else if (error == EINPROGRESS) {
      error = ETIMEDOUT;
    }
  }
  if (error == 0) return fd;
  reason = std::strerror(error);
  if (fd >= 0) close(fd);
  return -1;
}

void SetNoDelay(int fd) {
  const int on = 1;
  setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
}

}  // namespace forgive::perf
