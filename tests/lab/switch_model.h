// SPDX-License-Identifier: Apache-2.0
// What the switch must do with a frame at a port, told plainly from docs/lab.md and not from the BPF program.
#ifndef FORGIVE_TESTS_LAB_SWITCH_MODEL_H_
#define FORGIVE_TESTS_LAB_SWITCH_MODEL_H_

#include <cstddef>
#include <cstdint>
#include <optional>

#include "testbed/lab/switch_layout.h"
#include "tests/lab/packet.h"

namespace forgive::lab {

// What is left of a frame, where it goes and what is counted. `marked`: the same where the draw falls so; empty where
// no draw is made.
struct Expected {
  bool dropped = false;
  Frame frame;
  std::optional<Frame> marked;  // it, or `frame`, as chance has it
  std::uint32_t priority = 0;
  forgive_port_counters counters{};  // without `marked`, and with the bytes of `frame`, which a mark does not change
  std::optional<forgive_trim_record> record;
};

class SwitchModel {
 public:
  SwitchModel(const forgive_switch_parameters& parameters, std::uint64_t backlog, std::uint32_t interface)
      : parameters_(parameters), backlog_(backlog), interface_(interface) {}

  Expected Judge(const Frame& frame, std::uint32_t segments) const {
    const bool udp = IsPlainUdp(frame);
    const std::uint32_t dscp = TrafficClass(frame) >> 2;
    if (udp && (dscp == parameters_.dscp_control || dscp == parameters_.dscp_trimmed)) {
      return Pass(frame, parameters_.header_priority, &forgive_port_counters::control);
    }
    const bool ours = udp && dscp == parameters_.dscp_data;
    const bool may_be_cut = ours && parameters_.trim_enabled != 0;
    const std::uint64_t limit = may_be_cut ? parameters_.trim_threshold_bytes : parameters_.queue_bytes;
    if (backlog_ + frame.size() > limit) {
      if (!may_be_cut) return Drop(frame);
      if (segments > 1) return Pass(frame, parameters_.data_priority, &forgive_port_counters::gso_refused);
      if (frame.size() <= parameters_.trim_length) {
        return Pass(frame, parameters_.header_priority, &forgive_port_counters::whole);
      }
      return Cut(frame);
    }
    Expected expected = Pass(frame, parameters_.data_priority,
                             ours ? &forgive_port_counters::whole : &forgive_port_counters::other);
    const std::uint32_t ecn = TrafficClass(frame) & 3;
    if (ecn == 0 || ecn == 3 || backlog_ < parameters_.ecn_min_bytes) return expected;
    expected.marked = WithTrafficClass(frame, TrafficClass(frame) | 3);
    if (backlog_ >= parameters_.ecn_max_bytes) expected.frame = *expected.marked;  // always
    return expected;
  }

 private:
  static constexpr std::size_t kEthernet = 14, kIpv4 = 20, kIpv6 = 40, kUdpHeader = 8, kDataHeader = 56;

  static std::uint32_t Number(const Frame& frame, std::size_t at, std::size_t bytes) {
    std::uint32_t number = 0;
    for (std::size_t i = 0; i < bytes; ++i) number = number << 8 | frame[at + i];
    return number;
  }
  static void Put(std::uint32_t number, std::size_t at, Frame* frame) {
    (*frame)[at] = static_cast<std::uint8_t>(number >> 8);
    (*frame)[at + 1] = static_cast<std::uint8_t>(number);
  }

  // With a header that is there as a whole.
  static bool IsIpv4(const Frame& frame) {
    return frame.size() >= kEthernet + kIpv4 && Number(frame, 12, 2) == 0x0800;
  }
  static bool IsIpv6(const Frame& frame) {
    return frame.size() >= kEthernet + kIpv6 && Number(frame, 12, 2) == 0x86dd;
  }
  // Where the UDP header stands for sure: no options, no extension headers, no fragments.
  static bool IsPlainUdp(const Frame& frame) {
    if (IsIpv6(frame)) return frame[kEthernet + 6] == kUdp;
    if (!IsIpv4(frame)) return false;
    const bool fragment = (Number(frame, kEthernet + 6, 2) & 0x3fff) != 0;
    return (frame[kEthernet] & 0x0f) == 5 && frame[kEthernet + 9] == kUdp && !fragment;
  }

  // DSCP and ECN; 0 of what is neither IPv4 nor IPv6.
  static std::uint32_t TrafficClass(const Frame& frame) {
    if (IsIpv4(frame)) return frame[kEthernet + 1];
    if (IsIpv6(frame)) return Number(frame, kEthernet, 2) >> 4 & 0xff;
    return 0;
  }
  static Frame WithTrafficClass(Frame frame, std::uint32_t traffic_class) {
    if (IsIpv4(frame)) {
      frame[kEthernet + 1] = static_cast<std::uint8_t>(traffic_class);
      Seal(&frame);
    } else {
      Put((Number(frame, kEthernet, 2) & 0xf00f) | traffic_class << 4, kEthernet, &frame);
    }
    return frame;
  }
  // The IPv4 header's checksum, computed anew.
  static void Seal(Frame* frame) {
    const std::size_t end = kEthernet + std::size_t{4} * ((*frame)[kEthernet] & 0x0f);
    Put(0, kEthernet + 10, frame);
    std::uint32_t sum = 0;
    for (std::size_t at = kEthernet; at < end; at += 2) sum += Number(*frame, at, 2);
    while (sum > 0xffff) sum = (sum & 0xffff) + (sum >> 16);
    Put(~sum & 0xffff, kEthernet + 10, frame);
  }

  static Expected Drop(const Frame& frame) {
    Expected expected;
    expected.dropped = true;
    expected.frame = frame;
    expected.counters.dropped = 1;
    return expected;
  }
  static Expected Pass(const Frame& frame, std::uint32_t priority, __u64 forgive_port_counters::*counter) {
    Expected expected;
    expected.frame = frame;
    expected.priority = priority;
    expected.counters.*counter = 1;
    expected.counters.bytes = frame.size();
    return expected;
  }

  // The first trim_length bytes, with the DSCP of trimmed packets and what the mode repairs.
  Expected Cut(const Frame& whole) const {
    const std::size_t left = parameters_.trim_length;
    const bool ipv4 = IsIpv4(whole);
    const std::size_t udp = kEthernet + (ipv4 ? kIpv4 : kIpv6);
    Frame frame(whole.begin(), whole.begin() + static_cast<std::ptrdiff_t>(left));
    if (parameters_.trim_mode != FORGIVE_TRIM_RAW) {
      Put(static_cast<std::uint32_t>(ipv4 ? left - kEthernet : left - kEthernet - kIpv6),
          kEthernet + (ipv4 ? 2 : 4), &frame);
    }
    frame = WithTrafficClass(frame, parameters_.dscp_trimmed << 2 | (TrafficClass(whole) & 3));
    if (parameters_.trim_mode == FORGIVE_TRIM_FULL || parameters_.trim_mode == FORGIVE_TRIM_STALE) {
      Put(static_cast<std::uint32_t>(left - udp), udp + 4, &frame);
    }
    if (parameters_.trim_mode == FORGIVE_TRIM_FULL) Put(0, udp + 6, &frame);
    Expected expected = Pass(frame, parameters_.header_priority, &forgive_port_counters::trimmed);
    Record(whole, udp + kUdpHeader, &expected);
    return expected;
  }

  // A data packet of ours is named in the log; anything else is counted as not logged.
  void Record(const Frame& whole, std::size_t header, Expected* expected) const {
    if (whole.size() < header + kDataHeader || whole[header] != 1 || whole[header + 1] != 1) {
      expected->counters.unlogged = 1;
      return;
    }
    forgive_trim_record record{};
    record.connection_id = std::uint64_t{Number(whole, header + 8, 4)} << 32 | Number(whole, header + 12, 4);
    record.message_number = Number(whole, header + 24, 4);
    record.offset_in_message = Number(whole, header + 28, 4);
    record.payload_length = Number(whole, header + 4, 2);
    record.ifindex = interface_;
    expected->record = record;
  }

  const forgive_switch_parameters& parameters_;
  std::uint64_t backlog_;
  std::uint32_t interface_;
};

}  // namespace forgive::lab

#endif  // FORGIVE_TESTS_LAB_SWITCH_MODEL_H_
