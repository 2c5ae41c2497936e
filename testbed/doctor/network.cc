// SPDX-License-Identifier: Apache-2.0
// The interfaces that the library chose: state, MTU, speed, place, addresses, and whether DSCP and ECN survive.
#include <arpa/inet.h>
#include <fmt/format.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <netinet/ip.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>

#include "testbed/doctor/bounded.h"
#include "testbed/doctor/checks.h"
#include "testbed/doctor/host.h"

namespace forgive::doctor {
namespace {

// A whole packet: 4,096 payload bytes, this project's header of 56, UDP's of 8, IPv6's of 40 (docs/wire-format.md).
constexpr int64_t kWholePacketBytes = 4096 + 56 + 8 + 40;
constexpr int kEchoMs = 500;
constexpr int kEctZero = 2;  // ECN-capable transport, as in RFC 3168
constexpr int kDefaultDataDscp = 10;

struct InterfaceAddress {
  std::string interface;
  std::string text;
  sockaddr_storage storage{};
  uint32_t network = 0;  // IPv4: address & mask
  uint32_t mask = 0;
};

std::vector<InterfaceAddress> Addresses() {
  std::vector<InterfaceAddress> found;
  ifaddrs* list = nullptr;
  if (getifaddrs(&list) != 0) return found;
  for (const ifaddrs* entry = list; entry != nullptr; entry = entry->ifa_next) {
    if (entry->ifa_addr == nullptr) continue;
    InterfaceAddress address;
    address.interface = entry->ifa_name;
    char text[INET6_ADDRSTRLEN] = {};
    if (entry->ifa_addr->sa_family == AF_INET) {
      const auto* ipv4 = reinterpret_cast<const sockaddr_in*>(entry->ifa_addr);
      std::memcpy(&address.storage, ipv4, sizeof(*ipv4));
      inet_ntop(AF_INET, &ipv4->sin_addr, text, sizeof(text));
      if (entry->ifa_netmask != nullptr) {
        address.mask = reinterpret_cast<const sockaddr_in*>(entry->ifa_netmask)->sin_addr.s_addr;
        address.network = ipv4->sin_addr.s_addr & address.mask;
      }
    } else if (entry->ifa_addr->sa_family == AF_INET6) {
      const auto* ipv6 = reinterpret_cast<const sockaddr_in6*>(entry->ifa_addr);
      std::memcpy(&address.storage, ipv6, sizeof(*ipv6));
      inet_ntop(AF_INET6, &ipv6->sin6_addr, text, sizeof(text));
    } else {
      continue;
    }
    address.text = text;
    found.push_back(address);
  }
  freeifaddrs(list);
  return found;
}

void CheckMtu(const std::string& name, const std::string& folder, Section* section) {
  const int64_t mtu = ReadNumber(folder + "/mtu").value_or(0);
  if (mtu >= kWholePacketBytes) {
    section->Ok(name, fmt::format("MTU {}: a packet carries 4,096 bytes", mtu));
  } else {
    section->Warn(
        name, fmt::format("MTU {}: a packet carries less than 4,096 bytes, so there are more of them", mtu),
        fmt::format("set an MTU of {} or more (9000 is usual) on hosts and switches alike", kWholePacketBytes));
  }
}

void CheckFacts(const std::string& name, const Json& facts, Section* section) {
  if (!facts.contains("facts_from")) return;
  const int64_t speed_mbps = facts.value("speed_mbps", int64_t{0});
  const std::string pci_path = facts.value("pci_path", "");
  section->Ok(name, fmt::format("{}, {}, GUID {}, port {}; from {}",
                                speed_mbps > 0 ? fmt::format("speed {} Mbit/s", speed_mbps) : "speed not known",
                                pci_path.empty() ? "no PCI device" : "PCI path " + pci_path, facts.value("guid", ""),
                                facts.value("port", 0), facts.value("facts_from", "")));
  if (speed_mbps == 0 && name != "lo" && Variable("FORGIVE_LINK_RATE_MBPS").empty()) {
    section->Warn(name, "the kernel reports no speed: senders are not paced, and congestion control has no line rate",
                  "FORGIVE_LINK_RATE_MBPS=the link's speed");
  }
}

int OpenEcho(const InterfaceAddress& address, sockaddr_storage* bound, socklen_t* length) {
  const int fd = socket(address.storage.ss_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  if (fd < 0) return -1;
  const bool ipv6 = address.storage.ss_family == AF_INET6;
  const int on = 1;
  const int level = ipv6 ? IPPROTO_IPV6 : IPPROTO_IP;
  setsockopt(fd, level, ipv6 ? IPV6_RECVTCLASS : IP_RECVTOS, &on, sizeof(on));
  *length = sizeof(*bound);
  if (bind(fd, reinterpret_cast<const sockaddr*>(&address.storage), sizeof(address.storage)) == 0 &&
      getsockname(fd, reinterpret_cast<sockaddr*>(bound), length) == 0) {
    return fd;
  }
  close(fd);
  return -1;
}

// The type of service that a packet of this host to itself arrives with; -1: none arrived.
int EchoTypeOfService(const InterfaceAddress& address, int type_of_service) {
  sockaddr_storage bound{};
  socklen_t length = 0;
  const int fd = OpenEcho(address, &bound, &length);
  if (fd < 0) return -1;
  const bool ipv6 = bound.ss_family == AF_INET6;
  setsockopt(fd, ipv6 ? IPPROTO_IPV6 : IPPROTO_IP, ipv6 ? IPV6_TCLASS : IP_TOS, &type_of_service,
             sizeof(type_of_service));
  int arrived = -1;
  pollfd ready{.fd = fd, .events = POLLIN, .revents = 0};
  if (sendto(fd, "?", 1, 0, reinterpret_cast<const sockaddr*>(&bound), length) == 1 &&
      poll(&ready, 1, kEchoMs) == 1) {
    char payload[8];
    alignas(cmsghdr) char control[128];
    iovec part{payload, sizeof(payload)};
    msghdr message{};
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    message.msg_control = control;
    message.msg_controllen = sizeof(control);
    if (recvmsg(fd, &message, MSG_DONTWAIT) >= 0) {
      for (cmsghdr* header = CMSG_FIRSTHDR(&message); header != nullptr; header = CMSG_NXTHDR(&message, header)) {
        const bool is_ipv4 = header->cmsg_level == IPPROTO_IP && header->cmsg_type == IP_TOS;
        const bool is_ipv6 = header->cmsg_level == IPPROTO_IPV6 && header->cmsg_type == IPV6_TCLASS;
        if (is_ipv4 || is_ipv6) arrived = *CMSG_DATA(header);
      }
    }
  }
  close(fd);
  return arrived;
}

void CheckCodePoints(const InterfaceAddress& address, Section* section) {
  const int64_t dscp = ToNumber(Variable("FORGIVE_DSCP_DATA")).value_or(kDefaultDataDscp);
  const int sent = static_cast<int>(dscp & 63) << 2 | kEctZero;
  const int arrived = EchoTypeOfService(address, sent);
  const std::string what = fmt::format("DSCP {} with ECN to {}", sent >> 2, address.text);
  if (arrived == sent) {
    section->Ok(address.interface,
                what + " arrives as sent, from this host to itself (what switches do is not known)");
  } else if (arrived < 0) {
    section->Warn(address.interface, what + ": a UDP packet of this host to itself did not arrive",
                  "look at the host's packet filter (nft list ruleset, iptables-save)");
  } else {
    section->Warn(address.interface,
                  fmt::format("{} arrives as DSCP {} with ECN bits {}", what, arrived >> 2, arrived & 3),
                  "look for a rule that rewrites them (nft list ruleset, iptables -t mangle -S)");
  }
}

void CheckInterface(const std::string& name, const Json& facts, Section* section) {
  const std::string folder = "/sys/class/net/" + name;
  const std::vector<InterfaceAddress> addresses = Addresses();
  std::vector<std::string> texts;
  const InterfaceAddress* echo = nullptr;
  for (const InterfaceAddress& address : addresses) {
    if (address.interface != name) continue;
    texts.push_back(address.text);
    if (echo == nullptr) echo = &address;
  }
  std::error_code error;
  const bool physical = std::filesystem::exists(folder + "/device", error);
  const std::string state = ReadLine(folder + "/operstate");
  section->Ok(name, fmt::format("{}{}, {}", Join(texts, ", "), physical ? "" : " (no hardware behind it)", state));
  if (state == "down") section->Warn(name, "its link is down", "connect it, or choose another: FORGIVE_INTERFACE");
  CheckMtu(name, folder, section);
  CheckFacts(name, facts, section);
  if (echo != nullptr) CheckCodePoints(*echo, section);
}

// The rails of a device have equal shares: how fast it is follows from the slowest.
void CheckRails(const Json& device, Section* section) {
  const Json rails = device.value("rails", Json::array());
  const auto mbps = [](const Json& rail) { return rail.value("speed_mbps", int64_t{0}); };
  std::vector<std::string> each;
  for (const Json& rail : rails) each.push_back(fmt::format("{} {} Mbit/s", rail.value("interface", ""), mbps(rail)));
  const auto [slowest, fastest] = std::ranges::minmax_element(rails, {}, mbps);
  if (rails.empty() || mbps(*slowest) == 0) return;  // that of one is not known: said with it
  const std::string together = fmt::format("{} Mbit/s", mbps(*slowest) * static_cast<int64_t>(rails.size()));
  if (mbps(*slowest) == mbps(*fastest)) {
    section->Ok("rails", fmt::format("{}: one device of {}", Join(each, ", "), together));
  } else {
    section->Warn("rails",
                  fmt::format("{}: they have equal shares, so {}, the slowest, decides: {} together", Join(each, ", "),
                              slowest->value("interface", ""), together),
                  "name interfaces of one speed in FORGIVE_RAILS");
  }
}

// Linux answers ARP for any of its addresses on any interface, so two of one subnet must be told apart.
void CheckSharedSubnets(const std::vector<std::string>& devices, Section* section) {
  const std::vector<InterfaceAddress> addresses = Addresses();
  const auto chosen = [&](const InterfaceAddress& a) {
    return a.mask != 0 && std::find(devices.begin(), devices.end(), a.interface) != devices.end();
  };
  for (size_t i = 0; i < addresses.size(); ++i) {
    for (size_t j = i + 1; j < addresses.size(); ++j) {
      const InterfaceAddress& a = addresses[i];
      const InterfaceAddress& b = addresses[j];
      if (a.interface == b.interface || !chosen(a) || !chosen(b) || a.network != b.network || a.mask != b.mask)
        continue;
      if (ReadNumber("/proc/sys/net/ipv4/conf/all/arp_ignore").value_or(0) >= 1 &&
          ReadNumber("/proc/sys/net/ipv4/conf/all/arp_announce").value_or(0) >= 2) {
        section->Ok("subnet", fmt::format("{} and {} share one; ARP is told apart", a.interface, b.interface));
      } else {
        section->Warn("subnet",
                      fmt::format("{} and {} share one: ARP may answer on the wrong one", a.interface, b.interface),
                      "sysctl -w net.ipv4.conf.all.arp_ignore=1 net.ipv4.conf.all.arp_announce=2");
      }
      return;
    }
  }
}

}  // namespace

Section CheckNetwork(const Context& context) {
  Section section{"Network", {}};
  if (context.devices.empty()) {
    section.Info("interfaces", "none was chosen, since the library did not start");
    return section;
  }
  const bool only_loopback = context.devices.size() == 1 && context.devices.front() == "lo";
  if (only_loopback) {
    section.Warn("interfaces", "lo alone: only ranks of this host can be reached",
                 "bring an interface up, or name it with FORGIVE_INTERFACE");
  } else {
    section.Ok("interfaces",
               Join(context.devices, ", ") + " (FORGIVE_INTERFACE, FORGIVE_RAILS or NCCL_SOCKET_IFNAME chooses)");
  }
  for (const std::string& device : context.devices) {
    CheckBounded(context, device, Status::kWarn, &section,
                 [&](Section* found) { CheckInterface(device, context.FactsOf(device), found); });
  }
  for (const Json& device : context.in_force.value("devices", Json::array())) CheckRails(device, &section);
  CheckBounded(context, "subnet", Status::kWarn, &section,
               [&](Section* found) { CheckSharedSubnets(context.devices, found); });
  section.Info("net.ipv4.tcp_ecn", ReadLine("/proc/sys/net/ipv4/tcp_ecn") +
                                       ", for TCP only: FORGIVE marks its own packets as ECN-capable");
  return section;
}

}  // namespace forgive::doctor
