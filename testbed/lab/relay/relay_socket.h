// SPDX-License-Identifier: Apache-2.0
// The relay's one UDP socket: batches in and out, and the files that it keeps.
#ifndef FORGIVE_TESTBED_LAB_RELAY_RELAY_SOCKET_H_
#define FORGIVE_TESTBED_LAB_RELAY_RELAY_SOCKET_H_

#include <sys/socket.h>
#include <sys/uio.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "testbed/lab/relay/relay_switch.h"

namespace forgive::lab {

class RelaySocket {
 public:
  RelaySocket();
  ~RelaySocket();
  RelaySocket(const RelaySocket&) = delete;
  RelaySocket& operator=(const RelaySocket&) = delete;

  // False: *error says why.
  bool Open(const std::string& host, uint16_t port, std::string* error);
  std::string name() const;  // HOST:PORT
  int fd() const { return fd_; }

  // Hands what has arrived to the switch; returns how many packets.
  size_t Receive(int64_t now_ns, RelaySwitch* to);
  // Sends what is due; returns how many packets. A packet that the kernel refuses is lost, and counted.
  size_t Send(RelaySwitch* from);
  uint64_t socket_drops() const { return socket_drops_; }
  uint64_t send_errors() const { return send_errors_; }

 private:
  static constexpr size_t kBatch = 64;
  static constexpr size_t kMostBytes = 8192;
  struct alignas(cmsghdr) Control {
    uint8_t bytes[64];
  };

  int fd_ = -1;
  uint64_t socket_drops_ = 0;
  uint64_t send_errors_ = 0;
  std::vector<uint8_t> buffers_;
  std::array<mmsghdr, kBatch> headers_{};
  std::array<iovec, kBatch> vectors_{};
  std::array<sockaddr_storage, kBatch> names_{};
  std::array<Control, kBatch> controls_{};
  std::array<std::vector<uint8_t>, kBatch> out_bytes_;
};

}  // namespace forgive::lab

#endif  // FORGIVE_TESTBED_LAB_RELAY_RELAY_SOCKET_H_
