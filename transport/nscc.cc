// SPDX-License-Identifier: Apache-2.0
// NSCC, Ultra Ethernet's Network Signal-based Congestion Control: a window that follows delay, marks and trims.
#include "transport/nscc.h"

#include <algorithm>

#include "transport/check.h"

namespace forgive {
namespace {

// The reference network of the specification.
constexpr uint64_t kReferenceBdpBytes = 150000;
constexpr uint64_t kReferenceRttNs = 12000;

constexpr uint64_t kFairMss = 5;
constexpr uint64_t kProportionalMss = 4;
constexpr uint64_t kEtaHundredthsOfMss = 15;
constexpr uint64_t kFastIncreaseDivisor = 4;
constexpr Nanoseconds kCalmDelay = Microseconds(1);
constexpr int64_t kAverageGain = 80;  // 1 / 0.0125
constexpr uint64_t kApplyEveryMss = 8;
constexpr uint64_t kQuickAdaptShare = 8;
constexpr int kGainPlaces = 32;
constexpr TimePoint kBeforeAnything{INT64_MIN / 2};

uint64_t Narrow(uint128 value) { return static_cast<uint64_t>(std::min<uint128>(value, UINT64_MAX)); }

}  // namespace

Nscc::Nscc(const Config& config)
    : line_bits_per_second_(config.link_rate.value != 0 ? config.link_rate.value : config.assumed_link_rate.value),
      mss_(config.max_payload_bytes),
      memory_window_(config.window_bytes),
      fabric_trims_(config.fabric_trims) {
  FORGIVE_CHECK(line_bits_per_second_ != 0);
  FORGIVE_CHECK(mss_ != 0);
  set_base_rtt(config.base_rtt.value != 0 ? config.base_rtt : config.initial_rtt);
  Restart(kBeforeAnything);
}

void Nscc::set_base_rtt(Nanoseconds rtt) {
  const bool at_largest = window_ == largest_window_;
  rtt_ = std::max(rtt, Nanoseconds{1});
  target_ = fabric_trims_ ? rtt_ * 3 / 4 : rtt_;
  const uint128 bits_ns = uint128{line_bits_per_second_} * static_cast<uint64_t>(rtt_.value);
  bdp_ = std::max<uint64_t>(1, Narrow(bits_ns / 8 / 1000000000));
  const uint128 mss_bdp = uint128{mss_} * bdp_;
  fair_bytes_ = std::max<uint64_t>(1, Narrow(mss_bdp * kFairMss / kReferenceBdpBytes));
  eta_bytes_ = Narrow(mss_bdp * kEtaHundredthsOfMss / 100 / kReferenceBdpBytes);
  const uint128 gain = (mss_bdp * kProportionalMss) << kGainPlaces;
  gain_bytes_per_ns_ = Narrow(gain / kReferenceBdpBytes / kReferenceRttNs);
  largest_window_ = std::max(mss_, std::min(bdp_ + bdp_ / 2, memory_window_));
  SetWindow(at_largest ? largest_window_ : window_);
}

void Nscc::Restart(TimePoint) {
  window_ = largest_window_;
  increase_ = 0;
  heard_bytes_ = 0;
  calm_bytes_ = 0;
  average_delay_80_ = 0;
  last_apply_ = kBeforeAnything;
  last_eta_ = kBeforeAnything;
  last_decrease_ = kBeforeAnything;
  period_end_ = kBeforeAnything;
  trimmed_ = false;
  arrived_bytes_ = 0;
  ignored_bytes_ = 0;
}

void Nscc::SetWindow(uint64_t bytes) { window_ = std::clamp(bytes, mss_, largest_window_); }

// ---- Signals ----

void Nscc::OnSignal(TimePoint now, CongestionSignal signal) {
  switch (signal) {
    case CongestionSignal::kMark:
      return;  // comes with the acknowledgement
    case CongestionSignal::kTrim:
      OnTrim(now, mss_, window_);
      return;
    case CongestionSignal::kTimeout:
      SetWindow(window_ / 2);
      increase_ = 0;
      ++cuts_.timeout;
      return;
  }
}

void Nscc::OnTrim(TimePoint now, uint64_t bytes, uint64_t bytes_in_flight) {
  QuickAdapt(now, bytes_in_flight);
  trimmed_ = true;
  calm_bytes_ = 0;
  if (TakeIgnored(bytes)) return;
  SetWindow(window_ - std::min(window_, bytes));
  ++cuts_.trim;
}

void Nscc::OnAcknowledged(TimePoint now, const Acknowledged& what) {
  AverageDelay(what.delay);
  arrived_bytes_ += what.bytes;
  QuickAdapt(now, what.bytes_in_flight);
  const bool ignored = TakeIgnored(what.bytes);
  if (!what.marked) {
    Increase(what.bytes, what.delay);
  } else {
    calm_bytes_ = 0;
    if (what.delay >= target_ && !ignored) DecreaseOnceAnRtt(now);
  }
  ApplyIncrease(now, what.bytes);
}

// ---- The four quadrants ----

void Nscc::Increase(uint64_t bytes, Nanoseconds delay) {
  if (delay >= target_) {
    calm_bytes_ = 0;
    increase_ += fair_bytes_ * bytes;
    return;
  }
  calm_bytes_ = delay < kCalmDelay ? calm_bytes_ + bytes : 0;
  if (calm_bytes_ > window_) {
    SetWindow(window_ + Narrow(uint128{bytes} * bdp_ / kReferenceBdpBytes / kFastIncreaseDivisor));
    return;
  }
  const uint128 gain = uint128{gain_bytes_per_ns_} * static_cast<uint64_t>((target_ - delay).value);
  increase_ += Narrow(gain * bytes >> kGainPlaces);
}

void Nscc::DecreaseOnceAnRtt(TimePoint now) {
  const int64_t excess_80 = average_delay_80_ - target_.value * kAverageGain;
  if (excess_80 <= 0 || now - last_decrease_ < rtt_) return;
  const uint128 scaled = uint128{window_} * 4 * static_cast<uint64_t>(excess_80);
  const uint64_t cut = Narrow(scaled / 5 / static_cast<uint64_t>(average_delay_80_));
  SetWindow(window_ - std::min(cut, window_ / 2));
  last_decrease_ = now;
  ++cuts_.mark;
}

void Nscc::ApplyIncrease(TimePoint now, uint64_t bytes) {
  heard_bytes_ += bytes;
  if (heard_bytes_ < kApplyEveryMss * mss_ && now - last_apply_ < rtt_) return;
  uint64_t grown = window_ + increase_ / window_;
  if (now - last_eta_ >= rtt_) {
    grown += eta_bytes_;
    last_eta_ = now;
  }
  SetWindow(grown);
  increase_ = 0;
  heard_bytes_ = 0;
  last_apply_ = now;
}

// ---- Delay and quick adapt ----

void Nscc::AverageDelay(Nanoseconds delay) { average_delay_80_ += delay.value - average_delay_80_ / kAverageGain; }

Nanoseconds Nscc::average_delay() const { return {average_delay_80_ / kAverageGain}; }

void Nscc::QuickAdapt(TimePoint now, uint64_t bytes_in_flight) {
  if (now < period_end_) return;
  if (trimmed_ && arrived_bytes_ < largest_window_ / kQuickAdaptShare) {
    SetWindow(arrived_bytes_);
    increase_ = 0;
    ignored_bytes_ = bytes_in_flight;
    ++cuts_.trim;
  }
  trimmed_ = false;
  arrived_bytes_ = 0;
  period_end_ = now + rtt_ + target_;
}

// True while what is heard of was sent before the last quick adapt.
bool Nscc::TakeIgnored(uint64_t bytes) {
  if (ignored_bytes_ == 0) return false;
  ignored_bytes_ -= std::min(ignored_bytes_, bytes);
  return true;
}

// ---- No timers ----

void Nscc::OnSent(TimePoint, uint64_t) {}
void Nscc::OnDeadline(TimePoint) {}
TimePoint Nscc::next_deadline() const { return kNever; }
BitsPerSecond Nscc::rate() const { return {}; }
uint64_t Nscc::window_bytes() const { return window_; }
const CongestionControl::Cuts& Nscc::cuts() const { return cuts_; }

}  // namespace forgive
