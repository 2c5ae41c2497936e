// SPDX-License-Identifier: Apache-2.0
// The event queue's slower half: loading buckets, and bringing what was far into the near wheel.
#include "testbed/simulator/event_queue.h"

#include <algorithm>
#include <limits>

namespace forgive::sim {
namespace {

constexpr int64_t kNone = -1;

// The first bit at or after `from` and before `end` in a bitmap that wraps at mask + 1 bits; kNone if there is none.
int64_t FirstUsed(const std::vector<uint64_t>& used, int64_t mask, int64_t from, int64_t end) {
  while (from < end) {
    const uint64_t word = used[static_cast<size_t>((from & mask) >> 6)] >> (from & 63);
    if (word != 0) {
      const int64_t found = from + std::countr_zero(word);
      return found < end ? found : kNone;
    }
    from = (from | 63) + 1;
  }
  return kNone;
}

}  // namespace

EventQueue::EventQueue()
    : ready_(256),
      near_heads_(static_cast<size_t>(2 * kNearHalf), kNoNode),
      near_used_(static_cast<size_t>(2 * kNearHalf / 64)),
      middle_heads_(static_cast<size_t>(2 * kMiddleHalf), kNoNode),
      middle_used_(static_cast<size_t>(2 * kMiddleHalf / 64)) {}

void EventQueue::GrowNodes() {
  const size_t old = nodes_.size();
  nodes_.resize(std::max<size_t>(1024, 2 * old));
  for (size_t i = nodes_.size(); i > old; --i) {
    nodes_[i - 1].next = free_;
    free_ = static_cast<NodeIndex>(i - 1);
  }
}

void EventQueue::ReserveReady(size_t more) {
  if (ready_end_ + more <= ready_.size()) return;
  std::move(ready_.begin() + static_cast<ptrdiff_t>(ready_begin_),
            ready_.begin() + static_cast<ptrdiff_t>(ready_end_), ready_.begin());
  ready_end_ -= ready_begin_;
  ready_begin_ = 0;
  if (ready_end_ + more > ready_.size() / 2) ready_.resize(2 * (ready_end_ + more));
}

void EventQueue::InsertReady(int64_t time, const SimEvent& event) {
  ReserveReady(1);
  size_t place = ready_end_++;
  while (place > ready_begin_ && ready_[place - 1].time > time) {
    ready_[place] = ready_[place - 1];
    --place;
  }
  ready_[place] = {time, event};
}

void EventQueue::ScheduleFar(int64_t time, const SimEvent& event) {
  const int64_t half = time >> (kBucketBits + kNearHalfBits);
  const NodeIndex node = NewNode(time, event);
  if (half < middle_end_) {
    PushMiddle(half, node);
  } else {
    far_.push_back(node);
  }
}

void EventQueue::PushMiddle(int64_t half, NodeIndex node) {
  const auto slot = static_cast<size_t>(half & kMiddleMask);
  Push(&middle_heads_[slot], node);
  middle_used_[slot >> 6] |= uint64_t{1} << (slot & 63);
}

// What stands in ready_ is at most kBucketsAhead from now: an event scheduled into that stretch is inserted by moving
// the later ones, which must stay few.
void EventQueue::Refill() {
  while (ready_end_ - ready_begin_ <= kReadyAhead) {
    const bool idle = ready_begin_ == ready_end_;
    const int64_t limit = idle ? std::numeric_limits<int64_t>::max() : (now_ >> kBucketBits) + kBucketsAhead;
    const int64_t half_end = near_end_ - kNearHalf;
    const int64_t bucket = FirstUsed(near_used_, kNearMask, frontier_, std::min(half_end, limit));
    if (bucket != kNone) {
      LoadBucket(bucket);
    } else if (half_end > limit || !AdvanceNear(idle)) {
      return;
    }
  }
}

void EventQueue::LoadBucket(int64_t bucket) {
  frontier_ = bucket + 1;
  const auto slot = static_cast<size_t>(bucket & kNearMask);
  NodeIndex list = near_heads_[slot];
  near_heads_[slot] = kNoNode;
  near_used_[slot >> 6] &= ~(uint64_t{1} << (slot & 63));
  if (ready_begin_ == ready_end_) ready_begin_ = ready_end_ = 0;
  size_t count = 0;
  while (list != kNoNode) {
    Node& node = nodes_[list];
    ReserveReady(1);
    ready_[ready_end_++] = {node.time, node.event};
    ++count;
    const NodeIndex next = node.next;
    node.next = free_;
    free_ = list;
    list = next;
  }
  if (count > 1) SortReady(count);
}

// The last `count` of ready_, newest first: in order of time, and among equal times oldest first.
void EventQueue::SortReady(size_t count) {
  Ready* const first = &ready_[ready_end_ - count];
  std::reverse(first, first + count);
  constexpr size_t kFew = 24;
  if (count > kFew) {
    keys_.clear();
    for (size_t i = 0; i < count; ++i) keys_.emplace_back(first[i].time, static_cast<uint32_t>(i));
    std::sort(keys_.begin(), keys_.end());
    scratch_.assign(first, first + count);
    for (size_t i = 0; i < count; ++i) first[i] = scratch_[keys_[i].second];
    return;
  }
  for (size_t i = 1; i < count; ++i) {
    const Ready moved = first[i];
    size_t place = i;
    for (; place > 0 && first[place - 1].time > moved.time; --place) first[place] = first[place - 1];
    first[place] = moved;
  }
}

// The near wheel's first half is empty: moves on by one half, or, when nothing is before, to where there is
// something. False when there is nothing at all.
bool EventQueue::AdvanceNear(bool idle) {
  const int64_t half_end = near_end_ - kNearHalf;
  if (idle && FirstUsed(near_used_, kNearMask, half_end, near_end_) == kNone) return JumpNear();
  frontier_ = half_end;
  FillNear(near_end_ >> kNearHalfBits);
  return true;
}

// Nothing is ready and the near wheel is empty.
bool EventQueue::JumpNear() {
  int64_t half = FirstUsed(middle_used_, kMiddleMask, near_end_ >> kNearHalfBits, middle_end_);
  if (half == kNone) {
    if (far_.empty()) return false;
    int64_t first = std::numeric_limits<int64_t>::max();
    for (NodeIndex node : far_) first = std::min(first, nodes_[node].time);
    half = first >> (kBucketBits + kNearHalfBits);
    AdvanceMiddle((half >> kMiddleHalfBits) << kMiddleHalfBits);
  }
  frontier_ = half << kNearHalfBits;
  FillNear(half);
  FillNear(half + 1);
  return true;
}

// From now on the near wheel takes this half, too: what was scheduled into it before comes first.
void EventQueue::FillNear(int64_t half) {
  near_end_ = (half + 1) << kNearHalfBits;
  if (half >= middle_end_ - kMiddleHalf) AdvanceMiddle(middle_end_ - kMiddleHalf);
  const auto slot = static_cast<size_t>(half & kMiddleMask);
  NodeIndex newest = middle_heads_[slot];
  middle_heads_[slot] = kNoNode;
  middle_used_[slot >> 6] &= ~(uint64_t{1} << (slot & 63));
  NodeIndex oldest = kNoNode;
  while (newest != kNoNode) {
    const NodeIndex next = nodes_[newest].next;
    Push(&oldest, newest);
    newest = next;
  }
  while (oldest != kNoNode) {
    const NodeIndex next = nodes_[oldest].next;
    PushNear(nodes_[oldest].time >> kBucketBits, oldest);
    oldest = next;
  }
}

// The middle wheel's present half begins at `begin`: takes from the far list what now fits, in order.
void EventQueue::AdvanceMiddle(int64_t begin) {
  middle_end_ = begin + 2 * kMiddleHalf;
  size_t kept = 0;
  for (NodeIndex node : far_) {
    const int64_t half = nodes_[node].time >> (kBucketBits + kNearHalfBits);
    if (half < middle_end_) {
      PushMiddle(half, node);
    } else {
      far_[kept++] = node;
    }
  }
  far_.resize(kept);
}

}  // namespace forgive::sim
