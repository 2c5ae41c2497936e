// SPDX-License-Identifier: Apache-2.0
// Deterministic worlds from one seed: faults, then none; a byte-by-byte oracle and the bounds after every event.
#include <gtest/gtest.h>

#include <cstdlib>
#include <deque>
#include <set>
#include <string>

#include "world.h"

namespace forgive::testing {
namespace {

uint8_t Pattern(size_t connection, uint32_t message, uint64_t offset) {
  // Never zero, so that a forgiven byte can be told.
  return static_cast<uint8_t>(1 + (connection * 37 + message * 101 + offset * 7 + (offset >> 9)) % 255);
}

struct Message {
  std::vector<uint8_t> sent;
  std::vector<uint8_t> buffer;
  std::vector<bool> forgiven;
  uint64_t step = 0;
  bool has_step = false;
  bool forgivable = false;
  bool received = false;
  bool acknowledged = false;
};

struct Stream {
  int from = 0, to = 0;
  Link link;
  std::deque<Message> messages;
  uint32_t posted_receives = 0;
  uint32_t posted_sends = 0;
  uint64_t connection_id = 0;
};

// Runs one world. Every decision comes from the seed.
class Dst {
 public:
  explicit Dst(uint64_t seed) : plan_(seed ^ 0x5eed), config_(MakeConfig()), world_(Hosts(), config_, seed) {}

  void AddTo(Counters* total) {
    for (int host = 0; host < hosts_; ++host) {
      const Counters& counters = world_.endpoint(host).counters();
      for (size_t i = 0; i < kDecisions; ++i) total->decisions[i] += counters.decisions[i];
      total->late_bytes += counters.late_bytes;
      total->duplicate_bytes += counters.duplicate_bytes;
      total->bad_crc += counters.bad_crc;
      total->bad_tag += counters.bad_tag;
      total->replayed += counters.replayed;
      total->lost_by_rack += counters.lost_by_rack;
      total->lost_by_request += counters.lost_by_request;
      total->timeouts += counters.timeouts;
      total->signals_ignored += counters.signals_ignored;
      total->rate_cuts_mark += counters.rate_cuts_mark;
      total->rate_cuts_trim += counters.rate_cuts_trim;
      total->mode_changes += counters.mode_changes;
    }
  }

  void Run() {
    world_.on_event = [this](int host, const Event& event) { OnEvent(host, event); };
    world_.after_each = [this](int host) { CheckBounds(host); };
    Connect();
    if (::testing::Test::HasFatalFailure()) return;
    SetFaults();
    const TimePoint faults_end = world_.now() + Milliseconds(static_cast<int64_t>(50 + plan_.Below(200)));
    while (world_.now() < faults_end) {
      Act();
      if (!world_.Step(world_.now() + Milliseconds(1))) world_.Stall(Microseconds(200));
      if (plan_.Below(2000) == 0) world_.Stall(Milliseconds(static_cast<int64_t>(plan_.Below(60))));
      if (::testing::Test::HasFailure()) return;
    }
    Finish();
  }

 private:
  int Hosts() { return hosts_ = static_cast<int>(2 + plan_.Below(3)); }

  Config MakeConfig() {
    Config config;
    config.max_connections = 16;
    config.max_payload_bytes = static_cast<uint32_t>(64 + 16 * plan_.Below(253));
    config.window_bytes = 4096 << plan_.Below(7);
    config.scoreboard_bytes = std::max<uint64_t>(16384, config.window_bytes << plan_.Below(3));
    config.congestion_control = static_cast<CongestionControlKind>(plan_.Below(4));
    config.path_policy = static_cast<PathPolicy>(plan_.Below(3));
    config.paths = static_cast<uint32_t>(1 + plan_.Below(plan_.Below(2) != 0 ? 4 : kMaxPaths));
    config.link_rate = BitsPerSecond{plan_.Below(2) * 1000000000};
    config.forgiveness_probability = Fraction{plan_.Below(2) != 0 ? Fraction::kOne : 300000};
    config.min_rto = Milliseconds(static_cast<int64_t>(2 + plan_.Below(20)));
    config.max_rto = Milliseconds(200);
    config.peer_timeout = Seconds(100);
    return config;
  }

  void Connect() {
    for (int from = 0; from < hosts_; ++from) {
      for (int to = 0; to < hosts_; ++to) {
        if (from == to || plan_.Below(3) == 0) continue;
        Stream stream;
        stream.from = from;
        stream.to = to;
        ASSERT_TRUE(ConnectPair(&world_, from, to, &stream.link));
        Endpoint::ConnectionFacts facts;
        ASSERT_TRUE(world_.endpoint(to).Facts(world_.LocalNow(to), stream.link.receiver, &facts));
        stream.connection_id = facts.connection_id;
        streams_.push_back(std::move(stream));
      }
    }
  }

  void SetFaults() {
    auto chance = [this](uint64_t limit) { return Fraction{static_cast<uint32_t>(plan_.Below(2) * plan_.Below(limit))}; };
    world_.faults.trim = chance(300000);
    world_.faults.drop = chance(100000);
    world_.faults.duplicate = chance(100000);
    world_.faults.reorder = chance(300000);
    world_.faults.corrupt = chance(30000);
    world_.faults.mark = chance(200000);
    world_.faults.delay = Microseconds(static_cast<int64_t>(5 + plan_.Below(500)));
    // Some packets come so late that they were sent again, and even forgiven, before.
    world_.faults.reorder_delay = Microseconds(static_cast<int64_t>(10 + plan_.Below(plan_.Below(2) != 0 ? 3000 : 40000)));
  }

  // Posts of the applications, and steps that open and close.
  void Act() {
    for (int host = 0; host < hosts_; ++host) {
      StepTable& steps = *world_.host(host).steps;
      const bool open = steps.FindOpen(step_of_host_[host]).has_value();
      if (!open && plan_.Below(4) == 0) {
        StepPlan step;
        step.step = ++step_of_host_[host];
        step.p = Fraction{static_cast<uint32_t>(plan_.Below(4) * 100000)};
        step.expected_bytes = plan_.Below(4) == 0 ? 0 : plan_.Below(4000000);
        ASSERT_EQ(steps.Begin(step), StepResult::kOk);
      } else if (open && plan_.Below(400) == 0) {
        ASSERT_EQ(steps.End(step_of_host_[host]), StepResult::kOk);
      }
    }
    if (streams_.empty()) return;
    const size_t index = plan_.Below(streams_.size());
    PostSome(index);
  }

  void PostSome(size_t index) {
    Stream& stream = streams_[index];
    const uint64_t sizes[] = {0, 1, 15, 16, 17, 4096, 30000, 200000};
    const bool send_first = plan_.Below(2) != 0;
    for (int turn = 0; turn < 2; ++turn) {
      if ((turn == 0) == send_first && stream.posted_sends < stream.messages.size()) {
        Message& message = stream.messages[stream.posted_sends];
        const SendRequest request{Cookie(index, stream.posted_sends), message.sent.data(),
                                  static_cast<uint32_t>(message.sent.size())};
        if (world_.endpoint(stream.from).Post(world_.LocalNow(stream.from), stream.link.sender, request) ==
            PostResult::kAccepted) {
          ++stream.posted_sends;
        }
      } else if (stream.posted_receives < stream.messages.size()) {
        PostReceive(index);
      }
    }
    if (finishing_ || stream.messages.size() >= 60 || plan_.Below(3) == 0) return;
    Message message;
    const auto number = static_cast<uint32_t>(stream.messages.size());
    message.sent.resize(sizes[plan_.Below(8)] * (plan_.Below(4) != 0 ? 1 : 0) + plan_.Below(50));
    for (size_t i = 0; i < message.sent.size(); ++i) message.sent[i] = Pattern(index, number, i);
    message.buffer.assign(message.sent.size() + plan_.Below(2) * plan_.Below(5000), 0xee);
    message.forgiven.assign(message.sent.size(), false);
    stream.messages.push_back(std::move(message));
  }

  void PostReceive(size_t index) {
    Stream& stream = streams_[index];
    Message& message = stream.messages[stream.posted_receives];
    ReceiveRequest request;
    request.cookie = Cookie(index, stream.posted_receives);
    request.buffer = message.buffer.data();
    request.capacity = message.buffer.size();
    const StepTable& steps = *world_.host(stream.to).steps;
    request.has_step = steps.FindOpen(step_of_host_[stream.to]).has_value() && plan_.Below(8) != 0;
    request.step = step_of_host_[stream.to];
    request.exempt_eligible = request.has_step && steps.Find(request.step)->p.ppm > 0 && plan_.Below(8) != 0;
    request.forgivable = request.exempt_eligible && plan_.Below(4) != 0;
    request.contributions = static_cast<uint32_t>(1 + plan_.Below(3));
    if (world_.endpoint(stream.to).Post(world_.LocalNow(stream.to), stream.link.receiver, request) !=
        PostResult::kAccepted) {
      return;
    }
    message.step = request.step;
    message.has_step = request.has_step;
    message.forgivable = request.forgivable;
    ++stream.posted_receives;
  }

  static uint64_t Cookie(size_t stream, uint32_t message) { return (uint64_t{stream} << 32) | message; }

  void OnEvent(int host, const Event& event) {
    if (event.kind == Event::Kind::kForgiven) {
      OnForgiven(host, event);
      return;
    }
    ASSERT_NE(event.kind, Event::Kind::kFailed) << "reason " << static_cast<int>(event.reason);
    const size_t index = event.cookie >> 32;
    const auto number = static_cast<uint32_t>(event.cookie);
    ASSERT_LT(index, streams_.size());
    Message& message = streams_[index].messages[number];
    if (event.kind == Event::Kind::kSent) {
      ASSERT_FALSE(message.acknowledged);
      ASSERT_TRUE(message.received) << "acknowledged before the receiver had it";
      message.acknowledged = true;
    } else if (event.kind == Event::Kind::kReceived) {
      ASSERT_FALSE(message.received);
      ASSERT_EQ(event.size, message.sent.size());
      message.received = true;
      CheckBytes(message);
    }
  }

  void OnForgiven(int host, const Event& event) {
    size_t index = 0;
    while (index < streams_.size() && streams_[index].connection_id != event.connection_id) ++index;
    ASSERT_LT(index, streams_.size());
    ASSERT_EQ(streams_[index].to, host);
    Message& message = streams_[index].messages[event.message];
    ASSERT_TRUE(message.forgivable) << "a reliable message was forgiven";
    ASSERT_TRUE(world_.host(host).steps->FindOpen(event.step).has_value());
    ASSERT_EQ(message.step, event.step);
    bool inside_a_trim = false;
    for (const TrimRecord& trim : world_.trims()) {
      inside_a_trim |= trim.connection_id == event.connection_id && trim.message == event.message &&
                       trim.offset <= event.offset && event.offset + event.length <= trim.offset + trim.length;
    }
    ASSERT_TRUE(inside_a_trim) << "forgiven, but nothing trimmed it";
    for (uint32_t i = event.offset; i < event.offset + event.length; ++i) {
      ASSERT_FALSE(message.forgiven[i]) << "charged twice";
      ASSERT_EQ(message.buffer[i], 0) << "not zero at the decision";
      message.forgiven[i] = true;
    }
    forgiven_of_step_[{host, event.step}] += event.length;
  }

  void CheckBytes(const Message& message) {
    for (size_t i = 0; i < message.sent.size(); ++i) {
      ASSERT_EQ(message.buffer[i], message.forgiven[i] ? 0 : message.sent[i]) << "at byte " << i;
    }
    for (size_t i = message.sent.size(); i < message.buffer.size(); ++i) ASSERT_EQ(message.buffer[i], 0xee);
  }

  void CheckBounds(int host) {
    const StepAccount* account = world_.host(host).steps->Find(step_of_host_[host]);
    if (account == nullptr) return;
    ASSERT_LE(account->forgiven, account->budget);
    ASSERT_LE(uint128{account->forgiven} * (Fraction::kOne - account->p.ppm), uint128{account->received} * account->p.ppm);
    const uint64_t ledger = forgiven_of_step_[{host, account->step}];
    ASSERT_EQ(account->forgiven, ledger) << "the ledger does not add up";
  }

  bool Done() const {
    for (const Stream& stream : streams_) {
      for (const Message& message : stream.messages) {
        if (!message.received || !message.acknowledged) return false;
      }
    }
    return true;
  }

  // The faults stop: everything that was begun must finish, and then nothing is left to do.
  void Finish() {
    finishing_ = true;
    world_.faults = Faults{};
    const TimePoint end = world_.now() + Seconds(60);
    while (!Done() && world_.now() < end) {
      for (size_t index = 0; index < streams_.size(); ++index) PostSome(index);
      if (!world_.Step(world_.now() + Milliseconds(1))) world_.Stall(Milliseconds(1));
      if (::testing::Test::HasFailure()) return;
    }
    ASSERT_TRUE(Done()) << "not everything finished after the faults had stopped";
    for (int i = 0; i < 1000 && world_.Step(world_.now() + Seconds(1)); ++i) {
    }
    const uint64_t packets = world_.packets();
    while (world_.Step(world_.now() + Seconds(10)) && world_.packets() < packets + 100) {
    }
    EXPECT_EQ(world_.packets(), packets) << "a world without work still sends";
    for (int host = 0; host < hosts_; ++host) {
      const StepAccount* account = world_.host(host).steps->Find(step_of_host_[host]);
      if (account == nullptr) continue;
      EXPECT_EQ(account->outstanding, 0u) << "every byte is settled, yet some are outstanding";
    }
  }

  Draw plan_;
  int hosts_ = 0;
  Config config_;
  World world_;
  std::vector<Stream> streams_;
  std::map<int, uint64_t> step_of_host_;
  std::map<std::pair<int, uint64_t>, uint64_t> forgiven_of_step_;
  bool finishing_ = false;
};

TEST(Dst, EveryByteIsRightOrForgivenWithinTheBudgetAndEverythingFinishes) {
  uint64_t first = 1, last = 200;
  const char* one_seed = std::getenv("FORGIVE_TEST_SEED");
  if (one_seed != nullptr) first = last = std::strtoull(one_seed, nullptr, 10);
  Counters total;
  for (uint64_t seed = first; seed <= last; ++seed) {
    SCOPED_TRACE("repeat with: FORGIVE_TEST_SEED=" + std::to_string(seed) + " dst_test");
    Dst world(seed);
    world.Run();
    if (HasFailure()) return;
    world.AddTo(&total);
  }
  if (one_seed != nullptr) return;
  // Worlds in which nothing happens would prove nothing.
  for (int decision = 0; decision < kDecisions; ++decision) {
    EXPECT_GT(total.decisions[static_cast<size_t>(decision)], 0u) << "no world decided reason " << decision;
  }
  const std::pair<const char*, uint64_t> counts[] = {
      {"late_bytes", total.late_bytes},           {"duplicate_bytes", total.duplicate_bytes},
      {"bad_crc", total.bad_crc},                 {"bad_tag", total.bad_tag},
      {"replayed", total.replayed},               {"lost_by_rack", total.lost_by_rack},
      {"lost_by_request", total.lost_by_request}, {"timeouts", total.timeouts},
      {"signals_ignored", total.signals_ignored}, {"rate_cuts_mark", total.rate_cuts_mark},
      {"rate_cuts_trim", total.rate_cuts_trim},   {"mode_changes", total.mode_changes},
  };
  for (const auto& [name, count] : counts) EXPECT_GT(count, 0u) << name;
}

}  // namespace
}  // namespace forgive::testing
