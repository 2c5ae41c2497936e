// SPDX-License-Identifier: Apache-2.0
// NCCL's interfaces to tuners and profilers, as far as the harness calls them. Layouts are facts; this is no copy.
#ifndef FORGIVE_TESTBED_PERF_NCCL_PROOF_ABI_H_
#define FORGIVE_TESTBED_PERF_NCCL_PROOF_ABI_H_

#include <sys/types.h>

#include <cstddef>
#include <cstdint>

#include "testbed/perf/nccl_abi.h"

namespace forgive::perf::abi {

// The tuner's table of v5, NCCL 2.28 on: only the communicator's size is told here.
struct TunerV5 {
  const char* name;
  int (*init)(void** context, std::uint64_t comm_id, std::size_t ranks, std::size_t nodes, Logger logger,
              void* nvlink_domains, void* constants);
  int (*choose)(void* context, int function, std::size_t bytes, int operations, float** costs, int algorithms,
                int protocols, int registered, int* channels);
  int (*finalize)(void* context);
};
static_assert(sizeof(TunerV5) == 32);

// Kinds of events: one bit each.
enum EventType : int {
  kEventGroup = 1 << 0,
  kEventCollective = 1 << 1,
  kEventProxyOperation = 1 << 3,
  kEventProxyStep = 1 << 4,
  kEventNetPlugin = 1 << 7,
  kEventCollectiveCall = 1 << 9,  // v5 on
};
// What a net plugin's callback is asked for.
inline constexpr int kNetEventStart = 0;

struct CollectiveEvent {
  std::uint64_t sequence;
  const char* function;
  const void* send_buffer;
  void* receive_buffer;
  std::size_t count;
  int root;
  const char* datatype;
  std::uint8_t channels;
  std::uint8_t warps;
  const char* algorithm;
  const char* protocol;
  void* parent_group;  // v5 on
};
static_assert(offsetof(CollectiveEvent, algorithm) == 64);

struct ProxyOperationEvent {
  pid_t process_id;
  std::uint8_t channel;
  int peer;
  int steps;
  int chunk_bytes;
  int is_send;
};
static_assert(sizeof(ProxyOperationEvent) == 24);

struct NetPluginEvent {
  std::int64_t id;
  void* data;
};

// The start of an event. `Type`: a byte in v4, eight from v5 on.
template <typename Type>
struct EventStart {
  Type type;
  void* parent;
  int rank;
  union {
    CollectiveEvent collective;
    ProxyOperationEvent operation;
    int step;
    NetPluginEvent plugin;
  };
};
using EventStartV4 = EventStart<std::uint8_t>;
using EventStartV5 = EventStart<std::uint64_t>;
static_assert(offsetof(EventStartV4, parent) == 8 && offsetof(EventStartV4, collective) == 24);
static_assert(offsetof(EventStartV5, parent) == 8 && offsetof(EventStartV5, collective) == 24);

struct ProfilerV4 {  // NCCL 2.27
  const char* name;
  int (*init)(void** context, int* mask, const char* comm_name, std::uint64_t comm_id, int nodes, int ranks, int rank,
              Logger logger);
  int (*start)(void* context, void** event, EventStartV4* description);
  int (*stop)(void* event);
  int (*record)(void* event, int state, void* arguments);
  int (*finalize)(void* context);
};
static_assert(sizeof(ProfilerV4) == 48);

struct ProfilerV5 {  // and v6: NCCL 2.28 on
  const char* name;
  int (*init)(void** context, std::uint64_t comm_id, int* mask, const char* comm_name, int nodes, int ranks, int rank,
              Logger logger);
  int (*start)(void* context, void** event, EventStartV5* description);
  int (*stop)(void* event);
  int (*record)(void* event, int state, void* arguments);
  int (*finalize)(void* context);
};
static_assert(sizeof(ProfilerV5) == 48);

}  // namespace forgive::perf::abi

#endif  // FORGIVE_TESTBED_PERF_NCCL_PROOF_ABI_H_
