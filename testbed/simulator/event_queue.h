// SPDX-License-Identifier: Apache-2.0
// The event queue: a calendar of nanosecond buckets for what is near, wheels of coarser ones for what is far.
#ifndef FORGIVE_TESTBED_SIMULATOR_EVENT_QUEUE_H_
#define FORGIVE_TESTBED_SIMULATOR_EVENT_QUEUE_H_

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "testbed/simulator/clock.h"
#include "transport/check.h"

namespace forgive::sim {

// Something that happens at a moment. Who scheduled it knows what object and value mean.
struct SimEvent {
  enum class Kind : uint8_t {
    kPortFree,      // fabric: a port catches up
    kArrival,       // fabric: packet `value` reaches node `object`
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
// Both calls are O(1); memory is kept once taken. There is no cancel: owners ignore what is stale.
//
// Near: 2^15 buckets of 1.024 ns, in two halves. The half after the present one is filled from the middle wheel at
// the moment from which events may be scheduled into it directly, so what was scheduled earlier always stands
// earlier. The middle wheel does the same with halves of the near one as its buckets, and the far list with halves of
// it.
class EventQueue {
 public:
  EventQueue();

  // `time` must not lie before the event last taken.
  void Schedule(SimTime time, SimEvent event) {
    FORGIVE_CHECK(time.ps >= now_);
    ++size_;
    const int64_t bucket = time.ps >> kBucketBits;
    if (bucket < frontier_) {
      InsertReady(time.ps, event);
    } else if (bucket < near_end_) {
      PushNear(bucket, NewNode(time.ps, event));
    } else {
      ScheduleFar(time.ps, event);
    }
  }

  // Takes the next event; false when there is none.
  bool Next(SimTime* time, SimEvent* event) {
    if (ready_end_ - ready_begin_ <= kReadyAhead) Refill();
    if (ready_begin_ == ready_end_) return false;
    const Ready& first = ready_[ready_begin_++];
    now_ = first.time;
    time->ps = first.time;
    *event = first.event;
    --size_;
    ++fired_;
    return true;
  }

  // The event that is `n` places behind the one to come next, to prefetch what it needs; nullptr if not known yet.
  const SimEvent* Ahead(size_t n) const {
    return ready_begin_ + n < ready_end_ ? &ready_[ready_begin_ + n].event : nullptr;
  }

  bool empty() const { return size_ == 0; }
  uint64_t size() const { return size_; }
  // Events taken so far.
  uint64_t fired() const { return fired_; }

 private:
  using NodeIndex = uint32_t;
  static constexpr NodeIndex kNoNode = 0xffffffff;
  static constexpr int kBucketBits = 10;  // 1,024 ps
  static constexpr int kNearHalfBits = 14;
  static constexpr int64_t kNearHalf = int64_t{1} << kNearHalfBits;  // buckets: 16.8 us
  static constexpr int64_t kNearMask = 2 * kNearHalf - 1;
  static constexpr int kMiddleHalfBits = 11;
  static constexpr int64_t kMiddleHalf = int64_t{1} << kMiddleHalfBits;  // halves of the near wheel: 34.4 ms
  static constexpr int64_t kMiddleMask = 2 * kMiddleHalf - 1;
  static constexpr size_t kReadyAhead = 12;
  static constexpr int64_t kBucketsAhead = 64;

  struct Node {
    int64_t time;
    SimEvent event;
    NodeIndex next;
  };
  struct Ready {
    int64_t time;
    SimEvent event;
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

  void Push(NodeIndex* head, NodeIndex node) {
    nodes_[node].next = *head;
    *head = node;
  }

  void PushNear(int64_t bucket, NodeIndex node) {
    const auto slot = static_cast<size_t>(bucket & kNearMask);
    Push(&near_heads_[slot], node);
    near_used_[slot >> 6] |= uint64_t{1} << (slot & 63);
  }

  void GrowNodes();
  void ReserveReady(size_t more);
  void InsertReady(int64_t time, const SimEvent& event);
  void ScheduleFar(int64_t time, const SimEvent& event);
  void PushMiddle(int64_t half, NodeIndex node);
  void Refill();
  void LoadBucket(int64_t bucket);
  void SortReady(size_t count);
  bool AdvanceNear(bool idle);
  bool JumpNear();
  void FillNear(int64_t half);
  void AdvanceMiddle(int64_t begin);

  int64_t now_ = 0;
  int64_t frontier_ = 0;              // the first bucket that is not in ready_
  int64_t near_end_ = 2 * kNearHalf;  // the first bucket that the near wheel does not take
  uint64_t size_ = 0;
  uint64_t fired_ = 0;
  NodeIndex free_ = kNoNode;
  size_t ready_begin_ = 0;
  size_t ready_end_ = 0;
  std::vector<Ready> ready_;  // from begin to end: what comes next, in order
  std::vector<Node> nodes_;
  std::vector<NodeIndex> near_heads_;  // newest first
  std::vector<uint64_t> near_used_;    // a bit a bucket
  std::vector<NodeIndex> middle_heads_;
  std::vector<uint64_t> middle_used_;
  int64_t middle_end_ = 2 * kMiddleHalf;  // the first half of the near wheel that the middle one does not take
  std::vector<NodeIndex> far_;            // in the order of scheduling
  std::vector<std::pair<int64_t, uint32_t>> keys_;  // scratch of SortReady
  std::vector<Ready> scratch_;
};

}  // namespace forgive::sim

#endif  // FORGIVE_TESTBED_SIMULATOR_EVENT_QUEUE_H_
