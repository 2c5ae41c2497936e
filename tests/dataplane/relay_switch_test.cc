// SPDX-License-Identifier: Apache-2.0
// Tests of the relay's switch: rate, delay, classes, marks, cuts and their records, with time as an argument.
#include "testbed/lab/relay/relay_switch.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "dataplane/relay_prefix.h"
#include "packets.h"

namespace forgive {
namespace {

using lab::RelayAddress;
using lab::RelayCounters;
using lab::RelayParameters;
using lab::RelaySwitch;
using lab::RelayTrim;

constexpr int64_t kWireOverheadBytes = 66;

RelayAddress Host(uint8_t number) {
  RelayAddress address{};
  address[0] = number;
  return address;
}

std::vector<uint8_t> Prefixed(const RelayAddress& to, const std::string& packet) {
  Address destination;
  std::copy(to.begin(), to.end(), destination.bytes.begin());
  std::vector<uint8_t> bytes(kRelayPrefixBytes);
  WriteRelayPrefix(destination, 0, bytes.data());
  bytes.insert(bytes.end(), packet.begin(), packet.end());
  return bytes;
}

std::string ReportBytes() {
  std::string bytes(kReportBytes, '\0');
  bytes[0] = FORGIVE_WIRE_VERSION;
  bytes[1] = FORGIVE_TYPE_REPORT;
  return bytes;
}

struct Delivery {
  RelayAddress to;
  RelayAddress from;
  std::string packet;
  bool ce;
  int64_t at_ns;
};

// Lets time run from deadline to deadline until nothing is left.
std::vector<Delivery> RunDry(RelaySwitch& relay) {
  std::vector<Delivery> out;
  while (relay.next_deadline_ns() != INT64_MAX) {
    const int64_t now = relay.next_deadline_ns();
    relay.Advance(now);
    RelayAddress to;
    std::vector<uint8_t> bytes;
    while (relay.NextDelivery(&to, &bytes)) {
      Address source;
      uint8_t flags = 0;
      EXPECT_TRUE(ReadRelayPrefix(bytes.data(), bytes.size(), &source, &flags));
      RelayAddress from;
      std::copy(source.bytes.begin(), source.bytes.end(), from.begin());
      out.push_back({to, from, std::string(bytes.begin() + kRelayPrefixBytes, bytes.end()),
                     (flags & FORGIVE_RELAY_CE) != 0, now});
    }
  }
  return out;
}

void Send(RelaySwitch& relay, int64_t now, uint8_t from, uint8_t to, const std::string& packet) {
  const std::vector<uint8_t> bytes = Prefixed(Host(to), packet);
  relay.Arrive(now, Host(from), bytes.data(), bytes.size());
}

RelayParameters Wide() {
  RelayParameters parameters;
  parameters.rate_mbps = 100;
  parameters.uplink_share = 100;
  parameters.rtt_us = 4000;
  parameters.ecn_min_bytes = 1 << 29;
  parameters.ecn_max_bytes = 1 << 30;
  parameters.trim_threshold_bytes = 1 << 30;
  parameters.queue_bytes = 1 << 30;
  return parameters;
}

TEST(RelaySwitch, DeliversToTheNamedHostFromTheTrueSourceAfterHalfARoundTrip) {
  RelaySwitch relay(Wide());
  const std::string packet = DataPacketBytes(1, 0, 0, 1000);
  Send(relay, 5000, 1, 2, packet);
  const std::vector<Delivery> out = RunDry(relay);
  ASSERT_EQ(out.size(), 1u);
  EXPECT_EQ(out[0].to, Host(2));
  EXPECT_EQ(out[0].from, Host(1));
  EXPECT_EQ(out[0].packet, packet);
  EXPECT_FALSE(out[0].ce);
  const int64_t bytes = static_cast<int64_t>(packet.size()) + kWireOverheadBytes;
  const int64_t on_link = bytes * 8 * 10;          // ns at 100 Mbit/s
  const int64_t on_uplink = bytes * 8 * 10 / 100;  // a hundred times as fast
  EXPECT_NEAR(static_cast<double>(out[0].at_ns), static_cast<double>(5000 + on_uplink + on_link + 2000000), 10);
}

TEST(RelaySwitch, LetsALinkCarryItsRateAndNoMoreHoweverManySend) {
  RelaySwitch relay(Wide());
  for (uint32_t i = 0; i < 300; ++i) {
    Send(relay, 0, static_cast<uint8_t>(1 + i % 3), 9, DataPacketBytes(1, i, 0, 4096));
  }
  const std::vector<Delivery> out = RunDry(relay);
  ASSERT_EQ(out.size(), 300u);
  const int64_t bytes = 4096 + 56 + kWireOverheadBytes;
  EXPECT_NEAR(static_cast<double>(out.back().at_ns - out.front().at_ns), static_cast<double>(299 * bytes * 80), 3000);
}

TEST(RelaySwitch, FindsTheSameQueuesHoweverLateItIsAsked) {
  RelayParameters parameters = Wide();
  parameters.trim_threshold_bytes = 30000;
  parameters.ecn_min_bytes = 5000;
  parameters.ecn_max_bytes = 20000;
  RelaySwitch often(parameters);
  RelaySwitch late(parameters);
  for (uint32_t i = 0; i < 100; ++i) {
    Send(often, i * 100000, 1, 9, DataPacketBytes(1, i, 0, 4096));
    Send(late, i * 100000, 1, 9, DataPacketBytes(1, i, 0, 4096));
    often.Advance(i * 100000);
  }
  late.Advance(int64_t{1} << 40);
  RunDry(often);
  EXPECT_GT(often.counters().trimmed, 0u);
  EXPECT_EQ(often.counters().trimmed, late.counters().trimmed);
  EXPECT_EQ(often.counters().marked, late.counters().marked);
}

TEST(RelaySwitch, CutsDataBeyondTheThresholdAndRecordsEachCut) {
  RelayParameters parameters = Wide();
  parameters.trim_threshold_bytes = 20000;
  RelaySwitch relay(parameters);
  for (uint32_t i = 0; i < 40; ++i) Send(relay, 0, 1, 9, DataPacketBytes(0x1122334455667788u, i, 32, 4096));
  const std::vector<Delivery> out = RunDry(relay);
  ASSERT_EQ(out.size(), 40u);
  size_t cut = 0;
  std::vector<std::string> cut_packets;
  for (const Delivery& one : out) {
    if (one.packet.size() == kDataHeaderBytes + 4096) continue;
    EXPECT_EQ(one.packet.size(), kDataHeaderBytes);
    cut_packets.push_back(one.packet);
    ++cut;
  }
  EXPECT_GT(cut, 20u);
  EXPECT_EQ(relay.counters().trimmed, cut);
  EXPECT_EQ(relay.counters().whole, 40 - cut);
  RelayTrim trim;
  size_t records = 0;
  while (relay.NextTrim(&trim)) {
    ++records;
    EXPECT_EQ(trim.connection_id, 0x1122334455667788u);
    EXPECT_EQ(trim.offset, 32u);
    EXPECT_EQ(trim.length, 4096u);
    const std::string header =
        DataPacketBytes(trim.connection_id, trim.message, 32, 4096).substr(0, kDataHeaderBytes);
    EXPECT_EQ(std::count(cut_packets.begin(), cut_packets.end(), header), 1);
  }
  EXPECT_EQ(records, cut);
}

TEST(RelaySwitch, LetsHeadersAndReportsOvertakeData) {
  RelayParameters parameters = Wide();
  parameters.header_share = 1;
  RelaySwitch relay(parameters);
  for (uint32_t i = 0; i < 50; ++i) Send(relay, 0, 1, 9, DataPacketBytes(1, i, 0, 4096));
  Send(relay, 1, 2, 9, ReportBytes());
  const std::vector<Delivery> out = RunDry(relay);
  ASSERT_EQ(out.size(), 51u);
  const auto report =
      std::find_if(out.begin(), out.end(), [](const Delivery& d) { return d.packet == ReportBytes(); });
  EXPECT_LT(report - out.begin(), 3);
}

TEST(RelaySwitch, KeepsHeadersWithinTheirShareOfTheLink) {
  RelayParameters parameters = Wide();
  parameters.header_share = 0.25;
  parameters.header_queue_bytes = 1 << 20;
  RelaySwitch relay(parameters);
  for (int i = 0; i < 2000; ++i) Send(relay, 0, 1, 9, ReportBytes());
  const std::vector<Delivery> out = RunDry(relay);
  ASSERT_EQ(out.size(), 2000u);
  const int64_t bytes = static_cast<int64_t>(kReportBytes) + kWireOverheadBytes;
  const double at_full_rate = static_cast<double>(2000 * bytes * 80);
  const double took = static_cast<double>(out.back().at_ns - out.front().at_ns);
  EXPECT_GT(took, 3.8 * at_full_rate);
  EXPECT_LT(took, 4.1 * at_full_rate);
}

TEST(RelaySwitch, DropsHeadersBeyondTheirQueueAndOthersBeyondTheData) {
  RelayParameters parameters = Wide();
  parameters.header_queue_bytes = 10 * (static_cast<int64_t>(kReportBytes) + kWireOverheadBytes);
  parameters.queue_bytes = 20000;
  RelaySwitch relay(parameters);
  for (int i = 0; i < 100; ++i) Send(relay, 0, 1, 9, ReportBytes());
  for (uint64_t i = 0; i < 100; ++i) Send(relay, 0, 2, 9, PatternBytes(i, 2000));
  const std::vector<Delivery> out = RunDry(relay);
  const RelayCounters& counters = relay.counters();
  EXPECT_GT(counters.header_dropped, 0u);
  EXPECT_GT(counters.dropped, 0u);
  EXPECT_EQ(counters.trimmed, 0u);
  EXPECT_EQ(counters.control + counters.header_dropped, 100u);
  EXPECT_EQ(counters.other + counters.dropped, 100u);
  EXPECT_EQ(out.size(), counters.control + counters.other);
}

TEST(RelaySwitch, MarksNothingBelowAndEverythingAboveItsThresholds) {
  RelayParameters parameters = Wide();
  parameters.ecn_min_bytes = 50000;
  parameters.ecn_max_bytes = 100000;
  parameters.ecn_probability = 0.2;
  RelaySwitch relay(parameters);
  for (uint32_t i = 0; i < 60; ++i) Send(relay, 0, 1, 9, DataPacketBytes(1, i, 0, 4096));
  const std::vector<Delivery> out = RunDry(relay);
  ASSERT_EQ(out.size(), 60u);
  const int64_t bytes = 4096 + 56 + kWireOverheadBytes;
  uint64_t marks = 0;
  for (size_t i = 0; i < out.size(); ++i) {
    // The uplink is 100 times as fast as the link: nearly all of the earlier packets still wait.
    const auto backlog = static_cast<int64_t>(i) * bytes;
    if (backlog < 50000) {
      EXPECT_FALSE(out[i].ce) << i;
    } else if (backlog > 100000 + 3 * bytes) {
      EXPECT_TRUE(out[i].ce) << i;
    }
    marks += out[i].ce ? 1 : 0;
  }
  EXPECT_EQ(marks, relay.counters().marked);
}

TEST(RelaySwitch, CountsWhatHasNoPrefix) {
  RelaySwitch relay(Wide());
  const std::string noise = PatternBytes(1, 200);
  relay.Arrive(0, Host(1), reinterpret_cast<const uint8_t*>(noise.data()), noise.size());
  relay.Arrive(0, Host(1), reinterpret_cast<const uint8_t*>(noise.data()), 3);
  EXPECT_EQ(relay.counters().foreign, 2u);
  EXPECT_EQ(relay.next_deadline_ns(), INT64_MAX);
}

}  // namespace
}  // namespace forgive
