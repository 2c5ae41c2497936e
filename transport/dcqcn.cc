// SPDX-License-Identifier: Apache-2.0
// DCQCN in two named parameter sets: `paper` (SIGCOMM'15) and `astra` (the seed's simulator).
#include "transport/dcqcn.h"

#include <algorithm>

#include "transport/check.h"

namespace forgive {
namespace {

constexpr uint64_t kLeastRateShare = 1000;  // of the line rate
constexpr uint64_t kFirstStepShare = 2000;  // astra
constexpr uint64_t kStepShare = 1000;       // astra's later steps, paper's additive ones
constexpr uint64_t kHyperStepShare = 100;   // paper
constexpr uint32_t kFastRecoveries = 5;     // paper: F

// How many ticks of `interval` from `next` on are due at `now`, and `next` moved past them.
uint64_t TakeTicks(TimePoint now, Nanoseconds interval, TimePoint* next) {
  if (now < *next) return 0;
  const int64_t ticks = (now - *next).value / interval.value + 1;
  *next = *next + interval * ticks;
  return static_cast<uint64_t>(ticks);
}

}  // namespace

// ---- Both ----

Nanoseconds Dcqcn::Multiple::Of(Nanoseconds rtt) const {
  return std::max(Nanoseconds{1}, rtt * numerator / denominator);
}

Dcqcn::Dcqcn(const Config& config)
    : line_(config.link_rate.value != 0 ? config.link_rate.value : config.assumed_link_rate.value),
      least_(std::max<uint64_t>(1, line_ / kLeastRateShare)),
      line_known_(config.link_rate.value != 0),
      rate_(line_),
      target_(line_) {
  FORGIVE_CHECK(line_ != 0);
}

BitsPerSecond Dcqcn::rate() const { return {line_known_ || rate_ != line_ ? rate_ : 0}; }

void Dcqcn::StartAtLineRate() {
  rate_ = line_;
  target_ = line_;
  alpha_ = kAlphaOne;
}

void Dcqcn::CutRate() {
  const uint64_t cut = static_cast<uint64_t>((uint128{rate_} * alpha_) >> 33);
  rate_ = std::max(least_, rate_ - cut);
}

void Dcqcn::DecayAlpha(uint64_t ticks) {
  // Rounded down, alpha is 0 after some 4,500 ticks: the loop is bounded and exact, however late it runs.
  for (; ticks != 0 && alpha_ != 0; --ticks) alpha_ -= (alpha_ + (1u << kGainShift) - 1) >> kGainShift;
}

void Dcqcn::RaiseAlpha() {
  DecayAlpha(1);
  alpha_ += kAlphaOne >> kGainShift;
}

void Dcqcn::RaiseTarget(uint64_t by) { target_ = std::min(line_, target_ + std::max<uint64_t>(1, by)); }

void Dcqcn::MoveToTarget() { rate_ = (rate_ + target_ + 1) / 2; }

void Dcqcn::CountCut(CongestionSignal cause) {
  switch (cause) {
    case CongestionSignal::kMark:
      ++cuts_.mark;
      break;
    case CongestionSignal::kTrim:
      ++cuts_.trim;
      break;
    case CongestionSignal::kTimeout:
      ++cuts_.timeout;
      break;
  }
}

// ---- astra ----

DcqcnAstra::DcqcnAstra(const Config& config)
    : Dcqcn(config), full_window_bytes_(config.window_bytes), window_bytes_(config.window_bytes) {
  set_base_rtt(config.base_rtt.value != 0 ? config.base_rtt : config.initial_rtt);
}

void DcqcnAstra::set_base_rtt(Nanoseconds rtt) {
  // Ticks that are already set stay; the next ones follow the new intervals.
  alpha_interval_ = Multiple{1, 70}.Of(rtt);
  decrease_interval_ = Multiple{2, 35}.Of(rtt);
  increase_interval_ = Multiple{90, 7}.Of(rtt);
}

void DcqcnAstra::Restart(TimePoint) {
  StartAtLineRate();
  ScaleWindow();
  started_ = false;
  alpha_notified_ = false;
  cut_pending_ = false;
  next_alpha_ = kNever;
  next_decrease_ = kNever;
  next_increase_ = kNever;
  increases_ = 0;
}

void DcqcnAstra::Start(TimePoint now) {
  started_ = true;
  alpha_ = kAlphaOne;
  target_ = rate_;
  next_alpha_ = now + alpha_interval_;
  next_decrease_ = now + decrease_interval_;
}

void DcqcnAstra::OnSignal(TimePoint now, CongestionSignal signal) {
  OnDeadline(now);
  if (signal == CongestionSignal::kTimeout) {
    if (!started_) Start(now);
    AdvanceAlpha(now);
    const uint64_t alpha = alpha_;
    alpha_ = kAlphaOne;  // by half
    Cut(now, signal);
    alpha_ = alpha;
    return;
  }
  if (!started_) {
    Start(now);  // alpha is 1 as it is: this notification does not count at the first alpha tick
  } else {
    AdvanceAlpha(now);
    alpha_notified_ = true;
    TakeTicks(now, decrease_interval_, &next_decrease_);  // those that passed without a notification
  }
  if (!cut_pending_) cause_ = signal;
  cut_pending_ = true;
}

void DcqcnAstra::OnSent(TimePoint, uint64_t) {}

void DcqcnAstra::OnDeadline(TimePoint now) {
  if (cut_pending_ && next_decrease_ <= now) {
    const TimePoint tick = next_decrease_;
    AdvanceAlpha(tick);
    AdvanceIncrease(tick);
    Cut(tick, cause_);
    cut_pending_ = false;
    next_decrease_ = tick + decrease_interval_;
  }
  AdvanceIncrease(now);
}

TimePoint DcqcnAstra::next_deadline() const {
  const TimePoint increase = at_line_rate() ? kNever : next_increase_;
  return cut_pending_ ? Earlier(next_decrease_, increase) : increase;
}

void DcqcnAstra::AdvanceAlpha(TimePoint to) {
  uint64_t ticks = TakeTicks(to, alpha_interval_, &next_alpha_);
  if (ticks == 0) return;
  if (alpha_notified_) {
    RaiseAlpha();
    alpha_notified_ = false;
    --ticks;
  }
  DecayAlpha(ticks);
}

void DcqcnAstra::AdvanceIncrease(TimePoint to) {
  if (next_increase_ > to) return;
  // At most some 1,000 steps from the least rate to the line rate; there nothing changes until the next cut, which
  // sets the timer anew.
  while (next_increase_ <= to && !at_line_rate()) {
    if (increases_ == 1) RaiseTarget(line_ / kFirstStepShare);
    if (increases_ > 1) RaiseTarget(line_ / kStepShare);
    MoveToTarget();
    ++increases_;
    next_increase_ = next_increase_ + increase_interval_;
  }
  if (at_line_rate()) next_increase_ = kNever;
  ScaleWindow();
}

void DcqcnAstra::Cut(TimePoint at, CongestionSignal cause) {
  if (increases_ != 0) target_ = rate_;
  CutRate();
  ScaleWindow();
  increases_ = 0;
  next_increase_ = at + increase_interval_;
  CountCut(cause);
}

void DcqcnAstra::ScaleWindow() {
  window_bytes_ = std::max<uint64_t>(1, static_cast<uint64_t>(uint128{full_window_bytes_} * rate_ / line_));
}

uint64_t DcqcnAstra::window_bytes() const { return window_bytes_; }

// ---- paper ----

DcqcnPaper::DcqcnPaper(const Config& config) : Dcqcn(config), window_bytes_(config.window_bytes) {
  set_base_rtt(config.base_rtt.value != 0 ? config.base_rtt : config.initial_rtt);
}

void DcqcnPaper::set_base_rtt(Nanoseconds rtt) {
  notification_interval_ = Multiple{5, 7}.Of(rtt);
  alpha_interval_ = Multiple{11, 14}.Of(rtt);
  increase_interval_ = Multiple{11, 14}.Of(rtt);
  const uint64_t counter_ns = static_cast<uint64_t>(Multiple{200, 7}.Of(rtt).value);
  byte_counter_bytes_ = std::max<uint64_t>(1, static_cast<uint64_t>(uint128{line_} * counter_ns / 8 / 1000000000));
}

void DcqcnPaper::Restart(TimePoint) {
  StartAtLineRate();
  notified_ = false;
  next_alpha_ = kNever;
  next_increase_ = kNever;
  bytes_ = 0;
  timer_increases_ = 0;
  byte_increases_ = 0;
}

void DcqcnPaper::OnSignal(TimePoint now, CongestionSignal signal) {
  Advance(now);
  DecayAlpha(TakeTicks(now, alpha_interval_, &next_alpha_));
  const bool timeout = signal == CongestionSignal::kTimeout;
  if (!timeout) {
    if (notified_ && now < next_notification_) return;  // the receiver would not have sent it
    notified_ = true;
    next_notification_ = now + notification_interval_;
  }
  target_ = rate_;
  if (timeout) {
    const uint64_t alpha = alpha_;
    alpha_ = kAlphaOne;  // by half
    CutRate();
    alpha_ = alpha;
  } else {
    CutRate();
    RaiseAlpha();
    next_alpha_ = now + alpha_interval_;
  }
  next_increase_ = now + increase_interval_;
  bytes_ = 0;
  timer_increases_ = 0;
  byte_increases_ = 0;
  CountCut(signal);
}

void DcqcnPaper::OnSent(TimePoint now, uint64_t bytes) {
  if (at_line_rate()) return;  // an increase would change nothing, and a cut starts the counter anew
  Advance(now);
  bytes_ += bytes;
  while (bytes_ >= byte_counter_bytes_) {
    bytes_ -= byte_counter_bytes_;
    Increase(&byte_increases_);
  }
}

void DcqcnPaper::OnDeadline(TimePoint now) { Advance(now); }

TimePoint DcqcnPaper::next_deadline() const { return at_line_rate() ? kNever : next_increase_; }

void DcqcnPaper::Advance(TimePoint to) {
  // At most some 1,000 additive steps from the least rate to the line rate; there nothing changes until a cut.
  while (next_increase_ <= to && !at_line_rate()) {
    Increase(&timer_increases_);
    next_increase_ = next_increase_ + increase_interval_;
  }
  if (at_line_rate()) next_increase_ = kNever;
}

void DcqcnPaper::Increase(uint32_t* counter) {
  const uint32_t most = std::max(timer_increases_, byte_increases_);
  const uint32_t least = std::min(timer_increases_, byte_increases_);
  if (least >= kFastRecoveries) {
    RaiseTarget(line_ / kHyperStepShare);
  } else if (most >= kFastRecoveries) {
    RaiseTarget(line_ / kStepShare);
  }
  MoveToTarget();
  ++*counter;
}

uint64_t DcqcnPaper::window_bytes() const { return window_bytes_; }

}  // namespace forgive
