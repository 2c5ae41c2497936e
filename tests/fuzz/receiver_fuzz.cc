// SPDX-License-Identifier: Apache-2.0
// A script of posts, packets, trims, steps and reports drives one receiver beside a model by the byte.
#include <algorithm>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <vector>

#include "script.h"
#include "transport/check.h"
#include "transport/receiver.h"
#include "transport/wire.h"

namespace forgive {
namespace {

constexpr uint32_t kPayload = 64;
constexpr uint64_t kSpanBytes = 2048;
constexpr size_t kMaxPosts = 64;
constexpr uint32_t kWindow = 64;
constexpr uint8_t kUntouched = 0xcc;

// One for all runs, and drained by each: to make it anew would cost more than most scripts.
EventQueue& Events() {
  static EventQueue events(2 * EventQueue::kReserve);
  return events;
}

Config MakeConfig(uint8_t settings) {
  Config config;
  config.payload_crc = false;
  config.max_messages = 8;
  config.scoreboard_bytes = kSpanBytes;
  config.packet_number_window = kWindow;
  config.window_bytes = 4096;
  config.max_steps = 4;
  config.report_every_packets = 4;
  if ((settings & 2) != 0) config.forgiveness_probability = Fraction{500000};
  if ((settings & 4) != 0) config.budget_unit = BudgetUnit::kContributions;
  return config;
}

class Model {
 public:
  // Bit 0: only packets that the peer would send, and then every byte is checked. Else also any header.
  explicit Model(uint8_t settings)
      : exact_((settings & 1) != 0),
        config_(MakeConfig(settings)),
        steps_(config_.max_steps, config_.forgiveness_probability, 7, config_.experiments, config_.budget_unit),
        receiver_(config_, kPayload, ConnectionHandle{1}, 77, &steps_, &counters_, &Events()) {}
  ~Model() {
    Event event;
    while (Events().Pop(&event)) continue;
  }

  void Run(Script* script) {
    while (!script->done() && !receiver_.failed()) {
      Step(script);
      DrainEvents();
      CheckSteps();
    }
    FORGIVE_CHECK(receiver_.CheckAll());
    CheckOutstanding();
    if (exact_ && !receiver_.closed() && !receiver_.failed()) Finish();
  }

 private:
  enum class Byte : uint8_t { kMissing, kReceived, kForgiven };
  struct Message {
    std::vector<uint8_t> buffer;
    std::vector<Byte> state;  // by byte of what is sent
    uint64_t start = 0;       // stream position
    uint64_t step = 0;        // 0: none
    bool forgivable = false;
    bool done = false;
    uint32_t length() const { return static_cast<uint32_t>(state.size()); }
  };
  struct Account {
    bool open = true;
    uint64_t received = 0;
    uint64_t forgiven = 0;
  };

  static uint8_t Pattern(size_t message, size_t offset) {
    return static_cast<uint8_t>(1 + (message * 37 + offset * 11 + offset / 251) % 200);
  }

  void Step(Script* script) {
    switch (script->Below(12)) {
      case 0:
      case 1:
        return Post(script);
      case 2:
      case 3:
        return Segment(script, false);
      case 4:
      case 5:
        return Segment(script, true);
      case 6:
        return TakeReports();
      case 7:
        now_ = now_ + Nanoseconds{int64_t{1} << script->Below(24)};
        return TakeReports();
      case 8:
        return BeginStep(script);
      case 9:
        return EndStep(script);
      case 10:
        return Number(script);
      case 11:
        return Rare(script);
    }
  }

  void Post(Script* script) {
    const uint8_t facts = script->Byte();
    const size_t length = size_t{script->Byte()} * (1 + facts % 3);
    if (messages_.size() == kMaxPosts) return;
    Message message;
    message.buffer.assign(length + (facts & 8 ? 5 : 0), kUntouched);
    message.state.assign(length, Byte::kMissing);
    message.start = next_start_;
    ReceiveRequest request;
    request.cookie = messages_.size();
    request.buffer = message.buffer.data();
    request.capacity = message.buffer.size();
    request.contributions = 1 + facts % 4;
    const uint64_t step = newest_step_ - std::min<uint64_t>(newest_step_, facts >> 6 & 1);
    request.has_step = step != 0 && (facts & 16) != 0;
    request.step = step;
    request.exempt_eligible = (facts & 32) == 0;
    request.forgivable = (facts & 128) == 0;
    const bool open = request.has_step && accounts_.contains(step) && accounts_[step].open;
    if (open) {
      message.step = step;
      message.forgivable = request.exempt_eligible && request.forgivable;
    }
    if (!receiver_.Post(request)) return;
    next_start_ += (length + kUnitBytes - 1) / kUnitBytes * kUnitBytes + kUnitBytes;
    messages_.push_back(std::move(message));
    // Only a header with other fields than its message's can have come before: where the script is not exact.
    receiver_.TakeEarly(now_, (facts & 2) != 0);
  }

  // A segment of a posted message, whole or cut; in a script that is not exact perhaps with other fields.
  void Segment(Script* script, bool trimmed) {
    const uint8_t which = script->Byte();
    const size_t offset_units = script->Byte();
    const size_t units = script->Byte();
    if (messages_.empty()) return;
    // Nearly always one of the last, as the older ones are done.
    const size_t back = which % 9;
    const size_t number = messages_.size() - 1 - std::min(back, messages_.size() - 1);
    const uint32_t length = messages_[number].length();
    const uint32_t total = (length + kUnitBytes - 1) / kUnitBytes;
    const uint32_t first = total == 0 ? 0 : static_cast<uint32_t>(offset_units % total);
    const uint32_t most = std::min<uint32_t>(kPayload / kUnitBytes, total - first);
    const uint32_t count = most == 0 ? 0 : 1 + static_cast<uint32_t>(units % most);
    DataHeader header = HeaderOf(number, first * kUnitBytes, count * kUnitBytes);
    if (!exact_ && (which & 0x80) != 0) {
      Twist(script, &header);
      return trimmed ? receiver_.OnTrimmedHeader(now_, header, false) : OnForeignData(header);
    }
    if (trimmed) {
      Trim(number, header);
    } else {
      Arrive(number, header, (which & 0x40) != 0);
    }
  }

  DataHeader HeaderOf(size_t number, uint32_t offset, uint32_t most) {
    const Message& message = messages_[number];
    DataHeader header;
    header.payload_length = static_cast<uint16_t>(std::min(most, message.length() - offset));
    header.connection_id = 77;
    header.stream_offset = message.start + offset;
    header.message_number = static_cast<uint32_t>(number);
    header.offset_in_message = offset;
    header.message_length = message.length();
    header.packet_number = next_packet_++;
    header.send_timestamp = WireTimestamp(now_);
    return header;
  }

  void Twist(Script* script, DataHeader* header) {
    switch (script->Below(6)) {
      case 0:
        header->stream_offset += uint64_t{script->Byte()} * kUnitBytes;
        break;
      case 1:
        header->message_number += script->Byte();
        break;
      case 2:
        header->offset_in_message = script->Word();
        break;
      case 3:
        header->message_length = script->Word();
        break;
      case 4:
        header->payload_length = script->Word();
        break;
      case 5:
        header->stream_offset = script->Word64();
        header->message_length = script->Word32();
        header->offset_in_message = script->Word32();
        break;
    }
  }

  // As much payload as the header says, and no byte more: the address sanitizer sees a read behind it.
  void OnForeignData(const DataHeader& header) {
    const std::vector<uint8_t> payload(header.payload_length, 0x11);
    receiver_.OnData(now_, header, payload.data(), false);
  }

  void Arrive(size_t number, const DataHeader& header, bool ce) {
    std::vector<uint8_t> payload(header.payload_length);
    for (size_t i = 0; i < payload.size(); ++i) payload[i] = Pattern(number, header.offset_in_message + i);
    const uint64_t before = counters_.packets_received;
    const uint64_t out_of_window = counters_.out_of_window;
    const bool fits = FitsSpan(header);
    receiver_.OnData(now_, header, payload.data(), ce);
    if (!exact_ || receiver_.closed() || receiver_.failed()) return;
    FORGIVE_CHECK(counters_.packets_received == before + (fits ? 1 : 0));
    FORGIVE_CHECK(counters_.out_of_window == out_of_window + (fits ? 0 : 1));
    if (!fits) return;
    Message& message = messages_[number];
    for (size_t i = 0; i < header.payload_length; ++i) {
      Byte& state = message.state[header.offset_in_message + i];
      if (state != Byte::kMissing) continue;
      state = Byte::kReceived;
      if (message.forgivable && accounts_[message.step].open) ++accounts_[message.step].received;
    }
  }

  void Trim(size_t number, const DataHeader& header) {
    const uint64_t before = counters_.trims;
    const bool fits = FitsSpan(header);
    receiver_.OnTrimmedHeader(now_, header, false);
    if (!exact_ || receiver_.closed() || receiver_.failed()) return;
    FORGIVE_CHECK(counters_.trims == before + (fits ? 1 : 0));
    if (!fits) return;
    // Forgiven as a whole or not at all; the ledger says which, when the events are drained.
    const Message& message = messages_[number];
    const Event* line = nullptr;
    Event event;
    while (Events().Pop(&event)) {
      pending_.push_back(event);
      if (event.kind == Event::Kind::kForgiven) line = &pending_.back();
    }
    if (line == nullptr) return;
    FORGIVE_CHECK(message.forgivable && accounts_[message.step].open);
    uint64_t forgiven = 0, missing = 0;
    for (const Event& one : pending_) forgiven += one.kind == Event::Kind::kForgiven ? one.length : 0;
    for (size_t i = 0; i < header.payload_length; ++i) {
      missing += message.state[header.offset_in_message + i] == Byte::kMissing ? 1 : 0;
    }
    FORGIVE_CHECK(forgiven == missing);
  }

  bool FitsSpan(const DataHeader& header) const {
    const uint64_t end =
        (header.stream_offset + header.payload_length + kUnitBytes - 1) / kUnitBytes + (header.carries_end() ? 1 : 0);
    return end <= receiver_.scoreboard().base() + kSpanBytes / kUnitBytes;
  }

  void DrainEvents() {
    Event event;
    while (Events().Pop(&event)) pending_.push_back(event);
    for (; !pending_.empty(); pending_.pop_front()) {
      const Event& next = pending_.front();
      if (next.kind == Event::Kind::kForgiven) {
        OnForgiven(next);
      } else if (next.kind == Event::Kind::kReceived) {
        OnReceived(next);
      }
    }
  }

  void OnForgiven(const Event& event) {
    FORGIVE_CHECK(event.message < messages_.size());
    Message& message = messages_[event.message];
    FORGIVE_CHECK(event.length != 0 && event.step == message.step && message.forgivable);
    FORGIVE_CHECK(uint64_t{event.offset} + event.length <= message.buffer.size());
    accounts_[message.step].forgiven += event.length;
    for (uint32_t i = event.offset; i < event.offset + event.length; ++i) {
      FORGIVE_CHECK(message.done || message.buffer[i] == 0);
      if (!exact_) continue;
      FORGIVE_CHECK(message.state[i] == Byte::kMissing);
      message.state[i] = Byte::kForgiven;
    }
  }

  void OnReceived(const Event& event) {
    FORGIVE_CHECK(event.cookie < messages_.size());
    Message& message = messages_[event.cookie];
    FORGIVE_CHECK(!message.done);
    message.done = true;
    if (exact_) {
      FORGIVE_CHECK(event.size == message.length());
      CheckBytes(event.cookie, true);
    }
    std::vector<uint8_t>().swap(message.buffer);  // the application's again
  }

  void CheckBytes(size_t number, bool whole) const {
    const Message& message = messages_[number];
    for (size_t i = 0; i < message.buffer.size(); ++i) {
      const Byte state = i < message.length() ? message.state[i] : Byte::kMissing;
      FORGIVE_CHECK(!whole || i >= message.length() || state != Byte::kMissing);
      const uint8_t expected = state == Byte::kReceived   ? Pattern(number, i)
                               : state == Byte::kForgiven ? uint8_t{0}
                                                          : kUntouched;
      FORGIVE_CHECK(message.buffer[i] == expected);
    }
  }

  void CheckSteps() {
    for (const auto& [step, mine] : accounts_) {
      const StepAccount* account = steps_.Find(step);
      if (account == nullptr) continue;  // its entry serves another step
      FORGIVE_CHECK(account->forgiven <= account->charged && account->charged <= account->budget);
      FORGIVE_CHECK(uint128{account->charged} * Fraction::kOne <=
                    (uint128{account->received} + account->forgiven) * account->p.ppm);
      FORGIVE_CHECK(account->forgiven == mine.forgiven);
      if (exact_) FORGIVE_CHECK(account->received == mine.received);
    }
    FORGIVE_CHECK(receiver_.rcv_nxt() >= rcv_nxt_);
    rcv_nxt_ = receiver_.rcv_nxt();
  }

  void CheckOutstanding() {
    for (const auto& [step, mine] : accounts_) {
      const StepAccount* account = steps_.Find(step);
      if (account != nullptr) FORGIVE_CHECK(account->outstanding == receiver_.RecountOutstanding(step));
    }
  }

  void TakeReports() {
    Report report;
    while (receiver_.NextReport(now_, &report)) CheckReport(report);
    FORGIVE_CHECK(receiver_.report_deadline() > now_);
  }

  void CheckReport(const Report& report) {
    FORGIVE_CHECK(report.report_number == ++reports_);
    FORGIVE_CHECK(report.rcv_nxt == receiver_.rcv_nxt());
    FORGIVE_CHECK(report.completed_messages <= report.posted_messages);
    FORGIVE_CHECK(report.posted_messages == messages_.size());
    FORGIVE_CHECK(report.ce_bytes <= report.received_bytes);
    const Scoreboard& scoreboard = receiver_.scoreboard();
    for (uint32_t i = 0; i < report.sack_count; ++i) {
      const Range& range = report.sacks[i];
      FORGIVE_CHECK(range.begin > report.rcv_nxt && range.end > range.begin);
      for (uint64_t at = range.begin; at < range.end; at += kUnitBytes) {
        FORGIVE_CHECK(scoreboard.IsSettled(at / kUnitBytes));
      }
      for (uint32_t k = 0; k < i; ++k) FORGIVE_CHECK(!(report.sacks[k] == range));
    }
    for (uint32_t i = 0; i < report.request_count; ++i) {
      for (uint64_t at = report.requests[i].begin; at < report.requests[i].end; at += kUnitBytes) {
        FORGIVE_CHECK(!scoreboard.IsSettled(at / kUnitBytes));
      }
    }
    CheckFlags(report);
    // What a receiver says can be written, and is read as it was said.
    uint8_t bytes[kMaxReportBytes];
    Report read;
    FORGIVE_CHECK(ParseReport(bytes, WriteReport(report, static_cast<const SipKey*>(nullptr), bytes), &read));
    FORGIVE_CHECK(read.rcv_nxt == report.rcv_nxt && read.sack_count == report.sack_count);
  }

  void CheckFlags(const Report& report) {
    FORGIVE_CHECK(!report.budget_exhausted || report.exempt_eligible);
    if (!report.exempt_eligible) return;
    FORGIVE_CHECK(report.completed_messages < messages_.size());
    const uint64_t step = messages_[report.completed_messages].step;
    FORGIVE_CHECK(step != 0 && accounts_[step].open);
    FORGIVE_CHECK(report.same_step_end > report.completed_messages && report.same_step_end <= messages_.size());
    for (uint32_t i = report.completed_messages; i < report.same_step_end; ++i) {
      FORGIVE_CHECK(messages_[i].step == step);
    }
  }

  void BeginStep(Script* script) {
    const uint32_t p = uint32_t{script->Byte()} * 4000;
    const uint64_t expected = uint64_t{script->Byte()} * 64;
    if (p > Fraction::kOne) return;
    if (steps_.Begin({newest_step_ + 1, false, Fraction{p}, expected}, true) != StepResult::kOk) return;
    accounts_[++newest_step_] = Account{};
    receiver_.OnStepsChanged();
  }
  void EndStep(Script* script) {
    const uint64_t step = newest_step_ - std::min<uint64_t>(newest_step_, script->Below(2));
    const bool was_open = accounts_.contains(step) && accounts_[step].open;
    FORGIVE_CHECK((steps_.End(step) == StepResult::kOk) == was_open);
    if (was_open) accounts_[step].open = false;
    receiver_.OnStepsChanged();
  }

  // A packet number: accepted once, and only within the window.
  void Number(Script* script) {
    static constexpr uint64_t kJumps[] = {1, 2, 63, 64, 65, 1000, uint64_t{1} << 31, uint64_t{1} << 33};
    const uint8_t how = script->Byte();
    const uint64_t newest = numbers_.empty() ? 0 : *std::max_element(numbers_.begin(), numbers_.end());
    const uint64_t distance = (how & 0x80) != 0 ? kJumps[how % 8] : how % 80;
    const uint64_t number = (how & 0x80) != 0 ? newest + distance : newest - std::min(newest, distance);
    const bool seen = std::find(numbers_.begin(), numbers_.end(), number) != numbers_.end();
    const bool old = !numbers_.empty() && number < newest && newest - number >= kWindow;
    FORGIVE_CHECK(receiver_.AcceptPacketNumber(number) == (!seen && !old));
    numbers_.push_back(number);
    FORGIVE_CHECK(receiver_.ExpandPacketNumber(static_cast<uint32_t>(newest)) ==
                      std::max(newest, number) - (std::max(newest, number) - newest) % (uint64_t{1} << 32) ||
                  std::max(newest, number) - newest >= uint64_t{1} << 31);
  }

  void Rare(Script* script) {
    const uint8_t what = script->Byte();
    if (what < 200) {
      receiver_.OnProbe();
    } else if (what < 250) {
      receiver_.set_rtt(Nanoseconds{int64_t{1} << what % 30});
    } else if (!receiver_.closed()) {
      CheckOutstanding();
      receiver_.Close();
      // Afterwards no memory of the user is touched: freed, the sanitizer would see it.
      DrainEvents();
      for (Message& message : messages_) std::vector<uint8_t>().swap(message.buffer);
      CheckOutstanding();
    }
  }

  // Everything that is missing arrives, in order: then every message is done.
  void Finish() {
    for (size_t number = 0; number < messages_.size(); ++number) {
      CheckBytes(number, false);
      if (messages_[number].done) continue;
      uint32_t offset = 0;
      do {
        const DataHeader header = HeaderOf(number, offset, kPayload);
        Arrive(number, header, false);
        offset += header.payload_length;
      } while (offset < messages_[number].length());
      DrainEvents();
      FORGIVE_CHECK(messages_[number].done);
    }
    TakeReports();
    FORGIVE_CHECK(!receiver_.HasUnfinished());
    FORGIVE_CHECK(receiver_.rcv_nxt() == next_start_);
    CheckSteps();
  }

  const bool exact_;
  const Config config_;
  StepTable steps_;
  Counters counters_;
  Receiver receiver_;
  TimePoint now_{1000000};
  std::vector<Message> messages_;
  std::map<uint64_t, Account> accounts_;
  std::deque<Event> pending_;
  std::vector<uint64_t> numbers_;
  uint64_t newest_step_ = 0;
  uint64_t next_start_ = 0;
  uint64_t next_packet_ = 0;
  uint64_t reports_ = 0;
  uint64_t rcv_nxt_ = 0;
};

}  // namespace
}  // namespace forgive

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  forgive::Script script(data, size);
  forgive::Model model(script.Byte());
  model.Run(&script);
  return 0;
}
