// SPDX-License-Identifier: Apache-2.0
// The sending half of a connection: segments, modes, pacing, congestion control and selective repeat.
#ifndef FORGIVE_TRANSPORT_SENDER_H_
#define FORGIVE_TRANSPORT_SENDER_H_

#include <cstdint>

#include "transport/config.h"
#include "transport/counters.h"
#include "transport/event.h"
#include "transport/units.h"
#include "transport/wire.h"

namespace forgive {

struct SendRequest {
  uint64_t cookie = 0;
  const uint8_t* buffer = nullptr;  // the user's own, unchanged until kSent
  uint32_t length = 0;              // bytes, below 4 GiB
};

// Seed: cc_mode.
enum class Mode : uint8_t { kObeying, kExempt };

// The sender of one connection.
class Sender {
 public:
  // max_payload and scoreboard_bytes as the handshake agreed; connection_id is the receiver's.
  Sender(const Config& config, uint32_t max_payload, uint64_t scoreboard_bytes, ConnectionHandle handle,
         uint64_t connection_id, Counters* counters, EventQueue* events);
  ~Sender();
  Sender(const Sender&) = delete;
  Sender& operator=(const Sender&) = delete;

  // Posts the next message. False: Config::max_messages are posted and not acknowledged.
  bool Post(const SendRequest& request);

  // The full number of a report, for its tag. OnReport ignores (and counts) one that is a replay.
  uint64_t ExpandReportNumber(uint32_t low) const;
  // A report with a verified tag and expanded number. Seed: OnReport, OnCongestionNotification,
  // OnRetransmissionRequest, in this order.
  void OnReport(TimePoint now, const Report& report);

  // The next data packet that may leave now: retransmissions first. Fills the header (CRC included where
  // configured) and the view of the user's buffer (header->payload_length bytes). False: window, pacer, credit or
  // nothing to send.
  bool NextPacket(TimePoint now, DataHeader* header, const uint8_t** payload);

  // Timers: RTO, congestion control. next_deadline also includes the moment when the pacer will let a packet go.
  void OnDeadline(TimePoint now);
  TimePoint next_deadline() const;

  // True once when a message has waited without credit for an RTO (with back-off): the caller sends a probe.
  bool TakeProbeDue(TimePoint now);

  bool HasUnfinished() const;
  // The peer closed: true if everything posted was completed by then.
  bool failed() const;
  FailReason fail_reason() const;

  Nanoseconds smoothed_rtt() const;
  Nanoseconds rto() const;
  BitsPerSecond rate() const;   // 0: not limited
  Mode mode(TimePoint now) const;  // of the newest message sent
  uint64_t bytes_in_flight() const;
};

}  // namespace forgive

#endif  // FORGIVE_TRANSPORT_SENDER_H_
