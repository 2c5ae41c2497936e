// SPDX-License-Identifier: Apache-2.0
// One receiving socket of the udp driver: a batch of buffers, and the datagrams in it that were not handed out yet.
#ifndef FORGIVE_DATAPLANE_RECEIVE_LANE_H_
#define FORGIVE_DATAPLANE_RECEIVE_LANE_H_

#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include <cstdint>
#include <span>
#include <vector>

#include "dataplane/driver.h"

namespace forgive {

// What a lane reads: payloads of a UDP socket, or whole packets of a raw socket.
enum class LaneKind : uint8_t { kUdp, kRawIpv4, kRawIpv6 };

struct LaneOptions {
  LaneKind kind = LaneKind::kUdp;
  uint32_t batch = 64;         // messages a system call
  uint32_t message_bytes = 0;  // a longer message is cut by the kernel and dropped
  bool require_trimmed_dscp = false;
  uint8_t dscp_trimmed = 0;
};

// Bytes of datagrams stay valid until the next Receive: the batch is refilled only when all of it was handed out.
class ReceiveLane {
 public:
  ReceiveLane(int fd, const LaneOptions& options);

  // Hands out what is left of the batch, or reads a new one if nothing is left. Returns how many.
  size_t Receive(std::span<Datagram> out);
  // Nothing is left, and the last read found the socket empty.
  bool drained() const { return drained_ && next_ == filled_; }

  uint64_t truncated() const { return truncated_; }
  uint64_t kernel_drops() const { return kernel_drops_; }  // as the socket last said; wraps at 2^32
  // Raw lanes: packets taken, and those of them that the UDP socket's filter has dropped and counted too.
  uint64_t raw_packets() const { return raw_packets_; }
  uint64_t seen_by_udp() const { return seen_by_udp_; }

 private:
  struct Message {
    uint32_t length = 0;
    uint32_t segment_bytes = 0;  // of a coalesced message, else 0
    uint8_t traffic_class = 0;
    Address source;
  };

  bool Fill();
  void ReadControl(const msghdr& header, Message* message);
  // The datagram that begins at next_ / offset_; false: it is dropped.
  bool Take(Datagram* out);
  bool TakeRaw(const Message& message, const uint8_t* bytes, Datagram* out);
  bool Acceptable(const Message& message, const Datagram& datagram);

  static constexpr size_t kControlBytes = 128;

  int fd_;
  LaneOptions options_;
  size_t stride_;
  std::vector<uint8_t> buffers_;
  std::vector<mmsghdr> headers_;
  std::vector<iovec> vectors_;
  std::vector<sockaddr_storage> names_;
  struct alignas(cmsghdr) ControlBuffer {
    uint8_t bytes[kControlBytes];
  };
  std::vector<ControlBuffer> controls_;
  std::vector<Message> messages_;
  uint32_t next_ = 0;    // message that is handed out next
  uint32_t offset_ = 0;  // where in it
  uint32_t filled_ = 0;
  bool drained_ = false;
  uint64_t truncated_ = 0;
  uint64_t kernel_drops_ = 0;
  uint64_t raw_packets_ = 0;
  uint64_t seen_by_udp_ = 0;
};

}  // namespace forgive

#endif  // FORGIVE_DATAPLANE_RECEIVE_LANE_H_
