// SPDX-License-Identifier: Apache-2.0
// A world of endpoints on one virtual clock, with links that trim, drop, duplicate, reorder, delay and corrupt.
#ifndef FORGIVE_TESTS_TRANSPORT_WORLD_H_
#define FORGIVE_TESTS_TRANSPORT_WORLD_H_

#include <algorithm>
#include <cstring>
#include <deque>
#include <functional>
#include <memory>
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

// A packet as it travels, into `bytes` and what memory they have.
inline void CopyPacket(const Transmit& transmit, std::vector<uint8_t>* bytes) {
  bytes->assign(transmit.header.data(), transmit.header.data() + transmit.header_length);
  if (transmit.payload_length != 0) {
    bytes->insert(bytes->end(), transmit.payload, transmit.payload + transmit.payload_length);
  }
}

inline std::vector<uint8_t> BytesOf(const Transmit& transmit) {
  std::vector<uint8_t> bytes;
  CopyPacket(transmit, &bytes);
  return bytes;
}

// A datagram on its way.
struct Flight {
  TimePoint arrival;
  int from = 0;
  int to = 0;
  bool ce = false;
  // What is true of it, whatever its bytes say: its header, or the whole of a control packet, is as an endpoint wrote
  // it; and so is what is left of its payload.
  bool header_intact = true;
  bool payload_intact = true;
  Address source;
  std::vector<uint8_t> bytes;
};

// Hosts with an endpoint each, and the flights between them. Directed tests use its own links (`faults`); whoever
// sets `carry` makes others. It can Begin anew again and again and keeps its allocations.
class World {
 public:
  struct Host {
    std::unique_ptr<StepTable> steps;
    std::unique_ptr<Endpoint> endpoint;
    Nanoseconds clock_offset;      // hosts do not agree on the time
    TimePoint stands_at = kNever;  // by its own clock, which stands still
    bool dead = false;
    TimePoint stalled_until{};       // before it nothing is polled
    TimePoint holds_events_until{};  // before it no event is taken
    bool touched = true;             // something happened that the endpoint may answer
    TimePoint wake = kNever;         // its next deadline, by the world's clock
    uint32_t idle_turns = 0;         // in a row: work was announced and there was none
  };

  World() = default;
  World(int hosts, const Config& config, uint64_t seed) {
    Begin(seed);
    for (int i = 0; i < hosts; ++i) AddHost(config, Nanoseconds{static_cast<int64_t>(draw_.Below(1u << 30))});
  }

  // Forgets everything but the hooks.
  void Begin(uint64_t seed) {
    draw_ = Draw(seed);
    while (!heap_.empty()) free_.push_back(PopFlight());
    hosts_.clear();
    now_ = TimePoint{1000000000};
    order_ = packets_ = 0;
    faults = Faults{};
  }
  void AddHost(const Config& config, Nanoseconds clock_offset) {
    hosts_.emplace_back();
    hosts_.back().clock_offset = clock_offset;
    Boot(size() - 1, config);
  }
  // A new endpoint and a new table at an old address.
  void Boot(int i, const Config& config) {
    std::array<uint8_t, 32> entropy;
    for (uint8_t& byte : entropy) byte = static_cast<uint8_t>(draw_.Next());
    Host& booted = host(i);
    booted.endpoint.reset();
    booted.steps = std::make_unique<StepTable>(config.max_steps, config.forgiveness_probability, draw_.Next(),
                                               config.experiments, config.budget_unit);
    booted.endpoint = std::make_unique<Endpoint>(config, booted.steps.get(), entropy, Identity{});
    booted.dead = false;
    booted.stalled_until = booted.holds_events_until = TimePoint{};
    booted.touched = true;
    booted.idle_turns = 0;
  }

  static Address AddressOf(int host, uint32_t rail = 0) {
    Address address;
    address.bytes[0] = static_cast<uint8_t>(host + 1);
    address.bytes[1] = static_cast<uint8_t>(rail);
    return address;
  }
  // With the addresses of every rail that there may be.
  static ConnectRequest RequestOf(int from, int to, const ListenTicket& ticket) {
    ConnectRequest request;
    request.peer = AddressOf(to);
    for (uint32_t rail = 0; rail < kMaxRails; ++rail) {
      if (rail != 0) request.more_peers[rail - 1] = AddressOf(to, rail);
      request.own[rail] = AddressOf(from, rail);
    }
    request.ticket = ticket;
    return request;
  }

  Host& host(int i) { return hosts_[static_cast<size_t>(i)]; }
  Endpoint& endpoint(int i) { return *host(i).endpoint; }
  int size() const { return static_cast<int>(hosts_.size()); }
  TimePoint now() const { return now_; }
  TimePoint LocalNow(int i) { return host(i).stands_at != kNever ? host(i).stands_at : now_ + host(i).clock_offset; }
  // Its clock stands still, and later goes on from there.
  void StopClock(int i) { host(i).stands_at = LocalNow(i); }
  void StartClock(int i) {
    if (host(i).stands_at == kNever) return;
    host(i).clock_offset = host(i).stands_at - now_;
    host(i).stands_at = kNever;
  }
  Draw& draw() { return draw_; }
  uint64_t packets() const { return packets_; }

  Faults faults;
  std::function<void(int host, const Event&)> on_event;
  std::function<void(int host)> after_each;  // after every datagram and deadline: for invariants
  std::function<void(int host, const Transmit&)> on_transmit;
  // What the links do instead of `faults`: Launch none, one or more flights.
  std::function<void(int from, const Transmit&)> carry;
  // How a host gets a datagram, instead of OnDatagram.
  std::function<void(const Flight&)> deliver;
  uint32_t burst_packets = 1;  // how many packets a host is asked for at a time, at most kMaxBurst

  static constexpr uint32_t kMaxBurst = 8;

  // Something was posted at the host: Pump and StepTouched ask only those that were touched.
  void Touch(int i) { host(i).touched = true; }

  // Hands out the events of the host, unless it holds them.
  void TakeEvents(int i) { DrainEvents(i); }

  // Lets every host transmit what may leave now.
  void Pump() {
    for (Host& each : hosts_) each.touched = true;
    PumpTouched();
  }

  // Advances to the next arrival or deadline. False: nothing will ever happen, or not before `end`.
  bool Step(TimePoint end) {
    for (Host& each : hosts_) each.touched = true;
    return StepTouched(end);
  }
  bool StepTouched(TimePoint end) {
    PumpTouched();
    TimePoint next = heap_.empty() ? kNever : heap_.front().arrival;
    for (const Host& each : hosts_) {
      if (!each.dead && each.wake != kNever) next = Earlier(next, WakeOf(each));
    }
    if (next == kNever || next > end) return false;
    // A deadline in the past is work for now; time itself moves by at least a nanosecond so that no bug can stall it.
    now_ = std::max(now_ + Nanoseconds{1}, next);
    EndHolds();
    Deliver();
    for (int i = 0; i < size(); ++i) {
      Host& each = host(i);
      if (each.dead || each.stalled_until > now_ || (!each.touched && each.wake > now_)) continue;
      endpoint(i).OnDeadline(LocalNow(i));
      each.touched = true;
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
    Touch(to);
    DrainEvents(to);
  }

  // A flight without bytes, from the host to the one at the packet's destination; nullptr if there is none.
  Flight* NewFlight(int from, const Address& destination) {
    const int to = destination.bytes[0] - 1;
    return to < 0 || to >= size() ? nullptr : NewFlight(from, to);
  }
  Flight* NewFlight(int from, int to) {
    if (free_.empty()) {
      free_.push_back(static_cast<uint32_t>(flights_.size()));
      flights_.emplace_back();
    }
    Flight* flight = &flights_[free_.back()];
    flight->from = from;
    flight->to = to;
    flight->ce = false;
    flight->header_intact = flight->payload_intact = true;
    flight->source = AddressOf(from);
    flight->bytes.clear();
    return flight;
  }
  // The flight that NewFlight made last leaves, to arrive at `arrival`.
  void Launch(TimePoint arrival) {
    const uint32_t index = free_.back();
    free_.pop_back();
    flights_[index].arrival = arrival;
    heap_.push_back({arrival, order_++, index});
    std::push_heap(heap_.begin(), heap_.end());
  }

 private:
  struct Due {
    TimePoint arrival;
    uint64_t order;
    uint32_t index;
    bool operator<(const Due& other) const {
      return arrival != other.arrival ? arrival > other.arrival : order > other.order;
    }
  };

  // An endpoint whose events nobody takes may have work that must wait for that.
  TimePoint WakeOf(const Host& each) const {
    const bool waits_for_room = each.holds_events_until > now_ && each.idle_turns > 4;
    return std::max({each.wake, each.stalled_until, waits_for_room ? each.holds_events_until : TimePoint{}});
  }

  void PumpTouched() {
    for (int i = 0; i < size(); ++i) {
      Host& each = host(i);
      if (each.dead || !each.touched || each.stalled_until > now_) continue;
      each.touched = false;
      bool worked = false;
      size_t count = 0;
      do {
        count = endpoint(i).NextTransmits(LocalNow(i), {burst_.data(), burst_packets});
        for (size_t n = 0; n < count; ++n) {
          if (on_transmit) on_transmit(i, burst_[n]);
          Carry(i, burst_[n]);
        }
        worked = worked || count != 0;
      } while (count == burst_packets);
      worked = DrainEvents(i) || worked;
      const TimePoint deadline = endpoint(i).next_deadline();
      const bool never = deadline == kNever || (each.stands_at != kNever && deadline > each.stands_at);
      each.wake = never ? kNever : each.stands_at != kNever ? now_ : deadline - each.clock_offset;
      each.idle_turns = worked || each.wake > now_ ? 0 : each.idle_turns + 1;
    }
  }

  void Carry(int from, const Transmit& transmit) {
    ++packets_;
    if (carry) {
      carry(from, transmit);
      return;
    }
    Flight* flight = NewFlight(from, transmit.destination);
    if (flight == nullptr) return;
    std::vector<uint8_t>& bytes = flight->bytes;
    CopyPacket(transmit, &bytes);
    if (bytes.size() > faults.largest_datagram_bytes || draw_(faults.drop)) return;
    const bool data = transmit.packet_class == PacketClass::kData;
    if (data && transmit.payload_length != 0 && draw_(faults.trim)) {
      bytes.resize(kDataHeaderBytes + draw_.Below(2) * draw_.Below(transmit.payload_length));
    } else if (draw_(faults.corrupt)) {
      bytes[draw_.Below(bytes.size())] ^= static_cast<uint8_t>(1 + draw_.Below(255));
    }
    flight->ce = data && draw_(faults.mark);
    const int copies = draw_(faults.duplicate) ? 2 : 1;
    for (int copy = 0; copy < copies; ++copy) {
      TimePoint arrival = now_ + faults.delay;
      if (draw_(faults.reorder)) {
        const auto most = static_cast<uint64_t>(faults.reorder_delay.value);
        arrival = arrival + Nanoseconds{static_cast<int64_t>(draw_.Below(most + 1))};
      }
      if (copy != 0) *NewFlight(from, transmit.destination) = *flight;
      Launch(arrival);
    }
  }

  uint32_t PopFlight() {
    std::pop_heap(heap_.begin(), heap_.end());
    const uint32_t index = heap_.back().index;
    heap_.pop_back();
    return index;
  }

  // Who held events takes them before anything else happens, or a test would compare what it has not heard of.
  void EndHolds() {
    for (int i = 0; i < size(); ++i) {
      Host& each = host(i);
      if (each.holds_events_until == TimePoint{} || std::max(each.holds_events_until, each.stalled_until) > now_)
        continue;
      each.holds_events_until = TimePoint{};
      if (!each.dead && DrainEvents(i)) each.touched = true;
    }
  }

  void Deliver() {
    while (!heap_.empty() && heap_.front().arrival <= now_) {
      const uint32_t index = PopFlight();
      const Flight& flight = flights_[index];
      Host& to = host(flight.to);
      if (to.stalled_until > now_ && !to.dead) {
        heap_.push_back({to.stalled_until, order_++, index});  // waits in its socket
        std::push_heap(heap_.begin(), heap_.end());
        continue;
      }
      if (!to.dead) {
        if (deliver) {
          deliver(flight);
        } else {
          to.endpoint->OnDatagram(LocalNow(flight.to),
                                  {flight.source, flight.bytes.data(), flight.bytes.size(), flight.ce});
        }
        to.touched = true;
        DrainEvents(flight.to);
        if (after_each) after_each(flight.to);
      }
      free_.push_back(index);
    }
  }

  // True if there were any.
  bool DrainEvents(int i) {
    if (host(i).holds_events_until > now_) return false;
    Event event;
    bool any = false;
    while (!host(i).dead && endpoint(i).NextEvent(&event)) {
      any = true;
      host(i).idle_turns = 0;
      if (on_event) on_event(i, event);
    }
    return any;
  }

  Draw draw_{0};
  std::vector<Host> hosts_;
  TimePoint now_{1000000000};
  uint64_t order_ = 0;
  uint64_t packets_ = 0;
  std::deque<Flight> flights_;  // a flight's place does not move
  std::vector<uint32_t> free_;
  std::vector<Due> heap_;
  std::array<Transmit, kMaxBurst> burst_;
};

// Connects `from` (sender) to `to` (receiver); steps the world until both sides have it.
struct Link {
  ConnectionHandle sender;
  ConnectionHandle receiver;
};

inline bool ConnectPair(World* world, int from, int to, Link* link, uint32_t max_payload = kMaxPayloadBytes) {
  ListenTicket ticket;
  if (world->endpoint(to).Post(ListenRequest{7}, &ticket) != PostResult::kAccepted) return false;
  ConnectRequest request = World::RequestOf(from, to, ticket);
  request.cookie = 8;
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
