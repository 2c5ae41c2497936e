// SPDX-License-Identifier: Apache-2.0
// A socket read by one multishot receive of io_uring into a ring of provided buffers.
#ifndef FORGIVE_DATAPLANE_URING_LANE_H_
#define FORGIVE_DATAPLANE_URING_LANE_H_

#include "dataplane/io_ring.h"

#ifdef FORGIVE_HAVE_URING

#include <memory>
#include <string>
#include <vector>

#include "dataplane/receive_lane.h"

namespace forgive {

// The kernel puts messages into buffers only within our own calls, so what it has no buffer for stays in the socket,
// whose drops are counted. Whoever sleeps polls the socket itself: it is readable as long as anything is unread.
class UringLane final : public ReceiveLane {
 public:
  // Buffers: options.batch rounded up to a power of two. nullptr: *error says in one line why.
  static std::unique_ptr<UringLane> Open(int fd, const LaneOptions& options, std::string* error);
  ~UringLane() override;

  size_t Receive(std::span<Datagram> out) override;
  bool drained() const override { return drained_; }
  std::string note() const override;

  // How often the kernel ran out of buffers and left the rest in the socket until they were handed back.
  uint64_t exhausted() const { return exhausted_; }

 private:
  UringLane(int fd, const LaneOptions& options);
  bool Prepare(std::string* error);
  // Submits the multishot receive.
  void Arm();
  // The next message of the ring into current_. False: the ring is empty.
  bool NextMessage();
  // Reads one completion of the receive. False: it carries no message.
  bool ReadCompletion(const IoRing::Completion& completion);
  void HandBackBuffers();

  int fd_;
  uint32_t message_bytes_;
  uint32_t buffer_count_;
  size_t stride_;
  IoRing ring_;
  SharedMapping buffer_ring_;
  std::vector<uint8_t> buffers_;
  msghdr shape_{};  // of what the kernel writes before the payload
  bool armed_ = false;
  bool drained_ = false;
  uint16_t buffer_tail_ = 0;
  std::vector<uint16_t> used_;  // buffers whose datagrams were handed out; handed back at the next call
  ReceivedMessage current_;
  uint16_t current_buffer_ = 0;
  uint64_t exhausted_ = 0;
};

}  // namespace forgive

#endif  // FORGIVE_HAVE_URING
#endif  // FORGIVE_DATAPLANE_URING_LANE_H_
