// SPDX-License-Identifier: Apache-2.0
// Reads the facts of interfaces and puts the devices into order.
#include "plugin/device_facts.h"

#include <algorithm>
#include <charconv>
#include <climits>
#include <compare>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <set>
#include <string_view>
#include <system_error>
#include <tuple>

namespace forgive {
namespace {

std::string ReadLine(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

// Where a link leads in the end; empty: there is none.
std::string Resolved(const std::string& path) {
  char resolved[PATH_MAX];
  return realpath(path.c_str(), resolved) != nullptr ? resolved : "";
}

// The entries of a folder by name; none: there is no such folder.
std::vector<std::string> Entries(const std::string& folder) {
  std::vector<std::string> names;
  std::error_code error;
  for (auto entry = std::filesystem::directory_iterator(folder, error);
       !error && entry != std::filesystem::directory_iterator(); entry.increment(error)) {
    names.push_back(entry->path().filename().string());
  }
  std::ranges::sort(names);
  return names;
}

// Hexadecimal digits between colons: a MAC address or a GUID; 0: neither.
uint64_t ColonsAsNumber(const std::string& text) {
  uint64_t number = 0;
  for (const char c : text) {
    if (c == ':') continue;
    const int digit = c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
    if (digit < 0) return 0;
    number = number << 4 | static_cast<uint64_t>(digit);
  }
  return number;
}

// ---- PCI ----

struct PciFunction {
  uint32_t domain = 0, bus = 0, device = 0, function = 0;
  friend auto operator<=>(const PciFunction&, const PciFunction&) = default;
};

bool ParsePciFunction(const std::string& name, PciFunction* out) {
  int length = 0;
  const int fields =
      std::sscanf(name.c_str(), "%8x:%2x:%2x.%1x%n", &out->domain, &out->bus, &out->device, &out->function, &length);
  return fields == 4 && static_cast<size_t>(length) == name.size();
}

// The bridges and the function that a path in sysfs leads through, from the root. *function_path is the path of the
// last one: what a driver hangs below it (virtio0, mlx5_core.sf.2) is no PCI device, and NCCL looks for one.
std::vector<PciFunction> BridgeChain(const std::string& path, std::string* function_path) {
  std::vector<PciFunction> chain;
  function_path->clear();
  for (size_t begin = 0; begin < path.size();) {
    const size_t end = std::min(path.find('/', begin), path.size());
    PciFunction function;
    if (ParsePciFunction(path.substr(begin, end - begin), &function)) {
      chain.push_back(function);
      *function_path = path.substr(0, end);
    }
    begin = end + 1;
  }
  return chain;
}

std::string PciPath(const std::string& path) {
  std::string function_path;
  (void)BridgeChain(path, &function_path);
  return function_path;
}

// ---- RDMA devices ----

std::string RdmaFolder(const FactSources& sources) { return sources.sysfs + "/class/infiniband"; }
std::string PortFolder(const FactSources& sources, const RdmaPort& port) {
  return RdmaFolder(sources) + "/" + port.device + "/ports/" + std::to_string(port.number);
}

bool HasPort(const FactSources& sources, const RdmaPort& port) {
  std::error_code error;
  return std::filesystem::is_directory(PortFolder(sources, port), error);
}

// Whether one of the port's addresses is the interface's: so for bonds and VLANs, which have no PCI device.
bool HasAddressOf(const FactSources& sources, const RdmaPort& port, const std::string& interface) {
  const std::string folder = PortFolder(sources, port) + "/gid_attrs/ndevs";
  return std::ranges::any_of(Entries(folder),
                             [&](const std::string& entry) { return ReadLine(folder + "/" + entry) == interface; });
}

// The RDMA port behind an interface; number 0: none.
RdmaPort FindRdmaPort(const FactSources& sources, const std::vector<std::string>& rdma_devices,
                      const std::string& interface) {
  const std::string folder = sources.sysfs + "/class/net/" + interface;
  if (const std::string own = Resolved(folder + "/device"); !own.empty()) {
    // One function may have several ports, and then an interface for each.
    const auto own_port =
        static_cast<uint32_t>(std::strtoul(ReadLine(folder + "/dev_port").c_str(), nullptr, 10)) + 1;
    for (const std::string& device : rdma_devices) {
      if (Resolved(RdmaFolder(sources) + "/" + device + "/device") != own) continue;
      for (const uint32_t number : {own_port, 1u}) {
        if (HasPort(sources, {device, number})) return {device, number};
      }
    }
  }
  for (const std::string& device : rdma_devices) {
    for (uint32_t number = 1; HasPort(sources, {device, number}); ++number) {
      if (HasAddressOf(sources, {device, number}, interface)) return {device, number};
    }
  }
  return {};
}

// "100 Gb/sec (4X EDR)", in Mbit/s; 0: not known.
uint32_t RateMbps(const std::string& text) {
  double gbps = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), gbps);
  const bool known = error == std::errc() && std::string_view(end, text.data() + text.size()).starts_with(" Gb/sec");
  return known && gbps > 0 && gbps < 1e6 ? static_cast<uint32_t>(gbps * 1000) : 0;
}

// What the kernel's files say of a port, where libibverbs does not.
PortFacts ReadPort(const FactSources& sources, const RdmaPort& port) {
  PortFacts facts;
  const std::string state = ReadLine(PortFolder(sources, port) + "/state");  // "4: ACTIVE"
  if (!state.empty()) facts.state = state.starts_with("4:") ? PortState::kActive : PortState::kNotActive;
  facts.speed_mbps = RateMbps(ReadLine(PortFolder(sources, port) + "/rate"));
  const std::string folder = RdmaFolder(sources) + "/" + port.device;
  facts.guid = ColonsAsNumber(ReadLine(folder + "/sys_image_guid"));
  if (facts.guid == 0) facts.guid = ColonsAsNumber(ReadLine(folder + "/node_guid"));
  return facts;
}

void ReadInterface(const FactSources& sources, Device* device) {
  const std::string folder = sources.sysfs + "/class/net/" + device->interface;
  const long speed = std::strtol(ReadLine(folder + "/speed").c_str(), nullptr, 10);
  device->speed_mbps = speed > 0 && speed < INT_MAX ? static_cast<uint32_t>(speed) : 0;
  device->pci_path = PciPath(Resolved(folder + "/device"));
  device->guid = ColonsAsNumber(ReadLine(folder + "/address"));
  device->facts_from = "sysfs";
}

// `asked`: nullptr where libibverbs was not to be asked.
void AddPortFacts(const FactSources& sources, const PortFacts* asked, Device* device) {
  const std::string name = device->rdma.device + " port " + std::to_string(device->rdma.number);
  const bool known = asked != nullptr && asked->problem.empty();
  const PortFacts facts = known ? *asked : ReadPort(sources, device->rdma);
  device->facts_from = known              ? "libibverbs (" + name + ")"
                       : asked == nullptr ? "sysfs (" + name + "; FORGIVE_VERBS=0)"
                                          : "sysfs (" + name + "; libibverbs: " + asked->problem + ")";
  // Faster links than the field can say show as its highest value: there the interface knows better.
  const uint32_t interface_mbps = device->speed_mbps;
  if (known && facts.speed_mbps != 0) device->speed_mbps = facts.speed_mbps;
  if (facts.speed_at_field_limit) device->speed_mbps = std::max(device->speed_mbps, interface_mbps);
  if (device->speed_mbps == 0) device->speed_mbps = facts.speed_mbps;
  if (facts.guid != 0) device->guid = facts.guid;
  device->port_state = facts.state;
  if (device->pci_path.empty()) {
    device->pci_path = PciPath(Resolved(RdmaFolder(sources) + "/" + device->rdma.device + "/device"));
  }
}

bool ComesBefore(const Device& a, const Device& b) {
  std::string unused;
  const std::vector<PciFunction> a_chain = BridgeChain(a.pci_path, &unused);
  const std::vector<PciFunction> b_chain = BridgeChain(b.pci_path, &unused);
  if (a_chain.empty() != b_chain.empty()) return b_chain.empty();
  if (a_chain != b_chain) return a_chain < b_chain;
  if (a.rdma.number != b.rdma.number) return a.rdma.number < b.rdma.number;
  return strverscmp(a.interface.c_str(), b.interface.c_str()) < 0;  // eth2 before eth10
}

}  // namespace

void DescribeDevices(const FactSources& sources, std::vector<Device>* devices) {
  const std::vector<std::string> rdma_devices = Entries(RdmaFolder(sources));
  std::vector<RdmaPort> ports;
  for (Device& device : *devices) {
    ReadInterface(sources, &device);
    device.rdma = FindRdmaPort(sources, rdma_devices, device.interface);
    if (device.rdma.number != 0) ports.push_back(device.rdma);
  }
  const bool ask = !ports.empty() && !sources.verbs_library.empty();
  std::vector<PortFacts> facts;
  if (ask) facts = AskVerbs(sources.verbs_library, ports, sources.verbs_patience);
  size_t next = 0;
  for (Device& device : *devices) {
    if (device.rdma.number != 0) AddPortFacts(sources, ask ? &facts[next++] : nullptr, &device);
  }
}

bool ArrangeDevices(std::vector<Device>* devices, std::vector<std::string>* left_out, std::string* error) {
  std::ranges::stable_sort(*devices, ComesBefore);
  const auto idle = std::ranges::stable_partition(
      *devices, [](const Device& device) { return device.port_state != PortState::kNotActive; });
  for (const Device& device : idle) {
    left_out->push_back("interface " + device.interface + " is left out: " + PortProblem(device));
  }
  devices->erase(idle.begin(), idle.end());
  if (devices->empty()) {
    *error = left_out->empty() ? "there is no interface" : left_out->front() + "; no other was chosen";
    return false;
  }
  if (devices->size() > kMaxDevices) {
    left_out->push_back(std::to_string(devices->size()) + " interfaces were chosen, and those after the first " +
                        std::to_string(kMaxDevices) + ", from " + (*devices)[kMaxDevices].interface +
                        " on, are left out: name the right ones by FORGIVE_INTERFACE");
    devices->resize(kMaxDevices);
  }
  return true;
}

void NumberDevices(std::vector<Device>* devices) {
  for (size_t i = 0; i < devices->size(); ++i) {
    Device& device = (*devices)[i];
    if (device.guid == 0) device.guid = i;
    if (device.rdma.number == 0) continue;
    // NCCL takes devices of one GUID and one port for one link that they share.
    std::set<std::pair<std::string, uint32_t>> earlier;
    for (size_t j = 0; j < i; ++j) {
      const Device& other = (*devices)[j];
      if (other.rdma.number != 0 && other.guid == device.guid && other.rdma != device.rdma) {
        earlier.insert({other.rdma.device, other.rdma.number});
      }
      if (other.rdma == device.rdma) device.port = other.port;
    }
    if (device.port == 0) device.port = static_cast<uint32_t>(earlier.size()) + 1;
  }
}

std::string PortProblem(const Device& device) {
  if (device.port_state != PortState::kNotActive) return "";
  return "port " + std::to_string(device.rdma.number) + " of " + device.rdma.device +
         " is not ACTIVE: look at its cable and switch";
}

std::string GuidText(uint64_t guid) {
  char text[32];
  std::snprintf(text, sizeof(text), "0x%016llx", static_cast<unsigned long long>(guid));
  return text;
}

std::string DescribeFacts(const Device& device) {
  return device.interface + ": " +
         (device.speed_mbps == 0 ? "speed not known" : std::to_string(device.speed_mbps) + " Mbit/s") + ", " +
         (device.pci_path.empty() ? "no PCI device" : "PCI path " + device.pci_path) + ", GUID " +
         GuidText(device.guid) + (device.port_state == PortState::kActive ? ", port ACTIVE" : "") + "; from " +
         device.facts_from;
}

}  // namespace forgive
