// SPDX-License-Identifier: Apache-2.0
// Tests of the sender's modes: what is exempt, which signals are obeyed, and what a step restarts.
#include <gtest/gtest.h>

#include <vector>

#include "transport/sender.h"

namespace forgive {
namespace {

constexpr uint32_t kPayload = 1024;
constexpr TimePoint kStart{7000000000};
constexpr uint64_t kLine = 40000000000;

// A sender under DCQCN `paper`, where the first signal that is obeyed halves the rate at once.
class SenderMode : public ::testing::Test {
 protected:
  explicit SenderMode(CongestionRestart restart = CongestionRestart::kAtStep, Nanoseconds base_rtt = Microseconds(70))
      : sender(MakeConfig(restart, base_rtt), kPayload, 1024 * kPayload, ConnectionHandle{5}, 77, &counters,
               &events) {}

  static Config MakeConfig(CongestionRestart restart, Nanoseconds base_rtt) {
    Config config;
    config.payload_crc = false;
    config.max_messages = 16;
    config.congestion_control = CongestionControlKind::kDcqcnPaper;
    config.congestion_restart = restart;
    config.link_rate = {kLine};
    config.base_rtt = base_rtt;
    config.pacing_burst_bytes = 1 << 20;
    config.min_rto = Milliseconds(20);
    return config;
  }

  void Post(int messages, uint32_t length = 2 * kPayload) {
    for (int i = 0; i < messages; ++i) ASSERT_TRUE(sender.Post({1, memory.data(), length}));
  }
  std::vector<DataHeader> Drain() {
    std::vector<DataHeader> out;
    DataHeader header;
    const uint8_t* payload = nullptr;
    while (sender.NextPacket(now, &header, &payload)) out.push_back(header);
    return out;
  }
  void Deliver() {
    ++report.report_number;
    sender.OnReport(now, report);
    report.trimmed = false;
    report.request_count = 0;
  }
  void Credit(uint32_t messages) {
    report.posted_messages = messages;
    Deliver();
  }
  void SetFlags(bool eligible, bool exhausted, uint32_t same_step_end) {
    report.exempt_eligible = eligible;
    report.budget_exhausted = exhausted;
    report.same_step_end = same_step_end;
  }
  void Mark(const DataHeader& newest) {
    report.has_newest = true;
    report.newest_packet_number = static_cast<uint32_t>(newest.packet_number);
    report.newest_timestamp = newest.send_timestamp;
    report.ce_bytes += newest.payload_length;
  }
  void Trim(const DataHeader& header, bool request) {
    report.trimmed = true;
    report.trimmed_packet_number = static_cast<uint32_t>(header.packet_number);
    if (request) report.requests[report.request_count++] = {header.stream_offset, header.stream_offset + 16};
  }
  void Complete(const DataHeader& last) {
    report.completed_messages = last.message_number + 1;
    report.rcv_nxt = last.stream_offset + (last.payload_length + 15u) / 16 * 16 + 16;
  }
  uint64_t cuts() const { return counters.rate_cuts_mark + counters.rate_cuts_trim + counters.rate_cuts_timeout; }

  Counters counters;
  EventQueue events{1024};
  Sender sender;
  std::vector<uint8_t> memory = std::vector<uint8_t>(1 << 20);
  Report report;
  TimePoint now = kStart;
};

TEST_F(SenderMode, ObeysFromTheStart) {
  Post(1);
  EXPECT_EQ(sender.mode(now), Mode::kObeying);
  Credit(1);
  const auto packets = Drain();
  EXPECT_EQ(sender.mode(now), Mode::kObeying);
  Mark(packets[1]);
  Deliver();
  EXPECT_EQ(counters.rate_cuts_mark, 1u);
  EXPECT_EQ(counters.signals_ignored, 0u);
  EXPECT_EQ(sender.rate().value, kLine / 2);
}

TEST_F(SenderMode, IgnoresMarksAndTrimsWhileExempt) {
  Post(1);
  SetFlags(true, false, 1);
  Credit(1);
  const auto packets = Drain();
  EXPECT_EQ(sender.mode(now), Mode::kExempt);
  Mark(packets[1]);
  Deliver();
  Trim(packets[0], true);
  Deliver();
  Trim(packets[1], false);
  Deliver();
  EXPECT_EQ(cuts(), 0u);
  EXPECT_EQ(counters.signals_ignored, 3u);
  EXPECT_EQ(sender.rate().value, kLine);
  EXPECT_EQ(Drain().size(), 1u);  // what the request named
}

TEST_F(SenderMode, ObeysTheSignalOfTheReportThatTakesTheExemptionBack) {
  Post(1);
  SetFlags(true, false, 1);
  Credit(1);
  const auto packets = Drain();
  SetFlags(true, true, 1);
  Trim(packets[0], true);
  Deliver();
  EXPECT_EQ(sender.mode(now), Mode::kObeying);
  EXPECT_EQ(counters.rate_cuts_trim, 1u);
}

TEST_F(SenderMode, IgnoresTheSignalOfTheReportThatGivesTheExemption) {
  Post(1);
  Credit(1);
  const auto packets = Drain();
  SetFlags(true, false, 1);
  Mark(packets[0]);
  Deliver();
  EXPECT_EQ(cuts(), 0u);
  EXPECT_EQ(counters.signals_ignored, 1u);
}

TEST_F(SenderMode, LeavesAndResumesTheExemptionWithinAStepAndCountsTheChanges) {
  Post(1);
  Credit(1);
  Drain();
  for (bool exhausted : {false, true, false, true}) {
    SetFlags(true, exhausted, 1);
    Deliver();
    EXPECT_EQ(sender.mode(now), exhausted ? Mode::kObeying : Mode::kExempt);
  }
  EXPECT_EQ(counters.mode_changes, 4u);
}

TEST_F(SenderMode, CountsAForgivenTrimAsCongestionOnce) {
  Post(1);
  Credit(1);
  const auto packets = Drain();
  Trim(packets[0], false);
  Deliver();
  EXPECT_EQ(counters.rate_cuts_trim, 1u);
  Deliver();
  EXPECT_EQ(cuts(), 1u);
}

TEST_F(SenderMode, IsExemptOnlyForTheMessagesThatTheFlagsSpeakFor) {
  Post(4);
  SetFlags(true, false, 2);
  Credit(4);
  const auto packets = Drain();
  ASSERT_EQ(packets.size(), 8u);
  EXPECT_EQ(sender.mode(now), Mode::kObeying);  // the newest is message 3
  EXPECT_EQ(counters.sent_exempt_bytes, 4 * kPayload);
  Mark(packets[3]);  // message 1
  Deliver();
  EXPECT_EQ(cuts(), 0u);
  Mark(packets[4]);  // message 2
  Deliver();
  EXPECT_EQ(cuts(), 1u);
}

TEST_F(SenderMode, ObeysWhenTheStepOfAMessageInFlightHasClosed) {
  Post(2);
  SetFlags(true, false, 2);
  Credit(2);
  const auto packets = Drain();
  SetFlags(false, false, 2);
  Mark(packets[3]);
  Deliver();
  EXPECT_EQ(sender.mode(now), Mode::kObeying);
  EXPECT_EQ(counters.rate_cuts_mark, 1u);
}

TEST_F(SenderMode, ObeysAfterAnRtoWithoutAReport) {
  Post(1);
  SetFlags(true, false, 1);
  Credit(1);
  Drain();
  now = now + sender.rto() - Nanoseconds{1};
  EXPECT_EQ(sender.mode(now), Mode::kExempt);
  now = now + Nanoseconds{1};
  EXPECT_EQ(sender.mode(now), Mode::kObeying);
}

TEST_F(SenderMode, KeepsTheLastWordOnAMessageThatItsOwnMarkCompletes) {
  Post(2);
  SetFlags(true, false, 1);
  Credit(1);
  const auto packets = Drain();
  // The report that completes message 0 has no posted message left to speak for.
  SetFlags(false, false, 0);
  Complete(packets[1]);
  Mark(packets[1]);
  Deliver();
  EXPECT_EQ(cuts(), 0u);
  EXPECT_EQ(counters.signals_ignored, 1u);
  // Message 1 is of no step: it obeys.
  Credit(2);
  const auto more = Drain();
  Mark(more[1]);
  Deliver();
  EXPECT_EQ(cuts(), 1u);
}

TEST_F(SenderMode, TakesTheExemptionOfACompletedMessageBackWithAnExhaustedBudget) {
  Post(2);
  SetFlags(true, false, 2);
  Credit(2);
  const auto packets = Drain();
  SetFlags(true, true, 2);
  Complete(packets[1]);
  Mark(packets[1]);
  Deliver();
  EXPECT_EQ(counters.rate_cuts_mark, 1u);
}

TEST_F(SenderMode, StaysExemptFromOneMessageOfAStepToTheNext) {
  Post(3);
  SetFlags(true, false, 3);
  Credit(3);
  const auto packets = Drain();
  Complete(packets[1]);
  Deliver();
  Complete(packets[3]);
  Mark(packets[3]);
  Deliver();
  EXPECT_EQ(cuts(), 0u);
  EXPECT_EQ(sender.mode(now), Mode::kExempt);
  EXPECT_EQ(counters.mode_changes, 1u);
}

TEST_F(SenderMode, CutsOnATimeoutThoughExempt) {
  Post(1);
  SetFlags(true, false, 1);
  Credit(1);
  Drain();
  const TimePoint due = sender.next_deadline();
  now = due - Nanoseconds{1};
  Deliver();  // the peer lives, and the exemption with it, but nothing is acknowledged
  now = due;
  ASSERT_EQ(sender.mode(now), Mode::kExempt);
  sender.OnDeadline(now);
  EXPECT_EQ(counters.timeouts, 1u);
  EXPECT_EQ(counters.rate_cuts_timeout, 1u);
  EXPECT_EQ(sender.rate().value, kLine / 2);
}

TEST_F(SenderMode, SeesNoNewMarkInAReportThatWasOvertaken) {
  Post(1);
  Credit(1);
  const auto packets = Drain();
  report.report_number += 5;
  Mark(packets[1]);
  Deliver();
  ASSERT_EQ(cuts(), 1u);
  now = now + Microseconds(60);
  Report late = report;
  late.report_number -= 2;
  late.ce_bytes -= 1;
  sender.OnReport(now, late);
  EXPECT_EQ(cuts(), 1u);
}

TEST_F(SenderMode, RestartsAtLineRateWithTheFirstMessageOfAStepAndOnlyThen) {
  Post(3);
  Credit(1);
  auto packets = Drain();
  Mark(packets[1]);
  Complete(packets[1]);
  Deliver();
  ASSERT_EQ(sender.rate().value, kLine / 2);
  report.has_step_start = true;
  report.step_start_message = 1;
  Credit(2);
  EXPECT_EQ(sender.rate().value, kLine / 2);  // not before the message begins
  packets = Drain();
  EXPECT_EQ(sender.rate().value, kLine);
  now = now + Microseconds(60);
  Mark(packets[1]);
  Complete(packets[1]);
  Credit(3);  // the report still names message 1
  Drain();
  EXPECT_EQ(sender.rate().value, kLine / 2);
}

TEST_F(SenderMode, RestartsForEveryStepWhoseStartAReportNamedThoughALaterOneIsNamedBeforeItBegins) {
  Post(4);
  Credit(1);
  auto packets = Drain();
  report.has_step_start = true;
  report.step_start_message = 1;
  Credit(2);
  report.step_start_message = 3;
  Mark(packets[1]);
  Credit(4);  // nothing was polled in between
  ASSERT_EQ(sender.rate().value, kLine / 2);
  Drain();
  EXPECT_EQ(sender.rate().value, kLine);
}

TEST_F(SenderMode, RestartsOnceThoughTheFirstMessageOfTheStepIsHeldBack) {
  constexpr size_t kPackets = 914;  // as many as the pacer lets go at once: 1 MiB of 1,146 bytes on the wire each
  Post(1, kPackets * kPayload);
  Post(1);
  report.has_step_start = true;
  report.step_start_message = 1;
  Credit(2);
  const auto packets = Drain();
  ASSERT_EQ(packets.size(), kPackets) << "the step's first message is not the next one";
  Mark(packets[0]);
  Deliver();
  ASSERT_EQ(sender.rate().value, kLine / 2);
  ASSERT_TRUE(Drain().empty());
  EXPECT_EQ(sender.rate().value, kLine / 2);
}

TEST_F(SenderMode, RepeatsWhatTheLastStepLostBeforeItRestarts) {
  Post(2);
  Credit(1);
  const auto packets = Drain();
  Trim(packets[0], true);
  report.has_step_start = true;
  report.step_start_message = 1;
  Credit(2);
  DataHeader header;
  const uint8_t* payload = nullptr;
  ASSERT_TRUE(sender.NextPacket(now, &header, &payload));
  EXPECT_EQ(header.message_number, 0u);
  EXPECT_EQ(sender.rate().value, kLine / 2);
  ASSERT_TRUE(sender.NextPacket(now, &header, &payload));
  EXPECT_EQ(header.message_number, 1u);
  EXPECT_EQ(sender.rate().value, kLine);
}

class SenderModeOnAShortPath : public SenderMode {
 protected:
  // The byte counter of `paper` is 200/7 RTT at line rate: 100 kB.
  SenderModeOnAShortPath() : SenderMode(CongestionRestart::kOff, Nanoseconds{700}) {}
};

TEST_F(SenderModeOnAShortPath, CountsTheBytesItSendsTowardsTheByteCounter) {
  Post(1, 200 * kPayload);
  Credit(1);
  DataHeader header;
  const uint8_t* payload = nullptr;
  ASSERT_TRUE(sender.NextPacket(now, &header, &payload));
  Mark(header);
  Deliver();
  ASSERT_EQ(sender.rate().value, kLine / 2);
  Drain();  // 199 packets of 1,146 bytes on the wire, at one moment: two increases
  EXPECT_EQ(sender.rate().value, kLine / 8 * 7);
}

class SenderModeByMeasuredRtt : public SenderMode {
 protected:
  SenderModeByMeasuredRtt() : SenderMode(CongestionRestart::kOff, Nanoseconds{0}) {}
};

TEST_F(SenderModeByMeasuredRtt, SetsTheTimersByTheLeastRttMeasured) {
  Post(1, 4 * kPayload);
  Credit(1);
  const auto packets = Drain();
  now = now + Microseconds(700);
  Mark(packets[0]);
  Deliver();  // measures 700 us, after the cut: its increase timer was set by the initial RTT of 1 ms
  now = now + Microseconds(786);
  sender.OnDeadline(now);
  ASSERT_EQ(sender.rate().value, kLine / 4 * 3);
  now = now + Microseconds(549);
  sender.OnDeadline(now);
  EXPECT_EQ(sender.rate().value, kLine / 4 * 3);
  now = now + Microseconds(1);
  sender.OnDeadline(now);
  EXPECT_EQ(sender.rate().value, kLine / 8 * 7);
}

TEST_F(SenderMode, WakesNobodyForItsRateWhileNothingIsToBeSent) {
  Post(1);
  Credit(1);
  const auto packets = Drain();
  Mark(packets[1]);
  Complete(packets[1]);
  Deliver();
  ASSERT_EQ(sender.rate().value, kLine / 2);
  EXPECT_EQ(sender.next_deadline(), kNever);
  now = now + Microseconds(55);
  Post(1);
  Credit(2);
  EXPECT_EQ(Drain().size(), 2u);
  EXPECT_EQ(sender.rate().value, kLine / 4 * 3);  // as if it had been asked in time
}

TEST_F(SenderMode, KeepsToTheConfiguredBaseRttWhateverItMeasures) {
  Post(1, 4 * kPayload);
  Credit(1);
  const auto packets = Drain();
  now = now + Microseconds(700);
  Mark(packets[0]);
  Deliver();
  now = now + Microseconds(110);
  sender.OnDeadline(now);
  EXPECT_EQ(sender.rate().value, kLine / 8 * 7);
}

class SenderModeWithoutRestart : public SenderMode {
 protected:
  SenderModeWithoutRestart() : SenderMode(CongestionRestart::kOff) {}
};

TEST_F(SenderModeWithoutRestart, KeepsTheRateOverTheBeginningOfAStep) {
  Post(2);
  Credit(1);
  const auto packets = Drain();
  Mark(packets[1]);
  report.has_step_start = true;
  report.step_start_message = 1;
  Credit(2);
  Drain();
  EXPECT_EQ(sender.rate().value, kLine / 2);
}

TEST_F(SenderMode, RecoversByTimersWhileExemptFromTheRateReached) {
  Post(1, 64 * kPayload);
  Credit(1);
  const auto packets = Drain();
  Mark(packets[1]);
  Deliver();
  ASSERT_EQ(sender.rate().value, kLine / 2);
  SetFlags(true, false, 1);
  Deliver();
  now = now + Microseconds(55);
  sender.OnDeadline(now);
  EXPECT_EQ(sender.rate().value, kLine / 4 * 3);
  SetFlags(true, true, 1);
  Deliver();
  EXPECT_EQ(sender.rate().value, kLine / 4 * 3);
}

}  // namespace
}  // namespace forgive
