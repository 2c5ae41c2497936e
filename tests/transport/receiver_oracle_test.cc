// SPDX-License-Identifier: Apache-2.0
// Receivers that share a step table against the byte-array oracle, after every event of random sequences.
#include "receiver_oracle.h"

#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <string>

namespace forgive {
namespace {

constexpr uint64_t kSequences = 100000;
constexpr uint64_t kFirstSeed = 1;
constexpr uint64_t kSpanUnits = 64;
constexpr size_t kGuardBytes = 16;
constexpr uint8_t kUntouched = 0xEE;
constexpr uint8_t kApplication = 0xCD;  // what the application writes into a buffer once it is its own again

uint64_t FromEnvironment(const char* name, uint64_t otherwise) {
  const char* value = std::getenv(name);
  return value == nullptr ? otherwise : std::strtoull(value, nullptr, 10);
}

// One random sequence: the receivers and the oracle side by side.
class Sequence {
 public:
  Sequence(uint64_t seed, EventQueue* events, bool verbose) : draw_(seed), events_(events), verbose_(verbose) {
    config_.payload_crc = false;
    config_.scoreboard_bytes = kSpanUnits * kUnitBytes;
    config_.max_messages = 4;
    config_.packet_number_window = 64;
    config_.window_bytes = 1024;
    config_.max_steps = 3;
    config_.report_every_packets = static_cast<uint32_t>(1 + Below(4));
    config_.forgiveness_probability = Fraction{Pick({1000000, 1000000, 1000000, 500000, 250000, 0})};
    config_.budget_unit = Below(3) == 0 ? BudgetUnit::kContributions : BudgetUnit::kBytes;
    max_payload_ = Pick({16, 48, 80, 80, 512});
    const uint64_t draw_seed = draw_.Next();
    steps_ = std::make_unique<StepTable>(config_.max_steps, config_.forgiveness_probability, draw_seed,
                                         config_.experiments, config_.budget_unit);
    world_ = std::make_unique<oracle::World>(config_, max_payload_, draw_seed);
    world_->connections.resize(1 + Below(3));
    for (size_t i = 0; i < world_->connections.size(); ++i) AddConnection(i);
  }

  const Counters& counters() const { return counters_; }

  // Runs it; empty if all agreed, else what differed first.
  std::string Run() {
    if (Below(8) != 0) BeginStep();
    for (oracle::Connection& c : world_->connections) {
      for (uint64_t posts = 1 + Below(4); posts > 0; --posts) Post(c);
    }
    const uint64_t count = 12 + Below(20);
    for (uint64_t i = 0; i < count && failure_.empty(); ++i) {
      RandomEvent();
      Settle();
    }
    while (failure_.empty() && CloseOne()) Settle();
    return failure_;
  }

 private:
  uint64_t Below(uint64_t bound) { return draw_.Below(bound); }
  uint32_t Pick(std::initializer_list<uint32_t> values) { return values.begin()[Below(values.size())]; }

  void AddConnection(size_t number) {
    oracle::Connection& c = world_->connections[number];
    uint64_t start = 0;
    for (int i = 0; i < 8; ++i) {
      oracle::Message m;
      m.length = static_cast<uint32_t>(Pick({0, 16, 1, 2, 3, 4}) == 0 ? 0 : Below(Pick({33, 150, 400, 900})));
      m.start = start;
      m.bytes.resize(m.length);
      start = m.end();
      c.messages.push_back(m);
    }
    c.reports_left.resize(start / kUnitBytes + 1);
    c.added.resize(start / kUnitBytes + 1);
    receivers_.push_back(std::make_unique<Receiver>(config_, max_payload_, ConnectionHandle{uint32_t(number)},
                                                    100 + number, steps_.get(), &counters_, events_));
    receivers_.back()->set_rtt(oracle::World::rtt);
    packets_.push_back(0);
    early_.emplace_back();
  }

  oracle::Connection& AnyConnection() {
    current_ = Below(receivers_.size());
    return world_->connections[current_];
  }

  void RandomEvent() {
    const uint64_t what = Below(100);
    oracle::Connection& c = AnyConnection();
    if (what < 12) {
      Post(c);
    } else if (what < 50) {
      SendData(c, RandomSegment(c));
    } else if (what < 80) {
      SendTrim(c, RandomSegment(c));
    } else if (what < 85) {
      Below(2) == 0 ? SendData(c, last_segment_) : SendTrim(c, last_segment_);
    } else if (what < 89) {
      BeginStep();
    } else if (what < 92) {
      EndStep();
    } else if (what < 96) {
      SendMalformed(c);
    } else if (what == 96) {
      Close(c);
    } else if (what < 99) {
      SendEarly(c);
    } else {
      world_->now = world_->now + Microseconds(static_cast<int64_t>(Below(150)));
    }
  }

  // ---- Events ----

  void Log(const char* what, uint64_t a, uint64_t b = 0, uint64_t c = 0) {
    if (!verbose_) return;
    std::printf("connection %zu: %s %llu %llu %llu\n", current_, what, static_cast<unsigned long long>(a),
                static_cast<unsigned long long>(b), static_cast<unsigned long long>(c));
  }

  void BeginStep() {
    StepPlan plan;
    plan.step = newest_step_ + Below(3);
    plan.p = Fraction{Pick({0, 5000, 100000, 100000, 300000, 500000, 1000000})};
    plan.expected_bytes = Below(4) == 0 ? 0 : Below(3000);
    const bool may_overlap = Below(3) == 0;
    Log("begin step, p, expected", plan.step, plan.p.ppm, plan.expected_bytes);
    const StepResult result = world_->Begin(plan, may_overlap);
    Same("result of Begin", static_cast<uint64_t>(steps_->Begin(plan, may_overlap)), static_cast<uint64_t>(result));
    if (result == StepResult::kOk) newest_step_ = plan.step;
  }

  void EndStep() {
    const uint64_t step = newest_step_ - std::min(newest_step_, Below(2));
    Log("end step", step);
    const StepResult result = world_->End(step);
    Same("result of End", static_cast<uint64_t>(steps_->End(step)), static_cast<uint64_t>(result));
  }

  void Post(oracle::Connection& c) {
    if (c.posted == c.messages.size()) return;
    current_ = static_cast<size_t>(&c - world_->connections.data());
    oracle::Message& m = c.messages[c.posted];
    ReceiveRequest request;
    request.cookie = 1000 * current_ + c.posted;
    request.capacity = m.length + Below(2) * Below(50);
    request.has_step = Below(8) != 0;
    request.step = newest_step_ - std::min(newest_step_, Below(8) / 7);
    request.exempt_eligible = Below(6) != 0;
    request.forgivable = Below(6) != 0;
    request.contributions = static_cast<uint32_t>(1 + Below(4));
    if (Below(10) != 0) {
      m.buffer.assign(request.capacity + kGuardBytes, kUntouched);
      m.expected = m.buffer;
      request.buffer = m.buffer.data();
    }
    Log("post message, length, step", c.posted, m.length, request.step);
    const bool fits = c.posted - c.completed < config_.max_messages && !c.closed;
    Same("result of Post", receivers_[current_]->Post(request) ? 1 : 0, fits ? 1 : 0);
    if (fits) {
      world_->Post(c, request);
      TakeEarly(c);
    } else {
      m.buffer.clear();
      m.expected.clear();
    }
  }

  // A segment of any posted message, cut anywhere it may be cut; often at the first missing byte.
  oracle::Segment RandomSegment(oracle::Connection& c) {
    oracle::Segment s;
    if (c.posted == 0) return s;
    const uint32_t first = Below(5) == 0 ? 0 : std::min(c.completed, c.posted - 1);
    s.message = first + static_cast<uint32_t>(Below(Below(2) == 0 ? 1 : c.posted - first));
    const oracle::Message& m = c.messages[s.message];
    const uint32_t slots = m.length / 16 + 1;
    s.offset = static_cast<uint32_t>(16 * Below(slots));
    if (Below(2) == 0) {
      s.offset = 0;
      while (s.offset + 16 < m.length && m.bytes[s.offset].settled()) s.offset += 16;
    }
    const uint32_t rest = m.length - s.offset;
    const uint32_t units = static_cast<uint32_t>(1 + Below(max_payload_ / 16));
    s.length = rest <= max_payload_ && Below(2) == 0 ? rest : std::min(units * 16, rest);
    return s;
  }

  DataHeader Header(const oracle::Connection& c, const oracle::Segment& s) {
    const oracle::Message& m = c.messages[s.message];
    DataHeader header;
    header.payload_length = static_cast<uint16_t>(s.length);
    header.stream_offset = m.start + s.offset;
    header.message_number = s.message;
    header.offset_in_message = s.offset;
    header.message_length = m.length;
    // Mostly rising, sometimes overtaken.
    header.packet_number = packets_[current_] += 1 + Below(2);
    if (Below(5) == 0) header.packet_number -= std::min<uint64_t>(header.packet_number, Below(4));
    header.send_timestamp = static_cast<uint32_t>(draw_.Next());
    return header;
  }

  void SendData(oracle::Connection& c, const oracle::Segment& s) {
    if (!IsSendable(c, s)) return;
    last_segment_ = s;
    const DataHeader header = Header(c, s);
    const bool ce = Below(5) == 0;
    const uint8_t value = static_cast<uint8_t>(1 + Below(200));  // of this transmission alone
    uint8_t payload[512];
    std::memset(payload, value, sizeof(payload));
    Log("data of message, offset, length", s.message, s.offset, s.length);
    receivers_[current_]->AcceptPacketNumber(header.packet_number);
    receivers_[current_]->OnData(world_->now, header, payload, ce);
    world_->Data(c, s, header.packet_number, header.send_timestamp, value, ce, false);
  }

  // A message of one packet whose receive is not posted: it waits, and nothing changes.
  void SendEarly(oracle::Connection& c) {
    const uint32_t number = c.posted + static_cast<uint32_t>(Below(kEarlyMessages));
    if (c.closed || number >= c.messages.size() || c.messages[number].length > max_payload_) return;
    Early early;
    early.segment = {number, 0, c.messages[number].length};
    early.header = Header(c, early.segment);
    early.value = static_cast<uint8_t>(1 + Below(200));
    early.ce = Below(5) == 0;
    early.trimmed = early.segment.length != 0 && Below(3) == 0;
    uint8_t payload[512];
    std::memset(payload, early.value, sizeof(payload));
    Log("early message, length, trimmed", number, early.segment.length, early.trimmed ? 1 : 0);
    receivers_[current_]->AcceptPacketNumber(early.header.packet_number);
    if (early.trimmed) {
      receivers_[current_]->OnTrimmedHeader(world_->now, early.header, early.ce);
    } else {
      receivers_[current_]->OnData(world_->now, early.header, payload, early.ce);
    }
    if (!early_[current_].emplace(number, early).second) ++world_->counters.out_of_window;
  }

  // Its receive was posted: now it has arrived.
  void TakeEarly(oracle::Connection& c) {
    const auto found = early_[current_].find(c.posted - 1);
    const bool drop = Below(8) == 0;
    receivers_[current_]->TakeEarly(world_->now, drop);
    if (found == early_[current_].end()) return;
    const Early early = found->second;
    early_[current_].erase(found);
    if (drop) return;
    if (early.trimmed) {
      world_->Trim(c, early.segment, early.header.packet_number, early.ce);
    } else {
      world_->Data(c, early.segment, early.header.packet_number, 0, early.value, early.ce, true);
    }
  }

  void SendTrim(oracle::Connection& c, const oracle::Segment& s) {
    if (!IsSendable(c, s)) return;
    last_segment_ = s;
    const DataHeader header = Header(c, s);
    const bool ce = Below(9) == 0;
    Log("trim of message, offset, length", s.message, s.offset, s.length);
    receivers_[current_]->AcceptPacketNumber(header.packet_number);
    receivers_[current_]->OnTrimmedHeader(world_->now, header, ce);
    world_->Trim(c, s, header.packet_number, ce);
  }

  // The last segment may have been another connection's.
  bool IsSendable(const oracle::Connection& c, const oracle::Segment& s) const {
    if (s.message >= c.posted) return false;
    const uint32_t length = c.messages[s.message].length;
    const uint32_t end = s.offset + s.length;
    return end == length || (end < length && s.length % 16 == 0 && s.length != 0);
  }

  // A header that contradicts itself or what is known; nothing may change but one counter.
  void SendMalformed(oracle::Connection& c) {
    const oracle::Segment s = RandomSegment(c);
    if (c.closed || !IsSendable(c, s)) return;
    DataHeader header = Header(c, s);
    const uint64_t what = Below(6);
    if (what == 0) header.message_number = c.posted + kEarlyMessages + static_cast<uint32_t>(Below(3));
    if (what == 1) header.stream_offset += 8;
    if (what == 2) header.offset_in_message += 16 * (c.messages[s.message].length / 16 + 1);
    if (what == 3) header.payload_length = static_cast<uint16_t>(max_payload_ + 16);
    if (what == 4) header.stream_offset += 16;
    if (what == 4 && s.message < c.completed) header.message_number = c.posted + kEarlyMessages;
    if (what == 5) header.payload_length = static_cast<uint16_t>(header.payload_length + 1);
    if (what == 4 && s.message >= c.completed && !Anchored(c, s.message)) return;
    if (what == 5 && s.offset + s.length + 1 == c.messages[s.message].length) return;  // that would be its end
    Log("malformed kind, message, offset", what, s.message, s.offset);
    const uint64_t refused = counters_.malformed + counters_.out_of_window;
    const uint8_t payload[1024] = {};
    receivers_[current_]->OnData(world_->now, header, payload, true);
    Same("refusal of a malformed header", counters_.malformed + counters_.out_of_window, refused + 1);
    world_->counters.malformed = counters_.malformed;
    world_->counters.out_of_window = counters_.out_of_window;
  }

  // True if the receiver can know where the message starts.
  bool Anchored(const oracle::Connection& c, uint32_t number) const {
    return number == c.completed || receivers_[current_]->messages().at(number).known;
  }

  void Close(oracle::Connection& c) {
    if (c.closed || Below(2) == 0) return;
    Log("close", 0);
    receivers_[current_]->Close();
    world_->Close(c);
  }

  bool CloseOne() {
    for (current_ = 0; current_ < receivers_.size(); ++current_) {
      oracle::Connection& c = world_->connections[current_];
      if (c.closed) continue;
      receivers_[current_]->Close();
      world_->Close(c);
      return true;
    }
    return false;
  }

  // ---- Comparison after every event ----

  void Settle() {
    if (steps_->changes() != seen_changes_) {
      seen_changes_ = steps_->changes();
      for (auto& receiver : receivers_) receiver->OnStepsChanged();
    }
    world_->NoteFlags();
    CompareEvents();
    CompareCounters();
    CompareSteps();
    const bool drain = ++undrained_ == 5 || Below(3) != 0;
    if (drain) undrained_ = 0;
    for (size_t i = 0; i < receivers_.size(); ++i) {
      CompareConnection(*receivers_[i], world_->connections[i]);
      if (drain) CompareReports(*receivers_[i], world_->connections[i]);
    }
  }

  void Same(const char* what, uint64_t is, uint64_t should_be) {
    if (is == should_be || !failure_.empty()) return;
    failure_ = std::string(what) + " is " + std::to_string(is) + ", should be " + std::to_string(should_be);
  }

  void CompareEvents() {
    Event event;
    for (const Event& expected : world_->events) {
      if (!events_->Pop(&event)) return Same("number of events", 0, 1);
      Same("event kind", static_cast<uint64_t>(event.kind), static_cast<uint64_t>(expected.kind));
      Same("event cookie", event.cookie, expected.cookie);
      Same("event size", event.size, expected.size);
      Same("event step", event.step, expected.step);
      Same("event message", event.message, expected.message);
      Same("event offset", event.offset, expected.offset);
      Same("event length", event.length, expected.length);
      Same("event contributions", event.contributions, expected.contributions);
      Same("event connection", event.connection.value, current_);
      Same("event connection id", event.connection_id, 100 + current_);
      if (event.kind == Event::Kind::kReceived) GiveBack(world_->connections[current_].messages[event.message]);
    }
    Same("events too many", events_->size(), 0);
    world_->events.clear();
  }

  // The application uses its buffer for something else now: nothing may write to it any more.
  void GiveBack(oracle::Message& m) {
    Same("bytes of a whole message", m.buffer == m.expected ? 1 : 0, 1);
    std::fill(m.buffer.begin(), m.buffer.end(), kApplication);
    m.expected = m.buffer;
  }

  void CompareCounters() {
    const Counters& a = counters_;
    const Counters& b = world_->counters;
    Same("received_bytes", a.received_bytes, b.received_bytes);
    Same("duplicate_bytes", a.duplicate_bytes, b.duplicate_bytes);
    Same("late_bytes", a.late_bytes, b.late_bytes);
    Same("forgiven_bytes", a.forgiven_bytes, b.forgiven_bytes);
    Same("contributions_lost", a.contributions_lost, b.contributions_lost);
    Same("packets_received", a.packets_received, b.packets_received);
    Same("trims", a.trims, b.trims);
    Same("trimmed_bytes", a.trimmed_bytes, b.trimmed_bytes);
    Same("marks", a.marks, b.marks);
    Same("malformed", a.malformed, b.malformed);
    Same("out_of_window", a.out_of_window, b.out_of_window);
    for (size_t i = 0; i < kDecisions; ++i) Same("decisions of a reason", a.decisions[i], b.decisions[i]);
  }

  void CompareSteps() {
    for (const oracle::Step& step : world_->steps) {
      const StepAccount& b = step.account;
      const StepAccount* a = steps_->Find(b.step);
      if (a == nullptr) {  // its entry was needed again
        Same("messages of a forgotten step", 0, b.messages);
        Same("a forgotten step is open", 0, b.open ? 1 : 0);
        continue;
      }
      Same("step p", a->p.ppm, b.p.ppm);
      Same("step open", a->open ? 1 : 0, b.open ? 1 : 0);
      Same("step expected", a->expected, b.expected);
      Same("step budget", a->budget, b.budget);
      Same("step received", a->received, b.received);
      Same("step forgiven", a->forgiven, b.forgiven);
      Same("step outstanding", a->outstanding, b.outstanding);
      Same("step charged", a->charged, b.charged);
      Same("step outstanding charge", a->outstanding_charge, b.outstanding_charge);
      Same("step largest cost", a->largest_cost, b.largest_cost);
      const bool contributions = config_.budget_unit == BudgetUnit::kContributions;
      Same("step charged, by its unit", a->charged, contributions ? b.contributions_lost : b.forgiven);
      Same("charged within the budget", a->charged <= a->budget ? 1 : 0, 1);
      const uint64_t arrived = a->received + a->forgiven;
      Same("charged within p of what arrived", a->charged * 1000000 <= a->p.ppm * arrived ? 1 : 0, 1);
      Same("step settled", a->settled, b.settled);
      Same("step contributions lost", a->contributions_lost, b.contributions_lost);
      Same("step trims", a->trims, b.trims);
      Same("step messages", a->messages, b.messages);
      Same("forgiven within the budget", a->forgiven <= a->budget ? 1 : 0, 1);
      Same("forgiven (1 - p) within p received", a->forgiven * (1000000 - a->p.ppm) <= a->p.ppm * a->received ? 1 : 0,
           1);
      uint64_t counted = 0;
      uint64_t recounted = 0;
      for (size_t i = 0; i < receivers_.size(); ++i) {
        recounted += receivers_[i]->RecountOutstanding(b.step);
        for (const oracle::Message& m : world_->connections[i].messages) {
          if (m.step != &step) continue;
          for (const oracle::Byte& byte : m.bytes) counted += byte.counted ? 1 : 0;
        }
      }
      Same("step outstanding, counted in the oracle's bytes", a->outstanding, counted);
      Same("step outstanding, counted in the receivers' scoreboards", a->outstanding, recounted);
    }
  }

  void CompareConnection(const Receiver& receiver, const oracle::Connection& c) {
    Same("rcv_nxt", receiver.rcv_nxt(), c.rcv_nxt);
    Same("posted", receiver.posted_messages(), c.posted);
    Same("completed", receiver.completed_messages(), c.completed);
    Same("unfinished", receiver.HasUnfinished() ? 1 : 0, !c.closed && c.posted != c.completed ? 1 : 0);
    Same("failed", receiver.failed() ? 1 : 0, 0);
    Same("deadline", static_cast<uint64_t>(receiver.report_deadline().ns),
         static_cast<uint64_t>(world_->Deadline(c).ns));
    for (const oracle::Message& m : c.messages) {
      if (!m.buffer.empty()) Same("buffers", m.buffer == m.expected ? 1 : 0, 1);
    }
    // Each connection has a scoreboard of its own: only the event's could change.
    if (c.closed || &receiver != receivers_[current_].get()) return;
    Same("CheckAll", receiver.CheckAll() ? 1 : 0, 1);
    for (uint32_t i = c.completed; i < c.posted; ++i) CompareBytes(receiver.scoreboard(), c.messages[i]);
  }

  void CompareBytes(const Scoreboard& scoreboard, const oracle::Message& m) {
    for (uint64_t position = m.start; position < m.end(); position += position % 16 == 0 ? 15 : 1) {
      const uint64_t unit = position / kUnitBytes;
      if (unit < scoreboard.base() || unit >= scoreboard.base() + scoreboard.span()) continue;
      const oracle::Byte byte = m.At(position);
      Same("byte settled", scoreboard.IsSettled(unit) ? 1 : 0, byte.settled() ? 1 : 0);
      Same("byte forgiven", scoreboard.IsForgiven(unit) ? 1 : 0, byte.forgiven ? 1 : 0);
      Same("byte requested", scoreboard.IsRequested(unit) ? 1 : 0, byte.requested ? 1 : 0);
      Same("byte counted", scoreboard.IsCounted(unit) ? 1 : 0, byte.counted ? 1 : 0);
    }
  }

  void CompareReports(Receiver& receiver, oracle::Connection& c) {
    Report a;
    while (failure_.empty() && world_->Deadline(c) <= world_->now) {
      const Report b = world_->TakeReport(c);
      if (!receiver.NextReport(world_->now, &a)) return Same("a report is due", 0, 1);
      Same("report number", a.report_number, b.report_number);
      Same("report eligible", a.exempt_eligible ? 1 : 0, b.exempt_eligible ? 1 : 0);
      Same("report exhausted", a.budget_exhausted ? 1 : 0, b.budget_exhausted ? 1 : 0);
      Same("report trimmed", a.trimmed ? 1 : 0, b.trimmed ? 1 : 0);
      Same("report closing", a.closing ? 1 : 0, b.closing ? 1 : 0);
      Same("report has newest", a.has_newest ? 1 : 0, b.has_newest ? 1 : 0);
      Same("report has step start", a.has_step_start ? 1 : 0, b.has_step_start ? 1 : 0);
      Same("report completed", a.completed_messages, b.completed_messages);
      Same("report rcv_nxt", a.rcv_nxt, b.rcv_nxt);
      Same("report credit", a.posted_messages, b.posted_messages);
      Same("report same step end", a.same_step_end, b.same_step_end);
      Same("report step start", a.step_start_message, b.step_start_message);
      if (b.has_newest) Same("report newest", a.newest_packet_number, b.newest_packet_number);
      if (b.has_newest) Same("report timestamp", a.newest_timestamp, b.newest_timestamp);
      if (b.trimmed) Same("report trimmed packet", a.trimmed_packet_number, b.trimmed_packet_number);
      Same("report received bytes", a.received_bytes, b.received_bytes);
      Same("report marked bytes", a.ce_bytes, b.ce_bytes);
      SameRanges("report requests", a.requests.data(), a.request_count, b.requests.data(), b.request_count);
      SameRanges("report SACK ranges", a.sacks.data(), a.sack_count, b.sacks.data(), b.sack_count);
    }
    Same("a report that is not due", receiver.NextReport(world_->now, &a) ? 1 : 0, 0);
  }

  void SameRanges(const char* what, const Range* a, uint32_t a_count, const Range* b, uint32_t b_count) {
    Same(what, a_count, b_count);
    for (uint32_t i = 0; i < a_count && failure_.empty(); ++i) {
      Same(what, a[i].begin, b[i].begin);
      Same(what, a[i].end, b[i].end);
    }
  }

  Draw draw_;
  EventQueue* const events_;
  const bool verbose_;
  Config config_;
  uint32_t max_payload_ = 0;
  Counters counters_;
  std::unique_ptr<StepTable> steps_;
  std::unique_ptr<oracle::World> world_;
  std::vector<std::unique_ptr<Receiver>> receivers_;
  std::vector<uint64_t> packets_;
  // Came before its receive.
  struct Early {
    oracle::Segment segment;
    DataHeader header;
    uint8_t value = 0;
    bool ce = false;
    bool trimmed = false;
  };
  std::vector<std::map<uint32_t, Early>> early_;  // of each connection, by message
  size_t current_ = 0;
  oracle::Segment last_segment_;
  uint64_t newest_step_ = 1;
  uint64_t seen_changes_ = 0;
  int undrained_ = 0;
  std::string failure_;
};

void Add(const Counters& counters, Counters* sum) {
  sum->late_bytes += counters.late_bytes;
  sum->duplicate_bytes += counters.duplicate_bytes;
  sum->out_of_window += counters.out_of_window;
  sum->malformed += counters.malformed;
  for (size_t i = 0; i < kDecisions; ++i) sum->decisions[i] += counters.decisions[i];
}

TEST(ReceiverOracle, AgreesWithArraysOfBytesAfterEveryEventOfRandomSequences) {
  const uint64_t first = FromEnvironment("FORGIVE_TEST_SEED", kFirstSeed);
  const uint64_t count = FromEnvironment("FORGIVE_TEST_SEQUENCES", kSequences);
  EventQueue events(2 * EventQueue::kReserve);
  Counters reached;
  for (uint64_t seed = first; seed < first + count; ++seed) {
    Sequence sequence(seed, &events, false);
    const std::string failure = sequence.Run();
    if (failure.empty()) {
      Add(sequence.counters(), &reached);
      continue;
    }
    Event left;
    while (events.Pop(&left)) continue;
    Sequence(seed, &events, true).Run();  // again, with its events printed
    FAIL() << failure << "\nrepeat: FORGIVE_TEST_SEED=" << seed << " FORGIVE_TEST_SEQUENCES=1 receiver_oracle_test";
  }
  if (count < 1000) return;
  // Agreement means something only where things happened.
  EXPECT_GT(reached.late_bytes, count);
  EXPECT_GT(reached.duplicate_bytes, count);
  EXPECT_GT(reached.out_of_window, count / 100);
  EXPECT_GT(reached.malformed, count / 100);
  for (size_t i = 0; i < kDecisions; ++i) EXPECT_GT(reached.decisions[i], count / 100) << "reason " << i;
}

}  // namespace
}  // namespace forgive
