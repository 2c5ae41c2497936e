// SPDX-License-Identifier: Apache-2.0
// The burst interface that every driver implements: kernel UDP, io_uring, memory, and wrappers around them.
#ifndef FORGIVE_DATAPLANE_DRIVER_H_
#define FORGIVE_DATAPLANE_DRIVER_H_

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "transport/datagram.h"

namespace forgive {

// What passed a rail, in bytes of UDP payloads.
struct RailBytes {
  uint64_t sent = 0;
  uint64_t received = 0;

  friend bool operator==(const RailBytes&, const RailBytes&) = default;
};

struct DriverCounters {
  uint64_t socket_drops = 0;     // packets the kernel dropped for want of buffer
  uint64_t send_errors = 0;      // packets the kernel refused for another reason than "try again"
  uint64_t truncated = 0;        // datagrams that a local buffer cut: drops
  uint64_t raw_packets = 0;      // cut packets that only the raw path saw
  uint64_t faults_injected = 0;  // by the fault-injecting driver
  std::array<RailBytes, kMaxRails> rails{};  // of kernel sockets

  friend bool operator==(const DriverCounters&, const DriverCounters&) = default;
};

// One local UDP port of one device, or one of each of its rails. Called by one thread, the engine's, which also
// destroys it (any thread may destroy one that was not used).
class Driver {
 public:
  virtual ~Driver() = default;

  // Fills up to out.size() datagrams and returns how many. Their bytes stay valid until the next call.
  virtual size_t ReceiveBurst(std::span<Datagram> out) = 0;
  // True if the last ReceiveBurst left nothing behind that the driver knows of: asking again at once is a wasted
  // system call. A driver that cannot tell says false.
  virtual bool receive_drained() const { return false; }
  // Sends packets from the front; returns how many were taken (the rest: "try again"). A packet that the kernel
  // refuses for good (no route, too large) counts as taken and as an error: loss recovery deals with it. What was not
  // taken is offered again, in the same order and before anything else: a driver with several paths may have sent
  // some of it ahead.
  virtual size_t SendBurst(std::span<const Transmit> packets) = 0;

  virtual Address local_address() const = 0;
  // Where a rail receives; that of the first is local_address(). Transmit::path goes by rail path % rails.
  virtual Address rail_address(uint32_t /*rail*/) const { return local_address(); }
  // The largest UDP payload that the device's MTU lets pass unfragmented.
  virtual uint32_t max_datagram_bytes() const = 0;
  // File descriptors that become readable when something arrives; empty: poll only.
  virtual std::span<const int> poll_fds() const { return {}; }
  // The descriptor that becomes writable when SendBurst may take what it left behind; -1: none, ask by time.
  virtual int blocked_fd() const { return poll_fds().empty() ? -1 : poll_fds()[0]; }
  // When a driver holds packets back (faults, relays): when it wants ReceiveBurst or SendBurst called again.
  virtual TimePoint next_deadline() const { return kNever; }
  virtual DriverCounters counters() const = 0;
  // One line: what it is, what the kernel granted, what it cannot see.
  virtual std::string description() const = 0;
};

}  // namespace forgive

#endif  // FORGIVE_DATAPLANE_DRIVER_H_
