// SPDX-License-Identifier: Apache-2.0
// The event queue: a calendar of half-nanosecond buckets for what is near, a wheel and a list for what is far.
#ifndef FORGIVE_TESTBED_SIMULATOR_EVENT_QUEUE_H_
#define FORGIVE_TESTBED_SIMULATOR_EVENT_QUEUE_H_

#include <bit>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "testbed/simulator/clock.h"
#include "transport/check.h"

namespace forgive::sim {

// Something that happens at a moment. Who scheduled it knows what object and value mean.
struct SimEvent {
  enum class Kind : uint8_t {
    kPortFree,      // fabric: a port catches up
    kArrival,       // fabric: the first packet on a link arrives
    kHostDeadline,  // host
    kHostSend,      // host
    kCompute,       // host
    kLink,          // fabric: the routes learn that a link failed or came back
    kTimer,         // anyone else's
  };
  Kind kind = Kind::kTimer;
  uint32_t object = 0;
  uint32_t value = 0;
};

// Events come out in the order of their times, and among equal times in the order in which they were scheduled.
// Both calls are O(1) as long as few different times share a bucket; memory is kept once taken. There is no cancel:
// owners ignore what is stale.
//
// Near: 2^16 buckets of 512 ps, in two halves, of which now lies in the first; each bucket is in order. The second
// half is filled from the wheel at the moment from which events may be scheduled into it directly, so what was
// scheduled earlier always stands earlier. The wheel does the same with halves of the near buckets, and the far list
// with halves of the wheel.
class EventQueue {
 public:
  EventQueue();

  // `time` must not lie before the event last taken.
  void Schedule(SimTime time, SimEvent event) {
    FORGIVE_CHECK(time.ps >= now_);
    ++size_;
    const NodeIndex node = NewNode(time.ps, event);
    const int64_t bucket = time.ps >> kBucketBits;
    if (bucket < near_end_) {
      PlaceNear(bucket, node);
    } else {
      PlaceFar(bucket >> kHalfBits, node);
    }
  }

  // Takes the next event; false when there is none.
  bool Next(SimTime* time, SimEvent* event) {
    auto slot = static_cast<size_t>((now_ >> kBucketBits) & kNearMask);
    if (near_[slot].head == kNoNode) {
      if (!FindBucket(&slot)) return false;
    }
    Bucket& bucket = near_[slot];
    const NodeIndex index = bucket.head;
    Node& node = nodes_[index];
    bucket.head = node.next;
    if (node.next == kNoNode) near_used_[slot >> 6] &= ~(uint64_t{1} << (slot & 63));
    now_ = node.time;
    time->ps = node.time;
    *event = node.event;
    node.next = free_;
    free_ = index;
    --size_;
    ++fired_;
    return true;
  }

  bool empty() const { return size_ == 0; }
  uint64_t size() const { return size_; }
  // Events taken so far.
  uint64_t fired() const { return fired_; }

 private:
  using NodeIndex = uint32_t;
  static constexpr NodeIndex kNoNode = 0xffffffff;
  static constexpr int kBucketBits = 9;  // 512 ps
  static constexpr int kHalfBits = 15;   // of the near buckets: 16.8 us
  static constexpr int64_t kHalf = int64_t{1} << kHalfBits;
  static constexpr int64_t kNearMask = 2 * kHalf - 1;
  static constexpr int kWheelHalfBits = 11;  // 34.4 ms
  static constexpr int64_t kWheelHalf = int64_t{1} << kWheelHalfBits;
  static constexpr int64_t kWheelMask = 2 * kWheelHalf - 1;

  struct Node {
    int64_t time;
    SimEvent event;
    NodeIndex next;
  };
  struct Bucket {
    NodeIndex head = kNoNode;
    NodeIndex tail = kNoNode;  // means nothing when there is no head
  };

  NodeIndex NewNode(int64_t time, const SimEvent& event) {
    if (free_ == kNoNode) GrowNodes();
    const NodeIndex index = free_;
    Node& node = nodes_[index];
    free_ = node.next;
    node.time = time;
    node.event = event;
    return index;
  }

  // Behind everything of its own time or an earlier one.
  void PlaceNear(int64_t number, NodeIndex index) {
    const auto slot = static_cast<size_t>(number & kNearMask);
    Bucket& bucket = near_[slot];
    Node& node = nodes_[index];
    if (bucket.head == kNoNode) {
      node.next = kNoNode;
      bucket = {index, index};
      near_used_[slot >> 6] |= uint64_t{1} << (slot & 63);
    } else if (nodes_[bucket.tail].time <= node.time) {
      node.next = kNoNode;
      nodes_[bucket.tail].next = index;
      bucket.tail = index;
    } else {
      NodeIndex* link = &bucket.head;
      while (nodes_[*link].time <= node.time) link = &nodes_[*link].next;
      node.next = *link;
      *link = index;
    }
  }

  void GrowNodes();
  bool FindBucket(size_t* slot);
  bool JumpToWheel();
  void FillHalf(int64_t half);
  void PlaceFar(int64_t half, NodeIndex node);
  void AdvanceWheel(int64_t begin);

  int64_t now_ = 0;
  int64_t near_end_ = 2 * kHalf;  // the first bucket beyond the near ones
  NodeIndex free_ = kNoNode;
  uint64_t size_ = 0;
  uint64_t fired_ = 0;
  std::vector<Node> nodes_;
  std::vector<Bucket> near_;
  std::vector<uint64_t> near_used_;     // a bit a bucket
  std::vector<NodeIndex> wheel_;        // a half of the near buckets each, newest first
  std::vector<uint64_t> wheel_used_;    // a bit a half
  int64_t wheel_end_ = 2 * kWheelHalf;  // the first half beyond the wheel
  std::vector<NodeIndex> far_;          // in the order of scheduling
};

}  // namespace forgive::sim

#endif  // FORGIVE_TESTBED_SIMULATOR_EVENT_QUEUE_H_
