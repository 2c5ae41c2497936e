// SPDX-License-Identifier: Apache-2.0
// Received messages into datagrams: coalesced messages split, raw packets unwrapped; shared by the kernel drivers.
#ifndef FORGIVE_DATAPLANE_DATAGRAM_SPLITTER_H_
#define FORGIVE_DATAPLANE_DATAGRAM_SPLITTER_H_

#include <sys/socket.h>

#include <cstdint>

#include "dataplane/driver.h"

namespace forgive {

// What a receiving socket shows: payloads of a UDP socket, or whole packets of a raw socket.
enum class LaneKind : uint8_t { kUdp, kRawIpv4, kRawIpv6 };

struct LaneOptions {
  LaneKind kind = LaneKind::kUdp;
  uint32_t batch = 64;         // messages that are read at once
  uint32_t message_bytes = 0;  // a longer message is cut by the kernel and dropped
  bool require_trimmed_dscp = false;
  uint8_t dscp_trimmed = 0;
};

// One message as the kernel delivered it.
struct ReceivedMessage {
  const uint8_t* bytes = nullptr;
  uint32_t length = 0;
  uint32_t segment_bytes = 0;  // of a coalesced message, else 0
  uint32_t offset = 0;         // of what was not handed out yet
  uint8_t traffic_class = 0;
  bool truncated = false;  // cut by our own buffer: a drop
  bool used_up = false;    // nothing is left of it
  Address source;
};

// Room for the control messages that the drivers' sockets ask for.
inline constexpr size_t kReceiveControlBytes = 128;

class DatagramSplitter {
 public:
  explicit DatagramSplitter(const LaneOptions& options) : options_(options) {}

  // Begins a message: reads `header`'s flags, source and control messages, whose buffers the kernel has filled.
  void Begin(const msghdr& header, const uint8_t* bytes, uint32_t length, ReceivedMessage* message);
  // Takes the next datagram of a message that is not used up. False: it is a drop.
  bool Take(ReceivedMessage* message, Datagram* out);

  uint64_t bytes() const { return bytes_; }  // of the datagrams taken
  uint64_t truncated() const { return truncated_; }
  uint64_t kernel_drops() const { return kernel_drops_; }  // as the socket last said; wraps at 2^32
  // Raw sockets: packets taken, and those of them that the UDP socket's filter has dropped and counted too.
  uint64_t raw_packets() const { return raw_packets_; }
  uint64_t seen_by_udp() const { return seen_by_udp_; }

 private:
  void ReadControl(const msghdr& header, ReceivedMessage* message);
  bool TakeRaw(const ReceivedMessage& message, Datagram* out);
  bool Acceptable(const ReceivedMessage& message, const Datagram& datagram);

  LaneOptions options_;
  uint64_t bytes_ = 0;
  uint64_t truncated_ = 0;
  uint64_t kernel_drops_ = 0;
  uint64_t raw_packets_ = 0;
  uint64_t seen_by_udp_ = 0;
};

}  // namespace forgive

#endif  // FORGIVE_DATAPLANE_DATAGRAM_SPLITTER_H_
