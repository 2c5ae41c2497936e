// SPDX-License-Identifier: Apache-2.0
// Between the transport's opaque Address and the kernel's socket addresses: IPv4, IPv6, link-local scopes.
#ifndef FORGIVE_DATAPLANE_SOCKET_ADDRESS_H_
#define FORGIVE_DATAPLANE_SOCKET_ADDRESS_H_

#include <ifaddrs.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "transport/datagram.h"

namespace forgive {

// An Address holds a sockaddr_in or sockaddr_in6 from its first byte, all unused bytes zero: the same place is
// always the same bytes.
Address ToAddress(const sockaddr* socket_address);
// Copies it back; returns its length (0: it holds neither family).
socklen_t ToSocketAddress(const Address& address, sockaddr_storage* out);

int AddressFamily(const Address& address);  // AF_INET, AF_INET6 or something else
uint16_t AddressPort(const Address& address);
void SetAddressPort(uint16_t port, Address* address);
uint32_t AddressScope(const Address& address);           // interface index of a link-local address, else 0
void SetAddressScope(uint32_t scope, Address* address);  // only changes IPv6 link-local addresses

// Numeric IPv4 or IPv6, link-local with %scope (a name or an index). False: not an address.
bool ParseAddress(const std::string& text, uint16_t port, Address* out);
// "HOST:PORT" or "[HOST]:PORT", numeric. False: not that.
bool ParseAddressAndPort(const std::string& text, Address* out);
// "10.0.0.1:4791" or "[fe80::1%3]:4791", for messages.
std::string AddressText(const Address& address);

struct FreeInterfaces {
  void operator()(ifaddrs* list) const { freeifaddrs(list); }
};
using InterfaceList = std::unique_ptr<ifaddrs, FreeInterfaces>;

// The addresses of all interfaces, in the kernel's order. Afterwards errno is 0, or says why there are none.
InterfaceList ListInterfaces();
// The words for an errno that ListInterfaces or FindInterface left, and the way out.
std::string CannotListInterfaces(int error);

// The interface that holds the address: its name, and its MTU in bytes. False: no interface does, and
// errno is 0; or what there is cannot be asked, and errno says why.
bool FindInterface(const Address& address, std::string* name, uint32_t* mtu_bytes);

// Where another interface has an address in the same subnet, the routing table sends everything out of one of the
// two. The index of the address's own interface if that is so, else 0; then *local_hosts gets all addresses of this
// machine (with port 0), to which packets do not leave by an interface at all.
uint32_t InterfaceOfSharedSubnet(const Address& address, std::vector<Address>* local_hosts);

}  // namespace forgive

#endif  // FORGIVE_DATAPLANE_SOCKET_ADDRESS_H_
