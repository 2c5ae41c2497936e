// SPDX-License-Identifier: Apache-2.0
// The classic BPF filters that give every cut packet to the raw path and to it alone.
#ifndef FORGIVE_DATAPLANE_UDP_FILTER_H_
#define FORGIVE_DATAPLANE_UDP_FILTER_H_

#include <linux/filter.h>

#include <cstddef>
#include <cstdint>
#include <vector>

namespace forgive {

// A cut packet: version and type of a data packet, and the least of IP payload and UDP length is below the UDP
// header, the data header and the payload that the data header announces. (Raw sockets show packets whose UDP length
// or checksum is stale, which kernel UDP drops.)

// For the UDP socket: drops exactly the cut packets; its data begin at the UDP header.
std::vector<sock_filter> WholePacketFilter();
// For a socket that only sends: drops everything.
std::vector<sock_filter> NoPacketFilter();
// For a raw IPPROTO_UDP socket: passes exactly the cut packets to `port`; the data of an IPv4 one begin at the IP
// header, those of an IPv6 one at the UDP header.
std::vector<sock_filter> CutPacketFilter(bool ipv6, uint16_t port);

// True on success; else errno says why.
bool AttachFilter(int fd, const std::vector<sock_filter>& filter);

// The same test on a UDP payload of `length` bytes.
bool IsCut(const uint8_t* payload, size_t length);

}  // namespace forgive

#endif  // FORGIVE_DATAPLANE_UDP_FILTER_H_
