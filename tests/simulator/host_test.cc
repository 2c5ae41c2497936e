// SPDX-License-Identifier: Apache-2.0
// Tests of the transport on simulated hosts against arithmetic: one flow, two that share, many that meet.
#include "testbed/simulator/host.h"

#include <gtest/gtest.h>

#include "small_plan.h"
#include "testbed/simulator/run.h"

namespace forgive::sim {
namespace {

Plan Incast(uint32_t fan_in, uint64_t bytes, const std::vector<std::string>& more = {}) {
  std::vector<std::string> assignments{"workload.pattern=incast",
                                       "workload.fan_in=" + std::to_string(fan_in),
                                       "workload.flow_bytes=" + std::to_string(bytes),
                                       "fabric.spines=4",
                                       "fabric.data_queue_bytes=4194304",
                                       "fabric.ecn_min_bytes=800000",
                                       "fabric.ecn_max_bytes=3200000"};
  assignments.insert(assignments.end(), more.begin(), more.end());
  return SmallPlan(assignments);
}

TEST(Hosts, OneFlowOnIdleLinksTakesTheTimeOfArithmetic) {
  constexpr int64_t kPackets = 1000;
  Simulation run(Incast(1, kPackets * 4096), 1);
  ASSERT_TRUE(run.ToEnd({}));
  // All packets one after another on the first link, then the last one over three more; 5 + 12.5 + 12.5 + 5 us away.
  const int64_t packet_ps = (4096 + 56) * 8 * 1000 / 400;
  EXPECT_EQ(run.time_of(0).value, (kPackets + 3) * packet_ps + 35'000'000);
  EXPECT_EQ(run.CheckConservation(), "");
}

TEST(Hosts, OneFlowIsHeldBackByAWindowBelowTheProductOfBandwidthAndDelay) {
  constexpr uint64_t kWindow = 350'000;
  Simulation run(Incast(1, 20'000'000, {"transport.window_bytes=" + std::to_string(kWindow)}), 1);
  ASSERT_TRUE(run.ToEnd({}));
  // A window each round trip of 70 us, to which a packet's four links and its report's add about half a microsecond.
  const double rounds = 20'000'000.0 / kWindow;
  const double micros = static_cast<double>(run.time_of(0).value) / 1e6;
  EXPECT_GT(micros, rounds * 70);
  EXPECT_LT(micros, rounds * 71.5);
}

TEST(Hosts, TwoFlowsUnderDcqcnShareALinkFairly) {
  for (const char* control : {"astra", "paper"}) {
    Simulation run(Incast(2, 200'000'000, {std::string("congestion_control=") + control}), 1);
    ASSERT_TRUE(run.ToEnd({}));
    const FlowSet& flows = *run.flows(0);
    const auto first = static_cast<double>(flows.time_of(0).value);
    const auto second = static_cast<double>(flows.time_of(1).value);
    EXPECT_NEAR(first / second, 1, 0.15) << control;
    // No faster than the link, and not a multiple of that either.
    const double least_ps = 2 * 200'000'000.0 * 20;
    EXPECT_GT(std::max(first, second), least_ps) << control;
    EXPECT_LT(std::max(first, second), 3 * least_ps) << control;
    EXPECT_GT(run.CountersOf(0, TrafficKind::kFlow).rate_cuts_mark, 0u) << control;
  }
}

TEST(Hosts, WhatIsTrimmedIsSentAgainAndArrives) {
  Simulation run(Incast(6, 4'000'000,
                        {"congestion_control=none", "fabric.data_queue_bytes=65536", "fabric.ecn_min_bytes=16384",
                         "fabric.ecn_max_bytes=49152"}),
                 1);
  ASSERT_TRUE(run.ToEnd({}));
  const Counters counters = run.CountersOf(0, TrafficKind::kFlow);
  EXPECT_GT(counters.trims, 0u);
  EXPECT_EQ(counters.received_bytes, 6u * 4'000'000u);
  EXPECT_EQ(run.CheckConservation(), "");
}

TEST(Hosts, TrimsAtTheLastHopCutNoRateUnlessThePlanSaysSo) {
  for (const bool count : {false, true}) {
    // Only the links to hosts are slow, and nothing is marked.
    Simulation incast(
        Incast(3, 4'000'000,
               {"fabric.host_link_gbps=100", "fabric.data_queue_bytes=65536", "fabric.ecn_min_bytes=65000",
                "fabric.ecn_max_bytes=65001", "fabric.ecn_probability_ppm=0",
                std::string("last_hop_trims_count=") + (count ? "true" : "false")}),
        1);
    ASSERT_TRUE(incast.ToEnd({}));
    const FabricCounters& fabric = incast.fabric().counters();
    EXPECT_GT(fabric.trims_last_hop(), 0u);
    EXPECT_EQ(fabric.trims_total(), fabric.trims_last_hop());
    EXPECT_EQ(incast.CountersOf(0, TrafficKind::kFlow).rate_cuts_trim != 0, count);
  }
}

}  // namespace
}  // namespace forgive::sim
