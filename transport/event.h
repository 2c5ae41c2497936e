// SPDX-License-Identifier: Apache-2.0
// What the core tells whoever turns its crank: events in a bounded queue that is drained, never a call upwards.
#ifndef FORGIVE_TRANSPORT_EVENT_H_
#define FORGIVE_TRANSPORT_EVENT_H_

#include <cstdint>
#include <vector>

#include "transport/check.h"

namespace forgive {

// Names a connection of one endpoint; never reused within 2^16 connections in the same slot.
struct ConnectionHandle {
  uint32_t value = UINT32_MAX;
  friend constexpr bool operator==(ConnectionHandle, ConnectionHandle) = default;
};

enum class FailReason : uint8_t {
  kNone,
  kPeerSilent,       // nothing heard for Config::peer_timeout
  kReset,            // the peer closed or failed it
  kTooLong,          // a send longer than its posted receive
  kRefused,          // the listener refused the handshake: its table of connections is full
  kVersionMismatch,  // the peer speaks another version
  kNoAnswer,         // the handshake was never answered
  kClosedHere,       // closed with requests unfinished
  kOverLimit,        // never started: this endpoint has Config::max_connections already
  kNoPayload,        // never started: the local MTU has no room for a payload
  kDataSwallowed,    // the peer answers, but no data packet got through for Config::peer_timeout
  kNoMemory,         // no memory is left here for the connection: never started, or ended by the handshake
  kOtherRails,       // the listener has another number of rails
};

struct Event {
  enum class Kind : uint8_t {
    kConnected,        // a Connect of ours was accepted
    kIncoming,         // a listener accepted: cookie is the listener's, connection is new
    kIncomingRefused,  // a listener refused a peer that has its ticket: cookie is the listener's, reason
    kSent,             // a send is acknowledged: cookie
    kReceived,         // a receive is whole: cookie, size
    kForgiven,         // a line of the ledger: step, message, offset, length, contributions
    kFailed,           // the connection failed: reason; its requests get no further events
    kSegmentsCut,      // the path swallows longer packets: segments of the connection have at most `size` bytes now
  };
  Kind kind = Kind::kFailed;
  FailReason reason = FailReason::kNone;
  ConnectionHandle connection;
  uint64_t cookie = 0;  // of the request, as posted
  uint64_t size = 0;    // kReceived: bytes as sent
  uint64_t step = 0;
  uint64_t connection_id = 0;  // kForgiven: as on the wire
  uint32_t message = 0;
  uint32_t offset = 0;  // kForgiven: bytes, in the message
  uint32_t length = 0;  // kForgiven: bytes
  uint32_t contributions = 0;
};

// A ring of events. Invariant: what one datagram or deadline can cause fits in kReserve, and the endpoint takes no
// datagram while less is free, nor with a posted receive what came before it; so Push never finds it full.
class EventQueue {
 public:
  static constexpr uint32_t kReserve = 512;

  explicit EventQueue(uint32_t capacity) : events_(capacity), mask_(capacity - 1) {
    FORGIVE_CHECK(capacity >= 2 * kReserve && (capacity & (capacity - 1)) == 0);
  }

  void Push(const Event& event) {
    FORGIVE_CHECK(size() <= mask_);
    events_[tail_++ & mask_] = event;
  }
  bool Pop(Event* out) {
    if (head_ == tail_) return false;
    *out = events_[head_++ & mask_];
    return true;
  }
  uint64_t size() const { return tail_ - head_; }
  bool HasReserve() const { return mask_ + 1 - size() >= kReserve; }

 private:
  std::vector<Event> events_;
  const uint64_t mask_;
  uint64_t head_ = 0;
  uint64_t tail_ = 0;
};

}  // namespace forgive

#endif  // FORGIVE_TRANSPORT_EVENT_H_
