// SPDX-License-Identifier: Apache-2.0
// A driver that wraps another and injects faults into what it receives, from a seed.
#ifndef FORGIVE_DATAPLANE_FAULT_DRIVER_H_
#define FORGIVE_DATAPLANE_FAULT_DRIVER_H_

#include <cstdint>
#include <memory>
#include <string>

#include "dataplane/driver.h"
#include "dataplane/fault_log.h"

namespace forgive {

// Chances per received packet. Only data packets with a payload are trimmed: cut to their 56-byte header.
struct FaultSpec {
  Fraction trim;
  Fraction drop;
  Fraction duplicate;
  Fraction reorder;  // held back until 1 to 8 later packets have passed, or a millisecond
  Fraction corrupt;  // one bit flipped
  Nanoseconds delay{};
  uint64_t seed = 1;
};

// "trim=0.02,drop=0.01,duplicate=0.01,reorder=0.02,corrupt=0.001,delay_us=100,seed=7"; every part may be left out.
// False: *error names the part that is wrong and what it may be.
bool ParseFaultSpec(const std::string& text, FaultSpec* out, std::string* error);

// Wraps `inner`. The same seed and the same packets in the same order meet the same faults. `log` may be nullptr.
std::unique_ptr<Driver> MakeFaultDriver(std::unique_ptr<Driver> inner, const FaultSpec& spec,
                                        std::shared_ptr<FaultLog> log);

}  // namespace forgive

#endif  // FORGIVE_DATAPLANE_FAULT_DRIVER_H_
