// SPDX-License-Identifier: Apache-2.0
// The kernel's routes, neighbours and link states by netlink, for ports that stand on a kernel interface.
#include "dataplane/dpdk/kernel_routes.h"

#include <fcntl.h>
#include <linux/rtnetlink.h>
#include <net/if.h>
#include <netinet/in.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/time.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "dataplane/socket_address.h"

namespace forgive {
namespace {

constexpr uint16_t kDiscardPort = 9;
constexpr timeval kAnswerTimeout{0, 100000};
constexpr uint16_t kUsable = NUD_REACHABLE | NUD_STALE | NUD_DELAY | NUD_PROBE | NUD_PERMANENT | NUD_NOARP;

// A request with room for its attributes.
template <typename Body>
struct Request {
  nlmsghdr header{};
  Body body{};
  std::array<uint8_t, 64> attributes{};

  void Append(uint16_t type, const void* data, size_t length) {
    rtattr attribute{};
    attribute.rta_type = type;
    attribute.rta_len = static_cast<uint16_t>(RTA_LENGTH(length));
    uint8_t* at = attributes.data() + (NLMSG_ALIGN(header.nlmsg_len) - sizeof(header) - sizeof(body));
    std::memcpy(at, &attribute, sizeof(attribute));
    std::memcpy(at + RTA_LENGTH(0), data, length);
    header.nlmsg_len = NLMSG_ALIGN(header.nlmsg_len) + RTA_ALIGN(attribute.rta_len);
  }
};

size_t HostBytes(const Address& address) { return AddressFamily(address) == AF_INET6 ? 16 : 4; }
const uint8_t* Host(const Address& address) {
  return address.bytes.data() + (AddressFamily(address) == AF_INET6 ? 8 : 4);
}

// Calls `visit(type, data, length)` for each attribute in the `length` bytes from `bytes` on.
template <typename Visit>
void VisitAttributes(const uint8_t* bytes, size_t length, const Visit& visit) {
  while (length >= sizeof(rtattr)) {
    rtattr attribute;
    std::memcpy(&attribute, bytes, sizeof(attribute));
    if (attribute.rta_len < sizeof(attribute) || attribute.rta_len > length) return;
    visit(attribute.rta_type, bytes + RTA_LENGTH(0), attribute.rta_len - RTA_LENGTH(0));
    const size_t step = std::min<size_t>(RTA_ALIGN(attribute.rta_len), length);
    bytes += step;
    length -= step;
  }
}

UniqueFd OpenNetlink(uint32_t groups) {
  UniqueFd fd(socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_ROUTE));
  sockaddr_nl name{};
  name.nl_family = AF_NETLINK;
  name.nl_groups = groups;
  if (!fd.valid() || bind(fd.get(), reinterpret_cast<const sockaddr*>(&name), sizeof(name)) != 0) return UniqueFd();
  setsockopt(fd.get(), SOL_SOCKET, SO_RCVTIMEO, &kAnswerTimeout, sizeof(kAnswerTimeout));
  return fd;
}

// Asks the kernel about an interface by one of the SIOCGIF requests.
ifreq AskInterface(const std::string& interface, unsigned long what) {
  const UniqueFd fd(socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  ifreq request{};
  std::strncpy(request.ifr_name, interface.c_str(), IFNAMSIZ - 1);
  if (ioctl(fd.get(), what, &request) != 0) request = ifreq{};
  return request;
}

}  // namespace

std::unique_ptr<LinkWatch> LinkWatch::Open(const std::string& interface, bool routes, std::string* error) {
  const uint32_t index = if_nametoindex(interface.c_str());
  if (index == 0) {
    *error = "there is no interface \"" + interface + "\": choose one that `ip link` shows";
    return nullptr;
  }
  uint32_t groups = RTMGRP_LINK;
  if (routes) groups |= RTMGRP_NEIGH | RTMGRP_IPV4_ROUTE | RTMGRP_IPV6_ROUTE;
  UniqueFd fd = OpenNetlink(groups);
  if (!fd.valid()) {
    *error = std::string("netlink socket: ") + std::strerror(errno);
    return nullptr;
  }
  std::unique_ptr<LinkWatch> watch(new LinkWatch(std::move(fd), index));
  const int flags = AskInterface(interface, SIOCGIFFLAGS).ifr_flags;
  watch->up_ = (flags & IFF_UP) != 0 && (flags & IFF_RUNNING) != 0;
  watch->mtu_bytes_ = static_cast<uint32_t>(AskInterface(interface, SIOCGIFMTU).ifr_mtu);
  return watch;
}

void LinkWatch::OnMessage(const nlmsghdr& message) {
  const uint8_t* body = reinterpret_cast<const uint8_t*>(&message) + NLMSG_HDRLEN;
  if (message.nlmsg_type == RTM_NEWLINK || message.nlmsg_type == RTM_DELLINK) {
    ifinfomsg link;
    std::memcpy(&link, body, sizeof(link));
    if (static_cast<uint32_t>(link.ifi_index) != index_) return;
    // A bridge tells of a port that left it as of a link that is gone, in its own family.
    if (message.nlmsg_type == RTM_DELLINK && link.ifi_family == AF_UNSPEC) gone_ = true;
    up_ = !gone_ && (link.ifi_flags & IFF_UP) != 0 && (link.ifi_flags & IFF_RUNNING) != 0;
  } else if (message.nlmsg_type == RTM_NEWNEIGH || message.nlmsg_type == RTM_DELNEIGH) {
    ndmsg neighbour;
    std::memcpy(&neighbour, body, sizeof(neighbour));
    changed_ = changed_ || static_cast<uint32_t>(neighbour.ndm_ifindex) == index_;
  } else if (message.nlmsg_type == RTM_NEWROUTE || message.nlmsg_type == RTM_DELROUTE) {
    changed_ = true;
  }
}

bool LinkWatch::Poll() {
  changed_ = false;
  alignas(nlmsghdr) std::array<uint8_t, 8192> buffer;
  for (int reads = 0; reads < 16; ++reads) {
    const ssize_t got = recv(fd_.get(), buffer.data(), buffer.size(), MSG_DONTWAIT);
    if (got <= 0) {
      // Events were lost: whatever was known may have changed.
      if (got < 0 && errno == ENOBUFS) changed_ = true;
      break;
    }
    size_t left = static_cast<size_t>(got);
    const uint8_t* at = buffer.data();
    while (left >= sizeof(nlmsghdr)) {
      const auto* message = reinterpret_cast<const nlmsghdr*>(at);
      if (message->nlmsg_len < sizeof(nlmsghdr) || message->nlmsg_len > left) break;
      OnMessage(*message);
      const size_t step = std::min<size_t>(NLMSG_ALIGN(message->nlmsg_len), left);
      at += step;
      left -= step;
    }
  }
  return changed_;
}

std::unique_ptr<KernelRoutes> KernelRoutes::Open(LinkWatch* watch, int asking_fd, std::string* error) {
  UniqueFd fd = OpenNetlink(0);
  UniqueFd asking(fcntl(asking_fd, F_DUPFD_CLOEXEC, 0));
  if (!fd.valid() || !asking.valid()) {
    *error = std::string("netlink socket: ") + std::strerror(errno);
    return nullptr;
  }
  return std::unique_ptr<KernelRoutes>(new KernelRoutes(watch, std::move(asking), std::move(fd)));
}

bool KernelRoutes::Ask(void* request, uint32_t length) {
  auto* header = static_cast<nlmsghdr*>(request);
  header->nlmsg_flags = NLM_F_REQUEST;
  header->nlmsg_seq = ++sequence_;
  if (send(fd_.get(), request, length, 0) != static_cast<ssize_t>(length)) return false;
  // Answers that came too late for their own question are skipped.
  for (int reads = 0; reads < 8; ++reads) {
    const ssize_t got = recv(fd_.get(), answer_.data(), answer_.size(), 0);
    if (got < static_cast<ssize_t>(sizeof(nlmsghdr))) return false;
    const auto* message = reinterpret_cast<const nlmsghdr*>(answer_.data());
    if (message->nlmsg_seq != sequence_) continue;
    return message->nlmsg_type != NLMSG_ERROR && message->nlmsg_len <= static_cast<size_t>(got);
  }
  return false;
}

bool KernelRoutes::NextHop(const Address& destination, Address* hop) {
  uint32_t leaves_by = 0;
  const bool on_our_link = AddressScope(destination) != 0;
  if (!on_our_link && !AskRoute(destination, 0, hop, &leaves_by)) return false;
  // Where another interface shares the subnet. (Asked about one interface only, the kernel takes what it has no route
  // to for its neighbour, so this is not the first question.)
  return leaves_by == watch_->index() ||
         (AskRoute(destination, watch_->index(), hop, &leaves_by) && leaves_by == watch_->index());
}

bool KernelRoutes::AskRoute(const Address& destination, uint32_t interface, Address* hop, uint32_t* leaves_by) {
  Request<rtmsg> request;
  request.header.nlmsg_type = RTM_GETROUTE;
  request.header.nlmsg_len = NLMSG_LENGTH(sizeof(rtmsg));
  request.body.rtm_family = static_cast<unsigned char>(AddressFamily(destination));
  request.body.rtm_dst_len = static_cast<unsigned char>(HostBytes(destination) * 8);
  request.Append(RTA_DST, Host(destination), HostBytes(destination));
  if (interface != 0) request.Append(RTA_OIF, &interface, sizeof(interface));
  if (!Ask(&request, request.header.nlmsg_len)) return false;
  const auto* message = reinterpret_cast<const nlmsghdr*>(answer_.data());
  if (message->nlmsg_type != RTM_NEWROUTE || message->nlmsg_len < NLMSG_LENGTH(sizeof(rtmsg))) return false;
  rtmsg route;
  std::memcpy(&route, answer_.data() + NLMSG_HDRLEN, sizeof(route));
  if (route.rtm_type != RTN_UNICAST) return false;
  *hop = destination;
  VisitAttributes(answer_.data() + NLMSG_LENGTH(sizeof(rtmsg)), message->nlmsg_len - NLMSG_LENGTH(sizeof(rtmsg)),
                  [&](uint16_t type, const uint8_t* data, size_t length) {
                    if (type == RTA_GATEWAY && length == HostBytes(destination)) {
                      std::memcpy(hop->bytes.data() + (Host(*hop) - hop->bytes.data()), data, length);
                    } else if (type == RTA_OIF && length == sizeof(*leaves_by)) {
                      std::memcpy(leaves_by, data, sizeof(*leaves_by));
                    }
                  });
  return true;
}

bool KernelRoutes::Neighbour(const Address& hop, MacAddress* mac) {
  Request<ndmsg> request;
  request.header.nlmsg_type = RTM_GETNEIGH;
  request.header.nlmsg_len = NLMSG_LENGTH(sizeof(ndmsg));
  request.body.ndm_family = static_cast<unsigned char>(AddressFamily(hop));
  request.body.ndm_ifindex = static_cast<int>(watch_->index());
  request.Append(NDA_DST, Host(hop), HostBytes(hop));
  if (!Ask(&request, request.header.nlmsg_len)) return false;
  const auto* message = reinterpret_cast<const nlmsghdr*>(answer_.data());
  if (message->nlmsg_type != RTM_NEWNEIGH || message->nlmsg_len < NLMSG_LENGTH(sizeof(ndmsg))) return false;
  ndmsg neighbour;
  std::memcpy(&neighbour, answer_.data() + NLMSG_HDRLEN, sizeof(neighbour));
  if ((neighbour.ndm_state & kUsable) == 0) return false;
  bool found = false;
  VisitAttributes(answer_.data() + NLMSG_LENGTH(sizeof(ndmsg)), message->nlmsg_len - NLMSG_LENGTH(sizeof(ndmsg)),
                  [&](uint16_t type, const uint8_t* data, size_t length) {
                    if (type != NDA_LLADDR || length != mac->size()) return;
                    std::copy_n(data, length, mac->begin());
                    found = true;
                  });
  return found;
}

Hop KernelRoutes::Resolve(const Address& destination, TimePoint) {
  Hop answer;
  Address hop;
  if (!NextHop(destination, &hop)) return answer;
  answer.state = Neighbour(hop, &answer.mac) ? HopState::kKnown : HopState::kAsked;
  if (answer.state == HopState::kKnown) return answer;
  Address discard = destination;
  SetAddressPort(kDiscardPort, &discard);
  sockaddr_storage name;
  const socklen_t length = ToSocketAddress(discard, &name);
  (void)sendto(asking_fd_.get(), "", 0, MSG_DONTWAIT, reinterpret_cast<const sockaddr*>(&name), length);
  return answer;
}

}  // namespace forgive
