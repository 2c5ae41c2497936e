// SPDX-License-Identifier: Apache-2.0
// Interface enumeration and selection.
#include "plugin/devices.h"

#include <arpa/inet.h>
#include <net/if.h>
#include <netinet/in.h>
#include <sys/random.h>

#include <algorithm>
#include <climits>

#include "dataplane/socket_address.h"
#include "transport/wire.h"

namespace forgive {
namespace {

bool Matches(const InterfaceFilter& filter, const std::string& interface) {
  const bool named = std::ranges::any_of(filter.names, [&](const std::string& name) {
    return filter.exact ? interface == name : interface.starts_with(name);
  });
  return named != filter.exclude;
}

// 0: that of one is not known.
uint32_t SlowestRailMbps(const Device& device) {
  return std::ranges::min_element(device.rails, {}, &Device::speed_mbps)->speed_mbps;
}

// Lower is better: IPv4, then IPv6, then link-local.
int Rank(const InterfaceAddress& address) { return address.link_local ? 2 : address.ipv6 ? 1 : 0; }

bool FamilyAllows(FamilyChoice family, bool ipv6) {
  return family == FamilyChoice::kAny || (family == FamilyChoice::kIpv6) == ipv6;
}

template <typename Predicate>
std::vector<Device> Take(const std::vector<InterfaceAddress>& addresses, FamilyChoice family, Predicate wanted) {
  std::vector<Device> devices;
  std::vector<int> ranks;
  for (const InterfaceAddress& address : addresses) {
    if (!FamilyAllows(family, address.ipv6) || !wanted(address)) continue;
    size_t i = 0;
    while (i < devices.size() && devices[i].interface != address.interface) ++i;
    if (i == devices.size()) {
      devices.emplace_back();
      ranks.push_back(INT_MAX);
    }
    if (Rank(address) >= ranks[i]) continue;
    ranks[i] = Rank(address);
    devices[i].interface = address.interface;
    devices[i].address = address.address;
    devices[i].ipv6 = address.ipv6;
  }
  return devices;
}

std::string InterfaceNames(const std::vector<InterfaceAddress>& addresses, FamilyChoice family) {
  std::vector<std::string> names;
  for (const InterfaceAddress& address : addresses) {
    if (!FamilyAllows(family, address.ipv6)) continue;
    if (std::ranges::find(names, address.interface) == names.end()) names.push_back(address.interface);
  }
  std::string list;
  for (const std::string& name : names) list += (list.empty() ? "" : ", ") + name;
  return list.empty() ? "none" : list;
}

}  // namespace

std::vector<InterfaceAddress> ListInterfaceAddresses() {
  std::vector<InterfaceAddress> addresses;
  const InterfaceList list = ListInterfaces();
  for (const ifaddrs* entry = list.get(); entry != nullptr; entry = entry->ifa_next) {
    if (entry->ifa_addr == nullptr || (entry->ifa_flags & IFF_UP) == 0) continue;
    InterfaceAddress found;
    found.interface = entry->ifa_name;
    found.loopback = (entry->ifa_flags & IFF_LOOPBACK) != 0;
    char text[INET6_ADDRSTRLEN] = {};
    if (entry->ifa_addr->sa_family == AF_INET) {
      const auto* address = reinterpret_cast<const sockaddr_in*>(entry->ifa_addr);
      inet_ntop(AF_INET, &address->sin_addr, text, sizeof(text));
    } else if (entry->ifa_addr->sa_family == AF_INET6) {
      const auto* address = reinterpret_cast<const sockaddr_in6*>(entry->ifa_addr);
      inet_ntop(AF_INET6, &address->sin6_addr, text, sizeof(text));
      found.ipv6 = true;
      found.link_local = IN6_IS_ADDR_LINKLOCAL(&address->sin6_addr);
    } else {
      continue;
    }
    found.address = found.link_local ? std::string(text) + "%" + found.interface : text;
    addresses.push_back(found);
  }
  return addresses;
}

bool SelectDevices(const std::vector<InterfaceAddress>& addresses, const InterfaceFilter& filter, FamilyChoice family,
                   std::vector<Device>* out, std::string* error) {
  if (!filter.variable.empty()) {
    *out = Take(addresses, family, [&](const InterfaceAddress& a) { return Matches(filter, a.interface); });
    if (out->empty()) {
      *error = filter.variable + "=" + filter.text +
               ": no such interface is up with an address; there are: " + InterfaceNames(addresses, family);
    }
    return !out->empty();
  }
  const auto is_docker = [](const InterfaceAddress& a) { return a.interface.starts_with("docker"); };
  *out = Take(addresses, family, [&](const InterfaceAddress& a) { return !a.loopback && !is_docker(a); });
  if (out->empty()) *out = Take(addresses, family, is_docker);
  if (out->empty()) *out = Take(addresses, family, [](const InterfaceAddress& a) { return a.loopback; });
  if (out->empty())
    *error = "no network interface is up with an address of the family asked for (NCCL_SOCKET_FAMILY)";
  return !out->empty();
}

bool SelectDpdkDevices(const std::vector<InterfaceAddress>& addresses, const DpdkOptions& dpdk, FamilyChoice family,
                       std::vector<Device>* out, std::string* error) {
  if (dpdk.ports.size() > kMaxDevices) {
    *error = "FORGIVE_DPDK names more than " + std::to_string(kMaxDevices) + " ports";
    return false;
  }
  for (const DpdkPortOptions& port : dpdk.ports) {
    Device device;
    device.interface = port.interface.empty() ? port.name() : port.interface;
    device.address = port.address;
    if (port.address.empty()) {
      const std::vector<Device> found =
          Take(addresses, family, [&](const InterfaceAddress& a) { return a.interface == port.interface; });
      if (found.empty()) {
        *error =
            "FORGIVE_DPDK: interface " + port.interface + " of port " + port.name() +
            " is not up with an address of the family asked for; there are: " + InterfaceNames(addresses, family) +
            "; or give the port its own by address=IP/BITS";
        return false;
      }
      device.address = found[0].address;
    }
    device.ipv6 = device.address.find(':') != std::string::npos;
    out->push_back(device);
  }
  return true;
}

bool SelectRails(const std::vector<InterfaceAddress>& addresses, const std::vector<std::string>& rails,
                 FamilyChoice family, std::vector<Device>* out, std::string* error) {
  std::string lacking;
  constexpr const char* kKinds[] = {"IPv4", "IPv6", "link-local"};
  for (int rank = 0; rank < 3; ++rank) {
    out->clear();
    for (const std::string& rail : rails) {
      const std::vector<Device> found = Take(addresses, family, [&](const InterfaceAddress& a) {
        return a.interface == rail && Rank(a) == rank;
      });
      if (found.empty()) {
        lacking += (lacking.empty() ? "" : ", ") + rail + " (" + kKinds[rank] + ")";
        break;
      }
      out->push_back(found[0]);
    }
    if (out->size() == rails.size()) return true;
  }
  out->clear();
  *error = "FORGIVE_RAILS: the interfaces must be up with addresses of one kind (NCCL_SOCKET_FAMILY); without one: " +
           lacking + "; there are: " + InterfaceNames(addresses, family);
  return false;
}

void JoinRails(std::vector<Device>* devices) {
  Device joined = devices->front();
  for (size_t rail = 1; rail < devices->size(); ++rail) {
    joined.interface += "+" + (*devices)[rail].interface;
    joined.speed_mbps += (*devices)[rail].speed_mbps;
  }
  joined.rails = std::move(*devices);
  if (SlowestRailMbps(joined) == 0) joined.speed_mbps = 0;  // not known of one
  *devices = {joined};
}

EngineOptions ToEngineOptions(const Settings& settings, const std::vector<Device>& devices) {
  constexpr uint32_t kIpv4HeaderBytes = 20;
  constexpr uint32_t kIpv6HeaderBytes = 40;
  constexpr uint32_t kUdpHeaderBytes = 8;
  EngineOptions options = settings.engine;
  bool ipv6 = false;
  for (const Device& device : devices) {
    // Its own link's rate, unless the operator gave one for all (then in options.transport).
    // Rails get equal shares, so that no more passes than the slowest one's share allows.
    const uint64_t mbps = device.rails.empty() ? device.speed_mbps : SlowestRailMbps(device) * device.rails.size();
    const uint64_t own_mbps = settings.link_rate_set ? 0 : mbps;
    std::vector<std::string> more_rails;
    for (size_t rail = 1; rail < device.rails.size(); ++rail) more_rails.push_back(device.rails[rail].address);
    options.devices.push_back({.interface = device.interface,
                               .local_address = device.address,
                               .more_rails = more_rails,
                               .port_low = settings.port_low,
                               .port_high = settings.port_high,
                               .link_rate = {own_mbps * 1000000}});
    ipv6 = ipv6 || device.ipv6;
  }
  if (settings.mtu_bytes != 0) {
    const uint32_t headers =
        (ipv6 ? kIpv6HeaderBytes : kIpv4HeaderBytes) + kUdpHeaderBytes + static_cast<uint32_t>(kDataHeaderBytes);
    const uint32_t fits = (settings.mtu_bytes - headers) / kUnitBytes * kUnitBytes;
    options.transport.max_payload_bytes = std::min(options.transport.max_payload_bytes, fits);
  }
  if (settings.seed.has_value()) {
    options.seed = *settings.seed;
  } else if (getrandom(&options.seed, sizeof(options.seed), 0) != sizeof(options.seed)) {
    options.seed = static_cast<uint64_t>(reinterpret_cast<uintptr_t>(&options));
  }
  return options;
}

}  // namespace forgive
