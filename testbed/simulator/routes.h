// SPDX-License-Identifier: Apache-2.0
// Which spine a leaf sends a packet to: by hash or by draw, among those whose links are believed to work.
#ifndef FORGIVE_TESTBED_SIMULATOR_ROUTES_H_
#define FORGIVE_TESTBED_SIMULATOR_ROUTES_H_

#include <cstdint>
#include <vector>

#include "testbed/simulator/fabric_plan.h"
#include "testbed/simulator/packet.h"
#include "transport/draw.h"

namespace forgive::sim {

// Leaves learn of a failure anywhere at the same moment: a leaf avoids a spine that has lost the destination's leaf.
class Routes {
 public:
  static constexpr uint32_t kNoSpine = 0xffffffff;

  Routes(const FabricPlan& plan, uint64_t seed);

  uint32_t leaf_of(uint32_t host) const { return leaf_of_[host]; }

  // The spine for a packet which leaves `leaf` for another one; kNoSpine when every way has failed.
  uint32_t SpineFor(uint32_t leaf, const Packet& packet) {
    const uint32_t pair = leaf * leaves_ + leaf_of_[packet.destination];
    const uint32_t ways = way_counts_[pair];
    if (ways == 0) return kNoSpine;
    Switch& at = switches_[leaf];
    const bool drawn = sprays_ && packet.path == 0;
    const uint64_t chance =
        drawn ? at.draw.Next() : Draw((uint64_t{packet.flow} << 16 | packet.path) ^ at.hash).Next();
    return ways_[pair * spines_ + static_cast<uint32_t>((chance >> 32) * ways >> 32)];
  }

  // The routes learn that the link is down, or up again. A link is up when each failure of it is over.
  void Learn(uint32_t leaf, uint32_t spine, bool down);

 private:
  struct Switch {
    uint64_t hash;
    Draw draw;
  };

  void Rebuild();

  uint32_t leaves_;
  uint32_t spines_;
  bool sprays_;
  std::vector<uint16_t> leaf_of_;     // a host
  std::vector<Switch> switches_;      // a leaf
  std::vector<uint16_t> failures_;    // [leaf][spine]: those known of
  std::vector<uint16_t> ways_;        // [leaf][leaf][spines that work]
  std::vector<uint16_t> way_counts_;  // [leaf][leaf]
};

}  // namespace forgive::sim

#endif  // FORGIVE_TESTBED_SIMULATOR_ROUTES_H_
