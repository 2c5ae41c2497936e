// SPDX-License-Identifier: Apache-2.0
// The switch's BPF program on fixture packets, run by the kernel (BPF_PROG_TEST_RUN) without a network.
//
// The build with the virtual queue is tested, since a test can fill that queue; the other differs only in where it
// reads how full the queue is, which the end-to-end tests cover.
#include <gtest/gtest.h>
#include <linux/pkt_cls.h>

#include <functional>
#include <string>
#include <vector>

#include "testbed/lab/switch_layout.h"
#include "tests/lab/packet.h"
#include "tests/lab/switch_program.h"

namespace forgive::lab {
namespace {

enum class Count { kWhole, kTrimmed, kControl, kOther, kDropped, kGsoRefused };

std::uint64_t Of(const forgive_port_counters& counters, Count which) {
  switch (which) {
    case Count::kWhole:
      return counters.whole;
    case Count::kTrimmed:
      return counters.trimmed;
    case Count::kControl:
      return counters.control;
    case Count::kOther:
      return counters.other;
    case Count::kDropped:
      return counters.dropped;
    case Count::kGsoRefused:
      return counters.gso_refused;
  }
  return 0;
}

// One packet at the egress hook: what goes in, what must come out, and the one counter that must have moved.
struct Fixture {
  const char* description;
  PacketFields packet;
  std::uint64_t backlog;
  std::function<void(forgive_switch_parameters*)> change;
  int expected_verdict;
  PacketFields expected;
  std::uint32_t expected_priority;
  Count expected_count;
  std::uint32_t gso_segs = 0;
};

PacketFields With(const std::function<void(PacketFields*)>& change) {
  PacketFields fields;
  change(&fields);
  return fields;
}

PacketFields Ipv6(bool on = true) {
  return With([on](PacketFields* p) { p->ipv6 = on; });
}

// The fixture packet after a cut to 128 bytes.
PacketFields Cut(bool ipv6, std::uint32_t mode) {
  PacketFields cut = Ipv6(ipv6);
  cut.frame_bytes = 128;
  cut.dscp = 11;
  if (mode <= FORGIVE_TRIM_SAI) cut.ip_length = ipv6 ? 128 - 14 - 40 : 128 - 14;
  if (mode <= FORGIVE_TRIM_STALE) cut.udp_length = ipv6 ? 128 - 14 - 40 : 128 - 14 - 20;
  // What was not repaired still says what the whole packet said.
  if (mode == FORGIVE_TRIM_FULL) cut.udp_checksum = 0;
  return cut;
}

Fixture CutFixture(const char* description, bool ipv6, std::uint32_t mode) {
  return {
      description, Ipv6(ipv6),      kFull,           [mode](forgive_switch_parameters* p) { p->trim_mode = mode; },
      TC_ACT_OK,   Cut(ipv6, mode), kHeaderPriority, Count::kTrimmed};
}

Fixture Unchanged(const char* description, const PacketFields& packet, std::uint64_t backlog, std::uint32_t priority,
                  Count count, std::uint32_t gso_segs = 0) {
  return {description, packet, backlog, nullptr, TC_ACT_OK, packet, priority, count, gso_segs};
}

Fixture Dropped(const char* description, const PacketFields& packet,
                std::function<void(forgive_switch_parameters*)> change = nullptr) {
  return {description, packet, kFull, std::move(change), TC_ACT_SHOT, packet, 0, Count::kDropped};
}

PacketFields OfPayload(std::size_t bytes) {
  return With([bytes](PacketFields* p) { p->payload_bytes = bytes; });
}

PacketFields OfDscp(std::uint8_t dscp) {
  return With([dscp](PacketFields* p) { p->dscp = dscp; });
}

std::vector<Fixture> FixturesThatAreCut() {
  PacketFields one_byte_too_long = OfPayload(31);
  PacketFields one_byte_cut = one_byte_too_long;
  one_byte_cut.frame_bytes = 128;
  one_byte_cut.dscp = 11;
  one_byte_cut.ip_length = 114;
  one_byte_cut.udp_length = 94;
  one_byte_cut.udp_checksum = 0;
  PacketFields longer = Cut(false, FORGIVE_TRIM_FULL);
  longer.frame_bytes = 256;
  longer.ip_length = 242;
  longer.udp_length = 222;
  PacketFields marked = Cut(true, FORGIVE_TRIM_FULL);
  marked.ecn = 3;
  PacketFields to_be_cut_and_marked = Ipv6();
  to_be_cut_and_marked.ecn = 3;
  return {
      CutFixture("CutsAnIpv4PacketAndRepairsEverythingInModeFull", false, FORGIVE_TRIM_FULL),
      CutFixture("CutsAnIpv4PacketAndKeepsTheUdpChecksumInModeStale", false, FORGIVE_TRIM_STALE),
      CutFixture("CutsAnIpv4PacketAndRepairsTheIpLengthOnlyInModeSai", false, FORGIVE_TRIM_SAI),
      CutFixture("CutsAnIpv4PacketAndRepairsNothingInModeRaw", false, FORGIVE_TRIM_RAW),
      CutFixture("CutsAnIpv6PacketAndRepairsEverythingInModeFull", true, FORGIVE_TRIM_FULL),
      CutFixture("CutsAnIpv6PacketAndKeepsTheUdpChecksumInModeStale", true, FORGIVE_TRIM_STALE),
      CutFixture("CutsAnIpv6PacketAndRepairsTheIpLengthOnlyInModeSai", true, FORGIVE_TRIM_SAI),
      CutFixture("CutsAnIpv6PacketAndRepairsNothingInModeRaw", true, FORGIVE_TRIM_RAW),
      {"CutsToTheLengthThatIsConfigured",
       {},
       kFull,
       [](forgive_switch_parameters* p) { p->trim_length = 256; },
       TC_ACT_OK,
       longer,
       kHeaderPriority,
       Count::kTrimmed},
      {"CutsAPacketThatMissesTheThresholdByOneByte",
       {},
       kThreshold - kFixtureBytes + 1,
       nullptr,
       TC_ACT_OK,
       Cut(false, FORGIVE_TRIM_FULL),
       kHeaderPriority,
       Count::kTrimmed},
      {"CutsAPacketThatIsOneByteLongerThanTheTrimLength", one_byte_too_long, kFull, nullptr, TC_ACT_OK, one_byte_cut,
       kHeaderPriority, Count::kTrimmed},
      {"KeepsAMarkThatWasSetUpstreamWhenItCuts", to_be_cut_and_marked, kFull, nullptr, TC_ACT_OK, marked,
       kHeaderPriority, Count::kTrimmed},
  };
}

std::vector<Fixture> FixturesThatAreNotCut() {
  return {
      Unchanged("PassesAPacketOfTheTrimLengthInTheHeaderQueue", OfPayload(30), kFull, kHeaderPriority, Count::kWhole),
      Unchanged("PassesAPacketWholeThatJustFits", {}, kThreshold - kFixtureBytes, kDataPriority, Count::kWhole),
      Unchanged("PassesAnIpv4DataPacketWholeWhileThereIsRoom", {}, 0, kDataPriority, Count::kWhole),
      Unchanged("PassesAnIpv6DataPacketWholeWhileThereIsRoom", Ipv6(), 0, kDataPriority, Count::kWhole),
      Unchanged("NeverCutsASuperPacket", {}, kFull, kDataPriority, Count::kGsoRefused, 2),
      Unchanged("PassesAControlPacketInTheHeaderQueue", OfDscp(46), kFull, kHeaderPriority, Count::kControl),
      Unchanged("PassesAPacketThatWasCutUpstreamInTheHeaderQueue", OfDscp(11), kFull, kHeaderPriority,
                Count::kControl),
      Unchanged("PassesOtherTrafficWhileThereIsRoom", OfDscp(0), 0, kDataPriority, Count::kOther),
      Dropped("DropsUdpOfAnotherDscpWhenTheQueueIsFull", OfDscp(0)),
      Dropped("DropsTcpEvenIfItHasTheTrimmableDscp", With([](PacketFields* p) { p->protocol = kTcp; })),
      Dropped("DropsTcpEvenIfItHasTheControlDscp", With([](PacketFields* p) {
                p->protocol = kTcp;
                p->dscp = 46;
              })),
      Dropped("DropsAFragmentSinceItsHeaderIsNotWhereItSeems", With([](PacketFields* p) { p->fragment = 0x0010; })),
      Dropped("DropsAFirstFragmentToo", With([](PacketFields* p) { p->fragment = 0x2000; })),
      Dropped("DropsAPacketWithIpOptions", With([](PacketFields* p) { p->ip_options = true; })),
      Dropped("DropsADataPacketWhereTrimmingIsOff", {}, [](forgive_switch_parameters* p) { p->trim_enabled = 0; }),
  };
}

class EgressTest : public testing::TestWithParam<Fixture> {};

TEST_P(EgressTest, Holds) {
  const Fixture& fixture = GetParam();
  Switch program;
  forgive_switch_parameters parameters = DefaultParameters();
  parameters.ecn_min_bytes = parameters.ecn_max_bytes = 1u << 30;
  if (fixture.change) fixture.change(&parameters);
  program.SetParameters(parameters);
  program.SetBacklog(fixture.backlog);
  const Frame frame = MakeFrame(fixture.packet);
  const Outcome outcome = program.Run("forgive_egress", frame, fixture.gso_segs);
  EXPECT_EQ(outcome.verdict, fixture.expected_verdict);
  Frame expected = MakeFrame(fixture.expected);
  EXPECT_EQ(outcome.frame, expected);
  EXPECT_EQ(outcome.priority, fixture.expected_priority);
  const forgive_port_counters counters = program.Counters();
  for (const Count count :
       {Count::kWhole, Count::kTrimmed, Count::kControl, Count::kOther, Count::kDropped, Count::kGsoRefused}) {
    EXPECT_EQ(Of(counters, count), count == fixture.expected_count ? 1u : 0u) << static_cast<int>(count);
  }
  const bool passed = fixture.expected_verdict == TC_ACT_OK;
  EXPECT_EQ(counters.bytes, passed ? expected.size() : 0);
  EXPECT_EQ(program.Backlog(), fixture.backlog + (passed ? expected.size() + 24 : 0));
  EXPECT_EQ(program.Trims().size(), fixture.expected_count == Count::kTrimmed ? 1u : 0u);
}

INSTANTIATE_TEST_SUITE_P(Cut, EgressTest, testing::ValuesIn(FixturesThatAreCut()),
                         [](const auto& fixture) { return std::string(fixture.param.description); });
INSTANTIATE_TEST_SUITE_P(NotCut, EgressTest, testing::ValuesIn(FixturesThatAreNotCut()),
                         [](const auto& fixture) { return std::string(fixture.param.description); });

TEST(TrimLog, SaysWhichBytesOfWhichMessageAreMissing) {
  for (const bool ipv6 : {false, true}) {
    Switch program;
    program.SetBacklog(kFull);
    program.Run("forgive_egress", MakeFrame(Ipv6(ipv6)));
    const auto& trims = program.Trims();
    ASSERT_EQ(trims.size(), 1u);
    EXPECT_EQ(trims[0].connection_id, 0x0123456789abcdefu);
    EXPECT_EQ(trims[0].message_number, 7u);
    EXPECT_EQ(trims[0].offset_in_message, 12288u);
    EXPECT_EQ(trims[0].payload_length, 1400u);
    EXPECT_EQ(trims[0].ifindex, kInterface);
  }
}

TEST(TrimLog, LeavesOutACutPacketThatIsNoDataPacketOfOurs) {
  Switch program;
  program.SetBacklog(kFull);
  PacketFields foreign;
  foreign.type = 2;
  EXPECT_EQ(program.Run("forgive_egress", MakeFrame(foreign)).frame.size(), 128u);
  EXPECT_TRUE(program.Trims().empty());
  EXPECT_EQ(program.Counters().unlogged, 1u);
  EXPECT_EQ(program.Counters().trimmed, 1u);
}

// How many of `tries` packets come out marked at this backlog.
int Marks(Switch* program, std::uint64_t backlog, const PacketFields& fields, int tries) {
  int marks = 0;
  for (int i = 0; i < tries; ++i) {
    program->SetBacklog(backlog);
    const Outcome outcome = program->Run("forgive_egress", MakeFrame(fields));
    PacketFields marked = fields;
    marked.ecn = 3;
    if (outcome.frame == MakeFrame(marked)) ++marks;
  }
  return marks;
}

TEST(Marking, NeverHappensBelowItsStart) {
  Switch program;
  EXPECT_EQ(Marks(&program, kEcnMin - 1, {}, 200), 0);
  EXPECT_EQ(program.Counters().marked, 0u);
}

TEST(Marking, AlwaysHappensFromItsEndOn) {
  Switch program;
  EXPECT_EQ(Marks(&program, kEcnMax, {}, 200), 200);
  EXPECT_EQ(Marks(&program, kEcnMax, Ipv6(), 200), 200);
  EXPECT_EQ(program.Counters().marked, 400u);
}

TEST(Marking, HappensWithHalfTheLargestProbabilityHalfWay) {
  Switch program;
  const int marks = Marks(&program, (kEcnMin + kEcnMax) / 2, {}, 4000);
  // 0.1 of 4,000, give or take six standard deviations.
  EXPECT_GT(marks, 400 - 114);
  EXPECT_LT(marks, 400 + 114);
}

TEST(Marking, LeavesAPacketAloneWhoseSenderDoesNotUnderstandIt) {
  Switch program;
  PacketFields not_capable;
  not_capable.ecn = 0;
  EXPECT_EQ(Marks(&program, kEcnMax, not_capable, 10), 0);
  EXPECT_EQ(program.Counters().whole, 10u);
}

TEST(Marking, DoesNotCountAMarkFromUpstream) {
  Switch program;
  PacketFields marked;
  marked.ecn = 3;
  EXPECT_EQ(Marks(&program, kEcnMax, marked, 10), 10);
  EXPECT_EQ(program.Counters().marked, 0u);
}

TEST(Forwarding, SendsAFrameToTheInterfaceOfItsDestination) {
  Switch program;
  program.SetAddress(0x024647560001, kInterface);
  EXPECT_EQ(program.Run("forgive_ingress", MakeFrame({})).verdict, TC_ACT_REDIRECT);
  EXPECT_EQ(program.Run("forgive_line", MakeFrame({})).verdict, TC_ACT_REDIRECT);
}

TEST(Forwarding, DropsAFrameToNobody) {
  Switch program;
  program.SetAddress(0x024647560003, kInterface);
  EXPECT_EQ(program.Run("forgive_ingress", MakeFrame({})).verdict, TC_ACT_SHOT);
}

TEST(Forwarding, SendsEveryFrameIntoTheDelayLineWhereThereIsOne) {
  Switch program;
  forgive_switch_parameters parameters = DefaultParameters();
  parameters.line_ifindex = kInterface;
  program.SetParameters(parameters);
  EXPECT_EQ(program.Run("forgive_ingress", MakeFrame({})).verdict, TC_ACT_REDIRECT);
  EXPECT_EQ(program.Run("forgive_line", MakeFrame({})).verdict, TC_ACT_SHOT);
}

}  // namespace
}  // namespace forgive::lab
