// SPDX-License-Identifier: Apache-2.0
// Posting of receives, and the consistency of what headers say about messages.
#include "transport/message_table.h"

#include <bit>

#include "transport/check.h"

namespace forgive {
namespace {

bool SameFlow(const ReceiveMessage& a, const ReceiveMessage& b) {
  return a.has_step == b.has_step && a.step == b.step && a.exempt_eligible == b.exempt_eligible;
}

}  // namespace

MessageTable::MessageTable(uint32_t max_messages, uint32_t first)
    : ring_(max_messages), mask_(max_messages - 1), posted_(first), completed_(first), same_step_end_(first) {
  FORGIVE_CHECK(std::has_single_bit(max_messages));
}

void MessageTable::Post(const ReceiveRequest& request, StepIndex index) {
  FORGIVE_CHECK(!Full());
  ReceiveMessage& message = at(posted_);
  message = ReceiveMessage{};
  message.cookie = request.cookie;
  message.buffer = request.buffer;
  message.capacity = request.capacity;
  if (index.has_value()) {
    message.index = index;
    message.has_step = true;
    message.step = request.step;
    message.exempt_eligible = request.exempt_eligible;
    message.forgivable = request.exempt_eligible && request.forgivable;
    message.contributions = request.contributions;
  }
  const bool extends_run = posted_ == completed_ || (same_step_end_ == posted_ && SameFlow(at(completed_), message));
  ++posted_;
  if (extends_run) same_step_end_ = posted_;
}

MessageTable::Verdict MessageTable::Learn(uint32_t number, uint64_t start, uint32_t length, uint64_t segment_end,
                                          ReceiveMessage** out) {
  const uint32_t ahead = number - completed_;
  if (ahead >= posted_ - completed_) {
    const bool before = static_cast<int32_t>(ahead) < 0;
    return before && segment_end <= completed_end_ ? Verdict::kDone : Verdict::kMalformed;
  }
  ReceiveMessage& message = at(number);
  *out = &message;
  if (message.known) {
    if (message.start != start || message.length != length) return Verdict::kMalformed;
    return message.done ? Verdict::kDone : Verdict::kLive;
  }
  if (!FitsNeighbours(number, start, start + PayloadUnits(length) + 1)) return Verdict::kMalformed;
  if (length > message.capacity) return Verdict::kTooLong;
  message.known = true;
  message.start = start;
  message.length = length;
  return Verdict::kLive;
}

// Messages follow one another without a gap, and each takes a unit at least: so the nearest known extents on both
// sides bound this one, and a direct neighbour's fixes it.
bool MessageTable::FitsNeighbours(uint32_t number, uint64_t start, uint64_t end) const {
  uint64_t left_end = completed_end_;
  uint32_t between = number - completed_;
  for (uint32_t distance = 1; distance <= number - completed_; ++distance) {
    const ReceiveMessage& left = at(number - distance);
    if (!left.known) continue;
    left_end = left.end();
    between = distance - 1;
    break;
  }
  if (between == 0 ? start != left_end : start < left_end + between) return false;

  for (uint32_t next = number + 1; next != posted_; ++next) {
    const ReceiveMessage& right = at(next);
    if (!right.known) continue;
    const uint32_t gap = next - number - 1;
    return gap == 0 ? end == right.start : end + gap <= right.start;
  }
  return true;
}

bool MessageTable::AdvanceCompleted() {
  const uint32_t before = completed_;
  while (completed_ != posted_ && at(completed_).done) {
    completed_end_ = at(completed_).end();
    ++completed_;
  }
  if (completed_ == before) return false;
  if (static_cast<int32_t>(same_step_end_ - completed_) <= 0) {
    same_step_end_ = completed_;
    while (same_step_end_ != posted_ && SameFlow(at(completed_), at(same_step_end_))) ++same_step_end_;
  }
  return true;
}

}  // namespace forgive
