// SPDX-License-Identifier: Apache-2.0
// The profiler below every version of its table: it remembers what each message is for, and is asked at the post.
#ifndef FORGIVE_PLUGIN_PROFILER_H_
#define FORGIVE_PLUGIN_PROFILER_H_

#include <cstdint>

#include "plugin/nccl_profiler_abi.h"
#include "plugin/proof.h"

// NCCL starts an event for a collective, below it one for each of its proxy operations, below that one for each
// message, and hands each the handle of the one above. The handle of a message reaches isend and irecv wrapped in
// NCCL's own record; passed back to NCCL with an event of ours, it comes here again, on the same thread, as that
// event's parent. So a post learns its collective and its number in it.
//
// Handles are numbers and never pointers: of another process (PXN), outlived, or nonsense, they are simply not found.
// The newest few thousand events of each kind are kept, so that memory is bounded and nothing needs to be stopped.
namespace forgive::profiler {

inline constexpr char kName[] = "forgive";

// One communicator. *mask: the events that are asked for; none where FORGIVE_PROFILER=0, or where net tables of that
// age do not carry handles (v1 and v2). `ranks` 0, `comm_name` nullptr: this version does not say.
int Init(void** context, int* mask, int version, int ranks, uint64_t comm_id = 0, const char* comm_name = nullptr);
int Finalize(void* context);
// Whether FORGIVE_COMMUNICATOR means this communicator, as its name was told here.
bool IsNamed(uint64_t comm_id);

// Starts of events; each returns the handle. The parent is what an earlier one returned, or anything else.
void* StartGroup();
void* StartCall(bool captured);
void* StartCollective(const void* context, void* parent, const char* function, const char* algorithm,
                      const char* protocol, const char* datatype, uint64_t count);
void* StartOperation(void* parent, const nccl::ProfiledProxyOperation& operation);
void* StartStep(void* parent, int step);
void StartNetPlugin(void* parent, const nccl::ProfiledNetPlugin& plugin);

// What the message is for whose handle NCCL gave to irecv. out->known stays false: not known.
void Ask(nccl::ProfilerCallback callback, void* profiler_handle, ProfiledPost* out);

}  // namespace forgive::profiler

#endif  // FORGIVE_PLUGIN_PROFILER_H_
