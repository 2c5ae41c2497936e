// SPDX-License-Identifier: Apache-2.0
// The pacer: a bucket that fills at the sending rate and lets a packet go when it holds the packet's bytes.
#ifndef FORGIVE_TRANSPORT_PACER_H_
#define FORGIVE_TRANSPORT_PACER_H_

#include <cstdint>

#include "transport/units.h"

namespace forgive {

// Bytes are bytes on the wire. Credit is kept in bits x nanoseconds per second, so time x rate is exact and nothing
// drifts however often the clock is read or the rate changes.
//
// Invariant: over any interval, the bytes let go are at most rate x interval + burst.
class Pacer {
 public:
  // burst_bytes: what may leave at once after idling; at least the largest packet. The bucket begins full.
  Pacer(uint32_t burst_bytes, uint32_t largest_packet_bytes);

  // The rate from now on; 0: everything may leave at once.
  void SetRate(TimePoint now, BitsPerSecond rate);
  BitsPerSecond rate() const { return rate_; }

  // True if a packet of so many bytes may leave now. It has left when OnSent is told.
  bool MaySend(TimePoint now, uint32_t bytes);
  void OnSent(uint32_t bytes);
  // The earliest moment when MaySend will be true: in the past if it is already.
  TimePoint NextTime(uint32_t bytes) const;

 private:
  void Fill(TimePoint now);

  uint64_t depth_;   // bits x 1e9
  uint64_t credit_;  // bits x 1e9, at most depth_
  BitsPerSecond rate_{};
  TimePoint filled_{};  // the moment credit_ speaks of
};

}  // namespace forgive

#endif  // FORGIVE_TRANSPORT_PACER_H_
