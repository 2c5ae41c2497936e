// SPDX-License-Identifier: Apache-2.0
// One UDP port on a DPDK port: what arrived for it, and the headers of the places it sends to.
#ifndef FORGIVE_DATAPLANE_DPDK_LANE_H_
#define FORGIVE_DATAPLANE_DPDK_LANE_H_

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "dataplane/dpdk/frame.h"
#include "dataplane/dpdk/resolver.h"
#include "dataplane/driver.h"

struct rte_mbuf;

namespace forgive {

// A place that a lane sends to.
struct Destination {
  Address address;
  HeaderTemplate header;  // empty until its next hop is known
  uint64_t used = 0;
  uint64_t generation = 0;  // of the port, when it was resolved
  HopState state = HopState::kAsked;
  TimePoint ask_again;
};

// The places of one lane: a cache of 4,096 with a bound, since anybody may send us something that is answered.
class Destinations {
 public:
  Destinations() : entries_(kSets * kWays) {}
  // The entry of a place; a new one has generation 0.
  Destination& Find(const Address& address);

 private:
  static constexpr size_t kSets = 1024;
  static constexpr size_t kWays = 4;
  std::vector<Destination> entries_;
  Destination* last_ = nullptr;
  uint64_t clock_ = 0;
};

struct PlaceOptions {
  Address local;
  uint8_t dscp_data = 10;
  uint8_t data_ecn = 2;
  uint8_t dscp_control = 46;
  uint8_t dscp_trimmed = 11;
  bool require_trimmed_dscp = false;
  uint32_t max_payload_bytes = 0;  // of UDP, by the MTU
};

// The port owns the order of calls; all of it belongs to the port's thread.
struct Lane {
  explicit Lane(const PlaceOptions& lane_options);

  static constexpr size_t kQueue = 512;
  struct Queued {
    rte_mbuf* packet = nullptr;
    Datagram datagram;
  };

  // What the endpoint gets of a UDP frame for this lane. False: it is a drop, and counted.
  bool Accept(const Frame& frame, bool cut_here, Datagram* out);
  bool QueueFull() const { return tail - head == kQueue; }
  void Push(const Queued& queued) { queue[tail++ % kQueue] = queued; }

  PlaceOptions options;
  Address match;  // the local address without a scope: as frames have it
  Destinations destinations;
  std::array<Queued, kQueue> queue{};  // arrived while another lane received
  uint64_t head = 0;
  uint64_t tail = 0;
  std::vector<rte_mbuf*> handed_out;  // until the next receive
  bool drained = false;
  DriverCounters counters;
};

}  // namespace forgive

#endif  // FORGIVE_DATAPLANE_DPDK_LANE_H_
