// SPDX-License-Identifier: Apache-2.0
// One send or receive communicator as NCCL holds it: its request table, its memory regions, and the data path.
#ifndef FORGIVE_PLUGIN_COMMUNICATOR_H_
#define FORGIVE_PLUGIN_COMMUNICATOR_H_

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "dataplane/engine.h"
#include "plugin/context.h"
#include "plugin/step_facts.h"

namespace forgive {

class Communicator;

// Memory that NCCL registered. The handle that NCCL holds is a pointer to it.
struct MemoryRegion {
  uint8_t* begin = nullptr;
  uint64_t bytes = 0;
};

// One request as NCCL holds it. NCCL has 32 in flight on a communicator at most; the engine's message table has 64.
struct Request {
  RequestSlot slot;
  Communicator* communicator = nullptr;
  std::atomic<const MemoryRegion*> region{nullptr};
  Request* next_free = nullptr;
};

inline constexpr uint32_t kRequestsPerCommunicator = 64;

// What a communicator is made of.
struct CommunicatorOptions {
  Engine* engine = nullptr;
  StepFacts* facts = nullptr;
  std::shared_ptr<ConnectionSlot> connection;
  std::shared_ptr<Context> context;           // nullptr before v11
  nccl::ProfilerCallback profiler = nullptr;  // nullptr: NCCL gave none
  bool marked = false;                        // its communicator carries gradients
  bool abort_on_error = false;
};

// Free requests; used by the one thread that makes a communicator's data calls, so without a lock.
class RequestTable {
 public:
  explicit RequestTable(Communicator* owner);

  // nullptr: all are in use.
  Request* Take();
  void Give(Request* request);
  uint32_t in_use() const { return in_use_; }
  // True if a request that reads or writes the region is with the engine. From any thread.
  bool IsPosted(const MemoryRegion* region) const;

 private:
  std::array<Request, kRequestsPerCommunicator> requests_;
  Request* free_ = nullptr;
  uint32_t in_use_ = 0;
};

// A communicator. Send, Receive and Test are called by one thread (the proxy's progress thread); Register and
// Deregister by another at the same time; Close when no data call can follow.
class Communicator {
 public:
  enum class Kind : uint8_t { kSend, kReceive };

  Communicator(Kind kind, const CommunicatorOptions& options);

  // The data path. Each returns an nccl::Result. *request is always written: nullptr means "try again".
  int Send(const void* data, uint64_t bytes, const MemoryRegion* region, Request** request);
  // `profiler_handle` may be null. `optional_completion`: NCCL's hint.
  int Receive(void* data, uint64_t bytes, const MemoryRegion* region, void* profiler_handle, bool optional_completion,
              Request** request);
  int Test(Request* request, int* done, int* bytes);

  MemoryRegion* Register(void* data, uint64_t bytes);
  // Afterwards the memory is neither read nor written: a connection that still uses it is closed, and that waits for
  // the engine.
  bool Deregister(MemoryRegion* region);

  // Returns at once where no request is unfinished; else when the engine has let go of the connection, because its
  // requests and their memory are no longer ours to lend.
  void Close();

  Kind kind() const { return kind_; }
  // Differs from ForkGeneration() in a process that was forked from the communicator's.
  uint32_t generation() const { return generation_; }

 private:
  // Whether data may be posted: nccl::kSuccess, or the error.
  int CheckUsable(uint64_t bytes, const void* data, const MemoryRegion* region);
  // Says once why the connection fails, and aborts where that was asked for.
  int Fail(int result, const char* what);
  int FailConnection();
  // Says once for each size that the path lets less pass than before.
  void SayIfSegmentsWereCut();

  // What is known about a receive that is about to be posted.
  Post Describe(uint64_t bytes, const MemoryRegion* region, void* profiler_handle, bool optional_completion) const;

  const Kind kind_;
  const bool abort_on_error_;
  const bool marked_;
  const uint32_t generation_;
  Engine* const engine_;
  StepFacts* const facts_;
  const std::shared_ptr<ConnectionSlot> connection_;
  const std::shared_ptr<Context> context_;
  const nccl::ProfilerCallback profiler_;
  std::atomic<bool> closed_{false};
  std::atomic<bool> failure_said_{false};
  uint32_t said_cut_to_ = 0;  // by whoever makes the data calls
  // A request of a failed connection was given back while the engine may still write its slot.
  bool gave_posted_ = false;
  RequestTable requests_;
  ConnectionStep step_;

  std::mutex regions_mutex_;
  std::vector<std::unique_ptr<MemoryRegion>> regions_;
  std::atomic<uint32_t> registrations_{0};
};

}  // namespace forgive

#endif  // FORGIVE_PLUGIN_COMMUNICATOR_H_
