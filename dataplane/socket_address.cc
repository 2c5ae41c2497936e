// SPDX-License-Identifier: Apache-2.0
// Between the transport's opaque Address and the kernel's socket addresses.
#include "dataplane/socket_address.h"

#include <arpa/inet.h>
#include <net/if.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "dataplane/parse_number.h"

namespace forgive {
namespace {

static_assert(sizeof(sockaddr_in6) == sizeof(Address::bytes));

sockaddr_in6 AsIpv6(const Address& address) {
  sockaddr_in6 out;
  std::memcpy(&out, address.bytes.data(), sizeof(out));
  return out;
}

bool SameHost(const Address& address, const sockaddr* other) {
  if (other == nullptr || other->sa_family != AddressFamily(address)) return false;
  Address theirs = ToAddress(other);
  SetAddressPort(AddressPort(address), &theirs);
  return theirs == address;
}

// The host's bytes of an address; their number, 0 for other families.
size_t HostBytes(const sockaddr* socket_address, const uint8_t** bytes) {
  if (socket_address == nullptr) return 0;
  if (socket_address->sa_family == AF_INET) {
    *bytes = reinterpret_cast<const uint8_t*>(&reinterpret_cast<const sockaddr_in*>(socket_address)->sin_addr);
    return sizeof(in_addr);
  }
  if (socket_address->sa_family != AF_INET6) return 0;
  *bytes = reinterpret_cast<const uint8_t*>(&reinterpret_cast<const sockaddr_in6*>(socket_address)->sin6_addr);
  return sizeof(in6_addr);
}

bool SameSubnet(const sockaddr* a, const sockaddr* b, const sockaddr* mask) {
  const uint8_t* a_bytes = nullptr;
  const uint8_t* b_bytes = nullptr;
  const uint8_t* mask_bytes = nullptr;
  const size_t length = HostBytes(a, &a_bytes);
  if (length == 0 || HostBytes(b, &b_bytes) != length || HostBytes(mask, &mask_bytes) != length) return false;
  for (size_t i = 0; i < length; ++i) {
    if (((a_bytes[i] ^ b_bytes[i]) & mask_bytes[i]) != 0) return false;
  }
  return true;
}

uint32_t InterfaceMtu(const char* name) {
  const int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  if (fd < 0) return 0;
  ifreq request{};
  std::strncpy(request.ifr_name, name, IFNAMSIZ - 1);
  const int failed = ioctl(fd, SIOCGIFMTU, &request);
  close(fd);
  return failed != 0 ? 0 : static_cast<uint32_t>(request.ifr_mtu);
}

}  // namespace

Address ToAddress(const sockaddr* socket_address) {
  Address out;
  if (socket_address->sa_family == AF_INET) {
    sockaddr_in ipv4;
    std::memcpy(&ipv4, socket_address, sizeof(ipv4));
    std::memset(ipv4.sin_zero, 0, sizeof(ipv4.sin_zero));
    std::memcpy(out.bytes.data(), &ipv4, sizeof(ipv4));
  } else if (socket_address->sa_family == AF_INET6) {
    sockaddr_in6 ipv6;
    std::memcpy(&ipv6, socket_address, sizeof(ipv6));
    ipv6.sin6_flowinfo = 0;
    if (!IN6_IS_ADDR_LINKLOCAL(&ipv6.sin6_addr)) ipv6.sin6_scope_id = 0;
    std::memcpy(out.bytes.data(), &ipv6, sizeof(ipv6));
  }
  return out;
}

socklen_t ToSocketAddress(const Address& address, sockaddr_storage* out) {
  std::memcpy(out, address.bytes.data(), address.bytes.size());
  switch (AddressFamily(address)) {
    case AF_INET:
      return sizeof(sockaddr_in);
    case AF_INET6:
      return sizeof(sockaddr_in6);
    default:
      return 0;
  }
}

int AddressFamily(const Address& address) {
  sa_family_t family;
  std::memcpy(&family, address.bytes.data(), sizeof(family));
  return family;
}

// The port stands at the same place in both families.
static_assert(offsetof(sockaddr_in, sin_port) == offsetof(sockaddr_in6, sin6_port));

uint16_t AddressPort(const Address& address) {
  uint16_t port;
  std::memcpy(&port, address.bytes.data() + offsetof(sockaddr_in, sin_port), sizeof(port));
  return ntohs(port);
}

void SetAddressPort(uint16_t port, Address* address) {
  const uint16_t network = htons(port);
  std::memcpy(address->bytes.data() + offsetof(sockaddr_in, sin_port), &network, sizeof(network));
}

uint32_t AddressScope(const Address& address) {
  return AddressFamily(address) == AF_INET6 ? AsIpv6(address).sin6_scope_id : 0;
}

void SetAddressScope(uint32_t scope, Address* address) {
  if (AddressFamily(*address) != AF_INET6) return;
  sockaddr_in6 ipv6 = AsIpv6(*address);
  if (!IN6_IS_ADDR_LINKLOCAL(&ipv6.sin6_addr)) return;
  ipv6.sin6_scope_id = scope;
  std::memcpy(address->bytes.data(), &ipv6, sizeof(ipv6));
}

bool ParseAddress(const std::string& text, uint16_t port, Address* out) {
  sockaddr_in ipv4{};
  if (inet_pton(AF_INET, text.c_str(), &ipv4.sin_addr) == 1) {
    ipv4.sin_family = AF_INET;
    ipv4.sin_port = htons(port);
    *out = ToAddress(reinterpret_cast<const sockaddr*>(&ipv4));
    return true;
  }
  const size_t percent = text.find('%');
  sockaddr_in6 ipv6{};
  if (inet_pton(AF_INET6, text.substr(0, percent).c_str(), &ipv6.sin6_addr) != 1) return false;
  ipv6.sin6_family = AF_INET6;
  ipv6.sin6_port = htons(port);
  if (percent != std::string::npos) {
    const std::string scope = text.substr(percent + 1);
    uint32_t index = if_nametoindex(scope.c_str());
    if (index == 0 && !ParseNumber(scope, &index)) return false;
    ipv6.sin6_scope_id = index;
  }
  *out = ToAddress(reinterpret_cast<const sockaddr*>(&ipv6));
  return true;
}

bool ParseAddressAndPort(const std::string& text, Address* out) {
  const size_t colon = text.rfind(':');
  if (colon == std::string::npos) return false;
  std::string host = text.substr(0, colon);
  if (host.size() >= 2 && host.front() == '[' && host.back() == ']') host = host.substr(1, host.size() - 2);
  uint16_t port = 0;
  if (!ParseNumber(std::string_view(text).substr(colon + 1), 1, UINT16_MAX, &port)) return false;
  return ParseAddress(host, port, out);
}

std::string AddressText(const Address& address) {
  char host[INET6_ADDRSTRLEN] = "";
  const std::string port = std::to_string(AddressPort(address));
  if (AddressFamily(address) == AF_INET) {
    sockaddr_in ipv4;
    std::memcpy(&ipv4, address.bytes.data(), sizeof(ipv4));
    inet_ntop(AF_INET, &ipv4.sin_addr, host, sizeof(host));
    return std::string(host) + ":" + port;
  }
  if (AddressFamily(address) != AF_INET6) return "(no address)";
  const sockaddr_in6 ipv6 = AsIpv6(address);
  inet_ntop(AF_INET6, &ipv6.sin6_addr, host, sizeof(host));
  const std::string scope = ipv6.sin6_scope_id == 0 ? "" : "%" + std::to_string(ipv6.sin6_scope_id);
  return "[" + std::string(host) + scope + "]:" + port;
}

InterfaceList ListInterfaces() {
  ifaddrs* list = nullptr;
  if (getifaddrs(&list) != 0) return nullptr;
  errno = 0;
  return InterfaceList(list);
}

std::string CannotListInterfaces(int error) {
  return std::string("the interfaces cannot be listed: ") + std::strerror(error) +
         ": raise the limit of open files (ulimit -n)";
}

bool FindInterface(const Address& address, std::string* name, uint32_t* mtu_bytes) {
  const InterfaceList list = ListInterfaces();
  if (errno != 0) return false;
  bool found = false;
  for (const ifaddrs* entry = list.get(); entry != nullptr && !found; entry = entry->ifa_next) {
    if (!SameHost(address, entry->ifa_addr)) continue;
    *name = entry->ifa_name;
    *mtu_bytes = InterfaceMtu(entry->ifa_name);
    found = *mtu_bytes != 0;
  }
  // All of 127.0.0.0/8 is on lo, which names only its first address.
  if (!found && AddressFamily(address) == AF_INET && address.bytes[4] == 127) {
    *name = "lo";
    *mtu_bytes = InterfaceMtu("lo");
    found = *mtu_bytes != 0;
  }
  return found;
}

uint32_t InterfaceOfSharedSubnet(const Address& address, std::vector<Address>* local_hosts) {
  // Every interface has the subnet of link-local addresses, and their scope already names the interface.
  if (AddressScope(address) != 0) return 0;
  const InterfaceList list = ListInterfaces();
  const ifaddrs* own = nullptr;
  for (const ifaddrs* entry = list.get(); entry != nullptr; entry = entry->ifa_next) {
    if (entry->ifa_addr == nullptr) continue;
    if (own == nullptr && SameHost(address, entry->ifa_addr)) own = entry;
    const int family = entry->ifa_addr->sa_family;
    if (family != AF_INET && family != AF_INET6) continue;
    Address host = ToAddress(entry->ifa_addr);
    SetAddressPort(0, &host);
    local_hosts->push_back(host);
  }
  bool shared = false;
  for (const ifaddrs* entry = list.get(); own != nullptr && entry != nullptr; entry = entry->ifa_next) {
    if ((entry->ifa_flags & IFF_UP) == 0 || std::strcmp(entry->ifa_name, own->ifa_name) == 0) continue;
    shared = shared || SameSubnet(own->ifa_addr, entry->ifa_addr, own->ifa_netmask);
  }
  return shared ? if_nametoindex(own->ifa_name) : 0;
}

}  // namespace forgive
