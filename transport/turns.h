// SPDX-License-Identifier: Apache-2.0
// Whose turn it is: which slots may have work now, in order, and when each of the others will.
#ifndef FORGIVE_TRANSPORT_TURNS_H_
#define FORGIVE_TRANSPORT_TURNS_H_

#include <cstdint>
#include <utility>
#include <vector>

#include "transport/check.h"
#include "transport/units.h"

namespace forgive {

// Each slot is ready (in a ring, in the order of turns), waits for a moment (in a heap), or is idle. A slot that is
// touched becomes ready, so that what an endpoint does costs the connections that something happened to, not all.
class Turns {
 public:
  explicit Turns(uint32_t slots) : ring_(slots), states_(slots) { heap_.reserve(slots); }

  bool HasReady() const { return ready_ != 0; }
  uint32_t ready() const { return ready_; }
  // The n-th in turn.
  uint16_t ReadyAt(uint32_t n) const { return ring_[PlaceOf(n)]; }
  uint16_t front() const { return ReadyAt(0); }

  void Touch(uint16_t slot) {
    State& state = states_[slot];
    if (state.is_ready) return;
    if (state.position != kNone) RemoveAt(state.position);
    state.is_ready = true;
    ring_[PlaceOf(ready_++)] = slot;
  }
  // The first in turn becomes the last.
  void Rotate() {
    const uint16_t slot = front();
    first_ = PlaceOf(1);
    ring_[PlaceOf(ready_ - 1)] = slot;
  }
  // The first in turn has nothing to do before `wake`; kNever: until it is touched.
  void Sleep(TimePoint wake) {
    const uint16_t slot = front();
    first_ = PlaceOf(1);
    --ready_;
    states_[slot].is_ready = false;
    if (wake == kNever) return;
    heap_.push_back({wake, slot});
    Up(static_cast<uint32_t>(heap_.size() - 1));
  }
  // Those whose moment has come become ready.
  void Wake(TimePoint now) {
    while (!heap_.empty() && heap_[0].wake <= now) Touch(heap_[0].slot);
  }
  // When the first of those that wait wakes.
  TimePoint next_wake() const { return heap_.empty() ? kNever : heap_[0].wake; }
  // The slot becomes idle.
  void Forget(uint16_t slot) {
    State& state = states_[slot];
    if (state.position != kNone) RemoveAt(state.position);
    if (!state.is_ready) return;
    for (uint32_t left = ready_; left != 0; --left) {
      if (front() == slot) {
        first_ = PlaceOf(1);
        --ready_;
      } else {
        Rotate();
      }
    }
    state.is_ready = false;
  }

 private:
  static constexpr uint32_t kNone = UINT32_MAX;

  struct State {
    uint32_t position = kNone;  // in the heap
    bool is_ready = false;
  };
  struct Waiting {
    TimePoint wake;
    uint16_t slot = 0;
  };

  uint32_t PlaceOf(uint32_t n) const {
    const auto size = static_cast<uint32_t>(ring_.size());
    const uint32_t place = first_ + n;
    return place < size ? place : place - size;
  }
  void Place(uint32_t position, const Waiting& waiting) {
    heap_[position] = waiting;
    states_[waiting.slot].position = position;
  }
  void Up(uint32_t position) {
    const Waiting moving = heap_[position];
    while (position != 0 && moving.wake < heap_[(position - 1) / 2].wake) {
      Place(position, heap_[(position - 1) / 2]);
      position = (position - 1) / 2;
    }
    Place(position, moving);
  }
  void Down(uint32_t position) {
    const Waiting moving = heap_[position];
    const auto size = static_cast<uint32_t>(heap_.size());
    while (2 * position + 1 < size) {
      uint32_t child = 2 * position + 1;
      if (child + 1 < size && heap_[child + 1].wake < heap_[child].wake) ++child;
      if (moving.wake <= heap_[child].wake) break;
      Place(position, heap_[child]);
      position = child;
    }
    Place(position, moving);
  }
  void RemoveAt(uint32_t position) {
    states_[heap_[position].slot].position = kNone;
    const Waiting last = heap_.back();
    heap_.pop_back();
    if (position == heap_.size()) return;
    Place(position, last);
    Up(position);
    Down(states_[last.slot].position);
  }

  std::vector<uint16_t> ring_;
  std::vector<State> states_;
  std::vector<Waiting> heap_;
  uint32_t first_ = 0;
  uint32_t ready_ = 0;
};

}  // namespace forgive

#endif  // FORGIVE_TRANSPORT_TURNS_H_
