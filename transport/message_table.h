// SPDX-License-Identifier: Apache-2.0
// The receives that are posted on a connection: their facts, and where in the stream their messages lie.
#ifndef FORGIVE_TRANSPORT_MESSAGE_TABLE_H_
#define FORGIVE_TRANSPORT_MESSAGE_TABLE_H_

#include <cstdint>

#include "transport/array.h"
#include "transport/config.h"
#include "transport/requests.h"
#include "transport/scoreboard.h"
#include "transport/step_table.h"

namespace forgive {

// The units that `bytes` of payload occupy; the last one may be padded.
constexpr uint64_t PayloadUnits(uint64_t bytes) { return (bytes + kUnitBytes - 1) / kUnitBytes; }

// One message from the post of its receive until its slot is used again.
struct ReceiveMessage {
  // As posted.
  uint64_t cookie = 0;
  uint8_t* buffer = nullptr;  // nullptr again once the message is done
  uint64_t capacity = 0;
  uint64_t step = 0;
  StepIndex index;  // names the step's entry until the message is done
  bool has_step = false;
  bool exempt_eligible = false;
  bool forgivable = false;
  uint32_t contributions = 1;

  // As the sender's headers say, once one arrived.
  bool known = false;
  uint32_t length = 0;  // bytes
  uint64_t start = 0;   // unit of the stream

  bool done = false;
  bool given_up = false;  // Receiver::GiveUp
  uint64_t settled_units = 0;
  uint64_t forgiven_bytes = 0;
  uint64_t counted_bytes = 0;  // of it in its step's outstanding

  // Payload, padding and the end slot.
  uint64_t units() const { return PayloadUnits(length) + 1; }
  uint64_t end() const { return start + units(); }
};

// A ring of the last Config::max_messages messages. Message numbers wrap at 2^32, so they are compared by distance.
//
// Invariants: completed .. posted - 1 are in the ring; the extents that are known lie in the order of their numbers
// and do not overlap, so that each unit belongs to one message.
class MessageTable {
 public:
  // What a header that names a message and its extent is.
  enum class Verdict : uint8_t {
    kLive,       // of a posted message that is not done
    kDone,       // of one that is
    kMalformed,  // contradicts what is known
    kTooLong,    // longer than the posted receive
  };

  // `first`: the first message's number.
  explicit MessageTable(uint32_t max_messages, uint32_t first = 0);
  bool has_memory() const { return ring_.has_memory(); }

  uint32_t posted() const { return posted_; }
  // Messages before it are all done.
  uint32_t completed() const { return completed_; }
  bool Full() const { return posted_ - completed_ > mask_; }
  bool HasUnfinished() const { return posted_ != completed_; }
  // One past the last posted message with the step and eligibility of the first one that is not completed.
  uint32_t same_step_end() const { return same_step_end_; }

  // The ring must not be Full. `index` without a value: the message is reliable.
  void Post(const ReceiveRequest& request, StepIndex index);

  // Checks a header: its segment ends at unit `segment_end`; its message `number` starts at unit `start` and is
  // `length` bytes long. Live: *message is it, and its extent is known from now on.
  Verdict Learn(uint32_t number, uint64_t start, uint32_t length, uint64_t segment_end, ReceiveMessage** message);

  // Moves completed over what is done. True if it moved.
  bool AdvanceCompleted();

  ReceiveMessage& at(uint32_t number) { return ring_[number & mask_]; }
  const ReceiveMessage& at(uint32_t number) const { return ring_[number & mask_]; }

 private:
  bool FitsNeighbours(uint32_t number, uint64_t start, uint64_t end) const;

  Array<ReceiveMessage> ring_;
  const uint32_t mask_;
  uint32_t posted_;
  uint32_t completed_;
  uint32_t same_step_end_;
  uint64_t completed_end_ = 0;  // unit where message `completed` starts
};

}  // namespace forgive

#endif  // FORGIVE_TRANSPORT_MESSAGE_TABLE_H_
