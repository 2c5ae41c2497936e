// SPDX-License-Identifier: Apache-2.0
// Ports that only catch up when they are looked at, against ports that are watched at every departure.
#include "watched_fabric.h"

#include <gtest/gtest.h>

#include "transport/draw.h"

namespace forgive::sim {
namespace {

FabricPlan RandomPlan(Draw* draw) {
  FabricPlan plan;
  plan.leaves = 4;
  plan.hosts_per_leaf = 4;
  plan.spines = 1;
  plan.host_link_rate = {draw->Below(2) == 0 ? 400'000'000'000u : 130'000'000'000u};
  plan.spine_link_rate = {draw->Below(2) == 0 ? 400'000'000'000u : 770'000'000'000u};
  plan.host_link_delay = {static_cast<int64_t>(draw->Below(6'000'000))};
  plan.spine_link_delay = {static_cast<int64_t>(draw->Below(3) == 0 ? 0 : draw->Below(13'000'000))};
  plan.data_queue_bytes = static_cast<uint32_t>(5'000 + draw->Below(300'000));
  plan.header_queue_bytes = static_cast<uint32_t>(1'000 + draw->Below(20'000));
  plan.control_queue_bytes = static_cast<uint32_t>(500 + draw->Below(20'000));
  plan.shared_buffer_bytes = static_cast<uint32_t>(10'000 + draw->Below(1'000'000));
  plan.header_queue_share_percent = static_cast<uint32_t>(draw->Below(101));
  plan.ecn_min_bytes = plan.ecn_max_bytes = 1u << 30;
  plan.wire_overhead_bytes = static_cast<uint32_t>(draw->Below(100));
  return plan;
}

// Bursts at picoseconds of their own, so that no two packets arrive anywhere at once: ties have no order to agree on.
template <typename Either>
void SendRandom(Either* either, Draw draw) {
  for (int burst = 0; burst < 300; ++burst) {
    const auto at = static_cast<int64_t>(draw.Below(300 * kMicrosecondPs));
    const auto source = static_cast<uint32_t>(draw.Below(16));
    const auto destination = static_cast<uint32_t>(draw.Below(draw.Below(2) == 0 ? 16 : 2));
    for (uint64_t i = draw.Below(30); i > 0 && source != destination; --i) {
      Packet packet = MakePacket(source, destination, 1, static_cast<uint16_t>(draw.Below(4096)));
      if (draw.Below(4) == 0) packet.queue_class = QueueClass::kControl;
      packet.path = static_cast<uint16_t>(draw.Next());
      packet.header_bytes = static_cast<uint16_t>(56 + draw.Below(40));
      either->SendAt(at, packet);
    }
  }
}

TEST(LazyPorts, DeliverToThePicosecondWhatWatchedPortsDeliver) {
  uint64_t delivered = 0;
  uint64_t trims = 0;
  uint64_t drops = 0;
  for (uint64_t seed = 1; seed <= 150; ++seed) {
    Draw draw(seed);
    const FabricPlan plan = RandomPlan(&draw);
    ASSERT_EQ(plan.Validate(), "");
    Rig lazy(plan);
    WatchedFabric watched(plan);
    SendRandom(&lazy, draw);
    SendRandom(&watched, draw);
    lazy.Run();
    const std::vector<Delivery> expected = watched.Run();
    ASSERT_EQ(lazy.deliveries.size(), expected.size()) << "seed " << seed;
    for (size_t i = 0; i < expected.size(); ++i) {
      const Delivery& got = lazy.deliveries[i];
      ASSERT_EQ(got.time.ps, expected[i].time.ps) << "seed " << seed << " delivery " << i;
      ASSERT_EQ(got.packet.path, expected[i].packet.path) << "seed " << seed << " delivery " << i;
      ASSERT_EQ(got.packet.wire_bytes, expected[i].packet.wire_bytes);
      ASSERT_EQ(got.packet.trimmed_at_last_hop, expected[i].packet.trimmed_at_last_hop);
    }
    ASSERT_EQ(lazy.fabric.counters().trims_total(), watched.trims);
    ASSERT_EQ(lazy.fabric.counters().drops_total(), watched.drops);
    delivered += expected.size();
    trims += watched.trims;
    drops += watched.drops;
  }
  EXPECT_GT(delivered, 300'000u);
  EXPECT_GT(trims, 3'000u);
  EXPECT_GT(drops, 1'000u);
}

}  // namespace
}  // namespace forgive::sim
