// SPDX-License-Identifier: Apache-2.0
// The switch's BPF program on random frames, under random parameters, against the plain model of switch_model.h.
#include <gtest/gtest.h>
#include <linux/pkt_cls.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <random>
#include <set>
#include <string>

#include "tests/lab/switch_model.h"
#include "tests/lab/switch_program.h"

namespace forgive::lab {
namespace {

constexpr std::uint64_t kSeed = 20261202;
constexpr int kFrames = 40000;
constexpr int kFramesBetweenParameters = 20;
// A test run takes no frame that does not fit a page beside what the kernel needs of it.
constexpr std::uint64_t kMaxPayload = 3000;

// Numbers by a seed, the same everywhere: std::mt19937_64 is defined by the standard, its distributions are not.
class Chance {
 public:
  std::uint64_t Below(std::uint64_t bound) { return generator_() % bound; }
  bool OneIn(std::uint64_t n) { return Below(n) == 0; }
  template <typename T, std::size_t n>
  T Of(const std::array<T, n>& choices) {
    return choices[Below(n)];
  }

 private:
  std::mt19937_64 generator_{kSeed};
};

forgive_switch_parameters RandomParameters(Chance* chance) {
  forgive_switch_parameters parameters = DefaultParameters();
  parameters.trim_enabled = chance->OneIn(6) ? 0 : 1;
  parameters.trim_mode = static_cast<__u32>(chance->Below(4));
  parameters.trim_length = chance->Of(std::array<__u32, 5>{118, 128, 129, 256, 1400});
  parameters.trim_threshold_bytes = static_cast<__u32>(chance->Below(400000));
  parameters.queue_bytes = static_cast<__u32>(chance->Below(400000));
  parameters.ecn_min_bytes = static_cast<__u32>(chance->Below(300000));
  parameters.ecn_max_bytes = parameters.ecn_min_bytes + static_cast<__u32>(1 + chance->Below(100000));
  parameters.ecn_probability_ppm = static_cast<__u32>(chance->Below(1000001));
  parameters.dscp_data = static_cast<__u32>(chance->Below(21));
  parameters.dscp_control = static_cast<__u32>(21 + chance->Below(21));
  parameters.dscp_trimmed = static_cast<__u32>(42 + chance->Below(22));
  return parameters;
}

// Near the edges of what the parameters say, or anywhere.
std::uint64_t RandomBacklog(const forgive_switch_parameters& parameters, std::size_t frame_bytes, Chance* chance) {
  const std::uint64_t edge = chance->Of(std::array<std::uint64_t, 5>{
      parameters.trim_threshold_bytes, parameters.queue_bytes, parameters.ecn_min_bytes, parameters.ecn_max_bytes, 0});
  const std::uint64_t away = chance->Of(std::array<std::uint64_t, 4>{0, 1, frame_bytes, frame_bytes + 1});
  switch (chance->Below(3)) {
    case 0:
      return edge + away;
    case 1:
      return edge - std::min(edge, away);
    default:
      return chance->Below(500000);
  }
}

// The least that a test run takes of such a frame: newer kernels want its IP header whole.
std::size_t LeastBytes(const Frame& frame) {
  const int type = frame[12] << 8 | frame[13];
  return type == 0x0800 ? 14 + 20 : type == 0x86dd ? 14 + 40 : 14 + 1;
}

// Mostly a packet that may be cut; else something about it is different, or it is no packet at all.
Frame RandomFrame(const forgive_switch_parameters& parameters, Chance* chance) {
  PacketFields fields;
  fields.ipv6 = chance->OneIn(2);
  fields.dscp = static_cast<std::uint8_t>(parameters.dscp_data);
  fields.ecn = static_cast<std::uint8_t>(chance->Below(4));
  fields.payload_bytes = chance->OneIn(3) ? chance->Below(64) : chance->Below(kMaxPayload + 1);
  fields.connection_id = chance->Below(UINT64_MAX);
  fields.message_number = static_cast<std::uint32_t>(chance->Below(UINT32_MAX));
  fields.offset_in_message = static_cast<std::uint32_t>(chance->Below(UINT32_MAX));
  fields.udp_checksum = static_cast<std::uint16_t>(chance->Below(65536));
  if (chance->OneIn(3)) {
    fields.dscp = static_cast<std::uint8_t>(chance->Of(std::array<__u32, 3>{
        parameters.dscp_control, parameters.dscp_trimmed, static_cast<__u32>(chance->Below(64))}));
  }
  if (chance->OneIn(8)) fields.protocol = static_cast<std::uint8_t>(chance->Below(256));
  if (chance->OneIn(10)) fields.fragment = static_cast<std::uint16_t>(chance->Below(65536));
  if (chance->OneIn(10)) fields.ip_options = true;
  if (chance->OneIn(10)) fields.type = static_cast<std::uint8_t>(chance->Below(9));
  if (chance->OneIn(10)) fields.udp_length = static_cast<std::uint16_t>(chance->Below(65536));
  Frame frame = MakeFrame(fields);
  if (chance->OneIn(25)) frame[12 + chance->Below(2)] ^= static_cast<std::uint8_t>(1 + chance->Below(255));
  const std::size_t least = LeastBytes(frame);
  if (chance->OneIn(10)) frame.resize(least + chance->Below(frame.size() - least));
  return frame;
}

bool SameRecord(const forgive_trim_record& a, const forgive_trim_record& b) {
  return std::memcmp(&a, &b, sizeof a) == 0;
}

// Adds b to a, counter by counter.
void Add(const forgive_port_counters& b, forgive_port_counters* a) {
  for (std::size_t i = 0; i < sizeof b / sizeof(__u64); ++i) {
    reinterpret_cast<__u64*>(a)[i] += reinterpret_cast<const __u64*>(&b)[i];
  }
}

TEST(SwitchOnRandomFrames, DoesWhatThePlainModelSays) {
  Switch program;
  Chance chance;
  forgive_switch_parameters parameters = DefaultParameters();
  forgive_port_counters counters{};
  std::size_t records = 0;
  int drawn = 0;
  for (int i = 0; i < kFrames && !testing::Test::HasFailure(); ++i) {
    if (i % kFramesBetweenParameters == 0) parameters = RandomParameters(&chance);
    program.SetParameters(parameters);
    const Frame frame = RandomFrame(parameters, &chance);
    const std::uint64_t backlog = RandomBacklog(parameters, frame.size(), &chance);
    program.SetBacklog(backlog);
    const auto segments = static_cast<std::uint32_t>(chance.OneIn(10) ? 1 + chance.Below(10) : 0);
    const Expected expected = SwitchModel(parameters, backlog, kInterface).Judge(frame, segments);
    const Outcome outcome = program.Run("forgive_egress", frame, segments);
    const std::string where = "frame " + std::to_string(i) + " of seed " + std::to_string(kSeed) + ", " +
                              std::to_string(frame.size()) + " bytes, type " + std::to_string(frame[12] * 256 + frame[13]);

    EXPECT_EQ(outcome.verdict, expected.dropped ? TC_ACT_SHOT : TC_ACT_OK) << where;
    const bool marked = expected.marked && outcome.frame == *expected.marked;
    EXPECT_TRUE(outcome.frame == expected.frame || marked) << where;
    EXPECT_EQ(outcome.priority, expected.priority) << where;
    drawn += expected.marked && expected.frame != *expected.marked ? 1 : 0;
    Add(expected.counters, &counters);
    counters.marked += marked ? 1 : 0;
    const forgive_port_counters counted = program.Counters();
    EXPECT_EQ(std::memcmp(&counted, &counters, sizeof counted), 0) << where;
    EXPECT_EQ(program.Backlog(), backlog + (expected.dropped ? 0 : expected.frame.size() + 24)) << where;
    records += expected.record ? 1 : 0;
    ASSERT_EQ(program.Trims().size(), records) << where;
    EXPECT_TRUE(!expected.record || SameRecord(program.Trims().back(), *expected.record)) << where;
  }
  // The frames have seen all of it.
  for (const __u64 count : {counters.whole, counters.trimmed, counters.marked, counters.control, counters.other,
                            counters.dropped, counters.gso_refused, counters.unlogged}) {
    EXPECT_GE(count, 100u);
  }
  EXPECT_GE(drawn, 100);
}

}  // namespace
}  // namespace forgive::lab
