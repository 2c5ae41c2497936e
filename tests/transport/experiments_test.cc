// SPDX-License-Identifier: Apache-2.0
// Tests of the departures from the protocol that the simulator compares it with (Config::experiments).
#include <gtest/gtest.h>

#include <vector>

#include "receiver_fixture.h"
#include "transport/sender.h"
#include "world.h"

namespace forgive {
namespace {

constexpr Fraction kTenth{100000};
constexpr Fraction kSurely{Fraction::kOne};

// ---- The budget ----

struct OpenStep {
  OpenStep(uint64_t expected, const Experiments& experiments) : table(8, kSurely, 1, experiments) {
    StepPlan plan;
    plan.step = 1;
    plan.p = kTenth;
    plan.expected_bytes = expected;
    EXPECT_EQ(table.Begin(plan), StepResult::kOk);
    index = table.FindOpen(1);
    table.AddMessage(index);
  }
  Decision Trim(uint64_t bytes) {
    EXPECT_TRUE(table.CountTrimmed(index, bytes));
    const Decision decision = table.Decide(index, bytes);
    if (decision == Decision::kForgiven) table.Forgive(index, bytes, bytes, 1);
    return decision;
  }
  StepTable table;
  StepIndex index;
};

TEST(Experiments, WithoutVestingTheWholeBudgetMayGoBeforeAnythingArrived) {
  OpenStep vesting(100000, Experiments{});
  EXPECT_EQ(vesting.Trim(4096), Decision::kNotVested);
  Experiments experiments;
  experiments.vesting = false;
  OpenStep step(100000, experiments);
  EXPECT_EQ(step.Trim(10000), Decision::kForgiven);
  EXPECT_EQ(step.Trim(1), Decision::kOverBudget);
}

TEST(Experiments, WithoutABoundWhateverIsTrimmedIsForgiven) {
  Experiments experiments;
  experiments.vesting = false;
  experiments.bounded = false;
  OpenStep step(100000, experiments);
  EXPECT_EQ(step.Trim(60000), Decision::kForgiven);
  EXPECT_EQ(step.Trim(40000), Decision::kForgiven);
}

// ---- The receiver ----

Config EarlyClose(bool gives_up_tails) {
  Config config = SmallConfig();
  config.experiments.vesting = false;
  config.experiments.early_close = true;
  config.experiments.gives_up_tails = gives_up_tails;
  return config;
}

class EarlyReceiver : public ::testing::Test {
 protected:
  explicit EarlyReceiver(bool gives_up_tails = false)
      : config(EarlyClose(gives_up_tails)),
        steps(8, kSurely, 1, config.experiments),
        receiver(config, 1024, ConnectionHandle{3}, 77, &steps, &counters, &events) {
    StepPlan plan;
    plan.step = 1;
    plan.p = kTenth;
    plan.expected_bytes = 1 << 20;
    EXPECT_EQ(steps.Begin(plan), StepResult::kOk);
  }
  void Post(uint64_t bytes) {
    ReceiveRequest request;
    request.capacity = bytes;
    request.has_step = true;
    request.step = 1;
    request.exempt_eligible = true;
    request.forgivable = true;
    ASSERT_TRUE(receiver.Post(request));
  }
  void Data(uint32_t offset, uint32_t length, uint32_t message_length) {
    DataHeader header;
    header.payload_length = static_cast<uint16_t>(length);
    header.stream_offset = offset;
    header.offset_in_message = offset;
    header.message_length = message_length;
    header.packet_number = next_packet++;
    receiver.OnData(TimePoint{1000}, header, nullptr, false);
  }
  uint64_t forgiven() const { return steps.Find(1)->forgiven; }

  Config config;
  Counters counters;
  EventQueue events{1024};
  StepTable steps;
  Receiver receiver;
  uint64_t next_packet = 0;
};

TEST_F(EarlyReceiver, GivesUpWhatIsMissingOfAMessageItKnows) {
  Post(10000);
  Data(1024, 1024, 10000);
  receiver.GiveUp();
  EXPECT_EQ(receiver.completed_messages(), 1u);
  EXPECT_EQ(forgiven(), 10000u - 1024u);
  EXPECT_EQ(receiver.rcv_nxt(), 10000u + 16u);
  EXPECT_TRUE(receiver.CheckAll());
}

TEST_F(EarlyReceiver, GivesUpAMessageItDoesNotKnowYetWithItsFirstHeader) {
  Post(10000);
  receiver.GiveUp();
  EXPECT_EQ(receiver.completed_messages(), 0u);
  Data(0, 1024, 10000);
  EXPECT_EQ(receiver.completed_messages(), 1u);
  EXPECT_EQ(forgiven(), 10000u - 1024u);
}

TEST_F(EarlyReceiver, GivesUpNothingOfAStepThatIsClosed) {
  Post(10000);
  Data(0, 1024, 10000);
  ASSERT_EQ(steps.End(1), StepResult::kOk);
  receiver.GiveUp();
  EXPECT_EQ(receiver.completed_messages(), 0u);
  EXPECT_EQ(forgiven(), 0u);
}

class TailReceiver : public EarlyReceiver {
 protected:
  TailReceiver() : EarlyReceiver(true) {}
};

TEST_F(TailReceiver, ClosesAMessageWhenNoMoreThanATenthOfItIsMissing) {
  Post(20480);
  for (uint32_t offset = 0; offset < 17 * 1024; offset += 1024) Data(offset, 1024, 20480);
  EXPECT_EQ(receiver.completed_messages(), 0u);
  Data(17 * 1024, 1024, 20480);  // with the end slot, 2,064 of 20,480 are missing: more than a tenth
  EXPECT_EQ(receiver.completed_messages(), 0u);
  Data(18 * 1024, 1024, 20480);
  EXPECT_EQ(receiver.completed_messages(), 1u);
  EXPECT_EQ(forgiven(), 1024u);
}

// ---- The sender ----

class ExperimentSender : public ::testing::Test {
 protected:
  static constexpr uint32_t kPayload = 1024;
  static constexpr uint64_t kLine = 40000000000;

  void Make(const Experiments& experiments, CongestionRestart restart = CongestionRestart::kAtStep) {
    Config config;
    config.payload_crc = false;
    config.max_messages = 16;
    config.congestion_control = CongestionControlKind::kDcqcnPaper;
    config.congestion_restart = restart;
    config.link_rate = {kLine};
    config.base_rtt = Microseconds(70);
    config.experiments = experiments;
    sender = std::make_unique<Sender>(config, kPayload, 1024 * kPayload, ConnectionHandle{5}, 77, &counters, &events);
  }
  std::vector<DataHeader> Drain(size_t most = 1000) {
    std::vector<DataHeader> out;
    DataHeader header;
    const uint8_t* payload = nullptr;
    while (out.size() < most && sender->NextPacket(now, &header, &payload)) out.push_back(header);
    return out;
  }
  void Deliver() {
    ++report.report_number;
    sender->OnReport(now, report);
  }
  void Begin(uint32_t messages, bool exhausted) {
    for (uint32_t i = 0; i < messages; ++i) ASSERT_TRUE(sender->Post({i, memory.data(), 4 * kPayload}));
    report.posted_messages = messages;
    report.same_step_end = messages;
    report.exempt_eligible = true;
    report.budget_exhausted = exhausted;
    Deliver();
  }
  void Trim(const DataHeader& header) {
    report.trimmed = true;
    report.trimmed_packet_number = static_cast<uint32_t>(header.packet_number);
    report.request_count = 1;
    report.requests[0] = {header.stream_offset, header.stream_offset + header.payload_length};
    Deliver();
  }

  Counters counters;
  EventQueue events{1024};
  std::unique_ptr<Sender> sender;
  std::vector<uint8_t> memory = std::vector<uint8_t>(4 * kPayload);
  Report report;
  TimePoint now{7000000000};
};

TEST_F(ExperimentSender, ObeysThoughTheBudgetLastsWhereTheExemptionIsOff) {
  Experiments experiments;
  experiments.exemption = ExemptionRule::kOff;
  Make(experiments);
  Begin(1, false);
  Trim(Drain().at(0));
  EXPECT_EQ(counters.rate_cuts_trim, 1u);
}

TEST_F(ExperimentSender, StaysExemptThoughTheBudgetIsSpentWhereTheExemptionNeverEnds) {
  Experiments experiments;
  experiments.exemption = ExemptionRule::kAlways;
  Make(experiments);
  Begin(1, true);
  Trim(Drain().at(0));
  EXPECT_EQ(counters.rate_cuts_trim, 0u);
  EXPECT_EQ(counters.signals_ignored, 1u);
}

TEST_F(ExperimentSender, RepairsWithoutACutWhatWasTrimmedWhereTrimsAreNoSignal) {
  Make(Experiments{});
  Begin(1, true);
  report.ignore_trim_signal = true;
  Trim(Drain().at(0));
  EXPECT_EQ(counters.rate_cuts_trim, 0u);
  EXPECT_EQ(Drain().size(), 1u);
}

TEST_F(ExperimentSender, BeginsEveryMessageAtLineRateWhereItIsAFlow) {
  Make(Experiments{}, CongestionRestart::kAtMessage);
  Begin(2, true);
  const auto first = Drain(4);
  ASSERT_EQ(first.size(), 4u);
  Trim(first.at(0));
  EXPECT_EQ(sender->rate().value, kLine / 2);
  ASSERT_EQ(Drain(1).size(), 1u);  // sent again, by the rate as it is
  EXPECT_EQ(sender->rate().value, kLine / 2);
  ASSERT_EQ(Drain(1).size(), 1u);
  EXPECT_EQ(sender->rate().value, kLine);
}

TEST_F(ExperimentSender, SkipsWhatItsReceiverGaveUpBeforeItWasSent) {
  Experiments experiments;
  experiments.early_close = true;
  Make(experiments);
  Begin(2, false);
  ASSERT_EQ(Drain(1).size(), 1u);
  report.completed_messages = 1;
  report.rcv_nxt = 4 * kPayload + 16;
  Deliver();
  EXPECT_EQ(counters.malformed, 0u);
  EXPECT_EQ(counters.skipped_bytes, 3 * kPayload);
  EXPECT_EQ(sender->bytes_in_flight(), 0u);
  const auto rest = Drain();
  ASSERT_EQ(rest.size(), 4u);
  EXPECT_EQ(rest.at(0).message_number, 1u);
}

// ---- The first number ----

// Six messages from host 0 to host 1, while packets are trimmed and lost; the first ones all are.
void SendAcrossTheWrap(uint64_t first) {
  Config config;
  config.max_connections = config.max_listeners = 4;
  config.min_rto = Milliseconds(1);
  config.experiments.first_number = first;
  testing::World world(2, config, first);
  testing::Link link;
  ASSERT_TRUE(testing::ConnectPair(&world, 0, 1, &link));
  std::vector<uint32_t> packets;
  world.on_transmit = [&](int, const Transmit& transmit) {
    DataHeader header;
    if (transmit.packet_class != PacketClass::kData) return;
    ASSERT_TRUE(ParseDataHeader(transmit.header.data(), transmit.header_length, &header));
    packets.push_back(static_cast<uint32_t>(header.packet_number));
    if (packets.size() == 3) world.faults.drop = Fraction{100000};
  };
  int received = 0;
  world.on_event = [&](int, const Event& event) { received += event.kind == Event::Kind::kReceived ? 1 : 0; };
  std::vector<std::vector<uint8_t>> sent, buffers;
  for (uint8_t i = 0; i < 6; ++i) {
    sent.emplace_back(20000, static_cast<uint8_t>(i + 1));
    buffers.emplace_back(20000, uint8_t{0});
  }
  for (size_t i = 0; i < sent.size(); ++i) {
    ReceiveRequest receive;
    receive.buffer = buffers[i].data();
    receive.capacity = buffers[i].size();
    ASSERT_EQ(world.endpoint(1).Post(world.LocalNow(1), link.receiver, receive), PostResult::kAccepted);
    const SendRequest send{i, sent[i].data(), static_cast<uint32_t>(sent[i].size())};
    ASSERT_EQ(world.endpoint(0).Post(world.LocalNow(0), link.sender, send), PostResult::kAccepted);
  }
  world.Pump();  // the credit leaves
  world.faults.trim = Fraction{200000};
  world.faults.drop = kSurely;
  const TimePoint end = world.now() + Seconds(10);
  while (received < 6 && world.Step(end)) {
  }
  EXPECT_EQ(buffers, sent);
  ASSERT_FALSE(packets.empty());
  EXPECT_EQ(packets.front(), static_cast<uint32_t>(first));
  EXPECT_EQ(packets.back(), static_cast<uint32_t>(first + packets.size() - 1));
}

TEST(Experiments, NumbersThatWrapOnTheWireChangeNoByteThoughNoPacketBeforeTheWrapArrived) {
  for (const uint64_t wrap : {uint64_t{1} << 31, uint64_t{1} << 32, uint64_t{7} << 32}) {
    SCOPED_TRACE(wrap);
    SendAcrossTheWrap(wrap - 2);
  }
}

}  // namespace
}  // namespace forgive
