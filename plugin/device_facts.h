// SPDX-License-Identifier: Apache-2.0
// What is known about the chosen interfaces, from libibverbs and sysfs, and in which order they are devices.
#ifndef FORGIVE_PLUGIN_DEVICE_FACTS_H_
#define FORGIVE_PLUGIN_DEVICE_FACTS_H_

#include <chrono>
#include <string>
#include <vector>

#include "plugin/devices.h"

namespace forgive {

struct FactSources {
  std::string sysfs = "/sys";
  std::string verbs_library = "libibverbs.so.1";  // empty: never asked
  std::chrono::milliseconds verbs_patience{2000};
};

// Speed, PCI path, GUID and port of each. libibverbs is asked where an interface belongs to an RDMA device;
// without its answer, and for every other interface, the kernel's files say what they know. `facts_from` says which.
void DescribeDevices(const FactSources& sources, std::vector<Device>* devices);

// Leaves out the devices whose RDMA port is not ACTIVE, as NCCL's own InfiniBand transport does, puts the rest into
// order and keeps kMaxDevices: by PCI path, bridge by bridge; then those that are not on PCI; each by name at last.
// *left_out gets a line for each that is left out. False: none is left, and *error says why.
bool ArrangeDevices(std::vector<Device>* devices, std::vector<std::string>* left_out, std::string* error);

// What depends on the place among the others: GUIDs of devices without one, and the number of a port of its card.
void NumberDevices(std::vector<Device>* devices);

// What is wrong with its RDMA port, and the way out; empty: it is ACTIVE, not known, or there is none.
std::string PortProblem(const Device& device);

// As 0x and sixteen digits.
std::string GuidText(uint64_t guid);
// One line of the facts of a device, for people.
std::string DescribeFacts(const Device& device);

}  // namespace forgive

#endif  // FORGIVE_PLUGIN_DEVICE_FACTS_H_
