// SPDX-License-Identifier: Apache-2.0
// A world of endpoints on one virtual clock, with links that trim, drop, duplicate, reorder, delay and corrupt.
#ifndef FORGIVE_TESTS_TRANSPORT_WORLD_H_
#define FORGIVE_TESTS_TRANSPORT_WORLD_H_

#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <queue>
#include <tuple>
#include <vector>

#include "transport/draw.h"
#include "transport/endpoint.h"

namespace forgive::testing {

// Chances per packet, in parts per million, and delays.
struct Faults {
  Fraction trim, drop, duplicate, reorder, corrupt, mark;
  size_t largest_datagram_bytes = SIZE_MAX;  // larger ones are lost
  Nanoseconds delay = Microseconds(50);
  Nanoseconds reorder_delay = Microseconds(200);
};

// What a link cut, as the ledger must find it.
struct TrimRecord {
  uint64_t connection_id;
  uint32_t message;
  uint32_t offset;
  uint32_t length;
};

class World {
 public:
  struct Host {
    std::unique_ptr<StepTable> steps;
    std::unique_ptr<Endpoint> endpoint;
    Nanoseconds clock_offset;  // hosts do not agree on the time
    bool dead = false;
  };

  World(int hosts, const Config& config, uint64_t seed) : draw_(seed) {
    for (int i = 0; i < hosts; ++i) {
      std::array<uint8_t, 32> entropy;
      for (uint8_t& byte : entropy) byte = static_cast<uint8_t>(draw_.Next());
      Host host;
      host.steps = std::make_unique<StepTable>(config.max_steps, config.forgiveness_probability, draw_.Next(),
                                               config.experiments, config.budget_unit);
      host.endpoint = std::make_unique<Endpoint>(config, host.steps.get(), entropy, Identity{});
      host.clock_offset = Nanoseconds{static_cast<int64_t>(draw_.Below(1u << 30))};
      hosts_.push_back(std::move(host));
    }
  }

  static Address AddressOf(int host) {
    Address address;
    address.bytes[0] = static_cast<uint8_t>(host + 1);
    return address;
  }

  Host& host(int i) { return hosts_[static_cast<size_t>(i)]; }
  Endpoint& endpoint(int i) { return *host(i).endpoint; }
  int size() const { return static_cast<int>(hosts_.size()); }
  TimePoint now() const { return now_; }
  TimePoint LocalNow(int i) { return now_ + host(i).clock_offset; }
  Draw& draw() { return draw_; }
  const std::vector<TrimRecord>& trims() const { return trims_; }
  uint64_t packets() const { return packets_; }

  Faults faults;
  std::function<void(int host, const Event&)> on_event;
  std::function<void(int host)> after_each;  // after every datagram and deadline: for invariants
  std::function<void(int host, const Transmit&)> on_transmit;

  // Lets every host transmit what may leave now.
  void Pump() {
    for (int i = 0; i < size(); ++i) {
      if (host(i).dead) continue;
      Transmit transmit;
      while (endpoint(i).NextTransmit(LocalNow(i), &transmit)) {
        if (on_transmit) on_transmit(i, transmit);
        Carry(i, transmit);
      }
      DrainEvents(i);
    }
  }

  // Advances to the next arrival or deadline. False: nothing will ever happen, or not before `end`.
  bool Step(TimePoint end) {
    Pump();
    TimePoint next = kNever;
    if (!flights_.empty()) next = flights_.top().arrival;
    for (int i = 0; i < size(); ++i) {
      if (host(i).dead) continue;
      const TimePoint deadline = endpoint(i).next_deadline();
      if (deadline != kNever) next = Earlier(next, deadline - host(i).clock_offset);
    }
    if (next == kNever || next > end) return false;
    // A deadline in the past is work for now; time itself moves by at least a nanosecond so that no bug can stall it.
    now_ = std::max(now_ + Nanoseconds{1}, next);
    Deliver();
    for (int i = 0; i < size(); ++i) {
      if (host(i).dead) continue;
      endpoint(i).OnDeadline(LocalNow(i));
      DrainEvents(i);
      if (after_each) after_each(i);
    }
    return true;
  }

  // Nothing is polled for a while, as on a machine that schedules something else.
  void Stall(Nanoseconds duration) { now_ = now_ + duration; }

  // A datagram from nowhere.
  void Inject(int to, const std::vector<uint8_t>& bytes) {
    endpoint(to).OnDatagram(LocalNow(to), {AddressOf(99), bytes.data(), bytes.size(), false});
    DrainEvents(to);
  }

 private:
  struct Flight {
    TimePoint arrival;
    uint64_t order;
    int from, to;
    bool ce;
    std::vector<uint8_t> bytes;
    bool operator<(const Flight& other) const {
      return std::tie(arrival, order) > std::tie(other.arrival, other.order);
    }
  };

  void Carry(int from, const Transmit& transmit) {
    ++packets_;
    std::vector<uint8_t> bytes(transmit.header_length + transmit.payload_length);
    std::memcpy(bytes.data(), transmit.header.data(), transmit.header_length);
    if (transmit.payload_length != 0 && transmit.payload != nullptr) {
      std::memcpy(bytes.data() + transmit.header_length, transmit.payload, transmit.payload_length);
    }
    const int to = transmit.destination.bytes[0] - 1;
    if (to < 0 || to >= size()) return;
    if (bytes.size() > faults.largest_datagram_bytes || draw_(faults.drop)) return;
    const bool data = transmit.packet_class == PacketClass::kData;
    if (data && transmit.payload_length != 0 && draw_(faults.trim)) {
      DataHeader header;
      ParseDataHeader(bytes.data(), bytes.size(), &header);
      trims_.push_back(
          {header.connection_id, header.message_number, header.offset_in_message, header.payload_length});
      bytes.resize(kDataHeaderBytes + draw_.Below(2) * draw_.Below(transmit.payload_length));
    } else if (draw_(faults.corrupt)) {
      bytes[draw_.Below(bytes.size())] ^= static_cast<uint8_t>(1 + draw_.Below(255));
    }
    const bool ce = data && draw_(faults.mark);
    const int copies = draw_(faults.duplicate) ? 2 : 1;
    for (int copy = 0; copy < copies; ++copy) {
      TimePoint arrival = now_ + faults.delay;
      if (draw_(faults.reorder)) {
        arrival =
            arrival +
            Nanoseconds{static_cast<int64_t>(draw_.Below(static_cast<uint64_t>(faults.reorder_delay.value) + 1))};
      }
      flights_.push({arrival, order_++, from, to, ce, bytes});
    }
  }

  void Deliver() {
    while (!flights_.empty() && flights_.top().arrival <= now_) {
      const Flight flight = flights_.top();
      flights_.pop();
      if (host(flight.to).dead) continue;
      endpoint(flight.to).OnDatagram(LocalNow(flight.to),
                                     {AddressOf(flight.from), flight.bytes.data(), flight.bytes.size(), flight.ce});
      DrainEvents(flight.to);
      if (after_each) after_each(flight.to);
    }
  }

  void DrainEvents(int i) {
    Event event;
    while (endpoint(i).NextEvent(&event)) {
      if (on_event) on_event(i, event);
    }
  }

  Draw draw_;
  std::vector<Host> hosts_;
  TimePoint now_{1000000000};
  uint64_t order_ = 0;
  uint64_t packets_ = 0;
  std::priority_queue<Flight> flights_;
  std::vector<TrimRecord> trims_;
};

// Connects `from` (sender) to `to` (receiver); steps the world until both sides have it.
struct Link {
  ConnectionHandle sender;
  ConnectionHandle receiver;
};

inline bool ConnectPair(World* world, int from, int to, Link* link, uint32_t max_payload = kMaxPayloadBytes) {
  ListenTicket ticket;
  if (world->endpoint(to).Post(ListenRequest{7}, &ticket) != PostResult::kAccepted) return false;
  ConnectRequest request;
  request.cookie = 8;
  request.peer = World::AddressOf(to);
  request.ticket = ticket;
  request.max_payload_bytes = max_payload;
  if (world->endpoint(from).Post(world->LocalNow(from), request, &link->sender) != PostResult::kAccepted)
    return false;
  bool connected = false, incoming = false;
  auto previous = world->on_event;
  world->on_event = [&](int host, const Event& event) {
    if (host == from && event.kind == Event::Kind::kConnected) {
      connected = true;
    } else if (host == to && event.kind == Event::Kind::kIncoming) {
      incoming = true;
      link->receiver = event.connection;
    } else if (previous) {
      previous(host, event);
    }
  };
  const TimePoint end = world->now() + Seconds(20);
  while (!(connected && incoming) && world->Step(end)) {
  }
  world->on_event = previous;
  world->endpoint(to).CloseListener(ticket.listen_id);
  return connected && incoming;
}

}  // namespace forgive::testing

#endif  // FORGIVE_TESTS_TRANSPORT_WORLD_H_
