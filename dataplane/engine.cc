// SPDX-License-Identifier: Apache-2.0
// The engine's public face: checks, commands and waits; the work is the poll loop's.
#include "dataplane/engine.h"

#include <algorithm>
#include <array>

#include "dataplane/drivers.h"
#include "dataplane/poll_loop.h"
#include "transport/check.h"

namespace forgive {

class Engine::Impl {
 public:
  Impl(const EngineOptions& options, std::vector<std::unique_ptr<Driver>> drivers)
      : loop(options, std::move(drivers)) {}

  bool Post(Command::Kind kind, ConnectionSlot* slot, RequestSlot* request, Command* command);

  PollLoop loop;
  std::shared_ptr<const FaultLog> fault_log;  // none: nothing is recorded
  // Fixed at the start: the driver itself belongs to the loop's thread.
  std::vector<std::array<Address, kMaxRails>> addresses;  // by device and rail
  std::vector<uint32_t> max_datagram_bytes;
};

std::unique_ptr<Engine> Engine::Start(const EngineOptions& options, std::string* error) {
  if (options.devices.empty()) {
    *error = "no device: set FORGIVE_INTERFACE to an interface that is up";
    return nullptr;
  }
  std::shared_ptr<FaultLog> log;
  if (!options.fault.empty() && !options.fault_log.empty()) {
    log = FaultLog::Open(options.fault_log, error);
    if (log == nullptr) return nullptr;
  }
  std::vector<std::unique_ptr<Driver>> drivers;
  for (uint32_t i = 0; i < options.devices.size(); ++i) {
    drivers.push_back(MakeDriver(options, i, log, error));
    if (drivers.back() == nullptr) return nullptr;
  }
  auto impl = std::make_unique<Impl>(options, std::move(drivers));
  impl->fault_log = log;
  for (uint32_t i = 0; i < impl->loop.device_count(); ++i) {
    std::array<Address, kMaxRails>& addresses = impl->addresses.emplace_back();
    for (uint32_t rail = 0; rail < options.transport.rails; ++rail) {
      addresses[rail] = impl->loop.driver(i).rail_address(rail);
    }
    impl->max_datagram_bytes.push_back(impl->loop.driver(i).max_datagram_bytes());
  }
  if (!impl->loop.Start(error)) return nullptr;
  return std::unique_ptr<Engine>(new Engine(std::move(impl)));
}

Engine::Engine(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Engine::~Engine() = default;

void Engine::FlushFaultLog() const {
  if (impl_->fault_log != nullptr) impl_->fault_log->Flush();
}

Address Engine::local_address(uint32_t device) const { return impl_->addresses[device][0]; }
uint32_t Engine::rails() const { return impl_->loop.config().rails; }
Address Engine::rail_address(uint32_t device, uint32_t rail) const { return impl_->addresses[device][rail]; }
uint32_t Engine::max_datagram_bytes(uint32_t device) const { return impl_->max_datagram_bytes[device]; }

std::string Engine::driver_description(uint32_t device) const {
  std::string text;
  impl_->loop.Call([&](TimePoint) { text = impl_->loop.driver(device).description(); });
  return text;
}

std::shared_ptr<ListenerSlot> Engine::Listen(uint32_t device, ListenTicket* ticket) {
  std::shared_ptr<ListenerSlot> listener = impl_->loop.Listen(device);
  if (listener != nullptr) *ticket = listener->ticket;
  return listener;
}

std::shared_ptr<ConnectionSlot> Engine::Accept(const std::shared_ptr<ListenerSlot>& listener) {
  std::shared_ptr<ConnectionSlot> connection;
  listener->accepted.Pop(&connection);
  return connection;
}

void Engine::CloseListener(const std::shared_ptr<ListenerSlot>& listener) { impl_->loop.CloseListener(listener); }

std::shared_ptr<ConnectionSlot> Engine::Connect(uint32_t device, const Address& peer, const ListenTicket& ticket,
                                                uint32_t traffic_class, uint8_t dscp,
                                                std::span<const Address> more_rails) {
  FORGIVE_CHECK(more_rails.size() + 1 == impl_->loop.config().rails);
  ConnectRequest request;
  request.peer = peer;
  std::ranges::copy(more_rails, request.more_peers.begin());
  request.ticket = ticket;
  request.traffic_class = traffic_class;
  request.dscp = dscp;
  return impl_->loop.Connect(device, request);
}

void Engine::Close(const std::shared_ptr<ConnectionSlot>& connection) {
  impl_->loop.Call([&](TimePoint now) { impl_->loop.CloseHere(now, connection); });
}

void Engine::CloseIdle(const std::shared_ptr<ConnectionSlot>& connection) {
  impl_->loop.CloseIdle(std::static_pointer_cast<EngineConnection>(connection));
}

bool Engine::Impl::Post(Command::Kind kind, ConnectionSlot* slot, RequestSlot* request, Command* command) {
  const uint32_t state = slot->state.load(std::memory_order_acquire);
  if (state == ConnectionSlot::kConnecting) return false;
  if (state != ConnectionSlot::kReady) {
    const bool failed = state == ConnectionSlot::kFailed;
    request->reason =
        failed ? static_cast<FailReason>(slot->reason.load(std::memory_order_relaxed)) : FailReason::kClosedHere;
    request->size = 0;
    request->state.store(RequestSlot::kFailed, std::memory_order_release);
    return true;
  }
  auto* connection = static_cast<EngineConnection*>(slot);
  if (connection->outstanding.fetch_add(1, std::memory_order_acquire) >= loop.config().max_messages) {
    connection->outstanding.fetch_sub(1, std::memory_order_relaxed);
    return false;
  }
  request->reason = FailReason::kNone;
  request->size = 0;
  request->state.store(RequestSlot::kPosted, std::memory_order_relaxed);
  command->kind = kind;
  command->connection = connection;
  command->request = request;
  if (loop.Submit(*command)) return true;
  request->state.store(RequestSlot::kIdle, std::memory_order_relaxed);
  connection->outstanding.fetch_sub(1, std::memory_order_relaxed);
  return false;
}

bool Engine::PostSend(ConnectionSlot* connection, RequestSlot* request, const SendRequest& send) {
  Command command;
  command.send = send;
  return impl_->Post(Command::Kind::kSend, connection, request, &command);
}

bool Engine::PostReceive(ConnectionSlot* connection, RequestSlot* request, const ReceiveRequest& receive) {
  Command command;
  command.receive = receive;
  return impl_->Post(Command::Kind::kReceive, connection, request, &command);
}

bool Engine::PostOperation(const StepPlan& plan) {
  Command command;
  command.kind = Command::Kind::kOperation;
  command.plan = plan;
  return impl_->loop.Submit(command);
}

void Engine::EndOperations() {
  impl_->loop.Call([this](TimePoint now) { impl_->loop.EndOperationsHere(now); });
}

bool Engine::NextOperation(OperationAccount* out) { return impl_->loop.NextOperation(out); }

StepResult Engine::BeginStep(const StepPlan& plan, StepAccount* opened) {
  StepResult result = StepResult::kOk;
  impl_->loop.Call([&](TimePoint) {
    result = impl_->loop.steps().Begin(plan);
    const StepAccount* account = impl_->loop.steps().Find(plan.step);
    if (result == StepResult::kOk && opened != nullptr && account != nullptr) *opened = *account;
  });
  return result;
}

StepResult Engine::EndStep(uint64_t step, StepAccount* closed) {
  StepResult result = StepResult::kOk;
  impl_->loop.Call([&](TimePoint) {
    result = impl_->loop.steps().End(step);
    const StepAccount* account = impl_->loop.steps().Find(step);
    if (result == StepResult::kOk && closed != nullptr && account != nullptr) *closed = *account;
  });
  return result;
}

bool Engine::FindStep(uint64_t step, StepAccount* out) {
  bool found = false;
  impl_->loop.Call([&](TimePoint) {
    const StepAccount* account = impl_->loop.steps().Find(step);
    found = account != nullptr;
    if (found) *out = *account;
  });
  return found;
}

EngineSnapshot Engine::Snapshot() const { return impl_->loop.Snapshot(); }

std::vector<ConnectionSample> Engine::SampleConnections() {
  std::vector<ConnectionSample> samples;
  impl_->loop.Call([&](TimePoint now) { samples = impl_->loop.SampleHere(now); });
  return samples;
}

bool Engine::NextLedgerLine(Event* out) { return impl_->loop.NextLedgerLine(out); }

}  // namespace forgive
