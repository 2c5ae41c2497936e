// SPDX-License-Identifier: Apache-2.0
// Slots that wait in the order in which they came, each once: a ring with a place for every slot.
#ifndef FORGIVE_TRANSPORT_SLOT_QUEUE_H_
#define FORGIVE_TRANSPORT_SLOT_QUEUE_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "transport/check.h"

namespace forgive {

// Allocates when it is made, and never again.
class SlotQueue {
 public:
  explicit SlotQueue(uint32_t slots) : slots_(slots) {}

  bool empty() const { return count_ == 0; }
  uint16_t front() const { return slots_[first_]; }
  void Push(uint16_t slot) {
    FORGIVE_CHECK(count_ < slots_.size());
    slots_[PlaceOf(count_++)] = slot;
  }
  void Pop() {
    FORGIVE_CHECK(count_ != 0);
    first_ = PlaceOf(1);
    --count_;
  }

 private:
  size_t PlaceOf(size_t n) const {
    const size_t place = first_ + n;
    return place < slots_.size() ? place : place - slots_.size();
  }

  std::vector<uint16_t> slots_;
  size_t first_ = 0;
  size_t count_ = 0;
};

}  // namespace forgive

#endif  // FORGIVE_TRANSPORT_SLOT_QUEUE_H_
