// SPDX-License-Identifier: Apache-2.0
// The round trip time of a connection, smoothed in integers, and the retransmission timeout that follows from it.
#include "transport/rtt.h"

#include <algorithm>

#include "transport/check.h"
#include "transport/wire_layout.h"

namespace forgive {

RttEstimator::RttEstimator(Nanoseconds initial, Nanoseconds min_rto, Nanoseconds max_rto)
    : min_rto_(min_rto),
      max_rto_(max_rto),
      least_(initial),
      smoothed_8_(initial.value * 8),
      variation_4_(initial.value * 2) {
  FORGIVE_CHECK(initial.value > 0);
  FORGIVE_CHECK(min_rto.value > 0);
  FORGIVE_CHECK(max_rto >= min_rto);
  UpdateRto();
}

void RttEstimator::OnSample(Nanoseconds sample) {
  sample = std::max(sample, Nanoseconds{FORGIVE_TIMESTAMP_UNIT_NS});
  if (!has_sample_) {
    has_sample_ = true;
    least_ = sample;
    smoothed_8_ = sample.value * 8;
    variation_4_ = sample.value * 2;
    UpdateRto();
    return;
  }
  least_ = std::min(least_, sample);
  const int64_t error = sample.value - smoothed_8_ / 8;
  variation_4_ += (error < 0 ? -error : error) - variation_4_ / 4;  // before smoothed: RFC 6298, 2.3
  smoothed_8_ += error;
  UpdateRto();
}

void RttEstimator::UpdateRto() { rto_ = std::clamp(Nanoseconds{smoothed_8_ / 8 + variation_4_}, min_rto_, max_rto_); }

Nanoseconds RttEstimator::BackedOff(uint32_t backoff) const {
  Nanoseconds rto = rto_;
  for (; backoff != 0 && rto < max_rto_; --backoff) rto = std::min(rto * 2, max_rto_);
  return rto;
}

}  // namespace forgive
