// SPDX-License-Identifier: Apache-2.0
// The tables of ways: which spines connect two leaves, rebuilt when a failure becomes known.
#include "testbed/simulator/routes.h"

#include "transport/check.h"

namespace forgive::sim {

Routes::Routes(const FabricPlan& plan, uint64_t seed)
    : leaves_(plan.leaves),
      spines_(plan.spines),
      sprays_(plan.load_balancing == LoadBalancing::kSpray),
      failures_(plan.leaves * plan.spines),
      ways_(plan.leaves * plan.leaves * plan.spines),
      way_counts_(plan.leaves * plan.leaves) {
  for (uint32_t host = 0; host < plan.hosts(); ++host) {
    leaf_of_.push_back(static_cast<uint16_t>(host / plan.hosts_per_leaf));
  }
  Draw draw(seed);
  for (uint32_t leaf = 0; leaf < leaves_; ++leaf) {
    const uint64_t hash = draw.Next();
    switches_.push_back({hash, Draw(draw.Next())});
  }
  Rebuild();
}

void Routes::Learn(uint32_t leaf, uint32_t spine, bool down) {
  uint16_t& failures = failures_[leaf * spines_ + spine];
  FORGIVE_CHECK(down || failures > 0);
  failures = static_cast<uint16_t>(down ? failures + 1 : failures - 1);
  Rebuild();
}

void Routes::Rebuild() {
  for (uint32_t from = 0; from < leaves_; ++from) {
    for (uint32_t to = 0; to < leaves_; ++to) {
      const uint32_t pair = from * leaves_ + to;
      uint16_t count = 0;
      for (uint32_t spine = 0; spine < spines_; ++spine) {
        if (failures_[from * spines_ + spine] != 0 || failures_[to * spines_ + spine] != 0) continue;
        ways_[pair * spines_ + count++] = static_cast<uint16_t>(spine);
      }
      way_counts_[pair] = count;
    }
  }
}

}  // namespace forgive::sim
