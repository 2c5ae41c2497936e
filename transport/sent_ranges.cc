// SPDX-License-Identifier: Apache-2.0
// Every posted message cut into segments, and what became of each segment that was sent.
#include "transport/sent_ranges.h"

#include <algorithm>
#include <bit>

#include "transport/check.h"

namespace forgive {
namespace {

// A message occupies its length rounded up to the unit, plus one unit, its end slot.
constexpr uint64_t StreamLength(uint32_t length) {
  return (uint64_t{length} + kUnitBytes - 1) / kUnitBytes * kUnitBytes + kUnitBytes;
}

// In a span of n positions lie at most n / max_payload whole segments, one more that begins in it, and one short
// segment for each message.
uint64_t RecordCapacity(uint32_t max_payload, uint64_t stream_span, uint32_t max_messages, uint64_t reserve) {
  return std::bit_ceil(std::max<uint64_t>(64, stream_span / max_payload + max_messages + 2 + reserve));
}

}  // namespace

IndexBitmap::IndexBitmap(uint64_t capacity) : words_(capacity / 64), mask_(capacity - 1) {
  FORGIVE_CHECK(std::has_single_bit(capacity) && capacity >= 64);
}

uint64_t IndexBitmap::FindFirst(uint64_t from, uint64_t to) const {
  while (from < to) {
    const uint64_t rest = words_[WordOf(from)] >> (from & 63);
    if (rest != 0) return std::min(to, from + static_cast<uint64_t>(std::countr_zero(rest)));
    from = (from | 63) + 1;
  }
  return to;
}

SentRanges::SentRanges(uint32_t max_payload, uint64_t stream_span, uint32_t max_messages, uint32_t paths,
                       uint64_t recut_reserve, uint64_t first_message)
    : payload_(max_payload),
      recut_reserve_(recut_reserve),
      messages_(max_messages),
      message_mask_(max_messages - 1),
      records_(RecordCapacity(max_payload, stream_span, max_messages, recut_reserve)),
      mask_(records_.size() - 1),
      unacknowledged_(records_.size()),
      lost_(records_.size()),
      paths_(paths),
      posted_(first_message),
      completed_(first_message),
      begun_(first_message),
      unsent_message_(first_message) {
  FORGIVE_CHECK(std::has_single_bit(max_messages));
  FORGIVE_CHECK(max_payload >= kUnitBytes && max_payload % kUnitBytes == 0);
  FORGIVE_CHECK(max_payload <= kMaxPayloadBytes);
}

// ---- Messages ----

void SentRanges::AddMessage(uint64_t cookie, const uint8_t* buffer, uint32_t length) {
  FORGIVE_CHECK(HasRoom());
  SentMessage& added = messages_[posted_ & message_mask_];
  added.cookie = cookie;
  added.buffer = buffer;
  added.stream_begin = stream_end_;
  added.first_segment = segment_end_;
  added.length = length;
  added.segments = length == 0 ? 1 : (length - 1) / payload_ + 1;
  stream_end_ += StreamLength(length);
  added.stream_end = stream_end_;
  segment_end_ += added.segments;
  ++posted_;
}

bool SentRanges::PopCompleted(uint64_t* cookie) {
  if (completed_ == posted_) return false;
  const SentMessage& oldest = message(completed_);
  if (!recut_ && front_ < oldest.first_segment + oldest.segments) return false;
  if (recut_ && (unsent_message_ <= completed_ || (front_ != next_ && StreamBegin(front_) < oldest.stream_end))) {
    return false;
  }
  *cookie = oldest.cookie;
  ++completed_;
  return true;
}

// ---- Sending ----

uint64_t SentRanges::SendUnsent(uint64_t packet_number, TimePoint now, uint16_t path, bool parked) {
  FORGIVE_CHECK(HasUnsent());
  FORGIVE_CHECK(parked || parked_ == next_);
  FORGIVE_CHECK(next_ - front_ <= mask_);
  const SentMessage& sending = message(unsent_message_);
  const uint32_t left = sending.length - unsent_offset_;
  const uint64_t index = next_++;
  Record& record = records_[index & mask_];
  record.message = static_cast<uint32_t>(unsent_message_);
  record.offset = unsent_offset_;
  record.length = static_cast<uint16_t>(std::min(left, payload_));
  begun_ = unsent_message_ + 1;
  if (left > payload_) {
    next_position_ += payload_;
    unsent_offset_ += payload_;
  } else {
    next_position_ = sending.stream_end;
    ++unsent_message_;
    unsent_offset_ = 0;
  }
  unacknowledged_.Set(index);
  if (parked) {
    record.packet_number = packet_number;
    record.path = path;
  } else {
    parked_ = next_;
    Transmit(index, packet_number, now, path);
  }
  return index;
}

uint64_t SentRanges::Unpark(uint64_t messages, TimePoint now) {
  uint64_t count = 0;
  for (; parked_ != next_ && Place(parked_).message < messages; ++parked_) {
    if (!unacknowledged_.Test(parked_)) continue;
    const Record& record = records_[parked_ & mask_];
    Transmit(parked_, record.packet_number, now, record.path);
    ++count;
  }
  return count;
}

uint64_t SentRanges::FirstLost() const {
  FORGIVE_CHECK(HasLost());
  const uint64_t index = lost_.FindFirst(std::max(lost_hint_, front_), next_);
  FORGIVE_CHECK(index != next_);
  return index;
}

void SentRanges::SendAgain(uint64_t index, uint64_t packet_number, TimePoint now, uint16_t path) {
  FORGIVE_CHECK(index == FirstLost());
  lost_.Clear(index);
  --lost_count_;
  lost_hint_ = index;  // it was the first
  Transmit(index, packet_number, now, path);
}

void SentRanges::Transmit(uint64_t index, uint64_t packet_number, TimePoint now, uint16_t path) {
  const uint32_t slot = static_cast<uint32_t>(index & mask_);
  Record& record = records_[slot];
  record.packet_number = packet_number;
  record.sent = now;
  record.path = path;
  bytes_in_flight_ += record.length;
  Append(slot);
}

// ---- Places ----

SegmentPlace SentRanges::Place(uint64_t index) const {
  const Record& record = records_[index & mask_];
  // Records belong to messages that are not handed out yet, so the high bits are those of a near one.
  return {ExpandNumber(completed_, record.message), record.offset, record.length};
}

uint64_t SentRanges::StreamBegin(uint64_t index) const {
  const Record& record = records_[index & mask_];
  return MessageOf(record).stream_begin + record.offset;
}

uint64_t SentRanges::Locate(uint64_t position) const {
  if (position >= next_position_) return next_;
  if (front_ == next_ || position <= StreamBegin(front_)) return front_;
  if (recut_) return Search(position);
  // The last message that begins at or before the position; one of the messages not handed out holds it, nearly
  // always the first.
  uint64_t low = completed_;
  uint64_t high = low + 1 < begun_ && message(low + 1).stream_begin <= position ? begun_ : low + 1;
  while (high - low > 1) {
    const uint64_t middle = low + (high - low) / 2;
    (message(middle).stream_begin <= position ? low : high) = middle;
  }
  const SentMessage& holder = message(low);
  const uint64_t offset = position - holder.stream_begin;
  // Behind the payload, the padding and the end slot belong to the last segment.
  if (offset >= holder.length) return holder.first_segment + holder.segments - 1;
  return holder.first_segment + static_cast<uint32_t>(offset) / payload_;
}

// The last segment that begins at or before a position behind the front's begin.
uint64_t SentRanges::Search(uint64_t position) const {
  uint64_t low = front_;
  uint64_t high = next_;
  while (high - low > 1) {
    const uint64_t middle = low + (high - low) / 2;
    (StreamBegin(middle) <= position ? low : high) = middle;
  }
  return low;
}

// ---- Smaller segments ----

void SentRanges::CutTo(uint32_t payload) {
  FORGIVE_CHECK(payload < payload_ && payload >= kUnitBytes && payload % kUnitBytes == 0);
  Unpark(UINT64_MAX, TimePoint{});  // and then it is lost with the rest
  for (size_t path = 0; path < paths_.size(); ++path) LoseSentBefore(static_cast<uint16_t>(path), kNever);
  FORGIVE_CHECK(bytes_in_flight_ == 0);
  payload_ = payload;
  recut_ = true;
  uint64_t pieces = 0;
  for (uint64_t index = front_; index < next_; ++index) {
    const uint32_t length = records_[index & mask_].length;
    pieces += lost_.Test(index) && length > payload ? (length - 1) / payload : 0;
  }
  uint64_t end = next_ + pieces;
  FORGIVE_CHECK(end - front_ <= mask_ + 1);
  lost_count_ += pieces;
  lost_hint_ = front_;
  // From the last to the first: a record's pieces take the places of those behind it, which have moved on before.
  for (uint64_t index = next_; index-- > front_;) end = CutRecord(index, end);
  FORGIVE_CHECK(end == front_);
  next_ += pieces;
  parked_ = next_;
}

// Makes pieces of a record, the last of them right before `end`. Returns where the first one is.
uint64_t SentRanges::CutRecord(uint64_t from, uint64_t end) {
  const Record whole = records_[from & mask_];
  const bool acknowledged = !unacknowledged_.Test(from);
  const uint32_t most = acknowledged ? whole.length : payload_;
  uint32_t offset = whole.length <= most ? 0 : (whole.length - 1u) / most * most;  // of the last piece
  uint32_t length = whole.length - offset;
  for (;;) {
    --end;
    Record& piece = records_[end & mask_];
    piece = whole;
    piece.offset = whole.offset + offset;
    piece.length = static_cast<uint16_t>(length);
    acknowledged ? unacknowledged_.Clear(end) : unacknowledged_.Set(end);
    acknowledged ? lost_.Clear(end) : lost_.Set(end);
    if (offset == 0) return end;
    offset -= most;
    length = most;
  }
}

// ---- What became of them ----

uint64_t SentRanges::Acknowledge(TimePoint now, Range range) {
  if (front_ == next_ || range.end <= StreamBegin(front_)) return 0;
  uint64_t index = Locate(range.begin);
  if (index < next_ && StreamBegin(index) < range.begin) ++index;
  const uint64_t end = Locate(range.end);  // extents tile, so what is before lies inside
  uint64_t fresh = 0;
  for (index = unacknowledged_.FindFirst(index, end); index < end;
       index = unacknowledged_.FindFirst(index + 1, end)) {
    const uint32_t slot = static_cast<uint32_t>(index & mask_);
    paths_[records_[slot].path].last_progress = now;
    longest_acknowledged_ = std::max<uint32_t>(longest_acknowledged_, records_[slot].length);
    if (lost_count_ != 0 && lost_.Test(index)) {
      lost_.Clear(index);
      --lost_count_;
    } else if (index < parked_) {
      bytes_in_flight_ -= records_[slot].length;
      Unlink(slot);
    }
    unacknowledged_.Clear(index);
    ++fresh;
  }
  if (fresh != 0) front_ = unacknowledged_.FindFirst(front_, next_);
  parked_ = std::max(parked_, front_);
  return fresh;
}

void SentRanges::Lose(uint64_t index) {
  const uint32_t slot = static_cast<uint32_t>(index & mask_);
  bytes_in_flight_ -= records_[slot].length;
  Unlink(slot);
  lost_.Set(index);
  ++lost_count_;
  lost_hint_ = std::min(lost_hint_, index);
}

uint64_t SentRanges::LoseRequested(Range range, uint64_t packet_number) {
  // What lies below the front was acknowledged after the request had left.
  if (range.begin == range.end || front_ == next_ || range.end <= StreamBegin(front_)) return 0;
  const uint64_t end = std::min(parked_, Locate(range.end - 1) + 1);
  uint64_t lost = 0;
  for (uint64_t index = unacknowledged_.FindFirst(Locate(range.begin), end); index < end;
       index = unacknowledged_.FindFirst(index + 1, end)) {
    if (lost_.Test(index) || records_[index & mask_].packet_number > packet_number) continue;
    Lose(index);
    ++lost;
  }
  return lost;
}

uint64_t SentRanges::LoseSentBefore(uint16_t path, TimePoint limit) {
  uint64_t lost = 0;
  while (OldestSent(path) < limit) {
    // The index of a slot: the one of its residue in [front, next).
    const uint64_t slot = paths_[path].oldest;
    Lose(front_ + ((slot - front_) & mask_));
    ++lost;
  }
  return lost;
}

void SentRanges::Append(uint32_t slot) {
  Record& record = records_[slot];
  Path& path = paths_[record.path];
  record.previous = path.newest;
  record.next = kNone;
  (path.newest == kNone ? path.oldest : records_[path.newest].next) = slot;
  path.newest = slot;
}

void SentRanges::Unlink(uint32_t slot) {
  const Record& record = records_[slot];
  Path& path = paths_[record.path];
  (record.previous == kNone ? path.oldest : records_[record.previous].next) = record.next;
  (record.next == kNone ? path.newest : records_[record.next].previous) = record.previous;
}

}  // namespace forgive
