// SPDX-License-Identifier: Apache-2.0
// The engine: one poll thread a rank, the owner of its step table and endpoints; requests come through a ring.
#ifndef FORGIVE_DATAPLANE_ENGINE_H_
#define FORGIVE_DATAPLANE_ENGINE_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "dataplane/dpdk_options.h"
#include "dataplane/driver.h"
#include "transport/endpoint.h"

namespace forgive {

// A request in flight, in memory of whoever posted it (one slot of a request table). The poster writes everything
// before Submit; the engine publishes size and reason and then `state` (release); the poster reads `state` (acquire).
struct RequestSlot {
  enum State : uint32_t { kIdle, kPosted, kDone, kFailed };
  std::atomic<uint32_t> state{kIdle};
  FailReason reason = FailReason::kNone;
  uint64_t size = 0;  // bytes; of a receive: as sent
};

// A connection as the plugin sees it; shared by the plugin and the engine, freed when both let go.
struct ConnectionSlot {
  enum State : uint32_t { kConnecting, kReady, kFailed, kClosed };
  std::atomic<uint32_t> state{kConnecting};
  std::atomic<uint32_t> reason{0};  // a FailReason, once failed
  // Most payload bytes of a segment since the path swallowed longer ones; 0: it never did.
  std::atomic<uint32_t> segments_cut_to{0};
  uint32_t device = 0;
  ConnectionHandle handle;
  uint64_t connection_id = 0;  // as its data carry it on the wire
  uint32_t peer_traffic_class = 0;
  void* user = nullptr;  // the plugin's communicator, copied into ledger lines
};

struct ListenerSlot;  // opaque to users

struct DeviceOptions {
  std::string interface;      // for messages
  std::string local_address;  // numeric, IPv4 or IPv6 (link-local: with %scope)
  // Of the rails behind the first, one fewer than EngineOptions::transport.rails. Each path of the device goes by the
  // rail that Config::rails says.
  std::vector<std::string> more_rails;
  uint16_t port_low = 0;      // 0: any
  uint16_t port_high = 0;
  BitsPerSecond link_rate;  // 0: EngineOptions::transport's
};

struct EngineOptions {
  Config transport;
  std::string driver = "udp";  // udp, uring or dpdk; "memory" only by tests through `driver_factory`
  DpdkOptions dpdk;            // ports are for the devices in their order; none: af_packet on their interfaces
  std::string dpdk_module;     // the dpdk driver's library; empty: beside this one
  std::vector<DeviceOptions> devices;
  uint64_t seed = 0;  // draws only
  uint8_t dscp_data = 10;
  uint8_t dscp_control = 46;
  uint8_t dscp_trimmed = 11;
  bool require_trimmed_dscp = false;
  uint64_t receive_buffer_bytes = 64u << 20;
  std::string fault;       // the fault-injecting driver's specification; empty: none
  std::string fault_log;   // file of what it trimmed
  std::string relay;       // HOST:PORT of a user-space relay that stands for the switch; empty: none
  int cpu = -1;            // pin the poll thread; -1: never
  bool busy_poll = false;  // never sleep
  uint32_t command_ring = 4096;
  // Makes the driver of a device instead of the named one. Throws nothing; returns nullptr and sets *error.
  std::function<std::unique_ptr<Driver>(const DeviceOptions&, const EngineOptions&, std::string* error)>
      driver_factory;
};

// What the engine publishes a few times a millisecond at most; read from any thread as one consistent copy.
struct EngineSnapshot {
  Counters counters;      // sum over endpoints
  DriverCounters driver;  // sum over devices
  uint64_t turns = 0;
};

// A sample of one connection for traces.
struct ConnectionSample {
  uint32_t device = 0;
  Endpoint::ConnectionFacts facts;
};

// A step that the engine has ended by itself, and when it was open.
struct OperationAccount {
  StepAccount account;
  TimePoint begin;
  TimePoint end;
};

class Engine {
 public:
  // Opens the drivers and starts the poll thread. nullptr: *error says in one line what and what to do.
  static std::unique_ptr<Engine> Start(const EngineOptions& options, std::string* error);
  ~Engine();  // stops the thread; connections are closed
  // Before the process ends with the engine running: what was trimmed so far is in EngineOptions::fault_log. Waits for
  // it, two seconds at most.
  void FlushFaultLog() const;

  // ---- Called from any thread; none waits for the peer. ----
  // Listen, Accept, CloseListener, Connect and CloseIdle do not wait for the engine's thread either (they would only
  // where its ring of commands is full): what they ask for is handed over and happens a moment later, in the order in
  // which a thread asked.

  // Where a device listens, for the handle.
  Address local_address(uint32_t device) const;
  // The same of one of its rails; the first is local_address().
  Address rail_address(uint32_t device, uint32_t rail) const;
  uint32_t rails() const;  // of each device
  uint32_t max_datagram_bytes(uint32_t device) const;
  std::string driver_description(uint32_t device) const;

  // A listener; its ticket and the device's address go to the peer, who repeats a connect that came too early.
  // nullptr: over the limit; the place of a listener is free again when the engine has taken its close.
  std::shared_ptr<ListenerSlot> Listen(uint32_t device, ListenTicket* ticket);
  // The next connection that was accepted on it; nullptr: none yet. By one thread at a time, and not after the close.
  std::shared_ptr<ConnectionSlot> Accept(const std::shared_ptr<ListenerSlot>& listener);
  void CloseListener(const std::shared_ptr<ListenerSlot>& listener);
  // Starts a handshake; poll the slot's state. Failed with kOverLimit, the peer has never heard of it: try again when
  // a connection has been closed and its linger time is over. With kClosedHere: the engine ended first.
  // `traffic_class` is told to the listener; `dscp` is what the connection's data packets carry; `more_rails` is where
  // the peer is on the rails behind the first, as many as this side has.
  std::shared_ptr<ConnectionSlot> Connect(uint32_t device, const Address& peer, const ListenTicket& ticket,
                                          uint32_t traffic_class, uint8_t dscp = kDscpOfDriver,
                                          std::span<const Address> more_rails = {});
  // Returns when the engine has let go of all memory of the connection: it waits for a turn of the engine, because
  // requests may be unfinished, and their slots and buffers are the caller's after the return.
  void Close(const std::shared_ptr<ConnectionSlot>& connection);
  // Closes a connection of which every request has been seen as kDone or kFailed: the engine holds no memory of it
  // but the slot, so this returns at once, and the slot becomes kClosed a moment later.
  void CloseIdle(const std::shared_ptr<ConnectionSlot>& connection);

  // The data path: false means "try again" (ring or message table full). `request` must stay until its state is
  // kDone or kFailed, or Close returned. The cookie fields of the requests are set by the engine.
  bool PostSend(ConnectionSlot* connection, RequestSlot* request, const SendRequest& send);
  bool PostReceive(ConnectionSlot* connection, RequestSlot* request, const ReceiveRequest& receive);

  // A step for each operation (FORGIVE_STEP=operation): begins it, unless it has begun, in order with the receives
  // that the same thread posts. The engine ends it when two newer ones have begun and none of its receives is
  // unfinished. False: "try again". A step whose number is below the newest is not begun: its receives are reliable.
  bool PostOperation(const StepPlan& plan);
  // Ends every such step.
  void EndOperations();
  // Takes the oldest that has ended and was not taken; false: none. By one thread at a time. Where more than
  // kOperationLines wait, the rest is left out.
  static constexpr uint32_t kOperationLines = 1024;
  bool NextOperation(OperationAccount* out);

  // Steps; each returns when the engine has applied it.
  StepResult BeginStep(const StepPlan& plan, StepAccount* opened);
  StepResult EndStep(uint64_t step, StepAccount* closed);
  // The account of a step that is still in the table. False: it is not.
  bool FindStep(uint64_t step, StepAccount* out);

  EngineSnapshot Snapshot() const;
  // Samples of every open connection (a turn of the engine); for traces, a thousand times a second at most.
  std::vector<ConnectionSample> SampleConnections();

  // Takes the ledger's oldest line that was not taken; false: none. By one thread at a time. Never loses a line: the
  // engine takes no datagram while its ledger ring is full.
  bool NextLedgerLine(Event* out);

 private:
  class Impl;
  explicit Engine(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace forgive

#endif  // FORGIVE_DATAPLANE_ENGINE_H_
