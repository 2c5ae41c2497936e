// SPDX-License-Identifier: Apache-2.0
// A script moves packets and reports between a sender and a receiver, and may forge what the reports say.
#include <algorithm>
#include <cstdint>
#include <cstring>
#include <deque>
#include <memory>
#include <vector>

#include "script.h"
#include "transport/check.h"
#include "transport/receiver.h"
#include "transport/sender.h"

namespace forgive {
namespace {

constexpr uint32_t kPayload = 64;
constexpr uint64_t kSpanBytes = 2048;
constexpr size_t kMaxPosts = 48;
constexpr size_t kMaxQueued = 128;
constexpr int kSettleRounds = 4000;

EventQueue& SenderEvents() {
  static EventQueue events(2 * EventQueue::kReserve);
  return events;
}
EventQueue& ReceiverEvents() {
  static EventQueue events(2 * EventQueue::kReserve);
  return events;
}

// Byte 0 of a script: congestion control, restart, link rate. Byte 1: what may happen.
Config MakeConfig(uint8_t settings, uint8_t world) {
  Config config;
  config.payload_crc = (settings & 128) != 0;
  config.max_messages = 8;
  config.scoreboard_bytes = kSpanBytes;
  config.window_bytes = 1024;
  config.packet_number_window = 1024;
  config.max_steps = 4;
  config.congestion_control = static_cast<CongestionControlKind>(settings % 4);
  config.congestion_restart = static_cast<CongestionRestart>(settings / 4 % 3);
  config.link_rate = BitsPerSecond{(settings & 32) != 0 ? uint64_t{1000000000} : 0};
  config.base_rtt = (settings & 64) != 0 ? Microseconds(100) : Nanoseconds{};
  config.pacing_burst_bytes = 1024;
  config.min_rto = Milliseconds(2);
  config.max_rto = Milliseconds(20);
  config.report_every_packets = 1 + (world & 3);
  if ((world & 4) != 0) config.recovery = Recovery::kGoBackN;
  if ((world & 4) == 0 && (world & 8) != 0) {
    config.path_policy = (world & 16) != 0 ? PathPolicy::kReps : PathPolicy::kOblivious;
    config.paths = 4;
  }
  return config;
}

class Pair {
 public:
  // Bit 5 of `world`: reports may lie; then only what a sender may never do is checked.
  Pair(uint8_t settings, uint8_t world)
      : honest_((world & 32) == 0),
        config_(MakeConfig(settings, world)),
        steps_(config_.max_steps, config_.forgiveness_probability, 7),
        sender_(config_, kPayload, kSpanBytes, ConnectionHandle{1}, 77, &sender_counters_, &SenderEvents()),
        receiver_(config_, kPayload, ConnectionHandle{2}, 77, &steps_, &receiver_counters_, &ReceiverEvents()) {
    FORGIVE_CHECK(steps_.Begin({1, false, Fraction{300000}, 4096}) == StepResult::kOk);
  }
  ~Pair() {
    Event event;
    while (SenderEvents().Pop(&event)) continue;
    while (ReceiverEvents().Pop(&event)) continue;
  }

  void Run(Script* script) {
    while (!script->done() && !closed_) {
      Step(script);
      DrainEvents();
    }
    if (honest_ && !closed_) Settle();
  }

 private:
  struct Packet {
    DataHeader header;
    std::vector<uint8_t> payload;
  };
  struct Message {
    std::vector<uint8_t> source;
    std::vector<uint8_t> destination;
    uint64_t stream_begin = 0;
    bool sent = false;      // acknowledged
    bool received = false;  // whole
  };

  void Step(Script* script) {
    switch (script->Below(12)) {
      case 0:
        return PostSend(script->Byte(), script->Byte());
      case 1:
        return PostReceive(script->Byte());
      case 2:
        return Transmit(1 + script->Below(16));
      case 3:
      case 4:
        return Deliver(script->Byte(), false, script->Flag());
      case 5:
        return Deliver(script->Byte(), true, false);
      case 6:
        if (!packets_.empty()) packets_.erase(Pick(script->Byte()));
        return;
      case 7:
        return TakeReports();
      case 8:
        return DeliverReport(script->Byte());
      case 9:
        return Pass(Nanoseconds{int64_t{1} << script->Below(26)});
      case 10:
        return honest_ ? TakeReports() : Forge(script);
      case 11:
        if (script->Byte() == 255) return Close();
        return Work();
    }
  }

  void PostSend(uint8_t high, uint8_t low) {
    if (sends_ == kMaxPosts) return;
    Message& message = At(sends_);
    message.source.resize(size_t{low} * (1 + high % 4));
    for (size_t i = 0; i < message.source.size(); ++i) message.source[i] = static_cast<uint8_t>(i * 7 + sends_ + 1);
    message.stream_begin = stream_end_;
    const auto length = static_cast<uint32_t>(message.source.size());
    if (!sender_.Post({sends_, message.source.data(), length})) return;
    stream_end_ += (length + kUnitBytes - 1) / kUnitBytes * kUnitBytes + kUnitBytes;
    ++sends_;
  }

  void PostReceive(uint8_t facts) {
    if (receives_ == kMaxPosts) return;
    Message& message = At(receives_);
    message.destination.assign(1024, 0);
    ReceiveRequest request;
    request.cookie = receives_;
    request.buffer = message.destination.data();
    request.capacity = message.destination.size();
    request.has_step = (facts & 1) != 0 && config_.recovery == Recovery::kSelectiveRepeat;
    request.step = 1;
    request.exempt_eligible = request.has_step && (facts & 2) != 0;
    request.forgivable = request.exempt_eligible && (facts & 4) != 0;
    if (!receiver_.Post(request)) return;
    ++receives_;
    receiver_.TakeEarly(now_, (facts & 8) != 0);
  }

  Message& At(size_t number) {
    if (messages_.size() <= number) messages_.resize(number + 1);
    return messages_[number];
  }

  void Transmit(size_t most) {
    Packet packet;
    const uint8_t* payload = nullptr;
    for (; most > 0 && packets_.size() < kMaxQueued && sender_.NextPacket(now_, &packet.header, &payload); --most) {
      Check(packet.header, payload);
      packet.payload.assign(payload, payload + packet.header.payload_length);
      packets_.push_back(packet);
    }
  }

  // What holds of every packet, whatever reports say.
  void Check(const DataHeader& header, const uint8_t* payload) {
    FORGIVE_CHECK(!any_packet_ || header.packet_number > newest_packet_);
    any_packet_ = true;
    newest_packet_ = header.packet_number;
    FORGIVE_CHECK(header.message_number < sends_);
    const Message& message = messages_[header.message_number];
    const bool early = config_.early_messages && header.payload_length == header.message_length;
    FORGIVE_CHECK(header.message_number < credit_ + (early ? kEarlyMessages : 0));
    FORGIVE_CHECK(!message.sent);  // its buffer is the application's again
    FORGIVE_CHECK(header.message_length == message.source.size());
    FORGIVE_CHECK(header.payload_length <= kPayload && header.offset_in_message % kPayload == 0);
    FORGIVE_CHECK(uint64_t{header.offset_in_message} + header.payload_length <= header.message_length);
    FORGIVE_CHECK(header.payload_length == kPayload || header.carries_end());
    FORGIVE_CHECK(payload == message.source.data() + header.offset_in_message);
    FORGIVE_CHECK(header.stream_offset == message.stream_begin + header.offset_in_message);
    FORGIVE_CHECK(header.stream_offset + header.payload_length <= rcv_nxt_ + kSpanBytes);
    FORGIVE_CHECK(header.path < std::max<uint32_t>(config_.paths, 1));
    const uint64_t in_flight = sender_.bytes_in_flight();
    FORGIVE_CHECK(in_flight <= std::max<uint64_t>(config_.window_bytes, header.payload_length));
  }

  std::deque<Packet>::iterator Pick(uint8_t which) {
    return packets_.begin() + static_cast<std::ptrdiff_t>(which % packets_.size());
  }

  // A copy stays on its way where bit 7 of `which` is set: the receiver's caller drops it by its number.
  void Deliver(uint8_t which, bool trimmed, bool ce) {
    if (packets_.empty()) return;
    const auto at = Pick(which);
    const Packet packet = *at;
    if ((which & 128) == 0) packets_.erase(at);
    if (!receiver_.AcceptPacketNumber(packet.header.packet_number)) return;
    if (trimmed) {
      receiver_.OnTrimmedHeader(now_, packet.header, ce);
    } else {
      receiver_.OnData(now_, packet.header, packet.payload.data(), ce);
    }
  }

  void TakeReports() {
    forgive::Report report;
    while (reports_.size() < kMaxQueued && receiver_.NextReport(now_, &report)) reports_.push_back(report);
  }

  // A report arrives: the next, or another, or one once more.
  void DeliverReport(uint8_t which) {
    if (reports_.empty()) TakeReports();
    if (reports_.empty()) return;
    const auto at = reports_.begin() + static_cast<std::ptrdiff_t>((which & 64) != 0 ? which % reports_.size() : 0);
    const forgive::Report report = *at;
    if ((which & 128) == 0) reports_.erase(at);
    Give(report);
  }

  void Give(const forgive::Report& report) {
    credit_ = std::max<uint64_t>(credit_, report.posted_messages);
    rcv_nxt_ = std::max(rcv_nxt_, report.rcv_nxt);
    sender_.OnReport(now_, report);
  }

  // A peer that has the keys and says what it likes.
  void Forge(Script* script) {
    forgive::Report report;
    report.report_number = forged_++ * 3 + script->Below(4);
    const uint8_t flags = script->Byte();
    report.exempt_eligible = (flags & 1) != 0;
    report.budget_exhausted = (flags & 2) != 0;
    report.trimmed = (flags & 4) != 0;
    report.has_newest = (flags & 8) != 0;
    report.has_step_start = (flags & 16) != 0;
    report.completed_messages = script->Byte() % 64;
    report.posted_messages = script->Byte() % 64;
    report.same_step_end = script->Byte() % 64;
    report.step_start_message = script->Byte() % 64;
    report.rcv_nxt = uint64_t{script->Word()} / 8 * kUnitBytes;
    report.newest_packet_number = script->Byte();
    report.newest_timestamp = WireTimestamp(now_) - script->Word();
    report.trimmed_packet_number = script->Byte();
    report.received_bytes = script->Word32();
    report.ce_bytes = script->Word();
    const auto range = [&] {
      const uint64_t begin = report.rcv_nxt + uint64_t{script->Byte()} * kUnitBytes;
      return Range{begin, begin + (1 + script->Below(16)) * kUnitBytes};
    };
    report.request_count = flags >> 5 & 1;
    report.sack_count = flags >> 6;
    for (uint32_t i = 0; i < report.request_count; ++i) report.requests[i] = range();
    for (uint32_t i = 0; i < report.sack_count; ++i) report.sacks[i] = range();
    if (report.rcv_nxt <= stream_end_) return Give(report);
    const uint64_t malformed = sender_counters_.malformed;
    if (sender_.OnReport(now_, report)) FORGIVE_CHECK(sender_counters_.malformed == malformed + 1);
  }

  void Pass(Nanoseconds time) {
    now_ = now_ + time;
    Work();
  }

  // Whatever is due now is done; then nothing is due.
  void Work() {
    sender_.OnDeadline(now_);
    sender_.TakeProbeDue(now_);
    if (packets_.size() >= kMaxQueued / 2) return;
    Transmit(kMaxQueued);
    if (packets_.size() < kMaxQueued) FORGIVE_CHECK(sender_.next_deadline() > now_);
  }

  void Close() {
    receiver_.Close();
    while (!reports_.empty()) DeliverReport(0);  // or the closing one finds no room among them
    TakeReports();
    while (!reports_.empty()) DeliverReport(0);
    closed_ = true;
    DrainEvents();
    if (!honest_) return;  // a report with a later number may have been invented, and then the closing one is old
    FORGIVE_CHECK(sender_.failed() == sender_.HasUnfinished());
    FORGIVE_CHECK(sender_.next_deadline() == kNever);
  }

  void DrainEvents() {
    Event event;
    while (SenderEvents().Pop(&event)) {
      FORGIVE_CHECK(event.kind == Event::Kind::kSent && event.cookie == completed_);
      Message& message = messages_[completed_++];
      message.sent = true;
      if (honest_) FORGIVE_CHECK(message.received || closed_ || ReceivedSoon(event.cookie));
      std::vector<uint8_t>().swap(message.source);
    }
    while (ReceiverEvents().Pop(&event)) {
      if (event.kind == Event::Kind::kReceived) {
        messages_[event.cookie].received = true;
        if (honest_) FORGIVE_CHECK(event.size <= messages_[event.cookie].destination.size());
      }
    }
  }
  // The receiver's event may wait in its queue still.
  bool ReceivedSoon(uint64_t number) const { return number < receiver_.completed_messages(); }

  // Without faults everything that is posted on both sides finishes.
  void Settle() {
    for (int round = 0; round < kSettleRounds && !Finished(); ++round) {
      TakeReports();
      while (!reports_.empty()) DeliverReport(0);
      Transmit(kMaxQueued);
      while (!packets_.empty()) Deliver(0, false, false);
      DrainEvents();
      TimePoint next = Earlier(sender_.next_deadline(), receiver_.report_deadline());
      if (next == kNever) next = now_;
      now_ = std::max(now_ + Microseconds(20), std::min(next, now_ + Milliseconds(50)));
      sender_.OnDeadline(now_);
      if (sender_.TakeProbeDue(now_)) receiver_.OnProbe();
    }
    FORGIVE_CHECK(Finished());
    FORGIVE_CHECK(sender_.bytes_in_flight() == 0);
  }
  bool Finished() const { return completed_ == std::min(sends_, receives_); }

  const bool honest_;
  const Config config_;
  StepTable steps_;
  Counters sender_counters_;
  Counters receiver_counters_;
  Sender sender_;
  Receiver receiver_;
  TimePoint now_{1000000000};
  std::deque<Message> messages_;
  std::deque<Packet> packets_;
  std::deque<forgive::Report> reports_;
  size_t sends_ = 0;
  size_t receives_ = 0;
  size_t completed_ = 0;
  uint64_t stream_end_ = 0;
  uint64_t credit_ = 0;
  uint64_t rcv_nxt_ = 0;
  uint64_t forged_ = 1;
  uint64_t newest_packet_ = 0;
  bool any_packet_ = false;
  bool closed_ = false;
};

}  // namespace
}  // namespace forgive

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  forgive::Script script(data, size);
  const uint8_t settings = script.Byte();
  forgive::Pair pair(settings, script.Byte());
  pair.Run(&script);
  return 0;
}
