// SPDX-License-Identifier: Apache-2.0
// A socket read by recvmmsg: a batch of buffers, and the datagrams in it that were not handed out yet.
#ifndef FORGIVE_DATAPLANE_BATCH_LANE_H_
#define FORGIVE_DATAPLANE_BATCH_LANE_H_

#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include <cstdint>
#include <span>
#include <vector>

#include "dataplane/receive_lane.h"

namespace forgive {

// The batch is refilled only when all of it was handed out.
class BatchLane final : public ReceiveLane {
 public:
  BatchLane(int fd, const LaneOptions& options);

  size_t Receive(std::span<Datagram> out) override;
  bool drained() const override { return drained_ && next_ == filled_; }

 private:
  bool Fill();

  int fd_;
  uint32_t batch_;
  size_t stride_;
  std::vector<uint8_t> buffers_;
  std::vector<mmsghdr> headers_;
  std::vector<iovec> vectors_;
  std::vector<sockaddr_storage> names_;
  struct alignas(cmsghdr) ControlBuffer {
    uint8_t bytes[kReceiveControlBytes];
  };
  std::vector<ControlBuffer> controls_;
  std::vector<ReceivedMessage> messages_;
  uint32_t next_ = 0;  // message that is handed out next
  uint32_t filled_ = 0;
  bool drained_ = false;
};

}  // namespace forgive

#endif  // FORGIVE_DATAPLANE_BATCH_LANE_H_
