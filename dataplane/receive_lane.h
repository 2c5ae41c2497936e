// SPDX-License-Identifier: Apache-2.0
// One receiving socket of a kernel driver, whatever the calls by which it is read.
#ifndef FORGIVE_DATAPLANE_RECEIVE_LANE_H_
#define FORGIVE_DATAPLANE_RECEIVE_LANE_H_

#include <cstdint>
#include <span>
#include <string>

#include "dataplane/datagram_splitter.h"
#include "dataplane/driver.h"

namespace forgive {

// The distance between receive buffers of `message_bytes`: an odd number of cache lines, since with 64 KiB between
// them all headers would share one cache set.
inline size_t BufferStride(uint32_t message_bytes) { return (message_bytes / 64 + 2) / 2 * 128 + 64; }

class ReceiveLane {
 public:
  virtual ~ReceiveLane() = default;

  // Hands out what was read before, or reads if nothing is left of that. Returns how many. Bytes of datagrams stay
  // valid until the next Receive.
  virtual size_t Receive(std::span<Datagram> out) = 0;
  // Nothing is left, and the last read found the socket empty.
  virtual bool drained() const = 0;
  // What the description of the driver says about this lane; empty: nothing.
  virtual std::string note() const { return {}; }

  const DatagramSplitter& splitter() const { return splitter_; }

 protected:
  explicit ReceiveLane(const LaneOptions& options) : splitter_(options) {}
  DatagramSplitter splitter_;
};

}  // namespace forgive

#endif  // FORGIVE_DATAPLANE_RECEIVE_LANE_H_
