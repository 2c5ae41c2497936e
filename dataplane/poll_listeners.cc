// SPDX-License-Identifier: Apache-2.0
// Listeners of the engine: drawn by whoever listens, opened and closed by the engine's thread, which fills them.
#include <array>
#include <cstring>
#include <new>

#include "dataplane/poll_loop.h"
#include "dataplane/system_entropy.h"
#include "transport/check.h"

namespace forgive {

// ---- From any thread ----

std::shared_ptr<ListenerSlot> PollLoop::Listen(uint32_t device_index) {
  // All that may throw comes before the place is drawn: only the engine could give it back.
  auto listener = std::make_shared<ListenerSlot>();
  listener->device = device_index;
  listener->refusal = std::make_shared<EngineConnection>();
  listener->refusal->device = device_index;
  const std::array<uint8_t, 32> random = SystemEntropy();
  std::array<uint64_t, 3> words;
  std::memcpy(words.data(), random.data(), sizeof(words));
  uint16_t place = 0;
  {
    Device& device = *devices_[device_index];
    const std::lock_guard<std::mutex> lock(device.listener_mutex);
    if (!device.free_listeners.Pop(&place)) return nullptr;
  }
  listener->ticket = Endpoint::DrawnTicket(place, words[0], {words[1], words[2]});
  listener->opening = listener;
  Command command;
  command.kind = Command::Kind::kListen;
  command.listener = listener.get();
  HandOver(command);
  return listener;
}

void PollLoop::CloseListener(const std::shared_ptr<ListenerSlot>& listener) {
  if (listener->close_asked.exchange(true, std::memory_order_relaxed)) return;
  listener->closing = listener;
  Command command;
  command.kind = Command::Kind::kCloseListener;
  command.listener = listener.get();
  HandOver(command);
}

// ---- On the thread ----

ListenerSlot* PollLoop::FindListener(Device& device, uint64_t listen_id) {
  ListenerSlot* const listener = device.listeners[Endpoint::PlaceOf(ListenTicket{listen_id, {}})].get();
  return listener != nullptr && listener->ticket.listen_id == listen_id ? listener : nullptr;
}

void PollLoop::ListenHere(const std::shared_ptr<ListenerSlot>& listener) {
  Device& device = *devices_[listener->device];
  const ListenRequest request{listener->ticket.listen_id};
  // A place that Listen drew is free in the endpoint: it is given back when the endpoint has closed it.
  FORGIVE_CHECK(device.endpoint->Post(request, listener->ticket) == PostResult::kAccepted);
  device.listeners[Endpoint::PlaceOf(listener->ticket)] = listener;
}

void PollLoop::CloseListenerHere(TimePoint now, const std::shared_ptr<ListenerSlot>& listener) {
  Device& device = *devices_[listener->device];
  if (FindListener(device, listener->ticket.listen_id) != listener.get()) return;
  device.listeners[Endpoint::PlaceOf(listener->ticket)] = nullptr;
  device.endpoint->CloseListener(listener->ticket.listen_id);
  // Nobody accepts any more, so that the ring is read here.
  std::shared_ptr<ConnectionSlot> never_accepted;
  while (listener->accepted.Pop(&never_accepted)) CloseHere(now, never_accepted);
  for (; !listener->waiting.empty(); listener->waiting.Pop()) {
    CloseHere(now, listener->waiting.front());
    --accepted_waiting_;
  }
  FORGIVE_CHECK(device.free_listeners.Push(Endpoint::PlaceOf(listener->ticket)));
}

void PollLoop::OnIncoming(TimePoint now, uint32_t device_index, const Event& event) {
  Device& device = *devices_[device_index];
  ListenerSlot* const listener = FindListener(device, event.cookie);
  const std::shared_ptr<EngineConnection> connection = listener == nullptr ? nullptr : MakeIncoming(device_index);
  if (connection == nullptr) {
    device.endpoint->Post(now, CloseRequest{event.connection});
    if (listener != nullptr) GiveFailed(listener, nullptr, FailReason::kNoMemory);
    return;
  }
  connection->handle = event.connection;
  connection->connection_id = event.connection_id;
  connection->peer_traffic_class = static_cast<uint32_t>(event.size);
  connection->state.store(ConnectionSlot::kReady, std::memory_order_release);
  device.connections[Endpoint::PlaceOf(event.connection)] = connection;
  GiveToListener(listener, connection);
}

void PollLoop::OnIncomingRefused(uint32_t device_index, const Event& event) {
  ListenerSlot* const listener = FindListener(*devices_[device_index], event.cookie);
  if (listener == nullptr) return;
  // Where memory is short, nothing more is made of it, however often the peer asks.
  const bool no_memory = event.reason == FailReason::kNoMemory;
  GiveFailed(listener, no_memory ? nullptr : MakeIncoming(device_index), event.reason);
}

// nullptr: no memory.
std::shared_ptr<EngineConnection> PollLoop::MakeIncoming(uint32_t device_index) const {
  try {
    return MakeConnection(device_index);
  } catch (const std::bad_alloc&) {
    return nullptr;
  }
}

// Whoever accepts learns by a connection that has failed already: `connection`, or without one the listener's own,
// which it has once.
void PollLoop::GiveFailed(ListenerSlot* listener, std::shared_ptr<EngineConnection> connection, FailReason reason) {
  if (connection == nullptr) connection = std::move(listener->refusal);
  if (connection == nullptr) return;
  connection->reason.store(static_cast<uint32_t>(reason), std::memory_order_relaxed);
  connection->state.store(ConnectionSlot::kFailed, std::memory_order_release);
  GiveToListener(listener, std::move(connection));
}

// In order: nothing overtakes what waits.
void PollLoop::GiveToListener(ListenerSlot* listener, std::shared_ptr<EngineConnection> connection) {
  if (listener->waiting.empty() && listener->accepted.Push(connection)) return;
  listener->waiting.Push(std::move(connection));
  ++accepted_waiting_;
}

void PollLoop::FlushAccepted() {
  for (const std::unique_ptr<Device>& device : devices_) {
    for (const std::shared_ptr<ListenerSlot>& listener : device->listeners) {
      if (listener == nullptr) continue;
      while (!listener->waiting.empty() && listener->accepted.Push(listener->waiting.front())) {
        listener->waiting.Pop();
        --accepted_waiting_;
      }
    }
  }
}

}  // namespace forgive
