// SPDX-License-Identifier: Apache-2.0
// Makes the driver of a device as the engine's options name it: the base driver and what wraps it.
#include "dataplane/drivers.h"

#include "dataplane/dpdk_module.h"
#include "dataplane/fault_driver.h"
#include "dataplane/relay_driver.h"
#include "dataplane/socket_address.h"
#include "dataplane/udp_driver.h"
#include "dataplane/uring_driver.h"
#include "transport/check.h"

namespace forgive {
namespace {

// False: the driver has no rails.
bool CheckRails(const EngineOptions& options, std::string* error) {
  if (options.transport.rails == 1) return true;
  if (options.driver == "dpdk") {
    *error = "FORGIVE_RAILS: FORGIVE_DRIVER=dpdk has one rail: choose udp or uring, or unset FORGIVE_RAILS";
  } else if (!options.relay.empty()) {
    *error = "FORGIVE_RAILS: a relay (FORGIVE_RELAY) is one rail: unset FORGIVE_RAILS";
  } else {
    return true;
  }
  return false;
}

// False: the driver cannot give the transport the paths that it is to spray over.
bool CheckPaths(const EngineOptions& options, std::string* error) {
  const uint32_t rails = options.transport.rails;
  const uint32_t paths = options.transport.PathCount() / rails;
  if (paths == 1) return true;
  const std::string setting = "FORGIVE_PATHS=" + std::to_string(paths);
  if (paths == 0 || paths * rails > kMostUdpPaths) {
    *error = setting + ": accepted: an integer from 1 to " + std::to_string(kMostUdpPaths / rails);
    if (rails != 1) *error += " (for each of " + std::to_string(rails) + " rails)";
  } else if (options.driver == "dpdk") {
    *error = setting + ": FORGIVE_DRIVER=dpdk has one path: choose udp or uring, or unset FORGIVE_PATHS";
  } else if (!options.relay.empty()) {
    *error = setting + ": a relay (FORGIVE_RELAY) is one path: unset FORGIVE_PATHS";
  } else {
    return true;
  }
  return false;
}

// A driver over kernel UDP sockets: udp or uring.
std::unique_ptr<Driver> MakeKernelDriver(const EngineOptions& options, const DeviceOptions& device,
                                         std::string* error) {
  const auto open = options.driver == "uring" ? OpenUringDriver : OpenUdpDriver;
  UdpDriverOptions udp;
  udp.local_address = device.local_address;
  udp.port_low = device.port_low;
  udp.port_high = device.port_high;
  udp.more_rails = device.more_rails;
  udp.paths = options.transport.PathCount() / options.transport.rails;
  udp.dscp_data = options.dscp_data;
  udp.dscp_control = options.dscp_control;
  udp.dscp_trimmed = options.dscp_trimmed;
  udp.require_trimmed_dscp = options.require_trimmed_dscp;
  udp.receive_buffer_bytes = options.receive_buffer_bytes;
  if (options.relay.empty()) {
    udp.raw_path = options.transport.fabric_trims ? RawPath::kAuto : RawPath::kOff;
    return open(udp, error);
  }
  // The relay's packets are whole UDP packets and begin with its prefix: what it trimmed, its prefix says.
  Address relay;
  if (!ParseAddressAndPort(options.relay, &relay)) {
    *error = "relay \"" + options.relay + "\" is not HOST:PORT with a numeric host (FORGIVE_RELAY)";
    return nullptr;
  }
  Address local;
  if (ParseAddress(device.local_address, 0, &local) && AddressFamily(local) != AddressFamily(relay)) {
    *error = "relay " + options.relay + " (FORGIVE_RELAY) cannot be reached from " + device.local_address +
             ": both must be IPv4 or both IPv6";
    return nullptr;
  }
  udp.require_trimmed_dscp = false;
  udp.extra_bytes = kRelayPrefixBytes;
  std::unique_ptr<Driver> inner = open(udp, error);
  return inner == nullptr ? nullptr : MakeRelayDriver(std::move(inner), relay);
}

// A driver on a DPDK port: the device's of FORGIVE_DPDK, or an af_packet port on the device's interface.
std::unique_ptr<Driver> MakeDpdkDriver(const EngineOptions& options, uint32_t device_index, std::string* error) {
  const DeviceOptions& device = options.devices[device_index];
  if (!options.relay.empty()) {
    *error = "FORGIVE_RELAY needs a driver over kernel UDP: choose FORGIVE_DRIVER=udp or uring";
    return nullptr;
  }
  if (!options.dpdk.ports.empty() && options.dpdk.ports.size() <= device_index) {
    *error = "FORGIVE_DPDK names " + std::to_string(options.dpdk.ports.size()) +
             " ports, and there are more devices: name one for each";
    return nullptr;
  }
  DpdkDriverOptions dpdk;
  dpdk.port =
      options.dpdk.ports.empty() ? PortOfInterface(device.interface, device_index) : options.dpdk.ports[device_index];
  dpdk.huge_pages = options.dpdk.huge_pages;
  dpdk.eal = options.dpdk.eal;
  dpdk.local_address = device.local_address;
  dpdk.port_low = device.port_low;
  dpdk.port_high = device.port_high;
  dpdk.dscp_data = options.dscp_data;
  dpdk.dscp_control = options.dscp_control;
  dpdk.dscp_trimmed = options.dscp_trimmed;
  dpdk.require_trimmed_dscp = options.require_trimmed_dscp;
  return OpenDpdkDriver(dpdk, options.dpdk_module, error);
}

}  // namespace

std::unique_ptr<Driver> MakeDriver(const EngineOptions& options, uint32_t device_index,
                                   const std::shared_ptr<FaultLog>& log, std::string* error) {
  const DeviceOptions& device = options.devices[device_index];
  FORGIVE_CHECK(device.more_rails.size() + 1 == options.transport.rails);
  std::unique_ptr<Driver> driver;
  if (options.driver_factory) {
    driver = options.driver_factory(device, options, error);
  } else if (!CheckRails(options, error) || !CheckPaths(options, error)) {
    return nullptr;
  } else if (options.driver == "udp" || options.driver == "uring") {
    driver = MakeKernelDriver(options, device, error);
  } else if (options.driver == "dpdk") {
    driver = MakeDpdkDriver(options, device_index, error);
  } else {
    *error = "driver \"" + options.driver + "\" is not built: FORGIVE_DRIVER may be udp, uring or dpdk";
    return nullptr;
  }
  if (driver == nullptr || options.fault.empty()) return driver;
  FaultSpec spec;
  if (!ParseFaultSpec(options.fault, &spec, error)) return nullptr;
  spec.seed += device_index;
  return MakeFaultDriver(std::move(driver), spec, log);
}

}  // namespace forgive
