// SPDX-License-Identifier: Apache-2.0
// Opening the sockets of the udp driver, with what the kernel granted and what it refused.
#include "dataplane/udp_socket.h"

#include <netinet/in.h>
#include <netinet/ip.h>
#include <netinet/udp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "dataplane/socket_address.h"
#include "dataplane/udp_filter.h"
#include "transport/check.h"

// Newer than some C libraries' headers.
#ifndef UDP_SEGMENT
#define UDP_SEGMENT 103
#endif
#ifndef UDP_GRO
#define UDP_GRO 104
#endif
#ifndef UDP_NO_CHECK6_TX
#define UDP_NO_CHECK6_TX 101
#define UDP_NO_CHECK6_RX 102
#endif

namespace forgive {
namespace {

constexpr uint64_t kSendBufferBytes = 4u << 20;
constexpr uint64_t kRawReceiveBufferBytes = 8u << 20;

bool SetInt(int fd, int level, int name, int value) {
  return setsockopt(fd, level, name, &value, sizeof(value)) == 0;
}

// Asks for a buffer, by force where permitted; returns what was granted in the unit it was asked in.
uint64_t SetBuffer(int fd, int force_name, int name, uint64_t bytes) {
  const int wanted = static_cast<int>(std::min<uint64_t>(bytes, INT32_MAX / 2));
  if (!SetInt(fd, SOL_SOCKET, force_name, wanted)) SetInt(fd, SOL_SOCKET, name, wanted);
  int granted = 0;
  socklen_t length = sizeof(granted);
  getsockopt(fd, SOL_SOCKET, name, &granted, &length);
  return static_cast<uint64_t>(granted) / 2;  // the kernel doubles it for its own bookkeeping
}

std::string PortRangeText(const UdpDriverOptions& options) {
  if (options.port_low == options.port_high) return "port " + std::to_string(options.port_low);
  return "every port of " + std::to_string(options.port_low) + "-" + std::to_string(options.port_high);
}

// Binds to the first free port of the range.
bool Bind(const UdpDriverOptions& options, int fd, Address* local, std::string* error) {
  const uint32_t high = std::max(options.port_low, options.port_high);
  for (uint32_t port = options.port_low; port <= high; ++port) {
    SetAddressPort(static_cast<uint16_t>(port), local);
    sockaddr_storage storage;
    const socklen_t length = ToSocketAddress(*local, &storage);
    if (bind(fd, reinterpret_cast<const sockaddr*>(&storage), length) == 0) return true;
    if (errno == EADDRNOTAVAIL) {
      *error = "address " + options.local_address + " is not on this machine: choose an interface that is up";
      return false;
    }
    if (errno != EADDRINUSE) {
      *error = "UDP port " + std::to_string(port) + " on " + options.local_address + ": " + std::strerror(errno) +
               ": choose other ports with FORGIVE_PORT_RANGE";
      return false;
    }
  }
  *error = options.port_low == 0
               ? "no UDP port is free on " + options.local_address + ": close sockets, or set FORGIVE_PORT_RANGE"
               : PortRangeText(options) + " on " + options.local_address +
                     " is in use (UDP): choose a free range with FORGIVE_PORT_RANGE";
  return false;
}

// What every socket that sends has, whether it receives or not.
bool SetSendOptions(bool ipv6, int fd) {
  SetBuffer(fd, SO_SNDBUFFORCE, SO_SNDBUF, kSendBufferBytes);
  // PROBE sets DF and ignores the path MTU that ICMP tells: the handshake found the size, and a forged ICMP message
  // must not make the kernel refuse it.
  if (!ipv6) return SetInt(fd, IPPROTO_IP, IP_MTU_DISCOVER, IP_PMTUDISC_PROBE);
  SetInt(fd, IPPROTO_IPV6, IPV6_DONTFRAG, 1);
  return SetInt(fd, IPPROTO_IPV6, IPV6_V6ONLY, 1) && SetInt(fd, IPPROTO_IPV6, IPV6_MTU_DISCOVER, IPV6_PMTUDISC_PROBE);
}

bool SetCommonOptions(const UdpDriverOptions& options, UdpSockets* sockets, std::string* error) {
  const int fd = sockets->udp.get();
  sockets->receive_buffer_bytes = SetBuffer(fd, SO_RCVBUFFORCE, SO_RCVBUF, options.receive_buffer_bytes);
  SetInt(fd, SOL_SOCKET, SO_RXQ_OVFL, 1);
  const bool ok = SetSendOptions(sockets->ipv6, fd) && (sockets->ipv6 ? SetInt(fd, IPPROTO_IPV6, IPV6_RECVTCLASS, 1)
                                                                      : SetInt(fd, IPPROTO_IP, IP_RECVTOS, 1));
  if (!ok) *error = "UDP socket on " + options.local_address + ": " + std::strerror(errno) + " (ECN or DF)";
  return ok;
}

// The kernel refuses UDP_SEGMENT without checksums; where it is not used they are only a cost, as the payload has its
// own CRC.
void LeaveOutChecksums(const UdpSockets& sockets, int fd) {
  if (sockets.segmentation) return;
  if (sockets.ipv6) {
    SetInt(fd, IPPROTO_UDP, UDP_NO_CHECK6_TX, 1);
  } else {
    SetInt(fd, SOL_SOCKET, SO_NO_CHECK, 1);
  }
}

void SetOffloads(const UdpDriverOptions& options, UdpSockets* sockets) {
  const int fd = sockets->udp.get();
  // Setting 0 asks only whether the kernel knows the option; sizes go with each message.
  sockets->segmentation = options.segmentation && SetInt(fd, IPPROTO_UDP, UDP_SEGMENT, 0);
  sockets->coalescing = options.coalescing && SetInt(fd, IPPROTO_UDP, UDP_GRO, 1);
  if (sockets->ipv6) SetInt(fd, IPPROTO_UDP, UDP_NO_CHECK6_RX, 1);
  LeaveOutChecksums(*sockets, fd);
}

bool OpenSocket(bool ipv6, UniqueFd* out, std::string* error) {
  *out = UniqueFd(socket(ipv6 ? AF_INET6 : AF_INET, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (out->valid()) return true;
  *error = std::string("UDP socket: ") + std::strerror(errno) + ": raise the limit of open files (ulimit -n)";
  return false;
}

uint16_t BoundPort(int fd) {
  sockaddr_storage bound{};
  socklen_t length = sizeof(bound);
  getsockname(fd, reinterpret_cast<sockaddr*>(&bound), &length);
  return AddressPort(ToAddress(reinterpret_cast<const sockaddr*>(&bound)));
}

// A socket that only sends: it has a port of its own on the device's address, and what others send there it drops.
bool OpenPath(const UdpDriverOptions& options, const UdpSockets& sockets, UniqueFd* out, std::string* error) {
  if (!OpenSocket(sockets.ipv6, out, error)) return false;
  const int fd = out->get();
  if (!SetSendOptions(sockets.ipv6, fd) || !AttachFilter(fd, NoPacketFilter())) {
    *error = "UDP socket on " + options.local_address + ": " + std::strerror(errno) + " (DF or filter)";
    return false;
  }
  LeaveOutChecksums(sockets, fd);
  Address local = sockets.local;
  return Bind(options, fd, &local, error);
}

bool OpenMorePaths(const UdpDriverOptions& options, UdpSockets* sockets, std::string* error) {
  for (uint32_t path = 1; path < options.paths; ++path) {
    UniqueFd fd;
    if (!OpenPath(options, *sockets, &fd, error)) {
      *error = "path " + std::to_string(path + 1) + " of FORGIVE_PATHS=" + std::to_string(options.paths) +
               " has no port of its own: " + *error;
      return false;
    }
    sockets->more_ports.push_back(BoundPort(fd.get()));
    sockets->more_paths.push_back(std::move(fd));
  }
  return true;
}

// Opens the raw socket and moves cut packets to it. Fails only on errors that are not a matter of permission.
bool OpenRawPath(UdpSockets* sockets, std::string* error) {
  const int family = sockets->ipv6 ? AF_INET6 : AF_INET;
  UniqueFd raw(socket(family, SOCK_RAW | SOCK_NONBLOCK | SOCK_CLOEXEC, IPPROTO_UDP));
  if (!raw.valid()) {
    sockets->raw_denied = true;
    return true;
  }
  // The filter first: until it stands, the socket would collect every UDP packet of the machine.
  bool ok = AttachFilter(raw.get(), CutPacketFilter(sockets->ipv6, AddressPort(sockets->local)));
  Address host = sockets->local;
  SetAddressPort(0, &host);
  sockaddr_storage storage;
  const socklen_t length = ToSocketAddress(host, &storage);
  ok = ok && bind(raw.get(), reinterpret_cast<const sockaddr*>(&storage), length) == 0;
  ok = ok && (sockets->ipv6 ? SetInt(raw.get(), IPPROTO_IPV6, IPV6_RECVTCLASS, 1) : true);
  SetInt(raw.get(), SOL_SOCKET, SO_RXQ_OVFL, 1);
  SetBuffer(raw.get(), SO_RCVBUFFORCE, SO_RCVBUF, kRawReceiveBufferBytes);
  // Empty what slipped in before the filter stood, then take cut packets away from the UDP socket.
  char scratch[64];
  while (ok && recv(raw.get(), scratch, sizeof(scratch), MSG_DONTWAIT) >= 0) {
  }
  ok = ok && AttachFilter(sockets->udp.get(), WholePacketFilter());
  if (!ok) {
    *error = "raw UDP socket on " + AddressText(sockets->local) + ": " + std::strerror(errno) +
             ": set FORGIVE_TRIM=0 if the fabric does not trim";
    return false;
  }
  sockets->raw = std::move(raw);
  return true;
}

}  // namespace

UniqueFd& UniqueFd::operator=(UniqueFd&& other) noexcept {
  std::swap(fd_, other.fd_);
  return *this;
}

UniqueFd::~UniqueFd() {
  if (fd_ >= 0) close(fd_);
}

bool OpenUdpSockets(const UdpDriverOptions& options, UdpSockets* out, std::string* error) {
  if (!ParseAddress(options.local_address, 0, &out->local)) {
    *error = "\"" + options.local_address + "\" is not a numeric IPv4 or IPv6 address";
    return false;
  }
  out->ipv6 = AddressFamily(out->local) == AF_INET6;
  if (!OpenSocket(out->ipv6, &out->udp, error) || !SetCommonOptions(options, out, error)) return false;
  SetOffloads(options, out);
  if (!Bind(options, out->udp.get(), &out->local, error)) return false;
  sockaddr_storage bound{};
  socklen_t length = sizeof(bound);
  getsockname(out->udp.get(), reinterpret_cast<sockaddr*>(&bound), &length);
  out->local = ToAddress(reinterpret_cast<const sockaddr*>(&bound));
  if (!FindInterface(out->local, &out->interface, &out->mtu_bytes)) {
    *error = errno == 0 ? "address " + options.local_address + " is on no interface: choose one that is up"
                        : CannotListInterfaces(errno);
    return false;
  }
  out->leave_by = InterfaceOfSharedSubnet(out->local, &out->local_hosts);
  if (!OpenMorePaths(options, out, error)) return false;
  const bool raw =
      options.raw_path == RawPath::kAlways || (options.raw_path == RawPath::kAuto && out->interface != "lo");
  return !raw || OpenRawPath(out, error);
}

bool OpenRails(const UdpDriverOptions& options, std::vector<UdpSockets>* out, std::string* error) {
  FORGIVE_CHECK(options.more_rails.size() < kMaxRails);
  UdpDriverOptions rail = options;
  rail.more_rails.clear();
  for (size_t next = 0;; ++next) {
    UdpSockets sockets;
    if (!OpenUdpSockets(rail, &sockets, error)) return false;
    out->push_back(std::move(sockets));
    if (out->back().ipv6 != out->front().ipv6) {
      *error = "rails " + options.local_address + " and " + rail.local_address +
               " must be both IPv4 or both IPv6: set NCCL_SOCKET_FAMILY";
      return false;
    }
    if (next == options.more_rails.size()) return true;
    rail.local_address = options.more_rails[next];
  }
}

}  // namespace forgive
