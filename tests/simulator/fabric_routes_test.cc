// SPDX-License-Identifier: Apache-2.0
// Tests of ways through the fabric: ECMP, spraying, failed links; and of what holds for any traffic.
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "rig.h"
#include "testbed/simulator/fabric_bench.h"

namespace forgive::sim {
namespace {

constexpr int kData = static_cast<int>(QueueClass::kData);

FabricPlan NonBlocking() {
  FabricPlan plan;
  plan.spines = 8;
  return plan;
}

// Sends `packets` of each of the 64 flows of a permutation between leaves, spaced so that nothing queues for long.
void SendPermutation(Rig* rig, uint32_t packets, bool with_paths, uint64_t seed) {
  Draw draw(seed);
  for (const BenchFlow& flow : PermutationFlows(rig->fabric.plan(), packets, seed)) {
    for (uint32_t i = 0; i < packets; ++i) {
      Packet packet = MakePacket(flow.source, flow.destination, flow.source + 1, kPayload);
      if (with_paths) packet.path = static_cast<uint16_t>(1 + draw.Below(65535));
      rig->SendAt(int64_t{i} * 10 * kPacketPs, packet);
    }
  }
}

std::vector<uint64_t> UplinkLoads(const Rig& rig) {
  std::vector<uint64_t> loads;
  const FabricPlan& plan = rig.fabric.plan();
  for (uint32_t leaf = 0; leaf < plan.leaves; ++leaf) {
    for (uint32_t spine = 0; spine < plan.spines; ++spine) {
      loads.push_back(rig.fabric.uplink_counters(leaf, spine).packets[kData]);
    }
  }
  return loads;
}

TEST(Routes, KeepAFlowOnOneWaySoThatEcmpsLoadIsTheNumberOfFlowsThatCollide) {
  constexpr uint32_t kPackets = 50;
  Rig rig(NonBlocking());
  SendPermutation(&rig, kPackets, false, 5);
  rig.Run();
  uint64_t worst = 0;
  std::vector<uint64_t> seen(64);
  for (uint64_t load : UplinkLoads(rig)) {
    EXPECT_EQ(load % kPackets, 0u);
    worst = std::max(worst, load / kPackets);
  }
  // Eight flows thrown on eight links: all apart has probability 0.0024, and all eight leaves so none at all.
  EXPECT_GE(worst, 2u);
  EXPECT_LE(worst, 8u);
  EXPECT_EQ(rig.deliveries.size(), 64u * kPackets);
}

TEST(Routes, SpreadAFlowEvenlyWhenTheLeafSpraysOrThePacketsCarryPaths) {
  constexpr uint32_t kPackets = 2000;
  for (bool leaf_sprays : {true, false}) {
    FabricPlan plan = NonBlocking();
    plan.load_balancing = leaf_sprays ? LoadBalancing::kSpray : LoadBalancing::kEcmp;
    Rig rig(plan);
    SendPermutation(&rig, kPackets, !leaf_sprays, 6);
    rig.Run();
    for (uint64_t load : UplinkLoads(rig)) EXPECT_NEAR(static_cast<double>(load) / kPackets, 1, 0.1);
  }
}

TEST(Routes, KeepAPacketWithAPathOnItsHashEvenWhereTheLeafSprays) {
  FabricPlan plan = NonBlocking();
  plan.load_balancing = LoadBalancing::kSpray;
  Rig rig(plan);
  for (int i = 0; i < 100; ++i) {
    Packet packet = MakePacket(0, 8, 1, kPayload);
    packet.path = 77;
    rig.SendAt(i * kPacketPs, packet);
  }
  rig.Run();
  const std::vector<uint64_t> loads = UplinkLoads(rig);
  EXPECT_EQ(std::count(loads.begin(), loads.end(), 100u), 1);
}

TEST(Routes, HashDifferentlyAtEachLeafAndWithEachSeed) {
  std::set<std::vector<uint64_t>> patterns;
  for (uint64_t seed = 1; seed <= 3; ++seed) {
    Rig rig(NonBlocking(), seed);
    for (uint32_t leaf = 0; leaf < 8; ++leaf) {
      for (uint32_t flow = 0; flow < 32; ++flow) {
        rig.SendAt(0, MakePacket(leaf * 8, (leaf * 8 + 8) % 64, flow, kPayload));
      }
    }
    rig.Run();
    const std::vector<uint64_t> loads = UplinkLoads(rig);
    for (int leaf = 0; leaf < 8; ++leaf) patterns.emplace(loads.begin() + leaf * 8, loads.begin() + leaf * 8 + 8);
  }
  EXPECT_GE(patterns.size(), 22u);
}

// The one uplink of leaf 0 that a flow at full rate takes.
uint32_t SpineOf(uint64_t seed) {
  Rig rig(NonBlocking(), seed);
  rig.SendAt(0, MakePacket(0, 8, 1, kPayload));
  rig.Run();
  for (uint32_t spine = 0; spine < 8; ++spine) {
    if (rig.fabric.uplink_counters(0, spine).packets[kData] == 1) return spine;
  }
  ADD_FAILURE();
  return 0;
}

TEST(Routes, AvoidAFailedLinkAfterTheDetectionDelayAndCountWhatIsLostMeanwhile) {
  constexpr int kPackets = 10000;
  const uint32_t spine = SpineOf(3);
  for (bool far_leaf : {false, true}) {
    FabricPlan plan = NonBlocking();
    const int64_t from = 200 * kMicrosecondPs + 7;
    const int64_t until = 500 * kMicrosecondPs;
    const int64_t detection = 100 * kMicrosecondPs;
    plan.failure_detection_delay = {detection};
    plan.link_failures = {{far_leaf ? 1u : 0u, spine, SimTime{from}, SimTime{until}}};
    ASSERT_EQ(plan.Validate(), "");
    Rig rig(plan, 3);
    for (int i = 0; i < kPackets; ++i) rig.SendAt(i * kPacketPs, MakePacket(0, 8, 1, kPayload));
    rig.Run();
    // Packet i is at the leaf at at_leaf, where its way is chosen; its time on the failing link follows.
    uint64_t lost = 0;
    uint64_t on_spine = 0;
    for (int i = 0; i < kPackets; ++i) {
      const int64_t at_leaf = (i + 1) * kPacketPs + 5'000'000;
      const int64_t hop = kPacketPs + 12'500'000;
      const int64_t start = far_leaf ? at_leaf + hop : at_leaf;
      const bool avoids = at_leaf >= from + detection && at_leaf < until + detection;
      if (!avoids && start + hop > from && start < until) ++lost;
      if (!avoids) ++on_spine;
    }
    EXPECT_GT(lost, 1200u);
    EXPECT_LT(lost, 1600u);
    EXPECT_EQ(rig.fabric.counters().drops[static_cast<int>(DropCause::kLink)][kData].packets, lost);
    EXPECT_EQ(rig.fabric.counters().drops_total(), lost);
    EXPECT_EQ(rig.fabric.uplink_counters(0, spine).packets[kData], on_spine);
    EXPECT_EQ(rig.deliveries.size(), kPackets - lost);
  }
}

TEST(Routes, DropAndCountAPacketForWhichEveryWayHasFailed) {
  FabricPlan plan;
  plan.link_failures = {{0, 0, SimTime{0}, kSimNever}, {1, 1, SimTime{0}, kSimNever}};
  plan.failure_detection_delay = {0};
  Rig rig(plan);
  rig.SendAt(1, MakePacket(0, 8, 1, kPayload));   // leaf 0 has only spine 1, leaf 1 only spine 0
  rig.SendAt(1, MakePacket(1, 16, 1, kPayload));  // leaf 2 is reached over spine 1
  rig.SendAt(1, MakePacket(2, 3, 1, kPayload));
  rig.Run();
  EXPECT_EQ(rig.fabric.counters().drops[static_cast<int>(DropCause::kNoRoute)][kData].packets, 1u);
  EXPECT_EQ(rig.fabric.counters().drops_total(), 1u);
  EXPECT_EQ(rig.deliveries.size(), 2u);
}

TEST(Routes, HoldALinkDownUntilTheLastOfItsFailuresIsOver) {
  FabricPlan plan;
  plan.spines = 1;
  plan.failure_detection_delay = {0};
  plan.link_failures = {{0, 0, SimTime{0}, SimTime{20 * kMicrosecondPs}},
                        {0, 0, SimTime{10 * kMicrosecondPs}, SimTime{40 * kMicrosecondPs}}};
  Rig rig(plan);
  for (int at = 5; at < 60; at += 10) rig.SendAt((at - 5) * kMicrosecondPs, MakePacket(0, 8, 1, kPayload));
  rig.Run();
  // At the leaf at 5, 15, 25, 35, 45 and 55 us and a packet time.
  EXPECT_EQ(rig.fabric.counters().drops[static_cast<int>(DropCause::kNoRoute)][kData].packets, 4u);
  EXPECT_EQ(rig.deliveries.size(), 2u);
}

// Traffic without a pattern: sizes, classes, bursts, jobs, paths.
void SendRandom(Rig* rig, uint64_t seed, int packets) {
  Draw draw(seed);
  for (int i = 0; i < packets; ++i) {
    const auto source = static_cast<uint32_t>(draw.Below(64));
    const auto destination = static_cast<uint32_t>(draw.Below(4) == 0 ? draw.Below(64) : draw.Below(6));
    if (source == destination) continue;
    const bool control = draw.Below(4) == 0;
    Packet packet = MakePacket(source, destination, static_cast<uint32_t>(draw.Below(500)), kPayload,
                               control ? QueueClass::kControl : QueueClass::kData);
    packet.payload_bytes = static_cast<uint16_t>(control ? draw.Below(300) : draw.Below(4100));
    packet.path = static_cast<uint16_t>(draw.Below(3));
    packet.job = static_cast<uint8_t>(draw.Below(kMaxJobs));
    rig->SendAt(static_cast<int64_t>(draw.Below(400)) * kMicrosecondPs, packet);
  }
}

FabricPlan Stressed() {
  FabricPlan plan;
  plan.wire_overhead_bytes = 66;
  plan.load_balancing = LoadBalancing::kSpray;
  plan.nic_jitter = {kPacketPs};
  plan.data_queue_bytes = 400'000;
  plan.header_queue_bytes = 400;
  plan.control_queue_bytes = 300;
  plan.shared_buffer_bytes = 1'500'000;
  plan.ecn_min_bytes = 50'000;
  plan.ecn_max_bytes = 300'000;
  plan.failure_detection_delay = {30 * kMicrosecondPs};
  plan.link_failures = {{0, 1, SimTime{50 * kMicrosecondPs}, SimTime{150 * kMicrosecondPs}},
                        {3, 0, SimTime{90 * kMicrosecondPs}, kSimNever}};
  return plan;
}

TEST(Fabric, LosesNoPacketAndNoByteFromItsBooksWhateverTheTraffic) {
  for (uint64_t seed = 1; seed <= 5; ++seed) {
    Rig rig(Stressed(), seed);
    SendRandom(&rig, seed, 60000);
    for (uint64_t events = 1; rig.Step(); ++events) {
      if (events % 500 == 0) {
        ASSERT_EQ(rig.fabric.CheckConservation(), "") << "seed " << seed;
      }
    }
    const FabricCounters& counters = rig.fabric.counters();
    EXPECT_EQ(rig.arena.in_use(), 0u);
    EXPECT_EQ(rig.fabric.in_flight().packets, 0u);
    uint64_t in = 0;
    for (const PacketsAndBytes& one : counters.in) in += one.packets;
    EXPECT_EQ(in, rig.deliveries.size() + counters.drops_total());
    // The traffic was hard enough to mean something.
    EXPECT_GT(counters.marks_total(), 1000u);
    EXPECT_GT(counters.trims_total(), 1000u);
    for (DropCause cause : {DropCause::kHeaderQueue, DropCause::kControlQueue, DropCause::kLink}) {
      uint64_t drops = 0;
      for (const PacketsAndBytes& one : counters.drops[static_cast<size_t>(cause)]) drops += one.packets;
      EXPECT_GT(drops, 0u) << static_cast<int>(cause);
    }
  }
}

// Everything that can be seen of a delivery.
std::vector<std::vector<uint64_t>> Outcome(uint64_t seed, uint64_t traffic_seed) {
  Rig rig(Stressed(), seed);
  SendRandom(&rig, traffic_seed, 20000);
  rig.Run();
  std::vector<std::vector<uint64_t>> outcome;
  for (const Delivery& delivery : rig.deliveries) {
    const Packet& packet = delivery.packet;
    outcome.push_back({static_cast<uint64_t>(delivery.time.ps), packet.source, packet.destination, packet.flow,
                       packet.wire_bytes, packet.ce, packet.trimmed_at_last_hop});
  }
  return outcome;
}

TEST(Fabric, DoesTheSameForTheSameSeedAndAnotherThingForAnother) {
  const auto first = Outcome(1, 9);
  EXPECT_GT(first.size(), 10000u);
  EXPECT_TRUE(first == Outcome(1, 9));
  EXPECT_FALSE(first == Outcome(2, 9));
}

TEST(FabricBench, DeliversEachPacketOfAPermutationAndOfAnIncastOnce) {
  FabricPlan plan;
  const BenchResult permutation = BenchFabric(plan, PermutationFlows(plan, 300, 1), 4096, 100, 1);
  EXPECT_EQ(permutation.data_packets, 64u * 300);
  EXPECT_EQ(permutation.link_hops, 64u * 300 * 8);
  EXPECT_EQ(permutation.drops, 0u);
  const std::vector<BenchFlow> flows = IncastFlows(plan, 7, 2000);
  EXPECT_EQ(flows.size(), 7u);
  const BenchResult incast = BenchFabric(plan, flows, 4096, 850, 1);
  EXPECT_EQ(incast.data_packets, 7u * 2000);
  EXPECT_GT(incast.trims, 0u);
}

}  // namespace
}  // namespace forgive::sim
