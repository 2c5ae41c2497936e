// SPDX-License-Identifier: Apache-2.0
// The simulator's time: picoseconds, so that a byte at 400 Gbit/s (20 ps) is exact, and nothing ever drifts.
#ifndef FORGIVE_TESTBED_SIMULATOR_CLOCK_H_
#define FORGIVE_TESTBED_SIMULATOR_CLOCK_H_

#include <compare>
#include <cstdint>
#include <limits>

#include "transport/units.h"

namespace forgive::sim {

// A length of simulated time.
struct Picoseconds {
  int64_t value = 0;

  friend constexpr auto operator<=>(Picoseconds, Picoseconds) = default;
  friend constexpr Picoseconds operator+(Picoseconds a, Picoseconds b) { return {a.value + b.value}; }
  friend constexpr Picoseconds operator-(Picoseconds a, Picoseconds b) { return {a.value - b.value}; }
  friend constexpr Picoseconds operator*(Picoseconds a, int64_t n) { return {a.value * n}; }
};

inline constexpr int64_t kPicosecondsPerNanosecond = 1000;
inline constexpr int64_t kPicosecondsPerSecond = 1000000000000;

constexpr Picoseconds FromNanoseconds(Nanoseconds d) { return {d.value * kPicosecondsPerNanosecond}; }

// A moment since the simulation began; 64 bits of picoseconds last 106 days.
struct SimTime {
  int64_t ps = 0;

  friend constexpr auto operator<=>(SimTime, SimTime) = default;
  friend constexpr SimTime operator+(SimTime t, Picoseconds d) { return {t.ps + d.value}; }
  friend constexpr SimTime operator-(SimTime t, Picoseconds d) { return {t.ps - d.value}; }
  friend constexpr Picoseconds operator-(SimTime a, SimTime b) { return {a.ps - b.ps}; }
};

// No moment at all: later than every event.
inline constexpr SimTime kSimNever{std::numeric_limits<int64_t>::max()};

// The moment as the transport reads it: nanoseconds, rounded down, so that the transport never sees the future.
constexpr TimePoint ToTimePoint(SimTime t) { return TimePoint{t.ps / kPicosecondsPerNanosecond}; }
constexpr SimTime FromTimePoint(TimePoint t) {
  const bool far = t.ns >= std::numeric_limits<int64_t>::max() / kPicosecondsPerNanosecond;
  return far ? kSimNever : SimTime{t.ns * kPicosecondsPerNanosecond};
}

// How long `bytes` take at `rate`, rounded up to a picosecond. rate must not be 0.
constexpr Picoseconds SerializationTime(uint64_t bytes, BitsPerSecond rate) {
  const uint128 bits = uint128{bytes} * 8 * static_cast<uint64_t>(kPicosecondsPerSecond);
  return {static_cast<int64_t>((bits + rate.value - 1) / rate.value)};
}

}  // namespace forgive::sim

#endif  // FORGIVE_TESTBED_SIMULATOR_CLOCK_H_
