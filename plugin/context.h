// SPDX-License-Identifier: Apache-2.0
// What NCCL says about one communicator (v11 on), and what its threads say about their next data calls.
#ifndef FORGIVE_PLUGIN_CONTEXT_H_
#define FORGIVE_PLUGIN_CONTEXT_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "plugin/nccl_abi.h"

namespace forgive {

// Contexts that may be alive at once and still have attributes; more than these work, and are reliable.
inline constexpr uint32_t kMaxContexts = 512;

// What a collective's data calls are for, as setNetAttr says it: masks with one bit each.
struct Collective {
  uint32_t operation = nccl::kNoAttribute;
  uint32_t algorithm = nccl::kNoAttribute;
  uint32_t protocol = nccl::kNoAttribute;
};

// One NCCL communicator in this process, from init to finalize and the last of its connections.
struct Context {
  uint64_t number = 0;  // never used twice in a process
  uint32_t slot = kMaxContexts;
  uint32_t generation = 0;  // ForkGeneration() of the process that made it
  uint64_t comm_id = 0;
  int traffic_class = nccl::kNoTrafficClass;
  nccl::ProfilerCallback profiler = nullptr;
  std::atomic<uint32_t> ring_ranks{0};  // k, once the tuner's init has said it; 0: not said
};

// The contexts of a process. Thread-safe.
class ContextTable {
 public:
  ContextTable();

  // `twice`: a live context has the same communicator, so this process has several of its ranks.
  std::shared_ptr<Context> Add(uint64_t comm_id, int traffic_class, nccl::ProfilerCallback profiler, bool* twice);
  // NCCL holds the plain pointer. nullptr: not a live one.
  std::shared_ptr<Context> Find(const void* context) const;
  std::shared_ptr<Context> FindComm(uint64_t comm_id) const;
  // Its connections keep it until they are closed. False: not a live one.
  bool Remove(const void* context);

 private:
  mutable std::mutex mutex_;
  std::vector<std::shared_ptr<Context>> contexts_;
  std::vector<uint32_t> free_slots_;
  uint64_t next_number_ = 1;
};

// The calling thread's value for a context. NCCL sets it only when it changes, so it stays until set again.
void SetThreadCollective(const Context& context, const Collective& collective);
// False: this thread has set none.
bool FindThreadCollective(const Context& context, Collective* out);

}  // namespace forgive

#endif  // FORGIVE_PLUGIN_CONTEXT_H_
