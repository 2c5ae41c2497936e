// SPDX-License-Identifier: Apache-2.0
// Opening the sockets of the udp driver, with what the kernel granted and what it refused.
#ifndef FORGIVE_DATAPLANE_UDP_SOCKET_H_
#define FORGIVE_DATAPLANE_UDP_SOCKET_H_

#include <string>
#include <vector>

#include "dataplane/udp_driver.h"

namespace forgive {

// A file descriptor that closes itself.
class UniqueFd {
 public:
  UniqueFd() = default;
  explicit UniqueFd(int fd) : fd_(fd) {}
  UniqueFd(UniqueFd&& other) noexcept : fd_(other.fd_) { other.fd_ = -1; }
  UniqueFd& operator=(UniqueFd&& other) noexcept;
  ~UniqueFd();
  int get() const { return fd_; }
  bool valid() const { return fd_ >= 0; }

 private:
  int fd_ = -1;
};

// Those of one rail.
struct UdpSockets {
  UniqueFd udp;                      // receives, and sends its first path
  std::vector<UniqueFd> more_paths;  // its others: these only send
  std::vector<uint16_t> more_ports;  // their source ports
  UniqueFd raw;  // invalid: no raw path
  Address local;
  std::string interface;
  uint32_t mtu_bytes = 0;
  uint64_t receive_buffer_bytes = 0;  // as granted
  bool ipv6 = false;
  bool segmentation = false;
  bool coalescing = false;
  bool raw_denied = false;  // wanted, and the process lacks CAP_NET_RAW
  // Not 0: other interfaces share the subnet, and packets that leave the machine must be told to leave by this one.
  uint32_t leave_by = 0;
  std::vector<Address> local_hosts;
};

// False: *error says in one line what is wrong and what to do.
bool OpenUdpSockets(const UdpDriverOptions& options, UdpSockets* out, std::string* error);
// The sockets of every rail, at most kMaxRails.
bool OpenRails(const UdpDriverOptions& options, std::vector<UdpSockets>* out, std::string* error);

}  // namespace forgive

#endif  // FORGIVE_DATAPLANE_UDP_SOCKET_H_
