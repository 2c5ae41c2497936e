// SPDX-License-Identifier: Apache-2.0
// The receiver's oracle: the seed's rules on arrays of bytes, without bitmaps, ranges or shortcuts.
#ifndef FORGIVE_TESTS_TRANSPORT_RECEIVER_ORACLE_H_
#define FORGIVE_TESTS_TRANSPORT_RECEIVER_ORACLE_H_

#include <algorithm>
#include <cstdint>
#include <deque>
#include <vector>

#include "transport/receiver.h"

namespace forgive::oracle {

struct Step {
  StepAccount account;  // what the table should say
};

// One payload byte of a message.
struct Byte {
  bool received = false;
  bool forgiven = false;
  bool requested = false;
  bool counted = false;
  bool settled() const { return received || forgiven; }
};

struct Message {
  ReceiveRequest facts;  // as posted; without an open step nothing is set
  Step* step = nullptr;
  uint32_t length = 0;
  uint64_t start = 0;  // stream position
  uint64_t padded() const { return (uint64_t{length} + 15) / 16 * 16; }
  uint64_t end() const { return start + padded() + 16; }
  std::vector<Byte> bytes;
  bool end_settled = false;
  bool posted = false;
  bool done = false;
  std::vector<uint8_t> buffer;    // the receiver writes here
  std::vector<uint8_t> expected;  // and should have written this

  // The state of a stream position of this message: padding follows the last byte, the end slot is its own.
  Byte At(uint64_t position) const {
    const uint64_t offset = position - start;
    if (offset < length) return bytes[offset];
    if (offset < padded()) return bytes[length - 1];
    Byte slot;
    slot.received = end_settled;
    return slot;
  }
};

struct Segment {
  uint32_t message = 0;
  uint32_t offset = 0;
  uint32_t length = 0;
};

struct PendingTrim {
  uint32_t packet_number = 0;
  uint64_t begin = 0;  // stream positions of its payload units
  uint64_t end = 0;
};

struct ReportState {
  bool due = false;
  uint32_t packets = 0;
  TimePoint first_packet;
  std::deque<PendingTrim> trims;
  uint64_t number = 0;
  uint64_t received_bytes = 0;
  uint64_t ce_bytes = 0;
  bool last_ce = false;
  bool has_newest = false;
  uint64_t newest_number = 0;
  uint32_t newest_timestamp = 0;
  bool eligible = false;  // as last reported
  bool exhausted = false;
};

struct Connection {
  std::vector<Message> messages;
  uint32_t posted = 0;
  uint32_t completed = 0;
  uint64_t rcv_nxt = 0;
  bool closed = false;
  bool closing_due = false;
  bool has_step_start = false;
  uint32_t step_start = 0;
  uint64_t newest_step = 0;
  ReportState report;
  // Per unit of the stream: in how many more reports its run is named, and when it was last added to them.
  std::vector<uint32_t> reports_left;
  std::vector<uint64_t> added;

  const Message* Owner(uint64_t position) const {
    for (uint32_t i = 0; i < posted; ++i) {
      if (position >= messages[i].start && position < messages[i].end()) return &messages[i];
    }
    return nullptr;
  }
  Byte At(uint64_t position) const {
    const Message* owner = Owner(position);
    return owner == nullptr ? Byte{} : owner->At(position);
  }
};

// All connections of a rank and its steps. Each call says what the receiver must have done by then.
class World {
 public:
  World(const Config& config, uint32_t max_payload, uint64_t draw_seed)
      : config_(config), max_payload_(max_payload), draw_(draw_seed) {}

  std::vector<Connection> connections;
  std::deque<Step> steps;  // by rising number
  Counters counters;
  std::vector<Event> events;  // of the last call; the caller empties it
  TimePoint now{1000000};

  StepResult Begin(const StepPlan& plan, bool may_overlap) {
    uint32_t in_use = 0;
    for (const Step& step : steps) {
      if (step.account.open && !may_overlap) return StepResult::kStepOpen;
      if (step.account.open || step.account.messages > 0) ++in_use;
    }
    if (!steps.empty() && plan.step <= steps.back().account.step) return StepResult::kNotRising;
    if (in_use >= config_.max_steps) return StepResult::kTableFull;
    Step step;
    step.account.step = plan.step;
    step.account.open = true;
    step.account.p = plan.p;
    step.account.expected = plan.expected_bytes;
    if (plan.expected_bytes == 0 && last_closed_ != nullptr) step.account.expected = last_closed_->account.settled;
    step.account.budget = step.account.expected * plan.p.ppm / 1000000;
    steps.push_back(step);
    return StepResult::kOk;
  }

  StepResult End(uint64_t number) {
    for (Step& step : steps) {
      if (step.account.step != number || !step.account.open) continue;
      step.account.open = false;
      last_closed_ = &step;
      return StepResult::kOk;
    }
    return StepResult::kNotOpen;
  }

  void Post(Connection& c, const ReceiveRequest& request) {
    Message& m = c.messages[c.posted];
    m.posted = true;
    m.facts.cookie = request.cookie;
    m.facts.contributions = request.contributions;
    for (Step& step : steps) {
      if (!request.has_step || !step.account.open || step.account.step != request.step) continue;
      m.step = &step;
      m.facts = request;
      m.facts.forgivable = request.forgivable && request.exempt_eligible;
      ++step.account.messages;
      step.account.largest_cost = std::max(step.account.largest_cost, Cost(m));
      if (!c.has_step_start || c.newest_step != request.step) {
        c.has_step_start = true;
        c.newest_step = request.step;
        c.step_start = c.posted;
      }
    }
    ++c.posted;
    c.report.due = true;
  }

  // `value` is what every byte of the payload holds. `early`: it came before its receive, and says nothing of the
  // RTT.
  void Data(Connection& c, const Segment& s, uint64_t packet_number, uint32_t timestamp, uint8_t value, bool ce,
            bool early) {
    if (c.closed) c.closing_due = true;
    if (c.closed || !InWindow(c, s)) return;
    CountArrival(c, s, ce);
    if (!early) NoteNewest(c, packet_number, timestamp);
    Message& m = c.messages[s.message];
    for (uint32_t i = s.offset; i < s.offset + s.length; ++i) {
      Byte& byte = m.bytes[i];
      if (byte.settled()) {
        const bool remembered = (m.start + i) / 16 + Span() >= c.rcv_nxt / 16;
        ++(byte.forgiven && remembered ? counters.late_bytes : counters.duplicate_bytes);
        continue;
      }
      byte.received = true;
      byte.requested = false;
      if (byte.counted) Uncount(m);
      byte.counted = false;
      if (m.facts.forgivable) {
        ++m.step->account.settled;
        if (m.step->account.open) ++m.step->account.received;
      }
      if (!m.buffer.empty()) m.expected[i] = value;
      ++counters.received_bytes;
    }
    if (s.offset + s.length == m.length) m.end_settled = true;
    AfterSettling(c, s);
    if (c.report.packets++ == 0) c.report.first_packet = now;
  }

  void Trim(Connection& c, const Segment& s, uint64_t packet_number, bool ce) {
    if (c.closed) c.closing_due = true;
    if (c.closed || !InWindow(c, s)) return;
    Message& m = c.messages[s.message];
    ++counters.trims;
    counters.trimmed_bytes += s.length;
    counters.marks += ce ? 1 : 0;
    if (s.offset + s.length == m.length) m.end_settled = true;
    ++counters.decisions[static_cast<size_t>(OnTrimmedHeader(m, s))];
    AfterSettling(c, s);
    const uint64_t begin = m.start + s.offset;
    c.report.trims.push_back({static_cast<uint32_t>(packet_number), begin, begin + (s.length + 15) / 16 * 16});
  }

  void Close(Connection& c) {
    c.closed = true;
    c.closing_due = true;
    for (uint32_t i = c.completed; i < c.posted; ++i) {
      Message& m = c.messages[i];
      if (m.done || m.step == nullptr) continue;
      for (Byte& byte : m.bytes) {
        if (byte.counted) Uncount(m);
        byte.counted = false;
      }
      --m.step->account.messages;
    }
  }

  // To be called after every change: a report is due where a flag differs from what was last reported.
  void NoteFlags() {
    for (Connection& c : connections) {
      if (c.closed) continue;
      const Report flags = Flags(c);
      if (flags.exempt_eligible != c.report.eligible || flags.budget_exhausted != c.report.exhausted) {
        c.report.due = true;
      }
    }
  }

  TimePoint Deadline(const Connection& c) const {
    if (c.closed) return c.closing_due ? TimePoint{} : kNever;
    const ReportState& r = c.report;
    if (r.due || !r.trims.empty() || r.packets >= config_.report_every_packets) return TimePoint{};
    return r.packets == 0 ? kNever : r.first_packet + std::min(rtt / 4, config_.max_report_delay);
  }

  Report TakeReport(Connection& c) {
    ReportState& r = c.report;
    Report out = c.closed ? Report{} : Flags(c);
    out.report_number = ++r.number;
    out.closing = c.closed;
    c.closing_due = false;
    out.trimmed = !c.closed && !r.trims.empty();
    if (out.trimmed) {
      FillRequests(c, r.trims.front(), &out);
    } else {
      r.packets = 0;
    }
    if (!r.trims.empty()) r.trims.pop_front();
    r.due = false;
    if (!c.closed) {
      r.eligible = out.exempt_eligible;
      r.exhausted = out.budget_exhausted;
    }
    out.has_newest = r.has_newest && !out.trimmed;
    out.newest_packet_number = static_cast<uint32_t>(r.newest_number);
    out.newest_timestamp = r.newest_timestamp;
    out.has_step_start = c.has_step_start;
    out.step_start_message = c.step_start;
    out.completed_messages = c.completed;
    out.posted_messages = c.posted;
    out.rcv_nxt = c.rcv_nxt;
    out.received_bytes = r.received_bytes;
    out.ce_bytes = r.ce_bytes;
    out.same_step_end = SameStepEnd(c);
    FillSacks(c, &out);
    return out;
  }

  static constexpr Nanoseconds rtt = Microseconds(400);

 private:
  // Of a byte of the message, in the budget's unit.
  uint32_t Cost(const Message& m) const {
    return config_.budget_unit == BudgetUnit::kBytes ? 1 : m.facts.contributions;
  }
  void Uncount(const Message& m) const {
    --m.step->account.outstanding;
    m.step->account.outstanding_charge -= Cost(m);
  }

  uint64_t Span() const { return config_.scoreboard_bytes / 16; }

  bool InWindow(const Connection& c, const Segment& s) {
    const Message& m = c.messages[s.message];
    const uint64_t end = s.offset + s.length == m.length ? m.end() : m.start + s.offset + s.length;
    if (end <= c.rcv_nxt + config_.scoreboard_bytes) return true;
    ++counters.out_of_window;
    return false;
  }

  void CountArrival(Connection& c, const Segment& s, bool ce) {
    ++counters.packets_received;
    counters.marks += ce ? 1 : 0;
    c.report.received_bytes += s.length;
    if (ce) c.report.ce_bytes += s.length;
    if (ce != c.report.last_ce) c.report.due = true;
    c.report.last_ce = ce;
  }

  static void NoteNewest(Connection& c, uint64_t packet_number, uint32_t timestamp) {
    if (c.report.has_newest && packet_number < c.report.newest_number) return;
    c.report.has_newest = true;
    c.report.newest_number = packet_number;
    c.report.newest_timestamp = timestamp;
  }

  // The seed's handler of this name, byte by byte.
  Decision OnTrimmedHeader(Message& m, const Segment& s) {
    const bool eligible = m.facts.exempt_eligible && !m.done;
    if (eligible) ++m.step->account.trims;
    uint64_t missing = 0;
    for (uint32_t i = s.offset; i < s.offset + s.length; ++i) missing += m.bytes[i].settled() ? 0 : 1;
    if (missing == 0) return Decision::kAlreadySettled;
    if (eligible && m.step->account.open) {
      for (uint32_t i = s.offset; i < s.offset + s.length; ++i) {
        if (m.bytes[i].settled() || m.bytes[i].counted) continue;
        m.bytes[i].counted = true;
        ++m.step->account.outstanding;
        m.step->account.outstanding_charge += Cost(m);
      }
    }
    const Decision decision = Decide(m, missing);
    for (uint32_t i = s.offset; i < s.offset + s.length; ++i) {
      if (m.bytes[i].settled()) continue;
      m.bytes[i].requested = decision != Decision::kForgiven;
      if (decision == Decision::kForgiven) Forgive(m, s.message, i);
    }
    return decision;
  }

  Decision Decide(const Message& m, uint64_t missing) {
    if (!m.facts.forgivable) return Decision::kNotForgivable;
    const StepAccount& step = m.step->account;
    if (!step.open) return Decision::kNoOpenBudget;
    const uint64_t charge = step.charged + missing * Cost(m);
    if (config_.budget_unit == BudgetUnit::kBytes) {
      // The seed's other form: forgiven + len <= p / (1 - p) received.
      if (charge * (1000000 - step.p.ppm) > step.received * step.p.ppm) return Decision::kNotVested;
    } else if (charge * 1000000 > (step.received + step.forgiven + missing) * step.p.ppm) {
      return Decision::kNotVested;
    }
    if (charge > step.budget) return Decision::kOverBudget;
    return draw_(config_.forgiveness_probability) ? Decision::kForgiven : Decision::kDrawRefused;
  }

  // Forgives byte i: a ledger line of its own unless it continues this trim's last one.
  void Forgive(Message& m, uint32_t number, uint32_t i) {
    m.bytes[i].forgiven = true;
    m.bytes[i].counted = false;
    StepAccount& step = m.step->account;
    ++step.forgiven;
    step.charged += Cost(m);
    ++step.settled;
    Uncount(m);
    step.contributions_lost += m.facts.contributions;
    ++counters.forgiven_bytes;
    counters.contributions_lost += m.facts.contributions;
    if (!m.buffer.empty()) m.expected[i] = 0;
    if (!events.empty() && events.back().offset + events.back().length == i) {
      ++events.back().length;
      return;
    }
    Event event;
    event.kind = Event::Kind::kForgiven;
    event.cookie = m.facts.cookie;
    event.step = step.step;
    event.message = number;
    event.offset = i;
    event.length = 1;
    event.contributions = m.facts.contributions;
    events.push_back(event);
  }

  void AfterSettling(Connection& c, const Segment& s) {
    Message& m = c.messages[s.message];
    const bool all = std::all_of(m.bytes.begin(), m.bytes.end(), [](const Byte& byte) { return byte.settled(); });
    if (!m.done && all && m.end_settled) {
      m.done = true;
      if (m.step != nullptr) --m.step->account.messages;
      Event event;
      event.kind = Event::Kind::kReceived;
      event.cookie = m.facts.cookie;
      event.size = m.length;
      event.step = m.step != nullptr ? m.step->account.step : 0;
      event.message = s.message;
      events.push_back(event);
      c.report.due = true;
    }
    while (c.completed < c.posted && c.messages[c.completed].done) ++c.completed;
    while (c.At(c.rcv_nxt).settled()) c.rcv_nxt += 16;
    NameSettled(c, s);
  }

  // Every settled run of the segment above rcv_nxt is named in the next three reports.
  void NameSettled(Connection& c, const Segment& s) {
    const Message& m = c.messages[s.message];
    const uint64_t begin = m.start + s.offset;
    const uint64_t end = s.offset + s.length == m.length ? m.end() : begin + s.length;
    bool in_run = false;
    for (uint64_t position = std::max(begin, c.rcv_nxt); position < end; position += 16) {
      const bool settled = m.At(position).settled();
      if (settled && !in_run) ++additions_;
      in_run = settled;
      if (!settled) continue;
      c.reports_left[position / 16] = 3;
      c.added[position / 16] = additions_;
    }
  }

  Report Flags(const Connection& c) const {
    Report flags;
    if (c.completed == c.posted) return flags;
    const Message& first = c.messages[c.completed];
    if (!first.facts.exempt_eligible) return flags;
    const StepAccount& step = first.step->account;
    flags.exempt_eligible = step.open && step.p.ppm > 0;
    flags.budget_exhausted =
        flags.exempt_eligible && step.charged + step.outstanding_charge + max_payload_ * Cost(first) > step.budget;
    return flags;
  }

  uint32_t SameStepEnd(const Connection& c) const {
    uint32_t end = c.completed;
    while (end < c.posted && c.messages[end].step == c.messages[c.completed].step &&
           c.messages[end].facts.exempt_eligible == c.messages[c.completed].facts.exempt_eligible) {
      ++end;
    }
    return end;
  }

  void FillRequests(const Connection& c, const PendingTrim& trim, Report* out) const {
    out->trimmed_packet_number = trim.packet_number;
    bool in_run = false;
    for (uint64_t position = std::max(trim.begin, c.rcv_nxt); position < trim.end; position += 16) {
      const bool missing = !c.At(position).settled();
      if (missing && !in_run) {
        if (out->request_count == kMaxRequestRanges) return;
        out->requests[out->request_count++] = {position, position};
      }
      if (missing) out->requests[out->request_count - 1].end = position + 16;
      in_run = missing;
    }
  }

  void FillSacks(Connection& c, Report* out) {
    struct Run {
      Range range;
      uint64_t added = 0;
    };
    std::vector<Run> runs;
    const uint64_t end = c.posted == 0 ? 0 : c.messages[c.posted - 1].end();
    bool in_run = false;
    for (uint64_t position = c.rcv_nxt; position < end; position += 16) {
      const bool settled = c.At(position).settled();
      if (settled && !in_run) runs.push_back({{position, position}, 0});
      in_run = settled;
      if (!settled) continue;
      runs.back().range.end = position + 16;
      uint32_t& left = c.reports_left[position / 16];
      if (left == 0) continue;
      --left;
      runs.back().added = std::max(runs.back().added, c.added[position / 16]);
    }
    std::sort(runs.begin(), runs.end(), [](const Run& a, const Run& b) { return a.added > b.added; });
    for (const Run& run : runs) {
      if (run.added != 0) out->sacks[out->sack_count++] = run.range;
    }
  }

  const Config config_;
  const uint32_t max_payload_;
  Draw draw_;
  Step* last_closed_ = nullptr;
  uint64_t additions_ = 0;
};

}  // namespace forgive::oracle

#endif  // FORGIVE_TESTS_TRANSPORT_RECEIVER_ORACLE_H_
