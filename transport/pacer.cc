// SPDX-License-Identifier: Apache-2.0
// The pacer: a bucket that fills at the sending rate and lets a packet go when it holds the packet's bytes.
#include "transport/pacer.h"

#include <algorithm>

#include "transport/check.h"

namespace forgive {
namespace {

constexpr uint64_t Credit(uint32_t bytes) { return uint64_t{bytes} * 8 * 1000000000; }
constexpr uint32_t kMaxBurstBytes = 1u << 30;  // 8.6e18 of credit: all sums fit

}  // namespace

Pacer::Pacer(uint32_t burst_bytes, uint32_t largest_packet_bytes)
    : depth_(Credit(std::max(burst_bytes, largest_packet_bytes))), credit_(depth_) {
  FORGIVE_CHECK(std::max(burst_bytes, largest_packet_bytes) <= kMaxBurstBytes);
}

void Pacer::Fill(TimePoint now) {
  if (rate_.value == 0) {
    credit_ = depth_;
    filled_ = now;
    return;
  }
  if (now <= filled_) return;
  const uint128 earned = uint128{static_cast<uint64_t>((now - filled_).value)} * rate_.value;
  credit_ = earned >= depth_ - credit_ ? depth_ : credit_ + static_cast<uint64_t>(earned);
  filled_ = now;
}

void Pacer::SetRate(TimePoint now, BitsPerSecond rate) {
  if (rate == rate_) return;
  Fill(now);
  rate_ = rate;
}

bool Pacer::MaySend(TimePoint now, uint32_t bytes) {
  if (rate_.value == 0) return true;
  Fill(now);
  return credit_ >= Credit(bytes);
}

void Pacer::OnSent(uint32_t bytes) {
  if (rate_.value == 0) return;
  FORGIVE_CHECK(credit_ >= Credit(bytes));
  credit_ -= Credit(bytes);
}

TimePoint Pacer::NextTime(uint32_t bytes) const {
  const uint64_t cost = Credit(bytes);
  if (rate_.value == 0 || credit_ >= cost) return filled_;
  return filled_ + Nanoseconds{static_cast<int64_t>((cost - credit_ + rate_.value - 1) / rate_.value)};
}

}  // namespace forgive
