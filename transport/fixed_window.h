// SPDX-License-Identifier: Apache-2.0
// No congestion control (FORGIVE_CC=none): line rate and the memory window, whatever the network says.
#ifndef FORGIVE_TRANSPORT_FIXED_WINDOW_H_
#define FORGIVE_TRANSPORT_FIXED_WINDOW_H_

#include "transport/congestion_control.h"

namespace forgive {

class FixedWindow final : public CongestionControl {
 public:
  explicit FixedWindow(const Config& config);

  void Restart(TimePoint now) override;
  void OnSignal(TimePoint now, CongestionSignal signal) override;
  void OnSent(TimePoint now, uint64_t bytes) override;
  void OnDeadline(TimePoint now) override;
  TimePoint next_deadline() const override;
  void set_base_rtt(Nanoseconds rtt) override;
  BitsPerSecond rate() const override;
  uint64_t window_bytes() const override;
  const Cuts& cuts() const override;

 private:
  uint64_t window_bytes_;
  Cuts cuts_;  // stays zero
};

}  // namespace forgive

#endif  // FORGIVE_TRANSPORT_FIXED_WINDOW_H_
