// SPDX-License-Identifier: Apache-2.0
// The sending half of the kernel drivers: packets into segmented messages, and what to do when one is refused.
#ifndef FORGIVE_DATAPLANE_SEND_LANE_H_
#define FORGIVE_DATAPLANE_SEND_LANE_H_

#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include <array>
#include <cstdint>
#include <memory>
#include <span>

#include "dataplane/driver.h"
#include "dataplane/message_sender.h"
#include "dataplane/udp_socket.h"

namespace forgive {

// The most messages of one call of MessageSender::Send.
inline constexpr size_t kSendBatch = 64;

class SendLane {
 public:
  // `rails` have equally many paths; they must outlive the lane and stay where they are. Path n is path
  // n / rails.size() of rail n % rails.size().
  SendLane(const UdpDriverOptions& options, std::span<const UdpSockets> rails, std::unique_ptr<MessageSender> sender);

  // As Driver::SendBurst. With several paths the packets of each are put together, so that they leave segmented: a
  // packet of a path may leave before an older one of another.
  size_t SendBurst(std::span<const Transmit> packets);
  // The socket that had no room for what the last SendBurst left behind.
  int blocked_fd() const { return paths_[blocked_path_].fd; }

  // False as soon as a path of the rail was found that cannot segment.
  bool segmentation(size_t rail) const { return segmentation_[rail]; }
  uint64_t sent_bytes(size_t rail) const { return sent_bytes_[rail]; }
  uint64_t send_errors() const { return send_errors_; }

 private:
  struct alignas(cmsghdr) ControlBuffer {
    uint8_t bytes[CMSG_SPACE(sizeof(int)) + CMSG_SPACE(sizeof(uint16_t)) + CMSG_SPACE(sizeof(in6_pktinfo))];
  };
  enum class SendResult : uint8_t { kTryAgain, kRefused };
  struct Path {
    int fd = -1;
    size_t rail = 0;
  };

  // `Packets` is a span, or what was picked out of one (send_lane.cc).

  // How many packets from the front can leave as one segmented message.
  template <typename Packets>
  size_t RunLength(const Packets& packets) const;
  // Fills one message of `count` packets; uses 2 * count vectors from *vector on.
  template <typename Packets>
  void FillMessage(const Packets& packets, const UdpSockets& sockets, size_t count, size_t message, size_t* vector);
  void FillControl(const Transmit& packet, const UdpSockets& sockets, uint32_t segment_bytes, size_t message);
  // Returns how many were taken before an error in *result.
  template <typename Packets>
  size_t SendMessages(const Packets& packets, const Path& path, bool segmented, SendResult* result,
                      size_t* refused_run);
  // Returns how many were taken before the socket had no room.
  template <typename Packets>
  size_t SendBy(const Path& path, const Packets& packets);
  size_t Spray(std::span<const Transmit> packets);
  // Sends those of the window that are not in `sent` yet; returns `sent` with those that left now.
  uint64_t SprayWindow(std::span<const Transmit> window, uint64_t sent);

  uint8_t dscp_data_;
  uint8_t dscp_control_;
  std::span<const UdpSockets> rails_;
  std::unique_ptr<MessageSender> sender_;
  std::array<bool, kMaxRails> segmentation_{};    // by rail
  std::array<uint64_t, kMaxRails> sent_bytes_{};  // by rail
  size_t path_count_ = 0;
  std::array<Path, kMostUdpPaths> paths_{};
  size_t blocked_path_ = 0;
  uint64_t sent_ahead_ = 0;  // bit i: the packet i places behind the next one that is offered has left already
  int refused_errno_ = 0;  // why the last message was refused
  uint64_t send_errors_ = 0;
  std::array<mmsghdr, kSendBatch> messages_{};
  std::array<size_t, kSendBatch> packets_in_message_{};
  std::array<uint32_t, kSendBatch> bytes_in_message_{};
  std::array<sockaddr_storage, kSendBatch> names_{};
  std::array<iovec, 2 * kSendBatch> vectors_{};
  std::array<ControlBuffer, kSendBatch> controls_{};
};

}  // namespace forgive

#endif  // FORGIVE_DATAPLANE_SEND_LANE_H_
