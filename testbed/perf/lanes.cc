// SPDX-License-Identifier: Apache-2.0
// Slots, posts and completions of one connection.
#include "testbed/perf/lanes.h"

#include <fmt/format.h>

#include "testbed/perf/error.h"

namespace forgive::perf {

void Lane::Use(const Posting& posting) {
  current_ = &buffer(posting.buffer);
  if (current_->data == nullptr) throw RunError("a collective wants a buffer that its connection has not registered");
  steps_per_slice_ = static_cast<std::uint64_t>(posting.steps_per_slice);
  post_bytes_ = static_cast<std::size_t>(posting.post_bytes);
  // Slices of two steps begin on even steps, whatever ran before.
  current_->head = (current_->head + steps_per_slice_ - 1) / steps_per_slice_ * steps_per_slice_;
}

bool Lane::StepsFree() const { return current_->head + steps_per_slice_ - current_->tail <= kStepsPerBuffer; }

std::byte* Lane::NextSlot() const {
  return current_->data + (current_->head % kStepsPerBuffer) * (current_->bytes / kStepsPerBuffer);
}

Lane::Slot Lane::TakeSlot(std::size_t bytes) {
  Slot slot;
  slot.buffer = current_;
  slot.data = NextSlot();
  slot.bytes = bytes;
  current_->head += steps_per_slice_;
  slot.end_step = current_->head;
  return slot;
}

void SendLane::Post(std::int64_t count) {
  slots_.push_back(TakeSlot(static_cast<std::size_t>(count * kElementBytes)));
}

bool SendLane::Progress(Net& net) {
  bool moved = false;
  while (sent_ < slots_.size()) {
    Slot& slot = slots_[sent_];
    slot.request = net.Isend(comm_, slot.data, slot.bytes, rank_, slot.buffer->memory);
    if (slot.request == nullptr) break;
    ++sent_;
    ++messages_;
    moved = true;
  }
  while (sent_ > 0) {
    Slot& slot = slots_.front();
    std::size_t bytes = 0;
    if (!net.Test(slot.request, &bytes)) break;
    slot.buffer->tail = slot.end_step;
    slots_.pop_front();
    --sent_;
    moved = true;
  }
  return moved;
}

void ReceiveLane::Begin(const Posting& posting, std::int64_t messages) {
  Use(posting);
  to_post_ = messages;
  next_message_ = 0;
}

void ReceiveLane::Release() {
  slots_.front().buffer->tail = slots_.front().end_step;
  slots_.pop_front();
  --done_;
}

bool ReceiveLane::Progress(Net& net) {
  bool moved = false;
  while (to_post_ > 0 && StepsFree()) {
    net.DescribeReceive(next_message_);
    void* const request = net.Irecv(comm_, NextSlot(), post_bytes_, peer_, current_->memory);
    if (request == nullptr) break;
    slots_.push_back(TakeSlot(post_bytes_));
    slots_.back().request = request;
    --to_post_;
    ++next_message_;
    ++messages_;
    posted_.fetch_add(1, std::memory_order_release);
    moved = true;
  }
  while (done_ < slots_.size()) {
    Slot& slot = slots_[done_];
    std::size_t bytes = 0;
    if (!net.Test(slot.request, &bytes)) break;
    if (bytes > post_bytes_) {
      throw RunError(fmt::format("a receive of {} bytes from rank {} reports {} bytes", post_bytes_, peer_, bytes));
    }
    slot.bytes = bytes;
    slot.done = true;
    ++done_;
    posted_.fetch_sub(1, std::memory_order_release);
    moved = true;
  }
  return moved;
}

}  // namespace forgive::perf
