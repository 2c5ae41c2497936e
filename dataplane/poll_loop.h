// SPDX-License-Identifier: Apache-2.0
// The engine's thread: turns the crank of every device's endpoint and owns the rank's step table.
#ifndef FORGIVE_DATAPLANE_POLL_LOOP_H_
#define FORGIVE_DATAPLANE_POLL_LOOP_H_

#include <poll.h>

#include <array>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "dataplane/doorbell.h"
#include "dataplane/engine.h"
#include "dataplane/engine_slots.h"
#include "dataplane/idle_spin.h"
#include "dataplane/ring.h"

namespace forgive {

// Work that a thread waits for; it stays the thread's.
struct AwaitedWork {
  void (*run)(const void* work, TimePoint now) = nullptr;
  const void* work = nullptr;
  bool done = false;
  bool no_memory = false;  // the work ended by std::bad_alloc
};

// One unit of work for the engine's thread.
struct Command {
  enum class Kind : uint8_t {
    kSend,
    kReceive,
    kOperation,
    kAwaited,
    // Handed over: nobody waits for these.
    kListen,
    kCloseListener,
    kConnect,
    kCloseIdle
  };
  Kind kind = Kind::kAwaited;
  EngineConnection* connection = nullptr;
  ListenerSlot* listener = nullptr;
  RequestSlot* request = nullptr;
  AwaitedWork* awaited = nullptr;
  SendRequest send;
  ReceiveRequest receive;
  StepPlan plan;
};

// The thread, its devices and its rings. Public functions named ...Here run on the thread (by Call).
class PollLoop {
 public:
  // `drivers` stand in the order of options.devices.
  PollLoop(const EngineOptions& options, std::vector<std::unique_ptr<Driver>> drivers);
  ~PollLoop();  // stops the thread; closes every connection

  // Starts the thread. False: *error says why.
  bool Start(std::string* error);

  // ---- From any thread ----
  // False: the ring is full.
  bool Submit(const Command& command);
  // Runs `work(now)` on the thread and returns when it has run. Allocates nothing itself; throws std::bad_alloc where
  // the work did.
  template <typename Work>
  void Call(const Work& work) {
    AwaitedWork awaited;
    awaited.run = [](const void* erased, TimePoint now) { (*static_cast<const Work*>(erased))(now); };
    awaited.work = &work;
    CallAwaited(&awaited);
  }
  // These hand over to the thread, in the order of a thread's commands, and return at once; they wait only while the
  // ring is full. What the thread has not run when it ends is run by the destructor, with `stop_` set. Whatever they
  // cannot allocate is std::bad_alloc before anything has begun; those that close allocate nothing.
  // nullptr: over the limit.
  std::shared_ptr<ListenerSlot> Listen(uint32_t device);
  void CloseListener(const std::shared_ptr<ListenerSlot>& listener);
  std::shared_ptr<EngineConnection> Connect(uint32_t device, const ConnectRequest& request);
  void CloseIdle(const std::shared_ptr<EngineConnection>& connection);
  EngineSnapshot Snapshot() const { return snapshot_.Load(); }
  bool NextLedgerLine(Event* out) { return ledger_.Pop(out); }
  bool NextOperation(OperationAccount* out) { return operation_lines_.Pop(out); }
  Driver& driver(uint32_t device) const { return *devices_[device]->driver; }
  uint32_t device_count() const { return static_cast<uint32_t>(devices_.size()); }
  const Config& config() const { return options_.transport; }

  // ---- On the thread ----
  void CloseHere(TimePoint now, const std::shared_ptr<ConnectionSlot>& connection);
  StepTable& steps() { return steps_; }
  void EndOperationsHere(TimePoint now);
  std::vector<ConnectionSample> SampleHere(TimePoint now);

 private:
  static constexpr size_t kBurst = 64;
  static constexpr int kBurstsPerTurn = 4;
  // Of a device without file descriptors, where a receive is no system call: a report leaves after each burst, and
  // the peer fills its window while the next one is taken, instead of after a turn that was a whole window.
  static constexpr int kPolledBurstsPerTurn = 1;

  struct Device {
    explicit Device(const Config& limits);

    std::unique_ptr<Driver> driver;
    std::unique_ptr<Endpoint> endpoint;
    std::vector<std::shared_ptr<EngineConnection>> connections;  // by the place of their handles
    std::vector<std::shared_ptr<ListenerSlot>> listeners;        // by the place of their tickets
    // Packets that the driver did not take yet stand in [next, end).
    std::array<Transmit, kBurst> transmits;
    size_t next = 0;
    size_t end = 0;
    size_t first_poll_fd = 0;    // in poll_fds_, if it has any
    size_t blocked_poll_fd = 0;  // behind them: the one that is full, while packets wait for it
    bool has_poll_fds = false;
    // Places of listeners in the endpoint, the longest free first: the engine gives back, whoever listens takes.
    std::mutex listener_mutex;  // among those who listen
    SpscRing<uint16_t> free_listeners;
  };

  // poll_loop.cc
  void Run();
  void CallAwaited(AwaitedWork* awaited);
  void RunAwaited(TimePoint now, AwaitedWork* awaited);
  void HandOver(const Command& command);
  void RunHandedOver(TimePoint now, const Command& command);
  bool Turn();
  size_t DrainCommands(TimePoint now);
  size_t ReceiveFrom(Device& device, TimePoint now);
  size_t TransmitFrom(Device& device, TimePoint now);
  void IdleTurn(TimePoint now);
  TimePoint NextDeadline(TimePoint now) const;
  void Sleep(TimePoint deadline);
  void PublishSnapshot(TimePoint now);
  DriverCounters CountersOfDrivers() const;

  // poll_operations.cc: steps that begin with a receive
  void BeginOperation(TimePoint now, const StepPlan& plan);
  void EndOperation(TimePoint now, size_t index);

  // poll_listeners.cc
  static ListenerSlot* FindListener(Device& device, uint64_t listen_id);
  void ListenHere(const std::shared_ptr<ListenerSlot>& listener);
  void CloseListenerHere(TimePoint now, const std::shared_ptr<ListenerSlot>& listener);
  void OnIncoming(TimePoint now, uint32_t device_index, const Event& event);
  void OnIncomingRefused(uint32_t device_index, const Event& event);
  std::shared_ptr<EngineConnection> MakeIncoming(uint32_t device_index) const;
  void GiveFailed(ListenerSlot* listener, std::shared_ptr<EngineConnection> connection, FailReason reason);
  void GiveToListener(ListenerSlot* listener, std::shared_ptr<EngineConnection> connection);
  void FlushAccepted();

  // poll_requests.cc: requests in, events out
  std::shared_ptr<EngineConnection> MakeConnection(uint32_t device_index) const;
  static EngineConnection* FindConnection(const Device& device, ConnectionHandle handle);
  // Sets what the request needs from the device, and starts the handshake.
  void ConnectHere(TimePoint now, const std::shared_ptr<EngineConnection>& connection);
  void Post(TimePoint now, const Command& command);
  size_t DrainEvents(TimePoint now, uint32_t device_index);
  void OnEvent(TimePoint now, uint32_t device_index, const Event& event);
  void Complete(Device& device, const Event& event);
  void FailConnection(EngineConnection* connection, FailReason reason);
  void FailRequest(RequestSlot* request, FailReason reason);
  void AddLedgerLine(Device& device, const Event& event);
  bool FlushLedger();
  void DropLeftovers(Device& device, ConnectionHandle connection, const EngineConnection::Posted* only);
  void CloseEverything(TimePoint now);

  const EngineOptions options_;
  StepTable steps_;
  std::vector<std::unique_ptr<Device>> devices_;
  size_t accepted_waiting_ = 0;  // in all ListenerSlot::waiting

  CommandRing<Command> commands_;
  SpscRing<Event> ledger_;
  // Lines that did not fit, from ledger_next_ on. While there are any, no datagram is taken, so that none are added
  // but those of the device that took the last ones, its events, Config::event_capacity at most; and a line for each
  // message that came before its receive, where that is posted meanwhile.
  std::vector<Event> ledger_waiting_;
  size_t ledger_next_ = 0;
  std::array<Datagram, kBurst> datagrams_;

  struct OpenOperation {
    uint64_t step = 0;
    TimePoint begin;
  };
  static constexpr size_t kMostOpenOperations = 16;
  std::vector<OpenOperation> operations_;  // by rising step; kMostOpenOperations at most
  SpscRing<OperationAccount> operation_lines_;

  Doorbell doorbell_;
  std::vector<pollfd> poll_fds_;
  bool every_device_has_fds_ = true;

  // Control calls wait here; the loop's data path never takes this mutex.
  std::mutex control_mutex_;
  std::condition_variable control_done_;

  alignas(kCacheLineBytes) uint64_t turns_ = 0;
  IdleSpin spin_;
  TimePoint last_turn_{};
  TimePoint next_publish_{};
  bool publish_due_ = true;
  Published<EngineSnapshot> snapshot_;
  DriverCounters published_drivers_;  // as the newest snapshot has them
  bool stop_ = false;                 // set on the thread by a control call; afterwards no handshake is started
  std::thread thread_;
};

}  // namespace forgive

#endif  // FORGIVE_DATAPLANE_POLL_LOOP_H_
