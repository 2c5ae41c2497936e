// SPDX-License-Identifier: Apache-2.0
// The binary interface between NCCL and a tuner, v2 to v6: our own declarations of the layouts NCCL reads.
#ifndef FORGIVE_PLUGIN_NCCL_TUNER_ABI_H_
#define FORGIVE_PLUGIN_NCCL_TUNER_ABI_H_

#include <cstddef>
#include <cstdint>

#include "plugin/nccl_abi.h"

namespace forgive::nccl {

// As NCCL numbers them.
enum Function : int { kFunctionReduceScatter = 3, kFunctionAllReduce = 4 };
inline constexpr int kAlgorithmRing = 1;
inline constexpr int kProtocolSimple = 2;
// A cost that means: never.
inline constexpr float kIgnored = -1.0f;

struct TunerV2 {
  const char* name;
  int (*init)(size_t ranks, size_t nodes, Logger logger, void** context);
  int (*choose)(void* context, int function, size_t bytes, int collnet, int nvls, int operations, int* algorithm,
                int* protocol, int* channels);
  int (*destroy)(void* context);
};

// `costs` is a table of algorithms x protocols, row by row, whatever its declared type.
struct TunerV3 {
  const char* name;
  int (*init)(size_t ranks, size_t nodes, Logger logger, void** context);
  int (*choose)(void* context, int function, size_t bytes, int operations, float** costs, int algorithms,
                int protocols, int* channels);
  int (*destroy)(void* context);
};

struct TunerV4 {
  const char* name;
  int (*init)(size_t ranks, size_t nodes, Logger logger, void** context);
  int (*choose)(void* context, int function, size_t bytes, int operations, float** costs, int algorithms,
                int protocols, int registered, int* channels);
  int (*destroy)(void* context);
};

struct TunerV5 {
  const char* name;
  int (*init)(void** context, uint64_t comm_id, size_t ranks, size_t nodes, Logger logger, void* nvlink_domains,
              void* constants);
  int (*choose)(void* context, int function, size_t bytes, int operations, float** costs, int algorithms,
                int protocols, int registered, int* channels);
  int (*finalize)(void* context);
};

struct TunerV6 {
  const char* name;
  int (*init)(void** context, uint64_t comm_id, size_t ranks, size_t nodes, Logger logger, void* nvlink_domains,
              void* constants);
  int (*choose)(void* context, int function, size_t bytes, int operations, float** costs, int algorithms,
                int protocols, int registered, int* channels);
  int (*finalize)(void* context);
  int (*chunk_size)(void* context, int function, size_t bytes, int algorithm, int protocol, int channels,
                    size_t* chunk_bytes);  // may be null
};

static_assert(sizeof(TunerV2) == 32);
static_assert(sizeof(TunerV3) == 32);
static_assert(sizeof(TunerV4) == 32);
static_assert(sizeof(TunerV5) == 32);
static_assert(sizeof(TunerV6) == 40);
static_assert(offsetof(TunerV6, chunk_size) == 32);

}  // namespace forgive::nccl

#endif  // FORGIVE_PLUGIN_NCCL_TUNER_ABI_H_
