// SPDX-License-Identifier: Apache-2.0
// The units that decisions are made in: time, rate and fraction, each its own type, all integers.
#ifndef FORGIVE_TRANSPORT_UNITS_H_
#define FORGIVE_TRANSPORT_UNITS_H_

#include <compare>
#include <cstdint>
#include <limits>

namespace forgive {

using uint128 = unsigned __int128;

// A length of time.
struct Nanoseconds {
  int64_t value = 0;

  friend constexpr auto operator<=>(Nanoseconds, Nanoseconds) = default;
  friend constexpr Nanoseconds operator+(Nanoseconds a, Nanoseconds b) { return {a.value + b.value}; }
  friend constexpr Nanoseconds operator-(Nanoseconds a, Nanoseconds b) { return {a.value - b.value}; }
  friend constexpr Nanoseconds operator*(Nanoseconds a, int64_t n) { return {a.value * n}; }
  friend constexpr Nanoseconds operator/(Nanoseconds a, int64_t n) { return {a.value / n}; }
};

constexpr Nanoseconds Microseconds(int64_t n) { return {n * 1000}; }
constexpr Nanoseconds Milliseconds(int64_t n) { return {n * 1000000}; }
constexpr Nanoseconds Seconds(int64_t n) { return {n * 1000000000}; }

// A moment on the clock of whoever turns the crank. Only differences mean anything.
struct TimePoint {
  int64_t ns = 0;

  friend constexpr auto operator<=>(TimePoint, TimePoint) = default;
  friend constexpr TimePoint operator+(TimePoint t, Nanoseconds d) { return {t.ns + d.value}; }
  friend constexpr TimePoint operator-(TimePoint t, Nanoseconds d) { return {t.ns - d.value}; }
  friend constexpr Nanoseconds operator-(TimePoint a, TimePoint b) { return {a.ns - b.ns}; }
};

// No deadline.
inline constexpr TimePoint kNever{std::numeric_limits<int64_t>::max()};

constexpr TimePoint Earlier(TimePoint a, TimePoint b) { return a < b ? a : b; }

// A rate on the wire; 0 means not known or unlimited, as the user of the value says.
struct BitsPerSecond {
  uint64_t value = 0;

  friend constexpr auto operator<=>(BitsPerSecond, BitsPerSecond) = default;
};

// How long `bytes` take at `rate`, rounded up. rate must not be 0.
constexpr Nanoseconds TransmissionTime(uint64_t bytes, BitsPerSecond rate) {
  const uint128 bits = uint128{bytes} * 8 * 1000000000;
  return {static_cast<int64_t>((bits + rate.value - 1) / rate.value)};
}

// A fraction in parts per million, from 0 to 1.
struct Fraction {
  uint32_t ppm = 0;

  static constexpr uint32_t kOne = 1000000;
  friend constexpr auto operator<=>(Fraction, Fraction) = default;

  // floor(fraction * bytes)
  constexpr uint64_t Of(uint64_t bytes) const { return static_cast<uint64_t>(uint128{bytes} * ppm / kOne); }
};

}  // namespace forgive

#endif  // FORGIVE_TRANSPORT_UNITS_H_
