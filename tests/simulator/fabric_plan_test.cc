// SPDX-License-Identifier: Apache-2.0
// Tests of what a plan may say, and of the arena's headers.
#include "testbed/simulator/fabric_plan.h"

#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "testbed/simulator/packet.h"

namespace forgive::sim {
namespace {

TEST(FabricPlan, AllowsTheSeedsFabrics) {
  for (uint32_t spines : {2u, 4u, 8u}) {
    FabricPlan plan;
    plan.spines = spines;
    EXPECT_EQ(plan.Validate(), "");
  }
}

TEST(FabricPlan, NamesTheKeyThatIsWrongInOneLine) {
  const std::vector<std::pair<std::string, std::function<void(FabricPlan*)>>> defects = {
      {"leaves = 0", [](FabricPlan* plan) { plan->leaves = 0; }},
      {"hosts_per_leaf = 0", [](FabricPlan* plan) { plan->hosts_per_leaf = 0; }},
      {"spines = 0", [](FabricPlan* plan) { plan->spines = 0; }},
      {"leaves x hosts_per_leaf", [](FabricPlan* plan) { plan->leaves = plan->hosts_per_leaf = 100; }},
      {"host_link_rate", [](FabricPlan* plan) { plan->host_link_rate = {0}; }},
      {"spine_link_rate", [](FabricPlan* plan) { plan->spine_link_rate = {9'000'000'000'000}; }},
      {"host_link_delay", [](FabricPlan* plan) { plan->host_link_delay = {-1}; }},
      {"data_queue_bytes", [](FabricPlan* plan) { plan->data_queue_bytes = 0; }},
      {"header_queue_share_percent = 101", [](FabricPlan* plan) { plan->header_queue_share_percent = 101; }},
      {"ecn_min_bytes", [](FabricPlan* plan) { plan->ecn_min_bytes = plan->ecn_max_bytes + 1; }},
      {"ecn_probability_ppm", [](FabricPlan* plan) { plan->ecn_probability_ppm = 1'000'001; }},
      {"nic_queue_bytes", [](FabricPlan* plan) { plan->nic_queue_bytes = 0; }},
      {"leaf 8 and spine 0",
       [](FabricPlan* plan) {
         plan->link_failures = {{8, 0, SimTime{0}, SimTime{1}}};
       }},
      {"leaf 0 and spine 1",
       [](FabricPlan* plan) {
         plan->link_failures = {{0, 1, SimTime{5}, SimTime{5}}};
       }},
  };
  for (const auto& [words, spoil] : defects) {
    FabricPlan plan;
    spoil(&plan);
    const std::string problem = plan.Validate();
    EXPECT_NE(problem.find(words), std::string::npos) << words << ": " << problem;
    EXPECT_EQ(problem.find('\n'), std::string::npos);
  }
}

std::vector<uint8_t> Bytes(size_t length, uint8_t first) {
  std::vector<uint8_t> bytes(length);
  for (size_t i = 0; i < length; ++i) bytes[i] = static_cast<uint8_t>(first + i);
  return bytes;
}

TEST(PacketArena, KeepsShortAndLongHeadersApartThroughReuse) {
  PacketArena arena(1000);
  for (int round = 0; round < 3; ++round) {
    std::vector<std::pair<PacketIndex, std::vector<uint8_t>>> taken;
    for (size_t i = 0; i < 200; ++i) {
      const PacketIndex index = arena.Take();
      EXPECT_EQ(arena[index].overflow, 0u);
      taken.emplace_back(
          index, Bytes(i % 2 == 0 ? i % 129 : 129 + i % 384, static_cast<uint8_t>(i + static_cast<size_t>(round))));
      arena.SetHeader(index, taken.back().second.data(), taken.back().second.size());
    }
    EXPECT_EQ(arena.in_use(), 200u);
    for (const auto& [index, bytes] : taken) {
      ASSERT_EQ(arena[index].header_bytes, bytes.size());
      EXPECT_TRUE(std::equal(bytes.begin(), bytes.end(), arena.header(index)));
      arena.Release(index);
    }
  }
  EXPECT_EQ(arena.in_use(), 0u);
  EXPECT_EQ(arena.peak(), 200u);
}

TEST(PacketArena, ReplacesALongHeaderByAShortOne) {
  PacketArena arena(10);
  const PacketIndex index = arena.Take();
  const std::vector<uint8_t> bytes = Bytes(400, 1);
  arena.SetHeader(index, bytes.data(), 400);
  const std::vector<uint8_t> other = Bytes(56, 9);
  arena.SetHeader(index, other.data(), 56);
  EXPECT_EQ(arena.header(index)[0], 9);
  EXPECT_EQ(arena[index].header_bytes, 56);
}

TEST(PacketArenaDeathTest, RefusesOnePacketMoreThanItsCapacity) {
  PacketArena arena(3);
  arena.Take();
  arena.Take();
  EXPECT_DEATH(arena.Take(), "fresh_ < capacity_");
}

}  // namespace
}  // namespace forgive::sim
