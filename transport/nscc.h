// SPDX-License-Identifier: Apache-2.0
// NSCC, Ultra Ethernet's Network Signal-based Congestion Control: a window that follows delay, marks and trims.
#ifndef FORGIVE_TRANSPORT_NSCC_H_
#define FORGIVE_TRANSPORT_NSCC_H_

#include <cstdint>

#include "transport/congestion_control.h"

namespace forgive {

// Ultra Ethernet 1.0, 3.6.13 (NSCC). BDP: link rate (else assumed_link_rate) x base RTT. MSS: the connection's
// max_payload. The specification's constants hold for its reference network, 100 Gbit/s and 12 us, whose BDP is
// 150 kB; a = BDP / 150 kB carries them over to another one. Delay: round trip less the base RTT.
//
//   target delay           0.75 RTT where the fabric trims, else 1 RTT
//   fair increase          5 MSS a a window
//   proportional increase  4 MSS a (target - delay) / 12 us a window
//   fast increase          0.25 a a byte, after a whole window with delay below 1 us
//   eta                    0.15 MSS a, once an RTT
//   decrease               window x (1 - 0.8 (average - target) / average), at least by half of it; once an RTT
//   delay average          gain 0.0125
//   increases are applied  every 8 MSS or RTT
//   window                 from 1 MSS to 1.5 BDP, at most Config::window_bytes
//   quick adapt            every RTT + target, where less than an eighth of the largest window arrived
//
// An acknowledgement of n bytes:
//
//                    delay >= target                  delay < target
//   no mark          fair increase                    proportional or fast increase
//   mark             decrease                         nothing
//
// A trim takes its bytes off the window and arms the quick adapt: at the end of the period that began with the last
// one, if too little arrived, the window becomes what arrived, and no decrease counts until as many bytes are heard
// of as were in flight. Where the specification is silent: a timeout halves the window and is a cut with its own
// cause, as it is with DCQCN; a mark ends a fast increase; the window begins at its largest, as rate-based flows
// begin at line rate. To an Exempt sender a mark is no mark and a trim no trim: increases run on.
//
// Integers only; the proportional gain is kept with 32 binary places. There is no timer: everything happens when an
// acknowledgement or a trim is heard.
class Nscc final : public CongestionControl {
 public:
  // config.max_payload_bytes: as the handshake agreed.
  explicit Nscc(const Config& config);

  void Restart(TimePoint now) override;
  void OnSignal(TimePoint now, CongestionSignal signal) override;
  void OnTrim(TimePoint now, uint64_t bytes, uint64_t bytes_in_flight) override;
  void OnAcknowledged(TimePoint now, const Acknowledged& what) override;
  void OnSent(TimePoint now, uint64_t bytes) override;
  void OnDeadline(TimePoint now) override;
  TimePoint next_deadline() const override;
  void set_base_rtt(Nanoseconds rtt) override;
  BitsPerSecond rate() const override;  // 0: only the window limits
  uint64_t window_bytes() const override;
  const Cuts& cuts() const override;

  // Facts for tests and traces.
  uint64_t largest_window_bytes() const { return largest_window_; }
  Nanoseconds target_delay() const { return target_; }
  Nanoseconds average_delay() const;

 private:
  void AverageDelay(Nanoseconds delay);
  void Increase(uint64_t bytes, Nanoseconds delay);
  void DecreaseOnceAnRtt(TimePoint now);
  void ApplyIncrease(TimePoint now, uint64_t bytes);
  void QuickAdapt(TimePoint now, uint64_t bytes_in_flight);
  bool TakeIgnored(uint64_t bytes);
  void SetWindow(uint64_t bytes);

  // What the base RTT decides.
  const uint64_t line_bits_per_second_;
  const uint64_t mss_;  // bytes
  const uint64_t memory_window_;
  const bool fabric_trims_;
  Nanoseconds rtt_{};
  Nanoseconds target_{};
  uint64_t bdp_ = 0;                // bytes
  uint64_t largest_window_ = 0;     // bytes
  uint64_t fair_bytes_ = 0;         // a window
  uint64_t eta_bytes_ = 0;          // an RTT
  uint64_t gain_bytes_per_ns_ = 0;  // a window, with 32 binary places

  uint64_t window_ = 0;           // bytes
  uint64_t increase_ = 0;         // bytes x bytes: divided by the window when it is applied
  uint64_t heard_bytes_ = 0;      // since increases were last applied
  uint64_t calm_bytes_ = 0;       // acknowledged in a row without mark and with delay below 1 us
  int64_t average_delay_80_ = 0;  // 80 x nanoseconds, so that the gain of 1/80 loses nothing
  TimePoint last_apply_;
  TimePoint last_eta_;
  TimePoint last_decrease_;
  // Quick adapt.
  TimePoint period_end_;
  bool trimmed_ = false;        // in this period
  uint64_t arrived_bytes_ = 0;  // in this period
  uint64_t ignored_bytes_ = 0;  // to be heard of before a decrease counts again
  Cuts cuts_;
};

}  // namespace forgive

#endif  // FORGIVE_TRANSPORT_NSCC_H_
