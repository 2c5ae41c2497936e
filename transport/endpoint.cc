// SPDX-License-Identifier: Apache-2.0
// The endpoint: finds the connection of a datagram, and lets connections with work take turns to transmit.
#include "transport/endpoint.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <memory>
#include <new>
#include <vector>

#include "transport/check.h"
#include "transport/connection.h"
#include "transport/inline.h"
#include "transport/remembered_connects.h"
#include "transport/slot_queue.h"
#include "transport/turns.h"
#include "transport/wire_layout.h"

namespace forgive {
namespace {

// How many packets a connection may send in a row: enough for a driver to batch, few enough to be fair.
constexpr uint32_t kPacketsPerTurn = 16;
constexpr uint32_t kSlotBits = 16;

}  // namespace

// Connections stand in slots; the slot's number is the low half of a connection id, so that a datagram finds its
// connection without a search. `turns` knows the slots that may have work: whatever is done to a connection touches
// it.
struct Endpoint::Impl {
  // Random numbers from a key: SipHash of a counter under two independent keys.
  class Entropy {
   public:
    explicit Entropy(const std::array<uint8_t, 32>& seed) {
      std::memcpy(&first_, seed.data(), 16);
      std::memcpy(&second_, seed.data() + 16, 16);
    }
    uint64_t Next64() {
      ++counter_;
      return SipHash(first_, &counter_, sizeof counter_) ^ SipHash(second_, &counter_, sizeof counter_);
    }
    Nonce NextNonce() {
      const uint64_t words[2] = {Next64(), Next64()};
      Nonce nonce;
      std::memcpy(nonce.data(), words, nonce.size());
      return nonce;
    }

   private:
    SipKey first_;
    SipKey second_;
    uint64_t counter_ = 0;
  };

  struct Listener {
    uint64_t listen_id = 0;
    SipKey secret;
    uint64_t cookie = 0;
    bool open = false;
    uint64_t closed_at = 0;       // the how-manieth close it was; 0: never
    RememberedConnects answered;  // accepted, or refused for their version

    void Open(const ListenRequest& request, const ListenTicket& ticket) {
      *this = Listener{};
      listen_id = ticket.listen_id;
      secret = ticket.secret;
      cookie = request.cookie;
      open = true;
    }
    bool was_open() const { return open || closed_at != 0; }
  };

  struct Slot {
    std::unique_ptr<Connection> connection;
    uint16_t generation = 0;
  };

  Impl(const Config& config_in, StepTable* steps, const std::array<uint8_t, 32>& seed, const Identity& identity)
      : config(config_in),
        entropy(seed),
        events(config_in.event_capacity),
        slots(config_in.max_connections),
        turns(config_in.max_connections),
        lingering(config_in.max_connections) {
    FORGIVE_CHECK(config.max_connections <= (1u << kSlotBits));
    FORGIVE_CHECK(config.max_payload_bytes <= kMaxPayloadBytes && config.max_payload_bytes >= kUnitBytes);
    context = {&config, steps, &counters, &events, &report, nullptr, identity};
    free_slots.reserve(slots.size());
    for (size_t i = slots.size(); i > 0; --i) free_slots.push_back(static_cast<uint16_t>(i - 1));
    listeners.reserve(config.max_listeners);
  }

  ConnectionHandle HandleOf(uint16_t slot) const {
    return {static_cast<uint32_t>(slots[slot].generation) << kSlotBits | slot};
  }
  Connection* Find(ConnectionHandle handle) const {
    const uint16_t slot = SlotOf(handle);
    if (slot >= slots.size() || !slots[slot].connection) return nullptr;
    return slots[slot].connection->handle() == handle ? slots[slot].connection.get() : nullptr;
  }
  Connection* FindById(uint64_t connection_id) const {
    const uint64_t slot = connection_id & ((1u << kSlotBits) - 1);
    if (slot >= slots.size() || !slots[slot].connection) return nullptr;
    return slots[slot].connection->local_id() == connection_id ? slots[slot].connection.get() : nullptr;
  }
  uint64_t NewConnectionId(uint16_t slot) { return (entropy.Next64() << kSlotBits) | slot; }

  static uint16_t SlotOf(ConnectionHandle handle) { return Endpoint::PlaceOf(handle); }
  // The slot that free_slots ends with.
  void Take(uint16_t slot, std::unique_ptr<Connection> connection) {
    free_slots.pop_back();
    slots[slot].connection = std::move(connection);
    turns.Touch(slot);
  }
  void Touch(const Connection& connection) { turns.Touch(SlotOf(connection.handle())); }

  // Open, or closed and its slot not used again: it may have to repeat an answer.
  Listener* FindListener(uint64_t listen_id) {
    const uint64_t slot = listen_id & ((1u << kSlotBits) - 1);
    if (slot >= listeners.size()) return nullptr;
    Listener& listener = listeners[slot];
    // A place that was skipped has no ticket, and so no secret that an onlooker would not know.
    return listener.was_open() && listener.listen_id == listen_id ? &listener : nullptr;
  }
  Listener* FreeListener();

  // A data packet of a burst before its turn: parsed, its connection found, its tag computed.
  struct Expected {
    bool is_data = false;
    bool has_tag = false;
    Connection* connection = nullptr;  // nullptr: unknown
    DataHeader header;
    Connection::ExpectedTag tag;
  };
  using ExpectedBurst = std::array<Expected, TagBatch::kCapacity>;
  void Expect(std::span<const Datagram> datagrams);
  void OnData(TimePoint now, Connection* connection, DataHeader* header, const Datagram& datagram,
              const Connection::ExpectedTag* tag);

  void OnOther(TimePoint now, const Datagram& datagram);
  void OnConnect(TimePoint now, const Datagram& datagram);
  bool RepeatAnswer(const Connect& connect);
  void TellRefused(const Listener& listener, FailReason reason);
  void Refuse(const Connect& connect, const SipKey& secret, ConnectStatus status, const Address& source);
  void OnForeign(TimePoint now, const Datagram& datagram, uint8_t version);
  void FreeLingered(TimePoint now);
  void OnStepsChanged();

  const Config config;
  Counters counters;
  Entropy entropy;
  EventQueue events;
  Report report;  // the one that is being read or written: to zero 40 ranges costs more than to handle most reports
  TagBatch tags;  // of the data headers that leave, or arrived, in this call
  ExpectedBurst expected_burst;
  ConnectionContext context;
  std::vector<Slot> slots;
  std::vector<uint16_t> free_slots;
  Turns turns;
  uint32_t turn_packets = 0;  // of the connection whose turn it is
  std::vector<Listener> listeners;
  uint64_t listeners_closed = 0;
  SlotQueue lingering;  // in the order of their ends: every connection lingers equally long
  uint64_t steps_seen = 0;
  // One refusal waits at a time: a flood of bad Connects cannot make the endpoint answer faster than it polls.
  bool refusal_due = false;
  Transmit refusal;
};

Endpoint::Endpoint(const Config& config, StepTable* steps, const std::array<uint8_t, 32>& entropy,
                   const Identity& identity)
    : impl_(std::make_unique<Impl>(config, steps, entropy, identity)) {
  FORGIVE_CHECK(config.rails >= 1);
  FORGIVE_CHECK(config.rails <= kMaxRails);
  FORGIVE_CHECK(config.rails == 1 || config.path_policy != PathPolicy::kSingle);
  FORGIVE_CHECK(config.paths % config.rails == 0);
}

Endpoint::~Endpoint() = default;

// ---- Requests ----

PostResult Endpoint::Post(const ListenRequest& request, ListenTicket* ticket) {
  Impl& impl = *impl_;
  Impl::Listener* listener = impl.FreeListener();
  if (listener == nullptr) return PostResult::kOverLimit;
  const auto slot = static_cast<uint64_t>(listener - impl.listeners.data());
  const uint64_t random = impl.entropy.Next64();
  *ticket = DrawnTicket(static_cast<uint16_t>(slot), random, {impl.entropy.Next64(), impl.entropy.Next64()});
  listener->Open(request, *ticket);
  return PostResult::kAccepted;
}

PostResult Endpoint::Post(const ListenRequest& request, const ListenTicket& drawn) {
  std::vector<Impl::Listener>& listeners = impl_->listeners;
  const size_t slot = PlaceOf(drawn);
  if (slot >= impl_->config.max_listeners) return PostResult::kOverLimit;
  if (slot >= listeners.size()) listeners.resize(slot + 1);  // within what was reserved
  if (listeners[slot].open) return PostResult::kOverLimit;
  listeners[slot].Open(request, drawn);
  return PostResult::kAccepted;
}

ListenTicket Endpoint::DrawnTicket(uint16_t place, uint64_t random, const SipKey& secret) {
  return {random << kSlotBits | place, secret};
}

uint16_t Endpoint::PlaceOf(ConnectionHandle connection) {
  return static_cast<uint16_t>(connection.value & ((1u << kSlotBits) - 1));
}

uint16_t Endpoint::PlaceOf(const ListenTicket& ticket) {
  return static_cast<uint16_t>(ticket.listen_id & ((1u << kSlotBits) - 1));
}

// A new slot while there is one, else the one that was closed the longest ago.
Endpoint::Impl::Listener* Endpoint::Impl::FreeListener() {
  if (listeners.size() < config.max_listeners) return &listeners.emplace_back();
  Listener* oldest = nullptr;
  for (Listener& listener : listeners) {
    if (!listener.open && (oldest == nullptr || listener.closed_at < oldest->closed_at)) oldest = &listener;
  }
  return oldest;
}

void Endpoint::CloseListener(uint64_t listen_id) {
  Impl::Listener* listener = impl_->FindListener(listen_id);
  if (listener == nullptr || !listener->open) return;
  listener->open = false;
  listener->closed_at = ++impl_->listeners_closed;
}

PostResult Endpoint::Post(TimePoint now, const ConnectRequest& request, ConnectionHandle* handle) {
  Impl& impl = *impl_;
  if (impl.free_slots.empty()) return PostResult::kOverLimit;
  if (request.max_payload_bytes < kUnitBytes) return PostResult::kFailed;
  const uint16_t slot = impl.free_slots.back();
  std::unique_ptr<Connection> connection(new (std::nothrow) Connection(
      impl.context, impl.HandleOf(slot), impl.NewConnectionId(slot), impl.entropy.NextNonce(), request, now));
  if (connection == nullptr) return PostResult::kNoMemory;
  *handle = impl.HandleOf(slot);
  impl.Take(slot, std::move(connection));
  return PostResult::kAccepted;
}

PostResult Endpoint::Post(TimePoint now, ConnectionHandle handle, const SendRequest& request) {
  Connection* connection = impl_->Find(handle);
  if (connection == nullptr) return PostResult::kUnknownConnection;
  impl_->Touch(*connection);
  return connection->Post(now, request);
}

PostResult Endpoint::Post(TimePoint now, ConnectionHandle handle, const ReceiveRequest& request) {
  Connection* connection = impl_->Find(handle);
  if (connection == nullptr) return PostResult::kUnknownConnection;
  impl_->Touch(*connection);
  return connection->Post(now, request);
}

void Endpoint::Post(TimePoint now, const CloseRequest& request) {
  Connection* connection = impl_->Find(request.connection);
  if (connection == nullptr || connection->state() == Connection::State::kClosed) return;
  connection->Close(now);
  impl_->lingering.Push(Impl::SlotOf(request.connection));
  impl_->Touch(*connection);
}

void Endpoint::GiveUp(ConnectionHandle handle) {
  FORGIVE_CHECK(impl_->config.experiments.early_close);
  Connection* connection = impl_->Find(handle);
  if (connection == nullptr || connection->receiver() == nullptr) return;
  connection->receiver()->GiveUp();
  impl_->Touch(*connection);
}

// ---- Datagrams ----

FORGIVE_FLATTEN void Endpoint::OnDatagram(TimePoint now, const Datagram& datagram) {
  Impl& impl = *impl_;
  if (!impl.events.HasReserve()) {
    ++impl.counters.events_full;
    return;
  }
  // Nearly all that arrives are data of a connection that is there.
  DataHeader header;
  if (ParseDataHeader(datagram.bytes, datagram.length, &header)) {
    impl.OnData(now, impl.FindById(header.connection_id), &header, datagram, nullptr);
  } else {
    impl.OnOther(now, datagram);
  }
}

FORGIVE_FLATTEN void Endpoint::OnDatagrams(TimePoint now, std::span<const Datagram> datagrams) {
  Impl& impl = *impl_;
  while (!datagrams.empty()) {
    const size_t count = std::min(datagrams.size(), impl.expected_burst.size());
    impl.Expect(datagrams.first(count));
    for (size_t i = 0; i < count; ++i) {
      if (!impl.events.HasReserve()) {
        ++impl.counters.events_full;
      } else if (Impl::Expected& expected = impl.expected_burst[i]; expected.is_data) {
        impl.OnData(now, expected.connection, &expected.header, datagrams[i],
                    expected.has_tag ? &expected.tag : nullptr);
      } else {
        impl.OnOther(now, datagrams[i]);
      }
    }
    datagrams = datagrams.subspan(count);
  }
}

// Changes nothing: a datagram earlier in the burst may end the connection of a later one.
void Endpoint::Impl::Expect(std::span<const Datagram> datagrams) {
  for (size_t i = 0; i < datagrams.size(); ++i) {
    Expected& expected = expected_burst[i];
    const uint8_t* bytes = datagrams[i].bytes;
    expected.is_data = ParseDataHeader(bytes, datagrams[i].length, &expected.header);
    expected.connection = expected.is_data ? FindById(expected.header.connection_id) : nullptr;
    expected.has_tag = expected.connection != nullptr &&
                       expected.connection->ExpectTag(expected.header, bytes, &tags, &expected.tag);
  }
  std::array<uint64_t, TagBatch::kCapacity> computed;
  tags.Finish(computed.data());
  const uint64_t* next = computed.data();
  for (size_t i = 0; i < datagrams.size(); ++i) {
    if (expected_burst[i].has_tag) expected_burst[i].tag.tag = *next++;
  }
}

void Endpoint::Impl::OnData(TimePoint now, Connection* connection, DataHeader* header, const Datagram& datagram,
                            const Connection::ExpectedTag* tag) {
  if (connection == nullptr) {
    ++counters.unknown_connection;
    return;
  }
  connection->OnData(now, header, datagram, tag);
  Touch(*connection);
}

// What is no valid data header.
FORGIVE_APART void Endpoint::Impl::OnOther(TimePoint now, const Datagram& datagram) {
  uint8_t version = 0;
  const PacketType type = PeekType(datagram.bytes, datagram.length, &version);
  if (type == PacketType::kInvalid) {
    OnForeign(now, datagram, version);
    return;
  }
  if (type == PacketType::kConnect) {
    OnConnect(now, datagram);
    return;
  }
  Connection* connection = FindById(PeekConnectionId(type, datagram.bytes));
  if (connection == nullptr) {
    ++counters.unknown_connection;
    return;
  }
  bool parsed = false;
  if (type == PacketType::kReport) {
    parsed = ParseReport(datagram.bytes, datagram.length, &report);
    if (parsed) connection->OnReport(now, &report, datagram);
  } else if (type == PacketType::kConnectReply) {
    ConnectReply reply;
    parsed = ParseConnectReply(datagram.bytes, datagram.length, &reply);
    if (parsed) connection->OnConnectReply(now, reply, datagram);
  } else if (type != PacketType::kData) {
    Control control;
    parsed = ParseControl(datagram.bytes, datagram.length, &control);
    if (parsed) connection->OnControl(now, control, datagram);
  }
  if (!parsed) ++counters.malformed;
  Touch(*connection);
}

// A listener allocates nothing before the tag proved that the peer has the ticket.
void Endpoint::Impl::OnConnect(TimePoint now, const Datagram& datagram) {
  Connect connect;
  if (!ParseConnect(datagram.bytes, datagram.length, &connect)) {
    ++counters.malformed;
    return;
  }
  Listener* listener = FindListener(connect.listen_id);
  if (listener == nullptr) {
    ++counters.unknown_connection;
    return;
  }
  if (!VerifyTag(listener->secret, PacketType::kConnect, datagram.bytes, datagram.length, 0)) {
    ++counters.bad_tag;
    return;
  }
  if (RepeatAnswer(connect)) return;
  if (!listener->open) {
    ++counters.unknown_connection;
    return;
  }
  if (listener->answered.Contains(connect.nonce)) {
    ++counters.replayed;
    return;
  }
  if (connect.rail_count != config.rails) {
    Refuse(connect, listener->secret, ConnectStatus::kOtherRails, datagram.source);
    return;
  }
  if (free_slots.empty() || listener->answered.full()) {
    Refuse(connect, listener->secret, ConnectStatus::kOverLimit, datagram.source);
    return;
  }
  const uint16_t slot = free_slots.back();
  std::unique_ptr<Connection> connection;
  if (listener->answered.HasRoom()) {
    connection.reset(new (std::nothrow) Connection(context, HandleOf(slot), NewConnectionId(slot), entropy.NextNonce(),
                                                   connect, listener->secret, datagram.source, now));
  }
  if (connection == nullptr || !connection->has_memory()) {
    Refuse(connect, listener->secret, ConnectStatus::kOverLimit, datagram.source);
    TellRefused(*listener, FailReason::kNoMemory);
    return;
  }
  listener->answered.Add(connect.nonce);
  Take(slot, std::move(connection));
  Event event;
  event.kind = Event::Kind::kIncoming;
  event.connection = HandleOf(slot);
  event.cookie = listener->cookie;
  event.size = connect.traffic_class;
  event.connection_id = slots[slot].connection->local_id();
  events.Push(event);
}

// A repeated Connect gets the same answer, also from a listener that was closed right after it accepted, as NCCL
// does.
bool Endpoint::Impl::RepeatAnswer(const Connect& connect) {
  for (const Slot& slot : slots) {
    if (!slot.connection || !slot.connection->IsAnswerTo(connect)) continue;
    slot.connection->SendReplyAgain(connect);
    Touch(*slot.connection);
    return true;
  }
  return false;
}

void Endpoint::Impl::Refuse(const Connect& connect, const SipKey& secret, ConnectStatus status,
                            const Address& source) {
  ConnectReply reply;
  reply.status = status;
  reply.connection_id = connect.connection_id;
  std::memcpy(&reply.connector_nonce_echo, connect.nonce.data(), sizeof reply.connector_nonce_echo);
  reply.identity = context.identity;
  refusal = Transmit{};
  refusal.destination = source;
  refusal.path = static_cast<uint16_t>(connect.attempt % config.rails);  // by the rail that brought the Connect
  refusal.header_length = static_cast<uint32_t>(WriteConnectReply(reply, secret, refusal.header.data()));
  refusal_due = true;
}

// The handshake of another version has this one's layout (docs/wire-format.md): read it as if it were this version's,
// and believe it only after its tag.
void Endpoint::Impl::OnForeign(TimePoint now, const Datagram& datagram, uint8_t version) {
  if (datagram.length < kConnectBytes || version == 0 || version == FORGIVE_WIRE_VERSION) {
    ++counters.malformed;
    return;
  }
  ++counters.foreign_version;
  std::array<uint8_t, kMaxConnectHeadBytes> head{};
  std::memcpy(head.data(), datagram.bytes, std::min(datagram.length, head.size()));
  head[0] = FORGIVE_WIRE_VERSION;
  ConnectReply reply;
  Connect connect;
  if (ParseConnectReply(head.data(), datagram.length, &reply)) {
    Connection* connection = FindById(reply.connection_id);
    if (connection != nullptr) connection->OnForeignReply(now, reply, datagram);
  } else if (ParseConnect(head.data(), datagram.length, &connect)) {
    Listener* listener = FindListener(connect.listen_id);
    if (listener == nullptr || !listener->open) return;
    if (!VerifyTag(listener->secret, PacketType::kConnect, datagram.bytes, datagram.length, 0)) return;
    Refuse(connect, listener->secret, ConnectStatus::kVersionMismatch, datagram.source);
    // The answer may have been lost; whoever listens is told once, or a replay would fill its queue.
    if (listener->answered.Contains(connect.nonce) || !listener->answered.HasRoom()) return;
    listener->answered.Add(connect.nonce);
    TellRefused(*listener, FailReason::kVersionMismatch);
  }
}

void Endpoint::Impl::TellRefused(const Listener& listener, FailReason reason) {
  Event event;
  event.kind = Event::Kind::kIncomingRefused;
  event.reason = reason;
  event.cookie = listener.cookie;
  events.Push(event);
}

// ---- Time ----

void Endpoint::OnDeadline(TimePoint now) {
  Impl& impl = *impl_;
  impl.turns.Wake(now);
  for (uint32_t n = 0; n < impl.turns.ready() && impl.events.HasReserve(); ++n) {
    Connection& connection = *impl.slots[impl.turns.ReadyAt(n)].connection;
    if (connection.next_deadline() <= now) connection.OnDeadline(now);
  }
  impl.FreeLingered(now);
}

void Endpoint::Impl::FreeLingered(TimePoint now) {
  while (!lingering.empty()) {
    const uint16_t slot = lingering.front();
    if (slots[slot].connection->linger_end() > now) return;
    lingering.Pop();
    turns.Forget(slot);
    slots[slot].connection.reset();
    ++slots[slot].generation;
    free_slots.push_back(slot);
  }
}

TimePoint Endpoint::next_deadline() const {
  const Impl& impl = *impl_;
  if (impl.refusal_due || impl.context.steps->changes() != impl.steps_seen) return TimePoint{0};
  TimePoint next = impl.turns.next_wake();
  for (uint32_t n = 0; n < impl.turns.ready(); ++n) {
    next = Earlier(next, impl.slots[impl.turns.ReadyAt(n)].connection->next_deadline());
  }
  if (!impl.lingering.empty()) next = Earlier(next, impl.slots[impl.lingering.front()].connection->linger_end());
  return next;
}

// ---- Transmission and events ----

bool Endpoint::NextTransmit(TimePoint now, Transmit* out) { return NextTransmits(now, {out, 1}) == 1; }

FORGIVE_FLATTEN size_t Endpoint::NextTransmits(TimePoint now, std::span<Transmit> out) {
  Impl& impl = *impl_;
  size_t count = 0;
  if (impl.refusal_due && !out.empty()) {
    impl.refusal_due = false;
    out[count++] = impl.refusal;
  }
  if (const uint64_t changes = impl.context.steps->changes(); changes != impl.steps_seen) {
    impl.steps_seen = changes;
    impl.OnStepsChanged();
  }
  impl.context.tags = out.size() > 1 ? &impl.tags : nullptr;
  impl.turns.Wake(now);
  while (count != out.size() && impl.turns.HasReady()) {
    if (impl.turn_packets >= kPacketsPerTurn) {
      impl.turn_packets = 0;
      impl.turns.Rotate();
    }
    Connection& connection = *impl.slots[impl.turns.front()].connection;
    if (connection.NextTransmit(now, &out[count])) {
      ++impl.turn_packets;
      ++count;
      if (impl.tags.full()) impl.tags.WriteTags();
    } else {
      impl.turn_packets = 0;
      impl.turns.Sleep(connection.next_deadline());
    }
  }
  if (!impl.tags.empty()) impl.tags.WriteTags();
  return count;
}

void Endpoint::Impl::OnStepsChanged() {
  for (uint16_t slot = 0; slot < slots.size(); ++slot) {
    Connection* connection = slots[slot].connection.get();
    if (connection == nullptr || connection->receiver() == nullptr || !connection->HasWork()) continue;
    connection->receiver()->OnStepsChanged();
    if (connection->receiver()->report_deadline() == TimePoint{}) turns.Touch(slot);
  }
}

bool Endpoint::NextEvent(Event* out) { return impl_->events.Pop(out); }

const Counters& Endpoint::counters() const { return impl_->counters; }

bool Endpoint::Facts(TimePoint now, ConnectionHandle handle, ConnectionFacts* out) const {
  const Connection* connection = impl_->Find(handle);
  if (connection == nullptr) return false;
  *out = ConnectionFacts{};
  out->sends = connection->sends();
  out->connection_id = connection->data_connection_id();
  out->max_payload = connection->max_payload();
  if (const Sender* sender = connection->sender()) {
    out->rate = sender->rate();
    out->smoothed_rtt = sender->smoothed_rtt();
    out->bytes_in_flight = sender->bytes_in_flight();
    out->exempt = sender->mode(now) == Mode::kExempt;
  }
  return true;
}

}  // namespace forgive
