// SPDX-License-Identifier: Apache-2.0
// A port: three queues in front of one link, and what decides which of them goes next.
#ifndef FORGIVE_TESTBED_SIMULATOR_PORT_H_
#define FORGIVE_TESTBED_SIMULATOR_PORT_H_

#include <algorithm>
#include <array>
#include <cstdint>
#include <memory>

#include "testbed/simulator/clock.h"
#include "testbed/simulator/fabric_counters.h"
#include "testbed/simulator/packet.h"
#include "transport/draw.h"

namespace forgive::sim {

// First in, first out: a ring which grows as it must and never shrinks.
template <typename Entry>
class Ring {
 public:
  bool empty() const { return begin_ == end_; }
  uint32_t size() const { return end_ - begin_; }
  const Entry& first() const { return entries_[begin_ & mask_]; }
  const Entry& last() const { return entries_[(end_ - 1) & mask_]; }
  // The i-th from the first.
  const Entry& at(uint32_t i) const { return entries_[(begin_ + i) & mask_]; }

  void Append(const Entry& entry) {
    if (size() == capacity_) Grow();
    entries_[end_++ & mask_] = entry;
  }
  Entry TakeFirst() { return entries_[begin_++ & mask_]; }
  // Asks for the memory of what comes `n` after the first.
  void Prefetch(uint32_t n) const { __builtin_prefetch(&entries_[(begin_ + n) & mask_]); }

 private:
  void Grow() {
    const uint32_t capacity = std::max<uint32_t>(16, 2 * capacity_);
    auto entries = std::make_unique<Entry[]>(capacity);
    const uint32_t count = size();
    for (uint32_t i = 0; i < count; ++i) entries[i] = at(i);
    entries_ = std::move(entries);
    capacity_ = capacity;
    mask_ = capacity - 1;
    begin_ = 0;
    end_ = count;
  }

  std::unique_ptr<Entry[]> entries_;
  uint32_t begin_ = 0;
  uint32_t end_ = 0;
  uint32_t mask_ = 0;
  uint32_t capacity_ = 0;
};

// What waits in front of a link, with its bytes beside it, so that a packet's own memory is not touched as it leaves.
struct Waiting {
  PacketIndex packet;
  uint32_t wire_bytes;
};

class PortQueue {
 public:
  bool empty() const { return ring_.empty(); }
  uint32_t size() const { return ring_.size(); }
  uint32_t bytes() const { return bytes_; }
  const Waiting& first() const { return ring_.first(); }
  const Waiting& last() const { return ring_.last(); }

  void Append(PacketIndex packet, uint32_t wire_bytes) {
    ring_.Append({packet, wire_bytes});
    bytes_ += wire_bytes;
  }
  Waiting TakeFirst() {
    const Waiting entry = ring_.TakeFirst();
    bytes_ -= entry.wire_bytes;
    return entry;
  }

  // The sum of what is queued, counted one by one.
  uint64_t CountBytes() const {
    uint64_t sum = 0;
    for (uint32_t i = 0; i < ring_.size(); ++i) sum += ring_.at(i).wire_bytes;
    return sum;
  }

 private:
  Ring<Waiting> ring_;
  uint32_t bytes_ = 0;
};

// What has left a port and not yet arrived: in the order of its arrivals.
struct Travelling {
  int64_t arrival_ps;
  PacketIndex packet;
  uint32_t wire_bytes;
};

// Where a port leads.
enum class PortKind : uint8_t {
  kUp,    // leaf to spine
  kDown,  // spine to leaf
  kLast,  // leaf to host
  kNic,   // host to leaf
};

// Invariant: while something is queued, the link is busy until free_at_ps, the first moment at which the next packet
// may leave, and a kPortFree event stands at wake_at_ps, which is at most one propagation delay after it. While
// something is on the link a kArrival event stands for the first of it.
struct alignas(64) Port {
  int64_t free_at_ps = 0;  // when the link has taken the last packet that left
  int64_t delay_ps = 0;
  int32_t ps_per_byte = 0;  // 0: not a whole number; then by rate
  uint32_t peer = 0;        // the node at the far end
  uint32_t queued = 0;      // packets in the queues
  uint32_t owner = 0;       // the switch's number among the switches, or the host's
  PortKind kind = PortKind::kNic;
  bool is_special = false;   // its link may fail or has jitter
  bool wants_ready = false;  // a NIC: its host waits to hear that the data has left
  Ring<Travelling> link;
  std::array<PortQueue, kQueueClasses> queues;
  int64_t wake_at_ps = kSimNever.ps;
  // What trimmed headers may still take ahead of waiting data, in hundredths of bytes: a header of b bytes costs
  // b x (100 - share), data that leaves the queue earns its bytes x share. So while data waits headers take at most
  // their share, and once what a full credit holds.
  uint32_t header_credit = 0;
  Draw draw{0};  // marking, and a NIC's jitter
  PortCounters counters;
  uint64_t rate = 0;            // bits a second
  int64_t last_arrival_ps = 0;  // with jitter: packets do not overtake

  PortQueue& control() { return queues[static_cast<int>(QueueClass::kControl)]; }
  PortQueue& trimmed() { return queues[static_cast<int>(QueueClass::kTrimmed)]; }
  PortQueue& data() { return queues[static_cast<int>(QueueClass::kData)]; }
  const PortQueue& data() const { return queues[static_cast<int>(QueueClass::kData)]; }
};

}  // namespace forgive::sim

#endif  // FORGIVE_TESTBED_SIMULATOR_PORT_H_
