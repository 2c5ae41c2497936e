// SPDX-License-Identifier: Apache-2.0
// The engine's thread: requests into endpoints, events out to slots, listeners and the ledger.
#include <algorithm>

#include "dataplane/clock.h"
#include "dataplane/poll_loop.h"
#include "dataplane/socket_address.h"
#include "transport/check.h"

namespace forgive {
namespace {

// Publishes a request's end. After the store the slot belongs to its poster again.
void Publish(RequestSlot* request, RequestSlot::State state, FailReason reason, uint64_t size) {
  request->size = size;
  request->reason = reason;
  request->state.store(state, std::memory_order_release);
}

}  // namespace

// ---- Requests ----

void PollLoop::Post(TimePoint now, const Command& command) {
  if (command.kind == Command::Kind::kOperation) {
    BeginOperation(now, command.plan);
    return;
  }
  EngineConnection* connection = command.connection;
  const uint32_t state = connection->state.load(std::memory_order_relaxed);
  // It failed, or was closed, after the poster had looked.
  if (state == ConnectionSlot::kClosed) return;
  if (state == ConnectionSlot::kFailed) {
    const auto reason = static_cast<FailReason>(connection->reason.load(std::memory_order_relaxed));
    FailRequest(command.request, reason);
    connection->outstanding.fetch_sub(1, std::memory_order_relaxed);
    return;
  }
  Device& device = *devices_[connection->device];
  const auto cookie = reinterpret_cast<uint64_t>(command.request);
  PostResult result;
  EngineConnection::Posted posted{command.request, nullptr, 0, false};
  if (command.kind == Command::Kind::kSend) {
    SendRequest send = command.send;
    send.cookie = cookie;
    posted.send_buffer = send.buffer;
    posted.send_length = send.length;
    result = device.endpoint->Post(now, connection->handle, send);
  } else {
    ReceiveRequest receive = command.receive;
    receive.cookie = cookie;
    result = device.endpoint->Post(now, connection->handle, receive);
  }
  // `outstanding` keeps posts within Config::max_messages, so the endpoint has room for what got here.
  FORGIVE_CHECK(result != PostResult::kTryAgain && result != PostResult::kOverLimit);
  FORGIVE_CHECK(result != PostResult::kUnknownConnection);
  FORGIVE_CHECK(connection->posted.size() < connection->posted.capacity());
  connection->posted.push_back(posted);
  // kFailed: the connection's own event is on its way and will fail this request with the others.
}

// ---- Events ----

size_t PollLoop::DrainEvents(TimePoint now, uint32_t device_index) {
  Endpoint& endpoint = *devices_[device_index]->endpoint;
  size_t count = 0;
  Event event;
  while (endpoint.NextEvent(&event)) {
    OnEvent(now, device_index, event);
    ++count;
  }
  return count;
}

void PollLoop::OnEvent(TimePoint now, uint32_t device_index, const Event& event) {
  Device& device = *devices_[device_index];
  switch (event.kind) {
    case Event::Kind::kSent:
    case Event::Kind::kReceived:
      Complete(device, event);
      return;
    case Event::Kind::kForgiven:
      AddLedgerLine(device, event);
      return;
    case Event::Kind::kIncoming:
      OnIncoming(now, device_index, event);
      return;
    case Event::Kind::kIncomingRefused:
      OnIncomingRefused(device_index, event);
      return;
    case Event::Kind::kConnected:
    case Event::Kind::kFailed:
    case Event::Kind::kSegmentsCut:
      break;
  }
  EngineConnection* connection = FindConnection(device, event.connection);
  if (connection == nullptr) return;  // closed meanwhile
  if (event.kind == Event::Kind::kFailed) {
    FailConnection(connection, event.reason);
    return;
  }
  if (event.kind == Event::Kind::kSegmentsCut) {
    connection->segments_cut_to.store(static_cast<uint32_t>(event.size), std::memory_order_relaxed);
    return;
  }
  connection->connection_id = event.connection_id;
  connection->state.store(ConnectionSlot::kReady, std::memory_order_release);
}

void PollLoop::Complete(Device& device, const Event& event) {
  EngineConnection* connection = FindConnection(device, event.connection);
  if (connection == nullptr) return;  // closed meanwhile: its slots are no longer ours
  auto* request = reinterpret_cast<RequestSlot*>(event.cookie);
  const auto posted =
      std::find_if(connection->posted.begin(), connection->posted.end(),
                   [&](const EngineConnection::Posted& p) { return !p.done && p.request == request; });
  FORGIVE_CHECK(posted != connection->posted.end());
  const bool sent = event.kind == Event::Kind::kSent;
  // A copy that the driver has not taken yet must not read a buffer that is the user's again.
  if (sent) DropLeftovers(device, event.connection, &*posted);
  const uint64_t size = sent ? posted->send_length : event.size;
  posted->done = true;
  const auto unfinished = std::find_if(connection->posted.begin(), connection->posted.end(),
                                       [](const EngineConnection::Posted& p) { return !p.done; });
  const auto freed = static_cast<uint32_t>(unfinished - connection->posted.begin());
  connection->posted.erase(connection->posted.begin(), unfinished);
  // First the room, then the news: whoever sees the request done may post the next one.
  connection->outstanding.fetch_sub(freed, std::memory_order_release);
  Publish(request, RequestSlot::kDone, FailReason::kNone, size);
}

void PollLoop::FailRequest(RequestSlot* request, FailReason reason) {
  Publish(request, RequestSlot::kFailed, reason, 0);
}

void PollLoop::FailConnection(EngineConnection* connection, FailReason reason) {
  DropLeftovers(*devices_[connection->device], connection->handle, nullptr);
  connection->reason.store(static_cast<uint32_t>(reason), std::memory_order_relaxed);
  connection->state.store(ConnectionSlot::kFailed, std::memory_order_release);
  for (const EngineConnection::Posted& posted : connection->posted) {
    connection->outstanding.fetch_sub(1, std::memory_order_release);
    if (!posted.done) FailRequest(posted.request, reason);
  }
  connection->posted.clear();
}

// Data packets of the connection that wait for the driver are dropped: all of them, or those of one request.
void PollLoop::DropLeftovers(Device& device, ConnectionHandle connection, const EngineConnection::Posted* only) {
  if (device.next == device.end) return;
  const auto begin = device.transmits.begin() + static_cast<ptrdiff_t>(device.next);
  const auto end = device.transmits.begin() + static_cast<ptrdiff_t>(device.end);
  const auto kept = std::remove_if(begin, end, [&](const Transmit& packet) {
    if (packet.connection != connection || packet.packet_class != PacketClass::kData) return false;
    if (only == nullptr) return true;
    return packet.payload >= only->send_buffer && packet.payload < only->send_buffer + only->send_length;
  });
  device.end = static_cast<size_t>(kept - device.transmits.begin());
}

// ---- The ledger ----

void PollLoop::AddLedgerLine(Device& device, const Event& event) {
  Event line = event;
  const EngineConnection* connection = FindConnection(device, event.connection);
  line.cookie = connection == nullptr ? 0 : reinterpret_cast<uint64_t>(connection->user);
  if (FlushLedger() && ledger_.Push(line)) return;
  FORGIVE_CHECK(ledger_waiting_.size() < ledger_waiting_.capacity());
  ledger_waiting_.push_back(line);
}

// True: every line is in the ring.
bool PollLoop::FlushLedger() {
  for (; ledger_next_ != ledger_waiting_.size(); ++ledger_next_) {
    if (!ledger_.Push(ledger_waiting_[ledger_next_])) return false;
  }
  ledger_waiting_.clear();
  ledger_next_ = 0;
  return true;
}

// ---- Control ----

EngineConnection* PollLoop::FindConnection(const Device& device, ConnectionHandle handle) {
  const uint16_t place = Endpoint::PlaceOf(handle);
  if (place >= device.connections.size()) return nullptr;
  EngineConnection* const connection = device.connections[place].get();
  return connection != nullptr && connection->handle == handle ? connection : nullptr;
}

std::shared_ptr<EngineConnection> PollLoop::MakeConnection(uint32_t device_index) const {
  auto connection = std::make_shared<EngineConnection>();
  connection->device = device_index;
  connection->posted.reserve(options_.transport.max_messages);
  return connection;
}

void PollLoop::ConnectHere(TimePoint now, const std::shared_ptr<EngineConnection>& connection) {
  const auto fail = [&](FailReason reason) {
    connection->reason.store(static_cast<uint32_t>(reason), std::memory_order_relaxed);
    connection->state.store(ConnectionSlot::kFailed, std::memory_order_release);
  };
  if (stop_) return fail(FailReason::kClosedHere);
  Device& device = *devices_[connection->device];
  ConnectRequest& request = connection->request;
  // A link-local address carries the number that the interface has on its own host.
  for (uint32_t rail = 0; rail < options_.transport.rails; ++rail) {
    request.own[rail] = device.driver->rail_address(rail);
    SetAddressScope(AddressScope(request.own[rail]),
                    rail == 0 ? &request.peer : &request.more_peers[rail - 1]);
    SetAddressScope(0, &request.own[rail]);
  }
  const uint32_t most = device.driver->max_datagram_bytes();
  request.max_payload_bytes = most > kDataHeaderBytes ? most - static_cast<uint32_t>(kDataHeaderBytes) : 0;
  const PostResult result = device.endpoint->Post(now, request, &connection->handle);
  if (result != PostResult::kAccepted) {
    // Whoever asked must not look for the reason at the peer, who never heard of it.
    if (result == PostResult::kNoMemory) return fail(FailReason::kNoMemory);
    return fail(result == PostResult::kOverLimit ? FailReason::kOverLimit : FailReason::kNoPayload);
  }
  device.connections[Endpoint::PlaceOf(connection->handle)] = connection;
}

void PollLoop::CloseHere(TimePoint now, const std::shared_ptr<ConnectionSlot>& slot) {
  Device& device = *devices_[slot->device];
  EngineConnection* const connection = FindConnection(device, slot->handle);
  if (connection != slot.get()) {
    slot->state.store(ConnectionSlot::kClosed, std::memory_order_release);
    return;
  }
  // What has happened until now is told: completions to their slots, lines to the ledger.
  DrainEvents(now, slot->device);
  DropLeftovers(device, slot->handle, nullptr);
  device.endpoint->Post(now, CloseRequest{slot->handle});
  connection->posted.clear();
  slot->state.store(ConnectionSlot::kClosed, std::memory_order_release);
  device.connections[Endpoint::PlaceOf(slot->handle)] = nullptr;
}

void PollLoop::CloseEverything(TimePoint now) {
  for (uint32_t i = 0; i < devices_.size(); ++i) {
    Device& device = *devices_[i];
    DrainEvents(now, i);
    for (size_t place = 0; place < device.connections.size(); ++place) {
      const std::shared_ptr<EngineConnection> connection = device.connections[place];
      if (connection == nullptr) continue;
      FailConnection(connection.get(), FailReason::kClosedHere);
      CloseHere(now, connection);
    }
    TransmitFrom(device, now);  // the peers learn of it
    for (std::shared_ptr<ListenerSlot>& listener : device.listeners) listener = nullptr;
  }
  accepted_waiting_ = 0;
}

std::vector<ConnectionSample> PollLoop::SampleHere(TimePoint now) {
  std::vector<ConnectionSample> samples;
  for (uint32_t i = 0; i < devices_.size(); ++i) {
    for (const std::shared_ptr<EngineConnection>& connection : devices_[i]->connections) {
      if (connection == nullptr) continue;
      ConnectionSample sample;
      sample.device = i;
      if (devices_[i]->endpoint->Facts(now, connection->handle, &sample.facts)) samples.push_back(sample);
    }
  }
  return samples;
}

}  // namespace forgive
