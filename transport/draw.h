// SPDX-License-Identifier: Apache-2.0
// Draw(P): chance from a seed, the same on every compiler (SplitMix64: Steele, Lea and Flood, 2014).
#ifndef FORGIVE_TRANSPORT_DRAW_H_
#define FORGIVE_TRANSPORT_DRAW_H_

#include <cstdint>

#include "transport/units.h"

namespace forgive {

class Draw {
 public:
  explicit Draw(uint64_t seed) : state_(seed) {}

  uint64_t Next() {
    state_ += 0x9e3779b97f4a7c15u;
    uint64_t z = state_;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
  }

  // A number below `bound` (not 0), by multiplication: the bias is below bound / 2^64.
  uint64_t Below(uint64_t bound) { return static_cast<uint64_t>((uint128{Next()} * bound) >> 64); }

  // True with probability `p`. Seed: Draw(P).
  bool operator()(Fraction p) { return Below(Fraction::kOne) < p.ppm; }

 private:
  uint64_t state_;
};

}  // namespace forgive

#endif  // FORGIVE_TRANSPORT_DRAW_H_
