// SPDX-License-Identifier: Apache-2.0
// One receiver with its step table, and the packets of a sender that cuts messages as the test likes.
#ifndef FORGIVE_TESTS_TRANSPORT_RECEIVER_FIXTURE_H_
#define FORGIVE_TESTS_TRANSPORT_RECEIVER_FIXTURE_H_

#include <gtest/gtest.h>

#include <cstdint>
#include <deque>
#include <vector>

#include "transport/receiver.h"

namespace forgive {

inline Config SmallConfig() {
  Config config;
  config.payload_crc = false;
  config.max_messages = 16;
  config.scoreboard_bytes = 64 * 1024;
  config.packet_number_window = 64;
  config.window_bytes = 64 * 1024;
  config.max_steps = 8;
  return config;
}

// What byte `offset` of message `number` is, wherever it is not zero-filled.
inline uint8_t PayloadByte(uint32_t number, uint64_t offset) {
  return static_cast<uint8_t>(1 + (number * 31 + offset * 7 + offset / 256) % 255);
}

// A receiver that is driven by message numbers and offsets; it keeps where each message starts.
class ReceiverFixture {
 public:
  static constexpr uint32_t kMaxPayload = 1024;

  explicit ReceiverFixture(Config config = SmallConfig(), uint64_t expected = 1 << 20, Fraction p = Fraction{100000})
      : steps(config.max_steps, config.forgiveness_probability, 7),
        events(2 * EventQueue::kReserve),
        receiver(config, kMaxPayload, ConnectionHandle{3}, 77, &steps, &counters, &events) {
    StepPlan plan;
    plan.step = 1;
    plan.p = p;
    plan.expected_bytes = expected;
    EXPECT_EQ(steps.Begin(plan), StepResult::kOk);
  }

  // Posts a receive for a message of `length` bytes; its buffer has 0xEE around and in it.
  uint32_t Post(uint32_t length, bool eligible = true, bool forgivable = true, uint64_t step = 1,
                bool has_step = true) {
    ReceiveRequest request;
    request.cookie = 1000 + lengths.size();
    buffers.emplace_back(length + 64, uint8_t{0xEE});
    request.buffer = buffers.back().data();
    request.capacity = length;
    request.has_step = has_step;
    request.step = step;
    request.exempt_eligible = eligible;
    request.forgivable = forgivable;
    request.contributions = 2;
    EXPECT_TRUE(receiver.Post(request));
    lengths.push_back(length);
    starts.push_back(next_start);
    next_start += PayloadUnits(length) * kUnitBytes + kUnitBytes;
    return static_cast<uint32_t>(lengths.size() - 1);
  }

  DataHeader Header(uint32_t number, uint32_t offset, uint32_t length) {
    DataHeader header;
    header.payload_length = static_cast<uint16_t>(length);
    header.connection_id = 77;
    header.stream_offset = starts[number] + offset;
    header.message_number = number;
    header.offset_in_message = offset;
    header.message_length = lengths[number];
    header.packet_number = next_packet++;
    header.send_timestamp = static_cast<uint32_t>(header.packet_number * 10);
    return header;
  }

  void Data(uint32_t number, uint32_t offset, uint32_t length, bool ce = false) {
    std::vector<uint8_t> payload(length + 1);
    for (uint32_t i = 0; i < length; ++i) payload[i] = PayloadByte(number, offset + i);
    receiver.OnData(now, Header(number, offset, length), payload.data(), ce);
    EXPECT_TRUE(receiver.CheckAll());
  }
  // The whole message in full packets.
  void AllData(uint32_t number) {
    uint32_t offset = 0;
    do {
      const uint32_t length = std::min(kMaxPayload, lengths[number] - offset);
      Data(number, offset, length);
      offset += length;
    } while (offset < lengths[number]);
  }
  Decision Trim(uint32_t number, uint32_t offset, uint32_t length, bool ce = false) {
    const auto before = counters.decisions;
    receiver.OnTrimmedHeader(now, Header(number, offset, length), ce);
    EXPECT_TRUE(receiver.CheckAll());
    for (int i = 0; i < kDecisions; ++i) {
      if (counters.decisions[static_cast<size_t>(i)] != before[static_cast<size_t>(i)])
        return static_cast<Decision>(i);
    }
    ADD_FAILURE() << "no decision";
    return Decision::kAlreadySettled;
  }

  // The reports that are due now, oldest first.
  std::vector<Report> Reports() {
    std::vector<Report> reports;
    Report report;
    while (receiver.NextReport(now, &report)) reports.push_back(report);
    return reports;
  }
  std::vector<Event> Events() {
    std::vector<Event> all;
    Event event;
    while (events.Pop(&event)) all.push_back(event);
    return all;
  }
  const StepAccount& account(uint64_t step = 1) { return *steps.Find(step); }
  uint8_t At(uint32_t number, uint32_t offset) { return buffers[number][offset]; }
  // True if bytes [begin, end) of the message are as they were sent, or all `value`.
  bool IsPayload(uint32_t number, uint32_t begin, uint32_t end) {
    for (uint32_t i = begin; i < end; ++i) {
      if (At(number, i) != PayloadByte(number, i)) return false;
    }
    return true;
  }
  bool Is(uint8_t value, uint32_t number, uint32_t begin, uint32_t end) {
    for (uint32_t i = begin; i < end; ++i) {
      if (At(number, i) != value) return false;
    }
    return true;
  }

  TimePoint now{1000000};
  StepTable steps;
  Counters counters;
  EventQueue events;
  Receiver receiver;
  std::deque<std::vector<uint8_t>> buffers;
  std::vector<uint32_t> lengths;
  std::vector<uint64_t> starts;
  uint64_t next_start = 0;
  uint64_t next_packet = 0;
};

}  // namespace forgive

#endif  // FORGIVE_TESTS_TRANSPORT_RECEIVER_FIXTURE_H_
