// SPDX-License-Identifier: Apache-2.0
// Socket addresses: parsing, printing, choosing an interface, connecting within a time.
#ifndef FORGIVE_TESTBED_PERF_SOCKET_ADDRESS_H_
#define FORGIVE_TESTBED_PERF_SOCKET_ADDRESS_H_

#include <sys/socket.h>

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>

namespace forgive::perf {

// An IPv4, IPv6 or unix socket address.
class SocketAddress {
 public:
  SocketAddress() = default;
  SocketAddress(const sockaddr* address, socklen_t length);
  static SocketAddress OfSocket(int fd);  // the address to which the socket is bound

  sa_family_t family() const { return storage_.ss_family; }
  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&storage_); }
  socklen_t length() const { return length_; }
  void SetPort(std::uint16_t port);

  std::string Host() const;  // numeric
  std::string Text() const;  // HOST:PORT, [HOST]:PORT or unix:PATH
  std::string Path() const;  // of a unix socket

 private:
  sockaddr_storage storage_ = {};
  socklen_t length_ = 0;
};

// HOST:PORT, [HOST]:PORT or unix:PATH. Throws UsageError that names `what`.
SocketAddress ParseAddress(const std::string& text, const std::string& what);

// The first address, IPv4 before IPv6, of an interface that is up and matches: a list of prefixes; =NAME: exact;
// ^LIST: all but these (NCCL_SOCKET_IFNAME's syntax). nullopt: none.
std::optional<SocketAddress> AddressOfInterface(const std::string& names);

// A connected, non-blocking socket; -1, with the reason, if it cannot be had within the time.
int ConnectWithin(const SocketAddress& address, std::chrono::milliseconds wait, std::string& reason);

void SetNoDelay(int fd);

}  // namespace forgive::perf

#endif  // FORGIVE_TESTBED_PERF_SOCKET_ADDRESS_H_
