// SPDX-License-Identifier: Apache-2.0
// The kernel UDP driver: batched calls, segmentation and coalescing offloads, ECN, and a raw path for cut packets.
#ifndef FORGIVE_DATAPLANE_UDP_DRIVER_H_
#define FORGIVE_DATAPLANE_UDP_DRIVER_H_

#include <memory>
#include <string>
#include <vector>

#include "dataplane/driver.h"

namespace forgive {

// The raw path. Switches that trim may leave the UDP length or checksum stale, and kernel UDP then drops the packet;
// a raw socket still shows it. It costs about 8 % of receive speed, so it is opened only where trimming is expected.
enum class RawPath : uint8_t {
  kOff,
  kAuto,    // open it, except on the loopback interface, where nothing trims
  kAlways,  // tests
};

// Each path is a socket with a source port of its own, by which the fabric's ECMP tells the paths apart.
inline constexpr uint32_t kMostUdpPaths = 8;

struct UdpDriverOptions {
  std::string local_address;            // numeric; link-local with %scope
  std::vector<std::string> more_rails;  // the local addresses of the rails behind the first, of the same family
  uint16_t port_low = 0;      // 0: any port
  uint16_t port_high = 0;
  uint32_t paths = 1;  // of each rail; of all at most kMostUdpPaths, and Transmit::path is below that number
  uint8_t dscp_data = 10;
  uint8_t dscp_control = 46;
  uint8_t dscp_trimmed = 11;
  bool require_trimmed_dscp = false;  // a cut packet without dscp_trimmed is a drop
  uint64_t receive_buffer_bytes = 64u << 20;
  RawPath raw_path = RawPath::kOff;
  bool segmentation = true;  // use UDP_SEGMENT if the kernel has it
  bool coalescing = true;    // use UDP_GRO if the kernel has it
  uint32_t extra_bytes = 0;  // bytes that a wrapper adds before each packet
};

// Opens and binds the sockets. nullptr: *error says in one line what is wrong and what to do.
std::unique_ptr<Driver> OpenUdpDriver(const UdpDriverOptions& options, std::string* error);

}  // namespace forgive

#endif  // FORGIVE_DATAPLANE_UDP_DRIVER_H_
