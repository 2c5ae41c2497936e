// SPDX-License-Identifier: Apache-2.0
// Tests of the fabric's queues against what arithmetic says: times, trims, marks, shares and limits.
#include "testbed/simulator/fabric.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "rig.h"

namespace forgive::sim {
namespace {

uint64_t Count(const std::vector<Delivery>& deliveries, QueueClass queue_class) {
  return static_cast<uint64_t>(std::count_if(deliveries.begin(), deliveries.end(), [&](const Delivery& delivery) {
    return delivery.packet.queue_class == queue_class;
  }));
}

TEST(Fabric, TakesTheAnalyticTimeForOnePacketAcrossTwoLinksAndFour) {
  FabricPlan plan;
  plan.wire_overhead_bytes = 66;
  const int64_t serialization = int64_t{4096 + 66} * 20;
  Rig rig(plan);
  rig.SendAt(1234, MakePacket(0, 7, 1, kPayload));
  rig.SendAt(5678, MakePacket(8, 17, 2, kPayload));
  rig.Run();
  ASSERT_EQ(rig.deliveries.size(), 2u);
  EXPECT_EQ(rig.deliveries[0].time.ps, 1234 + 2 * (serialization + 5'000'000));
  EXPECT_EQ(rig.deliveries[1].time.ps, 5678 + 4 * serialization + 2 * 5'000'000 + 2 * 12'500'000);
}

TEST(Fabric, RoundsEachLinksTimeUpWhenAByteIsNoWholeNumberOfPicoseconds) {
  FabricPlan plan;
  plan.host_link_rate = {300'000'000'000};   // 26.67 ps a byte
  plan.spine_link_rate = {900'000'000'000};  // 8.89 ps a byte
  Rig rig(plan);
  rig.SendAt(0, MakePacket(0, 63, 1, 1000 - 56));
  rig.Run();
  ASSERT_EQ(rig.deliveries.size(), 1u);
  EXPECT_EQ(rig.deliveries[0].time.ps, 2 * (26'667 + 5'000'000) + 2 * (8'889 + 12'500'000));
}

TEST(Fabric, TakesTheAnalyticTimeForAFlowWhichItsHostFeedsAsTheNicRunsDry) {
  for (uint32_t nic_queue : {1u, 8 * kPacket}) {
    for (uint32_t destination : {1u, 60u}) {
      FabricPlan plan;
      plan.nic_queue_bytes = nic_queue;
      Rig rig(plan);
      int left = 1000;
      const auto feed = [&](SimTime now, uint32_t host) {
        for (; left > 0 && rig.fabric.HostMaySend(host); --left)
          rig.Send(now, MakePacket(host, destination, 9, kPayload));
      };
      rig.on_ready = feed;
      feed(SimTime{}, 0);
      EXPECT_GT(left, 980);
      rig.Run();
      ASSERT_EQ(rig.deliveries.size(), 1000u);
      const int64_t first = destination == 1 ? 2 * (kPacketPs + 5'000'000) : 4 * kPacketPs + 35'000'000;
      for (int i = 0; i < 1000; ++i) {
        ASSERT_EQ(rig.deliveries[static_cast<size_t>(i)].time.ps, first + i * kPacketPs) << i;
      }
    }
  }
}

TEST(Fabric, LetsControlPassDataInTheNicAndWaitOnlyForThePacketThatIsLeaving) {
  Rig rig(FabricPlan{});
  for (int i = 0; i < 50; ++i) rig.SendAt(0, MakePacket(0, 1, 1, kPayload));
  rig.SendAt(kPacketPs / 2, MakePacket(0, 1, 1, 24, QueueClass::kControl));
  rig.Run();
  ASSERT_EQ(rig.deliveries.size(), 51u);
  EXPECT_EQ(rig.deliveries[1].packet.queue_class, QueueClass::kControl);
  EXPECT_EQ(rig.deliveries[1].time.ps, kPacketPs + 2 * (80 * 20 + 5'000'000) + (kPacketPs - 80 * 20));
  EXPECT_EQ(rig.deliveries[2].time.ps, 80 * 20 + 3 * kPacketPs + 2 * 5'000'000);
}

// n hosts of the destination's leaf send w packets each, in step. In each packet time n arrive and one leaves, a
// little earlier; so when all have arrived w have begun to leave, the queue holds what it can, and the rest has been
// cut.
TEST(Fabric, TrimsInAnIncastWhatTheQueuesArithmeticSays) {
  for (uint32_t senders : {2u, 3u, 7u}) {
    for (uint32_t window : {10u, 100u, 600u}) {
      FabricPlan plan;
      plan.header_queue_share_percent = 0;  // headers wait, so data leaves one a packet time
      plan.data_queue_bytes = 200 * kPacket + 4000;
      Rig rig(plan);
      for (uint32_t host = 1; host <= senders; ++host) {
        for (uint32_t i = 0; i < window; ++i) rig.SendAt(0, MakePacket(host, 0, host, kPayload));
      }
      rig.Run();
      const int64_t all = int64_t{senders} * window;
      const auto trims = static_cast<uint64_t>(std::max<int64_t>(0, all - window - 200));
      EXPECT_EQ(rig.fabric.counters().trims_total(), trims) << senders << " x " << window;
      EXPECT_EQ(rig.fabric.counters().trims_last_hop(), trims);
      EXPECT_EQ(Count(rig.deliveries, QueueClass::kTrimmed), trims);
      EXPECT_EQ(Count(rig.deliveries, QueueClass::kData), static_cast<uint64_t>(all) - trims);
    }
  }
}

TEST(Fabric, DropsInsteadWhenItMayNotTrimOrThereIsNothingToTrim) {
  for (bool trims : {false, true}) {
    FabricPlan plan;
    plan.trims = trims;
    plan.data_queue_bytes = 20 * kPacket;
    Rig rig(plan);
    for (uint32_t host = 1; host <= 3; ++host) {
      for (int i = 0; i < 40; ++i) {
        Packet packet = MakePacket(host, 0, host, kPayload);
        if (trims) std::swap(packet.header_bytes, packet.payload_bytes);  // 4,040 bytes of header
        if (trims) packet.payload_bytes = 0;
        rig.SendAt(0, packet);
      }
    }
    rig.Run();
    EXPECT_EQ(rig.fabric.counters().trims_total(), 0u);
    const auto& drops = rig.fabric.counters().drops[static_cast<size_t>(DropCause::kDataQueue)];
    const uint64_t dropped = drops[static_cast<size_t>(QueueClass::kData)].packets;
    EXPECT_EQ(dropped, rig.fabric.counters().drops_total());
    EXPECT_EQ(dropped, 3u * 40 - 40 - 20);
  }
}

TEST(Fabric, TellsTrimsAtTheLastHopFromTrimsOnTheWay) {
  FabricPlan plan;
  plan.spines = 1;
  plan.data_queue_bytes = 10 * kPacket;
  Rig up(plan);  // eight hosts of leaf 0, one uplink
  for (uint32_t host = 0; host < 8; ++host) {
    for (int i = 0; i < 50; ++i) up.SendAt(0, MakePacket(host, 8 + host, host, kPayload));
  }
  up.Run();
  const FabricCounters& counters = up.fabric.counters();
  EXPECT_GT(counters.trims[static_cast<int>(HopKind::kUp)][0], 100u);
  EXPECT_EQ(counters.trims_total(), counters.trims[static_cast<int>(HopKind::kUp)][0]);
  for (const Delivery& delivery : up.deliveries) EXPECT_FALSE(delivery.packet.trimmed_at_last_hop);

  Rig down(plan);  // a host of each of two leaves into a third's two hosts: the spine's port
  for (uint32_t host : {0u, 8u}) {
    for (int i = 0; i < 50; ++i) down.SendAt(0, MakePacket(host, 16 + host / 8, host, kPayload));
  }
  down.Run();
  EXPECT_GT(down.fabric.counters().trims[static_cast<int>(HopKind::kDown)][0], 10u);
  EXPECT_EQ(down.fabric.counters().trims_last_hop(), 0u);

  Rig last(plan);  // two hosts of the destination's own leaf
  for (uint32_t host : {1u, 2u}) {
    for (int i = 0; i < 50; ++i) last.SendAt(0, MakePacket(host, 0, host, kPayload));
  }
  last.Run();
  EXPECT_GT(last.fabric.counters().trims_last_hop(), 10u);
  for (const Delivery& delivery : last.deliveries) {
    EXPECT_EQ(delivery.packet.trimmed_at_last_hop, delivery.packet.queue_class == QueueClass::kTrimmed);
    EXPECT_EQ(delivery.packet.payload_bytes == 0, delivery.packet.trimmed_at_last_hop);
  }
}

TEST(Fabric, GivesTrimmedHeadersTheirShareOfTheLinkWhileDataWaitsAndNoMore) {
  for (uint32_t share : {10u, 25u, 50u}) {
    FabricPlan plan;
    plan.header_queue_share_percent = share;
    plan.trimmed_bytes = 1000;
    plan.data_queue_bytes = 100 * kPacket;
    plan.header_queue_bytes = 64u << 20;
    Rig rig(plan);
    for (uint32_t host = 1; host < 8; ++host) {
      for (int i = 0; i < 2000; ++i) rig.SendAt(0, MakePacket(host, 0, host, kPayload));
    }
    const PortCounters& port = rig.fabric.host_port_counters(0);
    const uint64_t credit = uint64_t{Fabric::kHeaderCreditBytes} * share;
    // Senders need 2,000 packet times: until then data waits always.
    while (rig.now.ps < 2000 * kPacketPs && rig.Step()) {
      const uint64_t headers = port.bytes[static_cast<int>(QueueClass::kTrimmed)];
      const uint64_t data = port.bytes[static_cast<int>(QueueClass::kData)];
      ASSERT_LE(headers * (100 - share), data * share + credit);
    }
    const auto headers = static_cast<double>(port.bytes[static_cast<int>(QueueClass::kTrimmed)]);
    const auto data = static_cast<double>(port.bytes[static_cast<int>(QueueClass::kData)]);
    EXPECT_NEAR(headers / (headers + data), share / 100.0, 0.01);
    rig.Run();
  }
}

TEST(Fabric, NeverHoldsMoreThanTheLimitsAndFillsThem) {
  FabricPlan plan;
  plan.data_queue_bytes = 50 * kPacket + 100;
  plan.header_queue_bytes = 10'000;
  plan.shared_buffer_bytes = 80 * kPacket + 50;
  Rig rig(plan);
  for (uint32_t host = 4; host < 64; ++host) {
    for (int i = 0; i < 100; ++i) rig.SendAt(0, MakePacket(host, host % 4, host, kPayload));
  }
  for (uint64_t events = 0; rig.Step(); ++events) {
    if (events % 16 == 0) {
      ASSERT_EQ(rig.fabric.CheckConservation(), "");
    }
  }
  const FabricCounters& counters = rig.fabric.counters();
  EXPECT_EQ(counters.peak_queue_bytes[static_cast<int>(QueueClass::kData)], 50 * kPacket);
  EXPECT_EQ(counters.peak_queue_bytes[static_cast<int>(QueueClass::kTrimmed)], 10'000u / 56 * 56);
  EXPECT_EQ(counters.peak_shared_bytes, 80 * kPacket);
  EXPECT_GT(counters.drops[static_cast<int>(DropCause::kHeaderQueue)][static_cast<int>(QueueClass::kTrimmed)].packets,
            0u);
}

TEST(Fabric, DropsControlBeyondItsQueueAndCountsIt) {
  FabricPlan plan;
  plan.control_queue_bytes = 1000;
  Rig rig(plan);
  for (uint32_t host = 1; host < 8; ++host) {
    for (int i = 0; i < 100; ++i) rig.SendAt(0, MakePacket(host, 0, host, 44, QueueClass::kControl));
  }
  rig.Run();
  const uint64_t dropped =
      rig.fabric.counters()
          .drops[static_cast<int>(DropCause::kControlQueue)][static_cast<int>(QueueClass::kControl)]
          .packets;
  EXPECT_EQ(dropped, 7u * 100 - 100 - 10);
  EXPECT_EQ(rig.deliveries.size() + dropped, 700u);
}

// An uplink too slow to send anything while packets come: packet i finds i - 1 of them in the queue.
TEST(Fabric, MarksByThePlansProfileOfWhatAPacketFindsInTheQueue) {
  FabricPlan plan;
  plan.spines = 1;
  plan.spine_link_rate = {1'000'000'000};
  plan.ecn_min_bytes = 100 * kPacket;
  plan.ecn_max_bytes = 300 * kPacket;
  plan.ecn_probability_ppm = 200'000;
  constexpr int kPackets = 400;
  constexpr int kSeeds = 400;
  std::vector<int> marks(kPackets);
  for (uint64_t seed = 1; seed <= kSeeds; ++seed) {
    Rig rig(plan, seed);
    for (int i = 0; i < kPackets; ++i) {
      Packet packet = MakePacket(0, 8, 1, kPayload);
      packet.path = static_cast<uint16_t>(i);
      rig.SendAt(0, packet);
    }
    rig.Run();
    ASSERT_EQ(rig.deliveries.size(), static_cast<size_t>(kPackets));
    for (const Delivery& delivery : rig.deliveries) marks[delivery.packet.path] += delivery.packet.ce ? 1 : 0;
  }
  for (int i = 0; i < kPackets; ++i) {
    const int found = std::max(0, i - 1);  // the first is on the link
    if (found <= 100) {
      EXPECT_EQ(marks[static_cast<size_t>(i)], 0) << i;
    } else if (found >= 300) {
      EXPECT_EQ(marks[static_cast<size_t>(i)], kSeeds) << i;
    }
  }
  for (int begin = 101; begin < 300; begin += 40) {
    double expected = 0;
    double variance = 0;
    int marked = 0;
    const int end = std::min(begin + 40, 300);
    for (int found = begin; found < end; ++found) {
      const double p = 0.2 * (found - 100) / 200;
      expected += kSeeds * p;
      variance += kSeeds * p * (1 - p);
      marked += marks[static_cast<size_t>(found + 1)];
    }
    EXPECT_NEAR(marked, expected, 4 * std::sqrt(variance)) << "from " << begin;
  }
}

// Poisson arrivals at one uplink, from hosts whose own links are 20 times as fast.
TEST(Fabric, QueuesAsTheFormulaForMD1Says) {
  for (double load : {0.5, 0.8}) {
    FabricPlan plan;
    plan.leaves = 2;
    plan.hosts_per_leaf = 64;
    plan.spines = 1;
    plan.host_link_rate = {8'000'000'000'000};
    plan.shared_buffer_bytes = 1u << 30;
    plan.data_queue_bytes = 1u << 30;
    Rig rig(plan);
    Draw draw(11);
    constexpr int kPackets = 1'500'000;
    double at = 0;
    double sum_of_sends = 0;
    for (int i = 0; i < kPackets; ++i) {
      const double uniform = (static_cast<double>(draw.Next() >> 11) + 0.5) / 9007199254740992.0;
      at += -std::log(uniform) * static_cast<double>(kPacketPs) / load;
      const auto source = static_cast<uint32_t>(draw.Below(64));
      const auto time = static_cast<int64_t>(at);
      rig.SendAt(time, MakePacket(source, 64 + source, source, kPayload));
      sum_of_sends += static_cast<double>(time);
    }
    rig.Run();
    ASSERT_EQ(rig.deliveries.size(), static_cast<size_t>(kPackets));
    double sum_of_deliveries = 0;
    for (const Delivery& delivery : rig.deliveries) sum_of_deliveries += static_cast<double>(delivery.time.ps);
    const double fixed = 2.0 * (kPacket + 5'000'000) + 2.0 * (kPacketPs + 12'500'000);
    const double wait = (sum_of_deliveries - sum_of_sends) / kPackets - fixed;
    const double expected = load / (2 * (1 - load)) * static_cast<double>(kPacketPs);
    EXPECT_NEAR(wait / expected, 1, 0.02) << "load " << load;
  }
}

TEST(Fabric, DelaysDataByTheJitterAndLetsNothingOvertakeOnALink) {
  FabricPlan plan;
  plan.nic_jitter = {1'000'000};
  Rig rig(plan);
  for (int i = 0; i < 200; ++i) {
    Packet packet = MakePacket(0, 1, 1, kPayload);
    packet.path = static_cast<uint16_t>(i);
    rig.SendAt(i * 100'000, packet);
  }
  rig.Run();
  ASSERT_EQ(rig.deliveries.size(), 200u);
  int64_t most = 0;
  for (size_t i = 0; i < 200; ++i) {
    EXPECT_EQ(rig.deliveries[i].packet.path, i);
    const int64_t late = rig.deliveries[i].time.ps - static_cast<int64_t>(i) * 100'000 - 2 * (kPacketPs + 5'000'000);
    EXPECT_GE(late, 0);
    most = std::max(most, late);
  }
  EXPECT_GT(most, 500'000);
  EXPECT_LE(most, 1'000'000 + 5 * kPacketPs);
}

}  // namespace
}  // namespace forgive::sim
