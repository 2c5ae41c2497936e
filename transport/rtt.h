// SPDX-License-Identifier: Apache-2.0
// The round trip time of a connection, smoothed in integers, and the retransmission timeout that follows from it.
#ifndef FORGIVE_TRANSPORT_RTT_H_
#define FORGIVE_TRANSPORT_RTT_H_

#include <cstdint>

#include "transport/units.h"

namespace forgive {

// RFC 6298 with its gains of 1/8 and 1/4, every sample counted. Until the first sample the initial RTT stands for
// the smoothed one, with half of it as variation, as if it had been the first sample.
class RttEstimator {
 public:
  RttEstimator(Nanoseconds initial, Nanoseconds min_rto, Nanoseconds max_rto);

  // A round trip was measured. Not positive: counts as the clock's resolution on the wire.
  void OnSample(Nanoseconds sample);

  bool has_sample() const { return has_sample_; }
  Nanoseconds smoothed() const { return {smoothed_8_ / 8}; }
  Nanoseconds variation() const { return {variation_4_ / 4}; }
  // The least sample; the initial RTT before the first.
  Nanoseconds least() const { return least_; }
  // smoothed + 4 variation, within the limits; doubled `backoff` times, up to the larger limit.
  Nanoseconds rto(uint32_t backoff = 0) const { return backoff == 0 ? rto_ : BackedOff(backoff); }

 private:
  void UpdateRto();
  Nanoseconds BackedOff(uint32_t backoff) const;

  Nanoseconds min_rto_;
  Nanoseconds max_rto_;
  Nanoseconds least_;
  int64_t smoothed_8_;   // 8 x nanoseconds, so that the gain of 1/8 loses nothing
  int64_t variation_4_;  // 4 x nanoseconds
  Nanoseconds rto_;      // not backed off: asked for with every packet, and only a sample changes it
  bool has_sample_ = false;
};

}  // namespace forgive

#endif  // FORGIVE_TRANSPORT_RTT_H_
