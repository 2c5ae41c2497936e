// SPDX-License-Identifier: Apache-2.0
// The binary interface between NCCL and a profiler, v1 to v6: our own declarations of the layouts NCCL uses.
#ifndef FORGIVE_PLUGIN_NCCL_PROFILER_ABI_H_
#define FORGIVE_PLUGIN_NCCL_PROFILER_ABI_H_

#include <sys/types.h>

#include <cstddef>
#include <cstdint>

#include "plugin/nccl_abi.h"

namespace forgive::nccl {

// Kinds of events, and bits of the activation mask.
enum ProfilerEventType : int {
  kProfileGroup = 1 << 0,
  kProfileCollective = 1 << 1,
  kProfileProxyOperation = 1 << 3,
  kProfileProxyStep = 1 << 4,
  kProfileNetPlugin = 1 << 7,
  kProfileGroupCall = 1 << 8,       // v5 on
  kProfileCollectiveCall = 1 << 9,  // v5 on
};

struct ProfiledProxyOperation {
  pid_t process_id;
  uint8_t channel;
  int peer;
  int steps;
  int chunk_bytes;
  int is_send;
};
struct ProfiledProxyStep {
  int step;
};
struct ProfiledNetPlugin {
  int64_t id;
  void* data;
};
struct ProfiledCollectiveCall {
  const char* function;
  size_t count;
  const char* datatype;
  int root;
  void* stream;
  bool captured;
};

// v3: the last with the communicator's name in each collective.
struct ProfiledCollectiveV3 {
  const char* name;
  uint64_t comm_id;
  uint64_t sequence;
  const char* function;
  const void* send_buffer;
  void* receive_buffer;
  size_t count;
  int root;
  const char* datatype;
  uint8_t channels;
  uint8_t warps;
  const char* algorithm;
  const char* protocol;
};

// v4 on; v5 adds a field behind these that is not read here.
struct ProfiledCollectiveV4 {
  uint64_t sequence;
  const char* function;
  const void* send_buffer;
  void* receive_buffer;
  size_t count;
  int root;
  const char* datatype;
  uint8_t channels;
  uint8_t warps;
  const char* algorithm;
  const char* protocol;
};

// The start of an event. Read in place where NCCL wrote it, so the union may be shorter than NCCL's.
template <typename Type, typename CollectiveFields>
struct ProfilerDescription {
  Type type;
  void* parent;
  int rank;
  union {
    CollectiveFields collective;
    ProfiledCollectiveCall call;  // v5 on
    ProfiledProxyOperation operation;
    ProfiledProxyStep step;
    ProfiledNetPlugin plugin;  // v3 on
  };
};
using ProfilerDescriptionV3 = ProfilerDescription<uint8_t, ProfiledCollectiveV3>;
using ProfilerDescriptionV4 = ProfilerDescription<uint8_t, ProfiledCollectiveV4>;
using ProfilerDescriptionV5 = ProfilerDescription<uint64_t, ProfiledCollectiveV4>;

// v1 to v3.
template <typename Description>
struct ProfilerTable {
  const char* name;
  int (*init)(void** context, int* mask);
  int (*start)(void* context, void** event, Description* description);
  int (*stop)(void* event);
  int (*record)(void* event, int state, void* arguments);
  int (*finalize)(void* context);
};
using ProfilerV1 = ProfilerTable<void>;  // v1 and v2 are never told of an event
using ProfilerV2 = ProfilerTable<void>;
using ProfilerV3 = ProfilerTable<ProfilerDescriptionV3>;

struct ProfilerV4 {
  const char* name;
  int (*init)(void** context, int* mask, const char* comm_name, uint64_t comm_id, int nodes, int ranks, int rank,
              Logger logger);
  int (*start)(void* context, void** event, ProfilerDescriptionV4* description);
  int (*stop)(void* event);
  int (*record)(void* event, int state, void* arguments);
  int (*finalize)(void* context);
};

// v5, and v6 the same but for kinds of events that are not asked for.
struct ProfilerV5 {
  const char* name;
  int (*init)(void** context, uint64_t comm_id, int* mask, const char* comm_name, int nodes, int ranks, int rank,
              Logger logger);
  int (*start)(void* context, void** event, ProfilerDescriptionV5* description);
  int (*stop)(void* event);
  int (*record)(void* event, int state, void* arguments);
  int (*finalize)(void* context);
};

static_assert(sizeof(ProfilerV3) == 48);
static_assert(sizeof(ProfilerV4) == 48);
static_assert(sizeof(ProfilerV5) == 48);
static_assert(offsetof(ProfilerDescriptionV3, parent) == 8);
static_assert(offsetof(ProfilerDescriptionV3, collective) == 24);
static_assert(offsetof(ProfilerDescriptionV5, collective) == 24);
static_assert(offsetof(ProfiledCollectiveV3, algorithm) == 80);
static_assert(offsetof(ProfiledCollectiveV4, function) == 8);
static_assert(offsetof(ProfiledCollectiveV4, algorithm) == 64);
static_assert(offsetof(ProfiledCollectiveCall, captured) == 40);
static_assert(offsetof(ProfiledProxyOperation, is_send) == 20);
static_assert(offsetof(ProfiledNetPlugin, data) == 8);

}  // namespace forgive::nccl

#endif  // FORGIVE_PLUGIN_NCCL_PROFILER_ABI_H_
