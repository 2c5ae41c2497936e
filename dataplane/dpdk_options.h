// SPDX-License-Identifier: Apache-2.0
// What FORGIVE_DPDK says: the ports of the dpdk driver and the memory of DPDK, parsed without DPDK.
#ifndef FORGIVE_DATAPLANE_DPDK_OPTIONS_H_
#define FORGIVE_DATAPLANE_DPDK_OPTIONS_H_

#include <array>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace forgive {

using MacAddress = std::array<uint8_t, 6>;

enum class HugePages : uint8_t {
  kAuto,  // where the kernel has enough free ones, else ordinary memory
  kOff,
  kRequired,
};

struct DpdkPortOptions {
  std::string device;     // as EAL names it, with arguments: "net_memif0,role=client" or "0000:3b:00.0"
  std::string interface;  // the kernel's interface beneath it; empty: none
  // The port's own address: the driver then answers for it itself. Empty: the address is the kernel interface's, and
  // the kernel answers ARP and neighbour solicitations.
  std::string address;
  uint8_t prefix_bits = 0;                                     // of `address`
  std::string gateway;                                         // for addresses outside the prefix; empty: none
  uint32_t mtu_bytes = 0;                                      // 0: the port's
  std::vector<std::pair<std::string, MacAddress>> neighbours;  // known without asking

  bool is_pci() const { return !device.starts_with("net_"); }
  bool is_memif() const { return device.starts_with("net_memif"); }
  // The device's name without its arguments.
  std::string name() const { return device.substr(0, device.find(',')); }
  // One argument of the device; empty: not given.
  std::string argument(const std::string& key) const;
};

struct DpdkOptions {
  HugePages huge_pages = HugePages::kAuto;
  std::vector<std::string> eal;  // further words for EAL
  std::vector<DpdkPortOptions> ports;
};

// Words by spaces: a port is --vdev=NAME[,ARGUMENTS], --allow=PCI[,ARGUMENTS], -a PCI or a bare PCI address, and the
// words address=, gateway=, neighbour=, mtu= after it are its own; the others are EAL's for memory. False: *error
// says in one line which word is wrong and what is accepted.
bool ParseDpdkOptions(const std::string& text, DpdkOptions* out, std::string* error);

// The port that stands for an interface where FORGIVE_DPDK names none: af_packet.
DpdkPortOptions PortOfInterface(const std::string& interface, uint32_t number);

}  // namespace forgive

#endif  // FORGIVE_DATAPLANE_DPDK_OPTIONS_H_
