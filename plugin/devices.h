// SPDX-License-Identifier: Apache-2.0
// Which network interfaces the plugin offers to NCCL as devices.
#ifndef FORGIVE_PLUGIN_DEVICES_H_
#define FORGIVE_PLUGIN_DEVICES_H_

#include <cstdint>
#include <string>
#include <vector>

#include "plugin/settings.h"
#include "plugin/verbs.h"

namespace forgive {

inline constexpr size_t kMaxDevices = 16;

// One address of one interface that is up.
struct InterfaceAddress {
  std::string interface;
  std::string address;  // numeric; IPv6 link-local: with %interface
  bool ipv6 = false;
  bool link_local = false;
  bool loopback = false;
};

struct Device {
  std::string interface;  // of several rails: all of them, with + between
  std::string address;    // the first rail's
  bool ipv6 = false;
  // What device_facts.h finds out.
  uint32_t speed_mbps = 0;  // of all rails together; 0: not known
  std::string pci_path;     // in sysfs; empty: not a PCI device
  uint64_t guid = 0;        // an RDMA device's card; else the MAC address; without one: the device's number
  RdmaPort rdma;            // number 0: the interface belongs to no RDMA device
  PortState port_state = PortState::kUnknown;
  uint32_t port = 0;  // of the card, from 1; 0: not an RDMA device
  std::string facts_from;
  std::vector<Device> rails;  // those that it was made of, each with its own facts; none: it is one interface
};

// The addresses of every interface that is up, in the kernel's order.
// None and errno not 0: they cannot be listed, and errno says why.
std::vector<InterfaceAddress> ListInterfaceAddresses();

// One address for each interface that the settings let through, IPv4 before IPv6 before link-local; the interfaces in
// the kernel's order. Without a filter: all but lo and docker*, else docker*, else lo. False: nothing is left, and
// *error says why.
bool SelectDevices(const std::vector<InterfaceAddress>& addresses, const InterfaceFilter& filter, FamilyChoice family,
                   std::vector<Device>* out, std::string* error);

// One device for each port that FORGIVE_DPDK names: with its own address, or with the one of its kernel interface.
// False: an interface has none, and *error says which.
bool SelectDpdkDevices(const std::vector<InterfaceAddress>& addresses, const DpdkOptions& dpdk, FamilyChoice family,
                       std::vector<Device>* out, std::string* error);

// One device for each interface that FORGIVE_RAILS names, in its order, with addresses of one kind: IPv4, else IPv6,
// else link-local. False: an interface has none of the kind that the others have, and *error says which.
bool SelectRails(const std::vector<InterfaceAddress>& addresses, const std::vector<std::string>& rails,
                 FamilyChoice family, std::vector<Device>* out, std::string* error);

// Makes them one device, whose PCI path, GUID and port are the first one's. They are numbered before (device_facts.h).
void JoinRails(std::vector<Device>* devices);

// The options of an engine that drives these devices as the settings say.
EngineOptions ToEngineOptions(const Settings& settings, const std::vector<Device>& devices);

}  // namespace forgive

#endif  // FORGIVE_PLUGIN_DEVICES_H_
