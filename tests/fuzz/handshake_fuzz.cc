// SPDX-License-Identifier: Apache-2.0
// A script listens, connects, closes and lets an onlooker copy, change, cut and forge the packets of handshakes.
#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <deque>
#include <memory>
#include <set>
#include <vector>

#include "script.h"
#include "transport/check.h"
#include "transport/endpoint.h"

namespace forgive {
namespace {

constexpr size_t kHosts = 2;
constexpr size_t kMaxQueued = 32;
constexpr size_t kMaxCaptured = 48;
constexpr size_t kMaxConnects = 24;
constexpr uint32_t kPayload = 128;

Config MakeConfig(size_t host, uint8_t settings) {
  Config config;
  config.max_connections = 4;
  config.max_listeners = 3;
  config.max_messages = 2;
  config.max_steps = 1;
  config.event_capacity = 2 * EventQueue::kReserve;
  config.scoreboard_bytes = 1024;
  config.window_bytes = 512;
  config.packet_number_window = 64;
  config.congestion_control = CongestionControlKind::kNone;
  config.max_payload_bytes = (settings >> host & 1) != 0 ? kPayload : kPayload / 2;
  config.payload_crc = (settings >> (2 + host) & 1) != 0;
  if ((settings >> (4 + host) & 1) != 0) {  // one host may have other rails than the other
    config.rails = config.paths = 2;
    config.path_policy = PathPolicy::kOblivious;
  }
  config.peer_timeout = Seconds(1);
  config.linger = Milliseconds(500);
  return config;
}

class World {
 public:
  explicit World(uint8_t settings) {
    for (size_t host = 0; host < kHosts; ++host) {
      std::array<uint8_t, 32> entropy{};
      entropy[0] = static_cast<uint8_t>(host + 1);
      const Config config = MakeConfig(host, settings);
      steps_[host] = std::make_unique<StepTable>(config.max_steps, config.forgiveness_probability, host);
      endpoints_[host] = std::make_unique<Endpoint>(config, steps_[host].get(), entropy, Identity{});
    }
  }

  void Run(Script* script) {
    while (!script->done()) Step(script);
    Settle();
  }

 private:
  using Packet = std::vector<uint8_t>;
  struct Queued {
    size_t to = 0;
    Packet bytes;
  };
  struct Listener {
    size_t host = 0;
    ListenTicket ticket;
    bool open = true;
  };
  struct Connecting {
    size_t host = 0;
    ConnectionHandle handle;
    bool honest = false;  // it has the ticket of a listener, as it is
    int connected = 0;
    int failed = 0;
    bool closed = false;
  };

  static Address AddressOf(size_t host, uint8_t rail = 0) {
    Address address;
    address.bytes[0] = static_cast<uint8_t>(host + 1);
    address.bytes[1] = rail;
    return address;
  }

  void Step(Script* script) {
    switch (script->Below(10)) {
      case 0:
        return Listen(script->Below(kHosts));
      case 1:
        return CloseListener(script->Byte());
      case 2:
      case 3:
        return Connect(script->Byte(), script->Byte());
      case 4:
        return Exchange();
      case 5:
        return Deliver(script->Byte(), script->Byte());
      case 6:
        return Inject(script);
      case 7:
        return Pass(Nanoseconds{int64_t{1} << (10 + script->Below(20))});
      case 8:
        return Close(script->Byte());
      case 9:
        return Noise(script);
    }
  }

  void Listen(size_t host) {
    Listener listener;
    listener.host = host;
    if (endpoints_[host]->Post(ListenRequest{listeners_.size()}, &listener.ticket) != PostResult::kAccepted) {
      const auto open = std::count_if(listeners_.begin(), listeners_.end(),
                                      [host](const Listener& one) { return one.host == host && one.open; });
      FORGIVE_CHECK(open == 3);
      return;
    }
    listeners_.push_back(listener);
  }
  void CloseListener(uint8_t which) {
    if (listeners_.empty()) return;
    Listener& listener = listeners_[which % listeners_.size()];
    endpoints_[listener.host]->CloseListener(listener.ticket.listen_id);
    listener.open = false;
  }

  void Connect(uint8_t which, uint8_t how) {
    if (listeners_.empty() || connects_.size() == kMaxConnects) return;
    const Listener& listener = listeners_[which % listeners_.size()];
    Connecting connecting;
    connecting.host = 1 - listener.host;
    connecting.honest = how < 200;
    ConnectRequest request;
    request.cookie = connects_.size();
    request.peer = AddressOf(listener.host);
    request.more_peers[0] = AddressOf(listener.host, 1);
    request.own = {AddressOf(connecting.host), AddressOf(connecting.host, 1)};
    request.ticket = listener.ticket;
    if (!connecting.honest) request.ticket.secret.k1 ^= how;  // a guess, and never right
    request.max_payload_bytes = 16 + how % 160;
    const PostResult result = endpoints_[connecting.host]->Post(now_, request, &connecting.handle);
    FORGIVE_CHECK(result == PostResult::kAccepted || result == PostResult::kOverLimit);
    if (result == PostResult::kAccepted) {
      connects_.push_back(connecting);
      honest_connects_[connecting.host] += connecting.honest ? 1 : 0;
    }
  }

  void Transmit() {
    for (size_t host = 0; host < kHosts; ++host) {
      forgive::Transmit transmit;
      while (queue_.size() < kMaxQueued && endpoints_[host]->NextTransmit(now_, &transmit)) {
        Queued queued;
        queued.to = transmit.destination.bytes[0] - size_t{1};
        queued.bytes.assign(transmit.header.begin(), transmit.header.begin() + transmit.header_length);
        if (transmit.payload_length != 0) {
          queued.bytes.insert(queued.bytes.end(), transmit.payload, transmit.payload + transmit.payload_length);
        }
        if (captured_.size() < kMaxCaptured) captured_.push_back(queued.bytes);
        if (queued.to < kHosts) queue_.push_back(std::move(queued));
      }
      Events(host);
    }
  }
  void Exchange() {
    Transmit();
    while (!queue_.empty()) {
      const Queued queued = std::move(queue_.front());
      queue_.pop_front();
      Give(queued.to, queued.bytes);
    }
  }
  void Give(size_t to, const Packet& packet) {
    const Packet exact(packet);  // so that the address sanitizer sees a read behind the datagram
    Datagram datagram;
    datagram.source = AddressOf(1 - to);
    datagram.bytes = exact.data();
    datagram.length = exact.size();
    endpoints_[to]->OnDatagram(now_, datagram);
    Events(to);
  }

  // One packet on its way: arrives, is lost, or arrives twice.
  void Deliver(uint8_t which, uint8_t fate) {
    Transmit();
    if (queue_.empty()) return;
    const auto at = queue_.begin() + static_cast<std::ptrdiff_t>(which % queue_.size());
    const Queued queued = *at;
    queue_.erase(at);
    if (fate % 4 == 0) return;
    Give(queued.to, queued.bytes);
    if (fate % 4 == 1) Give(queued.to, queued.bytes);
  }

  // What an onlooker saw, once more: as it was, or changed and cut.
  void Inject(Script* script) {
    const uint8_t which = script->Byte();
    const uint8_t how = script->Byte();
    if (captured_.empty()) return;
    Packet packet = captured_[which % captured_.size()];
    if ((how & 1) != 0) {
      uint8_t& byte = packet[script->Byte() % packet.size()];
      byte = static_cast<uint8_t>(byte ^ (1 + script->Below(255)));
    }
    if ((how & 2) != 0) packet.resize(std::min<size_t>(packet.size(), script->Byte()));
    if ((how & 4) != 0) packet[0] = static_cast<uint8_t>(packet.empty() ? 0 : script->Byte());
    Give(how >> 7, packet);
  }
  void Noise(Script* script) {
    Packet packet(script->Byte());
    for (uint8_t& byte : packet) byte = script->Byte();
    Give(script->Below(kHosts), packet);
  }

  void Pass(Nanoseconds time) {
    now_ = now_ + time;
    for (size_t host = 0; host < kHosts; ++host) {
      endpoints_[host]->OnDeadline(now_);
      Events(host);
    }
  }

  void Close(uint8_t which) {
    if (which % 2 == 0 && !connects_.empty()) {
      Connecting& one = connects_[which / 2 % connects_.size()];
      endpoints_[one.host]->Post(now_, CloseRequest{one.handle});
      one.closed = true;
    } else if (!incoming_.empty()) {
      const auto& [host, handle] = incoming_[which / 2 % incoming_.size()];
      endpoints_[host]->Post(now_, CloseRequest{handle});
    }
  }

  void Events(size_t host) {
    Event event;
    while (endpoints_[host]->NextEvent(&event)) {
      switch (event.kind) {
        case Event::Kind::kConnected:
          OnConnected(host, event);
          break;
        case Event::Kind::kFailed:
          if (Connecting* one = Find(host, event.connection)) ++one->failed;
          break;
        case Event::Kind::kIncoming:
          OnIncoming(host, event);
          break;
        case Event::Kind::kIncomingRefused:
          FORGIVE_CHECK(event.cookie < listeners_.size());
          break;
        default:
          FORGIVE_CHECK(false);  // nothing was posted
      }
    }
  }
  Connecting* Find(size_t host, ConnectionHandle handle) {
    for (Connecting& one : connects_) {
      if (one.host == host && one.handle == handle) return &one;
    }
    return nullptr;
  }
  void OnConnected(size_t host, const Event& event) {
    Connecting* one = Find(host, event.connection);
    FORGIVE_CHECK(one != nullptr && one->honest && !one->closed);  // nobody else can have answered a guess
    FORGIVE_CHECK(++one->connected == 1 && one->failed == 0);
    Endpoint::ConnectionFacts facts;
    FORGIVE_CHECK(endpoints_[host]->Facts(now_, event.connection, &facts));
    FORGIVE_CHECK(facts.sends && facts.max_payload >= kUnitBytes && facts.max_payload % kUnitBytes == 0);
    FORGIVE_CHECK(facts.max_payload <= kPayload);
  }
  void OnIncoming(size_t host, const Event& event) {
    FORGIVE_CHECK(event.cookie < listeners_.size() && listeners_[event.cookie].host == host);
    // Copies, changes and guesses make no connection: never more than were asked for with the ticket.
    FORGIVE_CHECK(++incoming_count_[host] <= honest_connects_[1 - host]);
    FORGIVE_CHECK(ids_.insert(event.connection_id).second);
    incoming_.emplace_back(host, event.connection);
  }

  TimePoint NextDeadline() const {
    return Earlier(endpoints_[0]->next_deadline(), endpoints_[1]->next_deadline());
  }

  // Without an onlooker every attempt ends within three seconds: connected, failed, or closed here; then nobody waits
  // for anything. Time in which nothing is due is skipped.
  void Settle() {
    queue_.clear();
    const TimePoint end = now_ + Seconds(3);
    Exchange();
    for (TimePoint next = NextDeadline(); next <= end; next = NextDeadline()) {
      Pass(std::max(Milliseconds(50), next - now_));
      Exchange();
    }
    for (const Connecting& one : connects_) {
      FORGIVE_CHECK(one.closed || one.connected + one.failed >= 1);
      FORGIVE_CHECK(one.failed <= 1);
    }
    for (size_t host = 0; host < kHosts; ++host) FORGIVE_CHECK(endpoints_[host]->next_deadline() == kNever);
  }

  TimePoint now_{1000000000};
  std::array<std::unique_ptr<StepTable>, kHosts> steps_;
  std::array<std::unique_ptr<Endpoint>, kHosts> endpoints_;
  std::vector<Listener> listeners_;
  std::vector<Connecting> connects_;
  std::vector<std::pair<size_t, ConnectionHandle>> incoming_;
  std::array<size_t, kHosts> honest_connects_{};
  std::array<size_t, kHosts> incoming_count_{};
  std::set<uint64_t> ids_;
  std::deque<Queued> queue_;
  std::vector<Packet> captured_;
};

}  // namespace
}  // namespace forgive

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  forgive::Script script(data, size);
  forgive::World world(script.Byte());
  world.Run(&script);
  return 0;
}
