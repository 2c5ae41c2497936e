// SPDX-License-Identifier: Apache-2.0
// DCQCN in two named parameter sets: `paper` (SIGCOMM'15) and `astra` (the seed's simulator).
#ifndef FORGIVE_TRANSPORT_DCQCN_H_
#define FORGIVE_TRANSPORT_DCQCN_H_

#include <cstdint>

#include "transport/congestion_control.h"

namespace forgive {

// Units. Rates are fractions of the line rate (Config::link_rate, else assumed_link_rate), times are multiples of
// the base RTT (Config::base_rtt, else the least RTT measured), so that one set serves every fabric. Both sets take
// 70 us as one base RTT: it is the seed's longest path, where `astra` then has the seed's own microseconds, and
// SIGCOMM'15 names no RTT of its own, so there `paper` has the published microseconds too. Of the paper's byte
// counter the time it takes at line rate is kept (10 MB at 40 Gbit/s: 2 ms).
//
//                      astra                      paper
//   rate constants at  400 Gbit/s                 40 Gbit/s
//   alpha timer        1 us = RTT/70              55 us = 11/14 RTT, from the last notification
//   a cut at most each 4 us = RTT/17.5 (a tick)   50 us = 5/7 RTT (the receiver's notification interval)
//   increase timer     900 us = 90/7 RTT          55 us = 11/14 RTT
//   byte counter       none                       2 ms at line rate = 200/7 RTT
//   increase           1/2000, then 1/1000        1/1000 additive, 1/100 hyper (IEEE 802.1Qau's ratio of 10)
//   least rate         1/1000                     1/1000 (the paper names none)
//   window             scales with the rate       fixed
//   g                  1/256                      1/256
//
// Integers only. alpha is a fraction of 2^32 and rounds down; the mean of rate and target rounds up, so that it
// arrives. Timers are evaluated when somebody asks: late polling ends in the same state as polling at every tick.
// next_deadline() names only a cut that is pending and an increase below line rate; alpha's ticks, and decrease ticks
// without a notification, wake nobody and are caught up with at the next signal or cut.
// DCQCN has no rule for a timeout: it is a cut by half at once, with its own cause. The sender tells of one at most
// once per RTO.
class Dcqcn : public CongestionControl {
 public:
  BitsPerSecond rate() const final;  // 0 at line rate where the link rate is not known: unpaced
  const Cuts& cuts() const final { return cuts_; }

  // Facts for tests and traces.
  static constexpr uint64_t kAlphaOne = uint64_t{1} << 32;
  uint64_t alpha() const { return alpha_; }
  BitsPerSecond current_rate() const { return {rate_}; }
  BitsPerSecond target_rate() const { return {target_}; }

 protected:
  static constexpr int kGainShift = 8;  // g = 1/256

  // A part of the base RTT.
  struct Multiple {
    int64_t numerator;
    int64_t denominator;
    Nanoseconds Of(Nanoseconds rtt) const;
  };

  explicit Dcqcn(const Config& config);

  bool at_line_rate() const { return rate_ == line_ && target_ == line_; }
  void StartAtLineRate();
  // rate (1 - alpha/2), not below the least rate.
  void CutRate();
  void DecayAlpha(uint64_t ticks);
  void RaiseAlpha();  // alpha = (1 - g) alpha + g
  void RaiseTarget(uint64_t by);
  void MoveToTarget();  // rate = (rate + target) / 2
  void CountCut(CongestionSignal cause);

  uint64_t line_;   // bits per second
  uint64_t least_;  // bits per second
  bool line_known_;
  uint64_t rate_;    // bits per second
  uint64_t target_;  // bits per second
  uint64_t alpha_ = kAlphaOne;
  Cuts cuts_;
};

// The seed's simulator: every report may bring a notification; cuts come at the next decrease tick. Ticks run from
// the first notification on. Where ticks fall together: alpha, then increase, then decrease.
class DcqcnAstra final : public Dcqcn {
 public:
  explicit DcqcnAstra(const Config& config);

  void Restart(TimePoint now) override;
  void OnSignal(TimePoint now, CongestionSignal signal) override;
  void OnSent(TimePoint now, uint64_t bytes) override;
  void OnDeadline(TimePoint now) override;
  TimePoint next_deadline() const override;
  void set_base_rtt(Nanoseconds rtt) override;
  uint64_t window_bytes() const override;

 private:
  void Start(TimePoint now);
  void AdvanceAlpha(TimePoint to);
  void AdvanceIncrease(TimePoint to);
  void Cut(TimePoint at, CongestionSignal cause);
  void ScaleWindow();

  uint64_t full_window_bytes_;
  uint64_t window_bytes_;
  Nanoseconds alpha_interval_{};
  Nanoseconds decrease_interval_{};
  Nanoseconds increase_interval_{};
  bool started_ = false;         // by the first notification
  bool alpha_notified_ = false;  // since the last alpha tick
  bool cut_pending_ = false;     // notified since the last decrease tick
  CongestionSignal cause_ = CongestionSignal::kMark;
  TimePoint next_alpha_ = kNever;
  TimePoint next_decrease_ = kNever;
  TimePoint next_increase_ = kNever;  // runs from the first cut
  uint32_t increases_ = 0;            // since the last cut: the stage
};

// SIGCOMM'15: a cut with each notification, at most one per notification interval; increase by timer and by byte
// counter. Five increases of the faster of the two are fast recovery; then additive; hyper once both passed five.
class DcqcnPaper final : public Dcqcn {
 public:
  explicit DcqcnPaper(const Config& config);

  void Restart(TimePoint now) override;
  void OnSignal(TimePoint now, CongestionSignal signal) override;
  void OnSent(TimePoint now, uint64_t bytes) override;
  void OnDeadline(TimePoint now) override;
  TimePoint next_deadline() const override;
  void set_base_rtt(Nanoseconds rtt) override;
  uint64_t window_bytes() const override;

 private:
  void Advance(TimePoint to);
  void Increase(uint32_t* counter);

  uint64_t window_bytes_;
  Nanoseconds notification_interval_{};
  Nanoseconds alpha_interval_{};
  Nanoseconds increase_interval_{};
  uint64_t byte_counter_bytes_ = 0;
  bool notified_ = false;          // ever
  TimePoint next_notification_{};  // none counts before it
  TimePoint next_alpha_ = kNever;
  TimePoint next_increase_ = kNever;
  uint64_t bytes_ = 0;            // since the byte counter's last increase
  uint32_t timer_increases_ = 0;  // T
  uint32_t byte_increases_ = 0;   // BC
};

}  // namespace forgive

#endif  // FORGIVE_TRANSPORT_DCQCN_H_
