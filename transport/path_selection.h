// SPDX-License-Identifier: Apache-2.0
// Which path the next packet takes: one, all in turn, or those that last brought a packet through without a mark.
#ifndef FORGIVE_TRANSPORT_PATH_SELECTION_H_
#define FORGIVE_TRANSPORT_PATH_SELECTION_H_

#include <array>
#include <cstdint>

#include "transport/config.h"

namespace forgive {

// One per sending connection. A path is a number below Config::paths; the fabric hashes it as it hashes a UDP port.
//
// kReps follows REPS (Recycled Entropies for Packet Spraying, 2024): a path whose packet was acknowledged without a
// mark is used again, once for each such acknowledgement, the oldest first; where none waits, the next of all in turn
// is tried. At most eight wait, as in the paper: a newer one takes the oldest one's place. Paths that
// lose everything are not its matter (transport/path_health.h).
class PathSelector {
 public:
  static constexpr uint32_t kWaiting = 8;

  // `seed` chooses the path that is first in turn, so that connections do not step through the paths together.
  PathSelector(PathPolicy policy, uint32_t paths, uint64_t seed);

  // The next packet's.
  uint16_t Next();
  // A packet of the path arrived whole, marked or not.
  void OnArrived(uint16_t path, bool marked);

 private:
  uint16_t NextInTurn();

  PathPolicy policy_;
  uint32_t paths_;
  uint32_t turn_;
  std::array<uint16_t, kWaiting> waiting_{};  // a ring: first_ .. end_ - 1
  uint64_t first_ = 0;
  uint64_t end_ = 0;
};

}  // namespace forgive

#endif  // FORGIVE_TRANSPORT_PATH_SELECTION_H_
