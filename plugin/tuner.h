// SPDX-License-Identifier: Apache-2.0
// The tuner below every version of its table: Ring and Simple for gradient collectives, NCCL's own choice elsewhere.
#ifndef FORGIVE_PLUGIN_TUNER_H_
#define FORGIVE_PLUGIN_TUNER_H_

#include <cstddef>
#include <cstdint>

// Nothing here fails: NCCL takes an error of a tuner as the communicator's end.
namespace forgive::tuner {

inline constexpr char kName[] = "forgive";

// One communicator as NCCL's tuner calls see it. Before v5 nothing tells communicators apart.
int Init(void** context);
int InitWithId(void** context, uint64_t comm_id, size_t ranks);
int Finalize(void* context);

// v2: writes algorithm and protocol, or leaves both to NCCL.
int Choose(const void* context, int function, int* algorithm, int* protocol);
// v3 on: makes Ring and Simple the only entry, unless NCCL ignores it: what NCCL ignores does not work there.
int Choose(const void* context, int function, float* costs, int algorithms, int protocols);

}  // namespace forgive::tuner

#endif  // FORGIVE_PLUGIN_TUNER_H_
