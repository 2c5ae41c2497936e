// SPDX-License-Identifier: Apache-2.0
// What every congestion control answers to: marks, trims, timeouts and time; a rate and a window.
#ifndef FORGIVE_TRANSPORT_CONGESTION_CONTROL_H_
#define FORGIVE_TRANSPORT_CONGESTION_CONTROL_H_

#include <cstdint>

#include "transport/config.h"
#include "transport/units.h"

namespace forgive {

enum class CongestionSignal : uint8_t { kMark, kTrim, kTimeout };

// One per sending connection. The sender decides whether a signal is ignored (Exempt); this only computes.
class CongestionControl {
 public:
  virtual ~CongestionControl() = default;

  // Starts anew at line rate: the first message of a step.
  virtual void Restart(TimePoint now) = 0;
  // A signal that is obeyed. The cut may come at once or later, by OnDeadline: cuts() says. kTimeout comes at most
  // once per RTO.
  virtual void OnSignal(TimePoint now, CongestionSignal signal) = 0;
  // A trim that is obeyed: its bytes of payload, and the payload that was in flight before it. A signal like any
  // other to a control that knows no bytes.
  virtual void OnTrim(TimePoint now, uint64_t bytes, uint64_t bytes_in_flight);
  // Payload that a report says has arrived, with the newest packet's delay. Reports that a trim caused, or that tell
  // of no newer packet, are not heard of: what they acknowledge comes with the next one.
  struct Acknowledged {
    uint64_t bytes = 0;   // all marked, or none
    Nanoseconds delay;    // round trip less the base RTT, not negative
    bool marked = false;  // Congestion Experienced, and obeyed
    uint64_t bytes_in_flight = 0;
  };
  // Called only where the configured kind is window-based (kNscc).
  virtual void OnAcknowledged(TimePoint now, const Acknowledged& what);
  virtual void OnSent(TimePoint now, uint64_t bytes) = 0;  // on the wire: byte counters
  virtual void OnDeadline(TimePoint now) = 0;              // timers
  virtual TimePoint next_deadline() const = 0;
  virtual void set_base_rtt(Nanoseconds rtt) = 0;

  // 0: not limited.
  virtual BitsPerSecond rate() const = 0;
  // Most bytes in flight, at most Config::window_bytes.
  virtual uint64_t window_bytes() const = 0;

  // Rate cuts so far by their cause.
  struct Cuts {
    uint64_t mark = 0;
    uint64_t trim = 0;
    uint64_t timeout = 0;
  };
  virtual const Cuts& cuts() const = 0;
};

inline void CongestionControl::OnTrim(TimePoint now, uint64_t, uint64_t) { OnSignal(now, CongestionSignal::kTrim); }
inline void CongestionControl::OnAcknowledged(TimePoint, const Acknowledged&) {}

}  // namespace forgive

#endif  // FORGIVE_TRANSPORT_CONGESTION_CONTROL_H_
