// SPDX-License-Identifier: Apache-2.0
// A script of bytes drives two endpoints: posts, steps, time, and packets that are cut, changed, copied and lost.
#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <deque>
#include <memory>
#include <vector>

#include "script.h"
#include "transport/check.h"
#include "transport/endpoint.h"

namespace forgive {
namespace {

// Everything is small, so that short scripts fill and wrap every ring: a table of messages after nine posts, the
// scoreboard after two long messages, the packet numbers after 64 packets. A message is up to 64 packets.
constexpr size_t kMaxQueuedPackets = 256;
constexpr int kSettleRounds = 3000;
constexpr size_t kMaxMessages = 8;
constexpr size_t kMaxPosts = 4 * kMaxMessages;
constexpr uint32_t kFuzzPayloadBytes = 64;
constexpr size_t kMaxPackets = 64;  // of a message, and a short one

// Two endpoints, host 0 sends and host 1 receives, with the packets between them in the script's hands.
class Pair {
 public:
  // With tags no change of a packet may have any effect: then the content of every message is checked, and at the
  // end everything must finish. Without tags only the safety of memory and the invariants are.
  Pair(bool tags, bool crc) : exact_(tags && crc), config_(MakeConfig(tags, crc)) {
    for (uint8_t host = 0; host < 2; ++host) {
      std::array<uint8_t, 32> entropy{};
      entropy[0] = static_cast<uint8_t>(host + 1);
      steps_[host] = std::make_unique<StepTable>(config_.max_steps, config_.forgiveness_probability, host);
      endpoints_[host] = std::make_unique<Endpoint>(config_, steps_[host].get(), entropy, Identity{});
    }
    Connect();
  }

  void Run(Script* script) {
    while (!script->done()) {
      switch (script->Byte() % 14) {
        case 0:
          PostSend(script);
          break;
        case 1:
          PostReceive(script);
          break;
        case 2:
          Exchange();
          break;
        case 3:
          Deliver(script, true);
          break;
        case 4:
          Deliver(script, false);
          break;
        case 5:
          Drop(script);
          break;
        case 6:
          Cut(script);
          break;
        case 7:
          Change(script);
          break;
        case 8:
          now_ = now_ + Nanoseconds{int64_t{1} << (script->Byte() % 28)};
          Deadlines();
          break;
        case 9:
          BeginStep(script);
          break;
        case 10:
          EndStep();
          break;
        case 11:
          Close(script->Byte() % 2);
          break;
        case 12:
          Inject(script);
          break;
        case 13:
          Mark(script);
          break;
      }
      CheckInvariants();
    }
    if (exact_) Settle();
  }

 private:
  struct Packet {
    size_t to = 0;
    bool ce = false;
    std::vector<uint8_t> bytes;
  };
  struct Message {
    std::vector<uint8_t> buffer;
    std::vector<bool> forgiven;  // by byte
    bool done = false;
  };

  static Config MakeConfig(bool tags, bool crc) {
    Config config;
    config.tags = tags;
    config.payload_crc = crc;
    config.max_payload_bytes = kFuzzPayloadBytes;
    config.max_connections = 2;
    config.max_listeners = 2;
    config.max_steps = 4;
    config.max_messages = kMaxMessages;
    config.event_capacity = 2 * EventQueue::kReserve;
    config.window_bytes = 2048;
    config.scoreboard_bytes = 8192;
    config.packet_number_window = 64;
    config.congestion_control = CongestionControlKind::kNone;
    config.min_rto = Milliseconds(5);
    config.max_rto = Milliseconds(50);
    return config;
  }

  static Address AddressOf(size_t host) {
    Address address;
    address.bytes[0] = static_cast<uint8_t>(host + 1);
    return address;
  }

  static uint8_t Pattern(size_t message, size_t offset) {
    return static_cast<uint8_t>(1 + (message * 131 + offset * 7 + offset / 251) % 255);
  }

  void Connect() {
    ListenTicket ticket;
    FORGIVE_CHECK(endpoints_[1]->Post(ListenRequest{1}, &ticket) == PostResult::kAccepted);
    ConnectRequest request;
    request.peer = AddressOf(1);
    request.ticket = ticket;
    request.max_payload_bytes = kFuzzPayloadBytes;
    FORGIVE_CHECK(endpoints_[0]->Post(now_, request, &handles_[0]) == PostResult::kAccepted);
    for (int round = 0; round < 4; ++round) Exchange();
    FORGIVE_CHECK(connected_ == 2);
  }

  void PostSend(Script* script) {
    const size_t packets = script->Below(kMaxPackets);
    const size_t length = packets * kFuzzPayloadBytes + script->Byte() / 4;
    if (sends_.size() >= kMaxPosts) return;
    std::vector<uint8_t> buffer(length);
    for (size_t i = 0; i < length; ++i) buffer[i] = Pattern(sends_.size(), i);
    SendRequest request;
    request.cookie = sends_.size();
    request.buffer = buffer.data();
    request.length = static_cast<uint32_t>(length);
    if (endpoints_[0]->Post(now_, handles_[0], request) != PostResult::kAccepted) return;
    sends_.push_back({std::move(buffer), {}, false});
  }

  void PostReceive(Script* script) {
    const size_t capacity = script->Below(kMaxPackets) * kFuzzPayloadBytes + kFuzzPayloadBytes - 1;
    const uint8_t facts = script->Byte();
    if (receives_.size() >= kMaxPosts) return;
    Message message{std::vector<uint8_t>(capacity, 0xcc), std::vector<bool>(capacity), false};
    ReceiveRequest request;
    request.cookie = receives_.size();
    request.buffer = message.buffer.data();
    request.capacity = capacity;
    request.has_step = open_step_ != 0 && (facts & 1) != 0;
    request.step = open_step_;
    request.exempt_eligible = request.has_step && (facts & 2) != 0;
    request.forgivable = request.exempt_eligible && (facts & 4) != 0;
    if (endpoints_[1]->Post(now_, handles_[1], request) != PostResult::kAccepted) return;
    receives_.push_back(std::move(message));
  }

  // Everything that may leave now gets into the script's hands.
  void Transmit() {
    for (size_t host = 0; host < 2; ++host) {
      forgive::Transmit transmit;
      while (queue_.size() < kMaxQueuedPackets && endpoints_[host]->NextTransmit(now_, &transmit)) {
        Packet packet;
        packet.to = transmit.destination.bytes[0] - size_t{1};
        packet.bytes.assign(transmit.header.begin(), transmit.header.begin() + transmit.header_length);
        if (transmit.payload_length != 0) {
          packet.bytes.insert(packet.bytes.end(), transmit.payload, transmit.payload + transmit.payload_length);
        }
        if (packet.to < 2) queue_.push_back(std::move(packet));
      }
      Events(host);
    }
  }

  void Exchange() {
    Transmit();
    for (size_t count = queue_.size(); count > 0; --count) {
      const Packet packet = std::move(queue_.front());
      queue_.pop_front();
      Give(packet);
    }
    Transmit();
  }

  void Give(const Packet& packet) {
    // An exact copy, so that the address sanitizer sees a read behind the datagram.
    const std::vector<uint8_t> bytes(packet.bytes);
    Datagram datagram;
    datagram.source = AddressOf(1 - packet.to);
    datagram.bytes = bytes.data();
    datagram.length = bytes.size();
    datagram.ce = packet.ce;
    endpoints_[packet.to]->OnDatagram(now_, datagram);
    Events(packet.to);
  }

  // A packet on its way, as the script chooses; queue_.end() if there is none.
  std::deque<Packet>::iterator Pick(Script* script) {
    if (queue_.empty()) Transmit();
    const size_t index = script->Byte();
    if (queue_.empty()) return queue_.end();
    return queue_.begin() + static_cast<std::ptrdiff_t>(index % queue_.size());
  }

  void Deliver(Script* script, bool remove) {
    const auto packet = Pick(script);
    if (packet == queue_.end()) return;
    const Packet copy = *packet;
    if (remove) queue_.erase(packet);
    Give(copy);
  }
  void Drop(Script* script) {
    const auto packet = Pick(script);
    if (packet != queue_.end()) queue_.erase(packet);
  }
  void Mark(Script* script) {
    const auto packet = Pick(script);
    if (packet != queue_.end()) packet->ce = true;
  }
  void Cut(Script* script) {
    const auto packet = Pick(script);
    const size_t keep = kDataHeaderBytes + script->Byte() / 4;
    if (packet != queue_.end() && packet->bytes.size() > keep) packet->bytes.resize(keep);
  }
  void Change(Script* script) {
    const auto packet = Pick(script);
    const size_t position = script->Byte();
    const uint8_t change = script->Byte();
    if (packet == queue_.end() || packet->bytes.empty()) return;
    uint8_t& byte = packet->bytes[position % packet->bytes.size()];
    byte = static_cast<uint8_t>(byte ^ change);
  }
  void Inject(Script* script) {
    Packet packet;
    packet.to = script->Byte() % 2;
    for (size_t length = script->Byte(); length > 0; --length) packet.bytes.push_back(script->Byte());
    Give(packet);
  }

  void Deadlines() {
    for (size_t host = 0; host < 2; ++host) {
      endpoints_[host]->OnDeadline(now_);
      Events(host);
    }
  }

  void BeginStep(Script* script) {
    const uint32_t p = uint32_t{script->Byte()} * 3000;
    if (open_step_ != 0) return;
    const StepPlan plan{++newest_step_, false, Fraction{p}, 25000};
    if (steps_[1]->Begin(plan) == StepResult::kOk) open_step_ = newest_step_;
  }
  void EndStep() {
    if (open_step_ != 0) steps_[1]->End(open_step_);
    open_step_ = 0;
  }

  void Close(size_t host) {
    endpoints_[host]->Post(now_, CloseRequest{handles_[host]});
    // The contract: after a close no memory of the connection is touched. Freed, the sanitizer would see it.
    for (Message& message : host == 0 ? sends_ : receives_) std::vector<uint8_t>().swap(message.buffer);
    ended_ = true;
  }

  void Events(size_t host) {
    Event event;
    while (endpoints_[host]->NextEvent(&event)) {
      switch (event.kind) {
        case Event::Kind::kConnected:
          ++connected_;
          break;
        case Event::Kind::kIncoming:
          ++connected_;
          handles_[1] = event.connection;
          break;
        case Event::Kind::kIncomingRefused:
          break;  // a listener goes on
        case Event::Kind::kSegmentsCut:
          break;
        case Event::Kind::kFailed:
          ended_ = true;
          break;
        case Event::Kind::kSent:
          OnSent(event);
          break;
        case Event::Kind::kForgiven:
          OnForgiven(event);
          break;
        case Event::Kind::kReceived:
          OnReceived(event);
          break;
      }
    }
  }

  void OnSent(const Event& event) {
    FORGIVE_CHECK(event.cookie < sends_.size());
    Message& send = sends_[event.cookie];
    FORGIVE_CHECK(!send.done);
    send.done = true;
    std::vector<uint8_t>().swap(send.buffer);  // the application's again
  }

  void OnForgiven(const Event& event) {
    FORGIVE_CHECK(event.message < receives_.size());
    Message& message = receives_[event.message];
    FORGIVE_CHECK(!message.done);
    FORGIVE_CHECK(uint64_t{event.offset} + event.length <= message.forgiven.size());
    for (uint32_t i = 0; i < event.length; ++i) {
      FORGIVE_CHECK(!message.forgiven[event.offset + i]);
      message.forgiven[event.offset + i] = true;
    }
  }

  void OnReceived(const Event& event) {
    FORGIVE_CHECK(event.cookie < receives_.size());
    Message& message = receives_[event.cookie];
    FORGIVE_CHECK(!message.done);
    message.done = true;
    FORGIVE_CHECK(event.size <= message.buffer.size());
    for (size_t i = 0; exact_ && i < event.size; ++i) {
      const uint8_t expected = message.forgiven[i] ? uint8_t{0} : Pattern(event.cookie, i);
      FORGIVE_CHECK(message.buffer[i] == expected);
    }
    for (size_t i = event.size; exact_ && i < message.buffer.size(); ++i) FORGIVE_CHECK(message.buffer[i] == 0xcc);
    std::vector<uint8_t>().swap(message.buffer);
  }

  void CheckInvariants() {
    if (open_step_ == 0) return;
    const StepAccount* account = steps_[1]->Find(open_step_);
    FORGIVE_CHECK(account != nullptr);
    FORGIVE_CHECK(account->forgiven <= account->budget);
    FORGIVE_CHECK(uint128{account->forgiven} * (Fraction::kOne - account->p.ppm) <=
                  uint128{account->received} * account->p.ppm);
  }

  // Without faults, everything that both sides posted must finish.
  void Settle() {
    for (int round = 0; round < kSettleRounds && !Finished(); ++round) {
      Exchange();
      TimePoint next = Earlier(endpoints_[0]->next_deadline(), endpoints_[1]->next_deadline());
      if (next == kNever) next = now_;
      now_ = std::max(now_ + Microseconds(100), std::min(next, now_ + Milliseconds(100)));
      Deadlines();
      CheckInvariants();
    }
    FORGIVE_CHECK(Finished());
  }

  bool Finished() const {
    if (ended_) return true;
    const size_t matched = std::min(sends_.size(), receives_.size());
    for (size_t i = 0; i < matched; ++i) {
      if (!sends_[i].done || !receives_[i].done) return false;
    }
    return true;
  }

  const bool exact_;
  const Config config_;
  TimePoint now_{1000000000};
  std::array<std::unique_ptr<StepTable>, 2> steps_;
  std::array<std::unique_ptr<Endpoint>, 2> endpoints_;
  std::array<ConnectionHandle, 2> handles_;
  int connected_ = 0;
  bool ended_ = false;  // a connection failed or was closed: unfinished messages stay so
  std::deque<Packet> queue_;
  std::deque<Message> sends_;
  std::deque<Message> receives_;
  uint64_t open_step_ = 0;
  uint64_t newest_step_ = 0;
};

}  // namespace
}  // namespace forgive

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  forgive::Script script(data, size);
  const uint8_t settings = script.Byte();
  forgive::Pair pair((settings & 1) != 0, (settings & 2) != 0);
  pair.Run(&script);
  return 0;
}
