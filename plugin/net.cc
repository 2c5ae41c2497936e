// SPDX-License-Identifier: Apache-2.0
// What NCCL's calls do: devices, handles, connections, memory; the data calls go to the communicator.
#include "plugin/net.h"

#include <climits>
#include <cstring>
#include <memory>
#include <mutex>
#include <new>
#include <string>

#include "dataplane/clock.h"
#include "dataplane/socket_address.h"
#include "plugin/communicator.h"
#include "plugin/fail_words.h"
#include "plugin/fork_generation.h"
#include "plugin/handle.h"
#include "plugin/log.h"
#include "plugin/process.h"
#include "plugin/traffic_class.h"

namespace forgive::net {
namespace {

// What NCCL is told where the kernel reports no speed: as its own socket transport does.
constexpr int kUnknownSpeedMbps = 10000;

struct ListenCommunicator {
  Process* process = nullptr;
  uint32_t generation = 0;
  std::shared_ptr<Context> context;  // nullptr before v11
  std::shared_ptr<ListenerSlot> listener;
  std::shared_ptr<ConnectionSlot> accepted;  // until it is ready
  TimePoint patience_end;                    // when it is said once that nobody connects
};

int Refuse(int result, const char* what) {
  Log(LogLevel::kError, "%s", what);
  return result;
}

Process* ProcessOfDevice(int device) {
  Process* process = Process::Get();
  if (process == nullptr || device < 0 || static_cast<size_t>(device) >= process->devices().size()) return nullptr;
  return process;
}

// How the handshake carries a traffic class: 0 is none.
uint32_t TrafficClassOnWire(int traffic_class) {
  return traffic_class < 0 ? 0 : static_cast<uint32_t>(traffic_class) + 1;
}

// The context that NCCL named; before v11 there is none. False: an unknown one.
bool FindContext(const Process& process, const void* named, std::shared_ptr<Context>* out) {
  *out = named == nullptr ? nullptr : process.contexts()->Find(named);
  return (named == nullptr) == (*out == nullptr);
}

// A peer that cannot read our handle never sends a packet: this side would wait without a word.
void SayIfNobodyConnects(ListenCommunicator* listen) {
  if (MonotonicNow() < listen->patience_end) return;
  listen->patience_end = kNever;
  const Nanoseconds patience = listen->process->settings().engine.transport.peer_timeout;
  Log(LogLevel::kWarning,
      "accept: nobody has connected for %lld s; a rank without this plugin, or with another version of it, cannot "
      "(NCCL_NET=forgive makes NCCL say why one has not loaded it)",
      static_cast<long long>(patience.value / Seconds(1).value));
}

std::shared_ptr<ConnectionSlot> StartConnect(Process* process, int device, int traffic_class, const Handle& handle,
                                             std::string* error) {
  const Address& peer = handle.addresses[0];
  const uint32_t rails = process->engine()->rails();
  uint8_t dscp = 0;
  if (!FindDscp(process->settings(), traffic_class, &dscp, error)) {
    *error = "connect: " + *error;
    return nullptr;
  }
  if ((AddressFamily(peer) == AF_INET6) != process->devices()[static_cast<size_t>(device)].ipv6) {
    *error = "connect: the peer listens on the other address family; set NCCL_SOCKET_FAMILY alike on all hosts";
    return nullptr;
  }
  if (handle.rails != rails) {
    *error = "connect: the peer's device has " + std::to_string(handle.rails) + " rails, this side's " +
             std::to_string(rails) + "; set FORGIVE_RAILS on all hosts, to as many interfaces";
    return nullptr;
  }
  auto slot = process->engine()->Connect(static_cast<uint32_t>(device), peer, handle.ticket,
                                         TrafficClassOnWire(traffic_class), dscp,
                                         std::span(handle.addresses).subspan(1, rails - 1));
  if (slot == nullptr) *error = "connect: too many connections are open (docs/using.md, Limits)";
  return slot;
}

// No exception may reach NCCL: a call that runs out of memory is an error that names it.
template <typename Work>
int Guarded(const char* name, const Work& work) {
  try {
    return work();
  } catch (const std::bad_alloc&) {
    Log(LogLevel::kError, "%s: no memory is left in this process: raise the limit (ulimit -v, the container's)",
        name);
    return nccl::kSystemError;
  }
}

// Whether this process itself had no room for the connection, and no peer is to blame.
bool IsOwnLack(FailReason reason) { return reason == FailReason::kOverLimit || reason == FailReason::kNoMemory; }

// Of a connection that never started: nobody refused it but our own limit.
std::string OverLimit(const Process& process) {
  return std::string(Words(FailReason::kOverLimit)) + " (" +
         std::to_string(process.settings().engine.transport.max_connections) + " now)";
}

CommunicatorOptions OptionsOf(Process* process, const std::shared_ptr<ConnectionSlot>& slot,
                              const std::shared_ptr<Context>& context) {
  // v10 says the class to the sender only, so the handshake carries it.
  const int traffic_class =
      context != nullptr ? context->traffic_class : static_cast<int>(slot->peer_traffic_class) - 1;
  return {.engine = process->engine(),
          .facts = process->facts(),
          .connection = slot,
          .context = context,
          .profiler = context != nullptr ? context->profiler : process->profiler_callback(),
          .marked = process->facts()->IsMarked(traffic_class),
          .abort_on_error = process->settings().abort_on_error};
}

// A communicator over a connection that is ready. Throws std::bad_alloc, and has closed the connection then.
Communicator* MakeCommunicator(Process* process, Communicator::Kind kind, const std::shared_ptr<ConnectionSlot>& slot,
                               const std::shared_ptr<Context>& context) {
  std::unique_ptr<Communicator> made;
  try {
    made = std::make_unique<Communicator>(kind, OptionsOf(process, slot, context));
    process->live()->Add(made.get());
  } catch (const std::bad_alloc&) {
    if (made != nullptr) {
      made->Close();
    } else {
      process->engine()->CloseIdle(slot);
    }
    throw;
  }
  return made.release();
}

Communicator* Checked(void* comm, Communicator::Kind kind) {
  auto* communicator = static_cast<Communicator*>(comm);
  return communicator != nullptr && communicator->kind() == kind ? communicator : nullptr;
}

int Close(void* comm, Communicator::Kind kind, const char* name) {
  Process* process = Process::Get();
  // A forked child must not touch the parent's engine; it has nothing to close.
  if (process == nullptr) return comm == nullptr ? Refuse(nccl::kInternalError, name) : nccl::kSuccess;
  if (!process->live()->Remove(comm)) {
    const bool inherited = comm != nullptr && ForkGeneration() != 0;
    return inherited ? nccl::kSuccess : Refuse(nccl::kInternalError, name);
  }
  Communicator* communicator = Checked(comm, kind);
  if (communicator == nullptr) {
    process->live()->Add(comm);
    return Refuse(nccl::kInternalError, name);
  }
  communicator->Close();
  delete communicator;
  return nccl::kSuccess;
}

}  // namespace

int Init(nccl::Logger logger, int api_version, nccl::ProfilerCallback profiler) {
  try {
    std::string error;
    if (Process* process = Process::Start(logger, api_version, &error)) {
      process->SetProfilerCallback(profiler);
      return nccl::kSuccess;
    }
    Log(LogLevel::kError, "%s", error.c_str());
  } catch (const std::bad_alloc&) {
    // Nothing of a start that failed remains, and no exception may reach NCCL.
    Log(LogLevel::kError, "out of memory while starting: raise the limit (ulimit -v, the container's), or lower "
                          "FORGIVE_MAX_CONNECTIONS and FORGIVE_LEDGER_LINES");
  }
  return nccl::kSystemError;
}

int InitContext(void** context, uint64_t comm_id, int traffic_class, nccl::Logger logger, int api_version,
                nccl::ProfilerCallback profiler) {
  *context = nullptr;
  const int result = Init(logger, api_version, profiler);
  if (result != nccl::kSuccess) return result;
  Process* process = Process::Get();
  uint8_t dscp = 0;
  std::string error;
  if (!FindDscp(process->settings(), traffic_class, &dscp, &error)) return Refuse(nccl::kSystemError, error.c_str());
  process->SetHasContexts();
  return Guarded("init", [&] {
    bool twice = false;
    *context = process->contexts()->Add(comm_id, traffic_class, profiler, &twice).get();
    if (twice) process->facts()->OnSeveralRanks();
    return nccl::kSuccess;
  });
}

int Finalize(void* context) {
  Process* process = Process::Get();
  // Null after a failed init; a child that was forked does not have its parent's.
  if (context == nullptr || process == nullptr) return nccl::kSuccess;
  return process->contexts()->Remove(context)
             ? nccl::kSuccess
             : Refuse(nccl::kInternalError, "finalize: not a context of this process");
}

int SetAttributes(void* context, const nccl::Attributes* attributes) {
  if (context == nullptr || attributes == nullptr) return nccl::kSuccess;
  SetThreadCollective(
      *static_cast<const Context*>(context),
      {.operation = attributes->operation, .algorithm = attributes->algorithm, .protocol = attributes->protocol});
  return nccl::kSuccess;
}

int Devices(int* count) {
  const Process* process = Process::Get();
  *count = process == nullptr ? 0 : static_cast<int>(process->devices().size());
  return nccl::kSuccess;
}

int GetProperties(int number, Properties* out) {
  const Process* process = ProcessOfDevice(number);
  if (process == nullptr) return Refuse(nccl::kInternalError, "getProperties: no such device");
  const Device& device = process->devices()[static_cast<size_t>(number)];
  // NCCL's structure holds pointers to characters that it does not change.
  out->name = const_cast<char*>(device.interface.c_str());
  out->pci_path = device.pci_path.empty() ? nullptr : const_cast<char*>(device.pci_path.c_str());
  out->guid = device.guid;
  out->pointer_support = nccl::kPointerHost;
  out->speed_mbps = device.speed_mbps == 0 ? kUnknownSpeedMbps : static_cast<int>(device.speed_mbps);
  out->port = static_cast<int>(device.port);
  out->latency_us = 0;  // NCCL's own estimate
  out->max_comms = static_cast<int>(process->settings().engine.transport.max_connections);
  out->max_receives = 1;
  return nccl::kSuccess;
}

namespace {

int ListenOrThrow(void* named, int device, void* handle_bytes, void** listen_comm) {
  Process* process = ProcessOfDevice(device);
  if (process == nullptr) return Refuse(nccl::kInternalError, "listen: no such device");
  std::shared_ptr<Context> context;
  if (!FindContext(*process, named, &context)) return Refuse(nccl::kInternalError, "listen: no such context");
  ListenTicket ticket;
  auto made = std::make_unique<ListenCommunicator>();
  made->process = process;
  made->generation = ForkGeneration();
  made->context = std::move(context);
  made->patience_end = MonotonicNow() + process->settings().engine.transport.peer_timeout;
  made->listener = process->engine()->Listen(static_cast<uint32_t>(device), &ticket);
  if (made->listener == nullptr) return Refuse(nccl::kSystemError, "listen: too many listeners are open");
  try {
    process->live()->Add(made.get());
  } catch (const std::bad_alloc&) {
    process->engine()->CloseListener(made->listener);
    throw;
  }
  Handle handle;
  handle.rails = process->engine()->rails();
  for (uint32_t rail = 0; rail < handle.rails; ++rail) {
    handle.addresses[rail] = process->engine()->rail_address(static_cast<uint32_t>(device), rail);
  }
  handle.ticket = ticket;
  WriteHandle(handle, handle_bytes);
  *listen_comm = made.release();
  return nccl::kSuccess;
}

int ConnectOrThrow(void* named, int device, int traffic_class, void* handle_bytes, void** send_comm) {
  Process* process = ProcessOfDevice(device);
  if (process == nullptr) return Refuse(nccl::kInternalError, "connect: no such device");
  std::shared_ptr<Context> context;
  if (!FindContext(*process, named, &context)) return Refuse(nccl::kInternalError, "connect: no such context");
  if (context != nullptr) traffic_class = context->traffic_class;
  Handle handle;
  const HandleResult read = ReadHandle(handle_bytes, &handle);
  if (read == HandleResult::kNotOurs) {
    return Refuse(
        nccl::kInternalError,
        "connect: the peer's handle is not FORGIVE's, so that rank runs without it; all hosts need the same "
        "plugin (NCCL_NET=forgive makes NCCL say why one has not loaded it)");
  }
  if (read == HandleResult::kOtherVersion) {
    return Refuse(nccl::kInternalError,
                  "connect: the peer's handle is from another version of FORGIVE; all hosts need the same plugin");
  }
  ConnectingTable& table = *process->connecting();
  const std::lock_guard<std::mutex> lock(table.mutex);
  if (handle.connecting == 0) {
    std::string error;
    auto slot = StartConnect(process, device, traffic_class, handle, &error);
    if (slot == nullptr) return Refuse(nccl::kSystemError, error.c_str());
    handle.connecting = table.next++;
    try {
      table.slots.emplace(handle.connecting, slot);
    } catch (const std::bad_alloc&) {
      process->engine()->CloseIdle(slot);
      throw;
    }
    WriteHandle(handle, handle_bytes);
  }
  const auto found = table.slots.find(handle.connecting);
  if (found == table.slots.end()) return Refuse(nccl::kInternalError, "connect: no such handshake under way");
  const uint32_t state = found->second->state.load(std::memory_order_acquire);
  if (state == ConnectionSlot::kConnecting) return nccl::kSuccess;
  const std::shared_ptr<ConnectionSlot> slot = std::move(found->second);
  table.slots.erase(found);
  handle.connecting = 0;
  WriteHandle(handle, handle_bytes);
  if (state != ConnectionSlot::kReady) {
    const auto reason = static_cast<FailReason>(slot->reason.load(std::memory_order_acquire));
    process->engine()->CloseIdle(slot);
    Log(LogLevel::kError, "connect through %s: %s", process->devices()[static_cast<size_t>(device)].interface.c_str(),
        reason == FailReason::kOverLimit ? OverLimit(*process).c_str() : Words(reason));
    return IsOwnLack(reason) ? nccl::kSystemError : nccl::kRemoteError;
  }
  *send_comm = MakeCommunicator(process, Communicator::Kind::kSend, slot, context);
  return nccl::kSuccess;
}

int AcceptOrThrow(void* comm, void** receive_comm) {
  auto* listen = static_cast<ListenCommunicator*>(comm);
  if (listen == nullptr || listen->generation != ForkGeneration()) {
    return Refuse(nccl::kInternalError, "accept: not a listen communicator of this process");
  }
  Process* process = listen->process;
  if (listen->accepted == nullptr) listen->accepted = process->engine()->Accept(listen->listener);
  if (listen->accepted == nullptr) {
    SayIfNobodyConnects(listen);
    return nccl::kSuccess;
  }
  const uint32_t state = listen->accepted->state.load(std::memory_order_acquire);
  if (state == ConnectionSlot::kConnecting) return nccl::kSuccess;
  const std::shared_ptr<ConnectionSlot> slot = std::move(listen->accepted);
  listen->accepted = nullptr;
  if (state != ConnectionSlot::kReady) {
    const auto reason = static_cast<FailReason>(slot->reason.load(std::memory_order_acquire));
    Log(LogLevel::kError, "accept: %s", Words(reason));
    process->engine()->CloseIdle(slot);
    return IsOwnLack(reason) ? nccl::kSystemError : nccl::kRemoteError;
  }
  *receive_comm = MakeCommunicator(process, Communicator::Kind::kReceive, slot, listen->context);
  return nccl::kSuccess;
}

}  // namespace

int Listen(void* context, int device, void* handle, void** listen_comm) {
  *listen_comm = nullptr;
  return Guarded("listen", [&] { return ListenOrThrow(context, device, handle, listen_comm); });
}

int Connect(void* context, int device, int traffic_class, void* handle, void** send_comm) {
  *send_comm = nullptr;
  return Guarded("connect", [&] { return ConnectOrThrow(context, device, traffic_class, handle, send_comm); });
}

int Accept(void* comm, void** receive_comm) {
  *receive_comm = nullptr;
  return Guarded("accept", [&] { return AcceptOrThrow(comm, receive_comm); });
}

int RegisterMemory(void* comm, void* data, int64_t size, int type, void** memory_handle) {
  *memory_handle = nullptr;
  if (comm == nullptr || size < 0) return Refuse(nccl::kInternalError, "regMr: no communicator, or a negative size");
  if (type != nccl::kPointerHost) {
    Log(LogLevel::kError, "regMr: pointer type %d is not supported: host memory only (NCCL_PTR_HOST)", type);
    return nccl::kInternalError;
  }
  return Guarded("regMr", [&] {
    *memory_handle = static_cast<Communicator*>(comm)->Register(data, static_cast<uint64_t>(size));
    return nccl::kSuccess;
  });
}

int RegisterDmaBuffer(void* /*comm*/, void* /*data*/, size_t /*size*/, int /*type*/, uint64_t /*offset*/, int /*fd*/,
                      void** memory_handle) {
  *memory_handle = nullptr;
  return Refuse(nccl::kInternalError, "regMrDmaBuf is not supported: host memory only (NCCL_PTR_HOST)");
}

int DeregisterMemory(void* comm, void* memory_handle) {
  if (comm == nullptr) return Refuse(nccl::kInternalError, "deregMr: no communicator");
  if (memory_handle == nullptr) return nccl::kSuccess;
  const bool known = static_cast<Communicator*>(comm)->Deregister(static_cast<MemoryRegion*>(memory_handle));
  return known ? nccl::kSuccess : Refuse(nccl::kInternalError, "deregMr: not registered on this communicator");
}

int Send(void* comm, void* data, int64_t size, void* memory_handle, void** request) {
  *request = nullptr;
  Communicator* communicator = Checked(comm, Communicator::Kind::kSend);
  if (communicator == nullptr || size < 0) {
    return Refuse(nccl::kInternalError, "isend: not a send communicator, or a negative size");
  }
  Request* made = nullptr;
  const int result =
      communicator->Send(data, static_cast<uint64_t>(size), static_cast<const MemoryRegion*>(memory_handle), &made);
  *request = made;
  return result;
}

int Receive(void* comm, int n, void** data, int64_t size, void** memory_handles, void** profiler_handles,
            void** request) {
  const bool optional_completion = *request == reinterpret_cast<void*>(nccl::kOptionalCompletion);
  *request = nullptr;
  Communicator* communicator = Checked(comm, Communicator::Kind::kReceive);
  if (communicator == nullptr || n != 1 || size < 0) {
    return Refuse(nccl::kInternalError, "irecv: not a receive communicator, not one receive, or a negative size");
  }
  Request* made = nullptr;
  const auto* region = static_cast<const MemoryRegion*>(memory_handles == nullptr ? nullptr : memory_handles[0]);
  const int result =
      communicator->Receive(data[0], static_cast<uint64_t>(size), region,
                            profiler_handles == nullptr ? nullptr : profiler_handles[0], optional_completion, &made);
  *request = made;
  return result;
}

int Flush(void* /*comm*/, int /*n*/, void** /*data*/, int* /*sizes*/, void** /*memory_handles*/, void** request) {
  *request = nullptr;
  return nccl::kSuccess;
}

int Test(void* request, int* done, int* sizes) {
  *done = 0;
  if (request == nullptr) return Refuse(nccl::kInternalError, "test: no request");
  auto* made = static_cast<Request*>(request);
  return made->communicator->Test(made, done, sizes);
}

int CloseSend(void* comm) {
  return Close(comm, Communicator::Kind::kSend, "closeSend: not an open send communicator");
}

int CloseReceive(void* comm) {
  return Close(comm, Communicator::Kind::kReceive, "closeRecv: not an open receive communicator");
}

int CloseListen(void* comm) {
  const char* const refusal = "closeListen: not an open listen communicator";
  Process* process = Process::Get();
  if (process == nullptr) return comm == nullptr ? Refuse(nccl::kInternalError, refusal) : nccl::kSuccess;
  if (!process->live()->Remove(comm)) {
    const bool inherited = comm != nullptr && ForkGeneration() != 0;
    return inherited ? nccl::kSuccess : Refuse(nccl::kInternalError, refusal);
  }
  auto* listen = static_cast<ListenCommunicator*>(comm);
  Engine* engine = listen->process->engine();
  if (listen->accepted != nullptr) engine->CloseIdle(listen->accepted);
  engine->CloseListener(listen->listener);
  delete listen;
  return nccl::kSuccess;
}

}  // namespace forgive::net
