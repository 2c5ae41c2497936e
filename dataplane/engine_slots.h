// SPDX-License-Identifier: Apache-2.0
// Connections and listeners as the engine holds them; handing one over to the engine's thread allocates nothing.
#ifndef FORGIVE_DATAPLANE_ENGINE_SLOTS_H_
#define FORGIVE_DATAPLANE_ENGINE_SLOTS_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "dataplane/engine.h"
#include "dataplane/ring.h"

namespace forgive {

// A connection as the engine holds it: what the plugin sees, and the slots that wait on it. What has no other owner
// in its comment belongs to the engine's thread.
struct EngineConnection : ConnectionSlot {
  // Posts from the oldest unfinished one on; posters add, the engine takes off. Receives may complete out of order,
  // but the endpoint's room is freed in order, so this bounds both `posted` and the endpoint's table.
  std::atomic<uint32_t> outstanding{0};

  struct Posted {
    RequestSlot* request = nullptr;
    const uint8_t* send_buffer = nullptr;  // of a send
    uint64_t send_length = 0;
    bool done = false;  // the slot is its poster's again
  };
  std::vector<Posted> posted;  // in the order of posts, the first one not done; capacity Config::max_messages

  // With a command on its way to the engine, whoever gave the command: it keeps the connection alive.
  std::shared_ptr<EngineConnection> connecting;
  std::shared_ptr<EngineConnection> closing;
  std::atomic<bool> close_asked{false};  // by CloseIdle, which hands over once
  ConnectRequest request;                // with `connecting`

  std::shared_ptr<EngineConnection> next_waiting;  // in its listener's list
};

// Connections in the order in which they came, linked through themselves.
class WaitingConnections {
 public:
  WaitingConnections() = default;
  WaitingConnections(const WaitingConnections&) = delete;
  WaitingConnections& operator=(const WaitingConnections&) = delete;
  ~WaitingConnections() {
    while (!empty()) Pop();
  }

  bool empty() const { return first_ == nullptr; }
  const std::shared_ptr<EngineConnection>& front() const { return first_; }
  void Push(std::shared_ptr<EngineConnection> connection) {
    EngineConnection* const added = connection.get();
    (last_ == nullptr ? first_ : last_->next_waiting) = std::move(connection);
    last_ = added;
  }
  void Pop() {
    first_ = std::exchange(first_->next_waiting, nullptr);
    if (first_ == nullptr) last_ = nullptr;
  }

 private:
  std::shared_ptr<EngineConnection> first_;
  EngineConnection* last_ = nullptr;
};

struct ListenerSlot {
  // So many connections may wait for Accept without more work for the engine.
  static constexpr uint32_t kAcceptedPlaces = 64;

  uint32_t device = 0;
  ListenTicket ticket;  // its id is the cookie of its events
  // From the engine to whoever accepts, and after the close back to the engine.
  SpscRing<std::shared_ptr<ConnectionSlot>> accepted{kAcceptedPlaces};
  WaitingConnections waiting;  // the engine's: what did not fit, put in later
  // The engine's: a connection that tells whoever accepts of the first failure that no other could be made for.
  std::shared_ptr<EngineConnection> refusal;

  // As above.
  std::shared_ptr<ListenerSlot> opening;
  std::shared_ptr<ListenerSlot> closing;
  std::atomic<bool> close_asked{false};
};

}  // namespace forgive

#endif  // FORGIVE_DATAPLANE_ENGINE_SLOTS_H_
