// SPDX-License-Identifier: Apache-2.0
// Every posted message cut into segments, and what became of each segment that was sent.
#ifndef FORGIVE_TRANSPORT_SENT_RANGES_H_
#define FORGIVE_TRANSPORT_SENT_RANGES_H_

#include <array>
#include <cstdint>

#include "transport/array.h"
#include "transport/config.h"
#include "transport/units.h"
#include "transport/wire.h"

namespace forgive {

// One bit for each index of a sliding span of at most `capacity` indices.
class IndexBitmap {
 public:
  // capacity: a power of two, at least 64.
  explicit IndexBitmap(uint64_t capacity);
  bool has_memory() const { return words_.has_memory(); }

  bool Test(uint64_t index) const { return ((words_[WordOf(index)] >> (index & 63)) & 1) != 0; }
  void Set(uint64_t index) { words_[WordOf(index)] |= uint64_t{1} << (index & 63); }
  void Clear(uint64_t index) { words_[WordOf(index)] &= ~(uint64_t{1} << (index & 63)); }
  // The first set index in [from, to), or `to`.
  uint64_t FindFirst(uint64_t from, uint64_t to) const;

 private:
  uint64_t WordOf(uint64_t index) const { return (index & mask_) >> 6; }

  Array<uint64_t> words_;
  uint64_t mask_;
};

// A posted message.
struct SentMessage {
  uint64_t cookie = 0;
  const uint8_t* buffer = nullptr;
  uint64_t stream_begin = 0;   // stream position of its first byte
  uint64_t stream_end = 0;     // stream position behind its end slot
  uint64_t first_segment = 0;  // index of its first segment, until segments were cut anew
  uint32_t length = 0;         // bytes
  uint32_t segments = 0;       // the same; at least one: an empty message is one segment without payload
};

// Where a segment lies.
struct SegmentPlace {
  uint64_t message = 0;
  uint32_t offset = 0;  // bytes, in the message
  uint32_t length = 0;  // payload bytes
};

// Segments are numbered in stream order, across messages: an index. Their stream extents tile the stream: a
// message's last one includes the padding to kUnitBytes and the end slot. A segment is not sent, in flight, parked
// (it was sent, and nothing is expected of it yet), lost (it waits to be sent again) or acknowledged; records exist
// from the first transmission until everything before is acknowledged too.
//
// Invariants: indices [front, next) have records; the in-flight list of a path is in the order of last transmission;
// every segment in [front, next) that is not acknowledged is in a list or lost or, of [parked, next), parked;
// bytes_in_flight is the sum of the payload of the segments in the lists.
class SentRanges {
 public:
  // A reach of stream_span positions is all that may be sent ahead of what is acknowledged; with max_messages (a
  // power of two) this bounds every array. recut_reserve: how many more records CutTo may need (RecutReserve).
  // first_message: its number.
  SentRanges(uint32_t max_payload, uint64_t stream_span, uint32_t max_messages, uint32_t paths = 1,
             uint64_t recut_reserve = 0, uint64_t first_message = 0);
  bool has_memory() const {
    return messages_.has_memory() && records_.has_memory() && unacknowledged_.has_memory() && lost_.has_memory() &&
           paths_.has_memory();
  }

  // A segment of n bytes becomes at most n / least_payload more; `outstanding` bytes at most are not acknowledged.
  static uint64_t RecutReserve(uint64_t outstanding, uint32_t least_payload) { return outstanding / least_payload; }

  // Messages.
  bool HasRoom() const { return posted_ - completed_ <= message_mask_; }
  void AddMessage(uint64_t cookie, const uint8_t* buffer, uint32_t length);
  uint64_t posted() const { return posted_; }
  uint64_t completed() const { return completed_; }  // handed out by PopCompleted
  uint64_t begun() const { return begun_; }          // a segment was sent of the messages before it
  uint64_t fully_sent() const { return unsent_message_; }
  const SentMessage& message(uint64_t number) const { return messages_[number & message_mask_]; }
  // The oldest message if all its segments, and all before, are acknowledged. Call until false.
  bool PopCompleted(uint64_t* cookie);

  // The next segment that was never sent.
  bool HasUnsent() const { return unsent_message_ != posted_; }
  uint64_t unsent_message() const { return unsent_message_; }
  SegmentPlace UnsentPlace() const {
    const uint32_t left = message(unsent_message_).length - unsent_offset_;
    return {unsent_message_, unsent_offset_, left < payload_ ? left : payload_};
  }
  bool UnsentBeginsMessage() const { return unsent_offset_ == 0; }
  uint64_t unsent_position() const { return next_position_; }  // stream positions before it were sent
  uint64_t UnsentEnd() const {                                 // the end of its stream extent
    const SentMessage& sending = message(unsent_message_);
    return sending.length - unsent_offset_ > payload_ ? next_position_ + payload_ : sending.stream_end;
  }
  // Always, unless segments were cut anew: then more of them may lie in the reach than there are records.
  bool HasRecordRoom() const { return next_ - front_ + recut_reserve_ <= mask_; }
  // Sends it for the first time: returns its index. Parked: until Unpark it is in no path's list, and nothing that
  // is sent after it may be in one.
  uint64_t SendUnsent(uint64_t packet_number, TimePoint now, uint16_t path, bool parked = false);
  // From now on the parked segments of the messages before `messages` are in flight. Returns how many.
  uint64_t Unpark(uint64_t messages, TimePoint now);

  // The first lost segment in stream order.
  bool HasLost() const { return lost_count_ != 0; }
  uint64_t FirstLost() const;
  SegmentPlace Place(uint64_t index) const;
  uint64_t StreamBegin(uint64_t index) const;
  // Sends what FirstLost named once more.
  void SendAgain(uint64_t index, uint64_t packet_number, TimePoint now, uint16_t path);

  // The segment that holds a stream position that was sent; front or next for what is before or after all records.
  uint64_t Locate(uint64_t position) const;
  // Acknowledges every segment whose extent lies in the range. Returns how many were not acknowledged before.
  uint64_t Acknowledge(TimePoint now, Range range);
  // A request for the range, caused by the trim of packet_number: what lies there and was not sent again since is
  // lost. Returns how many segments.
  uint64_t LoseRequested(Range range, uint64_t packet_number);
  // Segments of the path in flight that were last sent before `limit` are lost. Returns how many.
  uint64_t LoseSentBefore(uint16_t path, TimePoint limit);

  // From now on a segment has at most `payload` bytes, less than before and a multiple of kUnitBytes. What is in
  // flight or parked is lost, and what is lost is cut anew; what is acknowledged keeps its boundaries.
  void CutTo(uint32_t payload);

  // Payload bytes of the first in-flight segment on the path; 0: none, or an empty one.
  uint32_t OldestLength(uint16_t path) const {
    const uint32_t oldest = paths_[path].oldest;
    return oldest == kNone ? 0 : records_[oldest].length;
  }
  // Payload bytes of the longest segment that was acknowledged since the last call.
  uint32_t TakeLongestAcknowledged() {
    const uint32_t longest = longest_acknowledged_;
    longest_acknowledged_ = 0;
    return longest;
  }

  // The first in-flight segment's last transmission on the path, or kNever.
  TimePoint OldestSent(uint16_t path) const {
    const uint32_t oldest = paths_[path].oldest;
    return oldest == kNone ? kNever : records_[oldest].sent;
  }
  // The last moment when something of the path was acknowledged.
  TimePoint LastProgress(uint16_t path) const { return paths_[path].last_progress; }
  uint64_t bytes_in_flight() const { return bytes_in_flight_; }
  bool nothing_outstanding() const { return front_ == next_; }

  uint64_t capacity() const { return mask_ + 1; }
  uint64_t front() const { return front_; }
  uint64_t next() const { return next_; }

 private:
  static constexpr uint32_t kNone = UINT32_MAX;

  struct Record {
    uint64_t packet_number = 0;  // of the last transmission
    TimePoint sent;
    uint32_t message = 0;  // low 32 bits
    uint32_t offset = 0;   // bytes, in the message
    uint32_t previous = kNone;
    uint32_t next = kNone;
    uint16_t length = 0;  // bytes of payload
    uint16_t path = 0;
  };
  struct Path {
    uint32_t oldest = kNone;
    uint32_t newest = kNone;
    TimePoint last_progress{INT64_MIN};
  };

  const SentMessage& MessageOf(const Record& record) const { return messages_[record.message & message_mask_]; }
  void Append(uint32_t slot);
  void Unlink(uint32_t slot);
  void Transmit(uint64_t index, uint64_t packet_number, TimePoint now, uint16_t path);
  void Lose(uint64_t index);
  uint64_t Search(uint64_t position) const;
  uint64_t CutRecord(uint64_t from, uint64_t end);

  uint32_t payload_;    // most bytes of a segment
  bool recut_ = false;  // segments of a message may have any length
  uint32_t longest_acknowledged_ = 0;
  uint64_t recut_reserve_;
  Array<SentMessage> messages_;
  uint64_t message_mask_;
  Array<Record> records_;
  uint64_t mask_;
  IndexBitmap unacknowledged_;
  IndexBitmap lost_;
  Array<Path> paths_;

  uint64_t posted_;
  uint64_t completed_;
  uint64_t begun_;
  uint64_t unsent_message_;
  uint32_t unsent_offset_ = 0;
  uint64_t stream_end_ = 0;   // of all posted messages
  uint64_t segment_end_ = 0;  // of all posted messages
  uint64_t next_position_ = 0;
  uint64_t front_ = 0;      // the first segment that is not acknowledged
  uint64_t next_ = 0;       // the first one never sent
  uint64_t parked_ = 0;     // next_, or the first that is parked
  uint64_t lost_hint_ = 0;  // no lost segment before it
  uint64_t lost_count_ = 0;
  uint64_t bytes_in_flight_ = 0;
};

}  // namespace forgive

#endif  // FORGIVE_TRANSPORT_SENT_RANGES_H_
