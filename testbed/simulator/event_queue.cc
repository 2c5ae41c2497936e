// SPDX-License-Identifier: Apache-2.0
// The event queue's slower half: finding the next bucket, and bringing what was far near.
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
    : near_(static_cast<size_t>(2 * kHalf)),
      near_used_(static_cast<size_t>(2 * kHalf / 64)),
      wheel_(static_cast<size_t>(2 * kWheelHalf), kNoNode),
      wheel_used_(static_cast<size_t>(2 * kWheelHalf / 64)) {}

void EventQueue::GrowNodes() {
  const size_t old = nodes_.size();
  nodes_.resize(std::max<size_t>(1024, 2 * old));
  for (size_t i = nodes_.size(); i > old; --i) {
    nodes_[i - 1].next = free_;
    free_ = static_cast<NodeIndex>(i - 1);
  }
}

// The bucket of the next event, which the caller takes at once: it becomes now.
bool EventQueue::FindBucket(size_t* slot) {
  int64_t bucket = FirstUsed(near_used_, kNearMask, now_ >> kBucketBits, near_end_);
  if (bucket == kNone) {
    if (!JumpToWheel()) return false;
    bucket = FirstUsed(near_used_, kNearMask, near_end_ - 2 * kHalf, near_end_);
  } else if (bucket >= near_end_ - kHalf) {
    FillHalf(near_end_ >> kHalfBits);  // now moves on into what was the second half
  }
  *slot = static_cast<size_t>(bucket & kNearMask);
  // Where packets that leave now will be scheduled: these buckets were last used a whole turn ago.
  constexpr size_t kBucketsAhead = 256;
  __builtin_prefetch(&near_[(*slot + kBucketsAhead) & static_cast<size_t>(kNearMask)], 1);
  return true;
}

// Nothing is near: the first half that holds something becomes the near buckets' first one. False if nothing is left.
bool EventQueue::JumpToWheel() {
  int64_t half = FirstUsed(wheel_used_, kWheelMask, near_end_ >> kHalfBits, wheel_end_);
  if (half == kNone) {
    if (far_.empty()) return false;
    int64_t first = std::numeric_limits<int64_t>::max();
    for (NodeIndex node : far_) first = std::min(first, nodes_[node].time);
    half = first >> (kBucketBits + kHalfBits);
    AdvanceWheel((half >> kWheelHalfBits) << kWheelHalfBits);
  }
  FillHalf(half);
  FillHalf(half + 1);
  return true;
}

// From now on this half is near: what was scheduled into it before comes first.
void EventQueue::FillHalf(int64_t half) {
  near_end_ = (half + 1) << kHalfBits;
  if (half >= wheel_end_ - kWheelHalf) AdvanceWheel(wheel_end_ - kWheelHalf);
  const auto slot = static_cast<size_t>(half & kWheelMask);
  NodeIndex newest = wheel_[slot];
  wheel_[slot] = kNoNode;
  wheel_used_[slot >> 6] &= ~(uint64_t{1} << (slot & 63));
  NodeIndex oldest = kNoNode;
  while (newest != kNoNode) {
    const NodeIndex next = nodes_[newest].next;
    nodes_[newest].next = oldest;
    oldest = newest;
    newest = next;
  }
  while (oldest != kNoNode) {
    const NodeIndex next = nodes_[oldest].next;
    PlaceNear(nodes_[oldest].time >> kBucketBits, oldest);
    oldest = next;
  }
}

void EventQueue::PlaceFar(int64_t half, NodeIndex node) {
  if (half >= wheel_end_) {
    far_.push_back(node);
    return;
  }
  const auto slot = static_cast<size_t>(half & kWheelMask);
  nodes_[node].next = wheel_[slot];
  wheel_[slot] = node;
  wheel_used_[slot >> 6] |= uint64_t{1} << (slot & 63);
}

// The wheel's first half begins at `begin`: takes from the far list what now fits, in order.
void EventQueue::AdvanceWheel(int64_t begin) {
  wheel_end_ = begin + 2 * kWheelHalf;
  size_t kept = 0;
  for (NodeIndex node : far_) {
    const int64_t half = nodes_[node].time >> (kBucketBits + kHalfBits);
    if (half < wheel_end_) {
      PlaceFar(half, node);
    } else {
      far_[kept++] = node;
    }
  }
  far_.resize(kept);
}

}  // namespace forgive::sim
