// SPDX-License-Identifier: Apache-2.0
// The profiler's tables, v1 to v6: the C edge, which only passes on to plugin/profiler.h.
#include "plugin/forgive.h"
#include "plugin/nccl_profiler_abi.h"
#include "plugin/profiler.h"

namespace forgive {
namespace {

// v1 and v2 come with net tables that carry no handles: they ask for no events.
int InitWithout(void** context, int* mask) { return profiler::Init(context, mask, 2, 0); }
int InitV3(void** context, int* mask) { return profiler::Init(context, mask, 3, 0); }
int InitV4(void** context, int* mask, const char* comm_name, uint64_t comm_id, int /*nodes*/, int ranks, int /*rank*/,
           nccl::Logger /*logger*/) {
  return profiler::Init(context, mask, 4, ranks, comm_id, comm_name);
}
int InitV5(void** context, uint64_t comm_id, int* mask, const char* comm_name, int /*nodes*/, int ranks, int /*rank*/,
           nccl::Logger /*logger*/) {
  return profiler::Init(context, mask, 5, ranks, comm_id, comm_name);
}

int StartNothing(void* /*context*/, void** event, void* /*description*/) {
  *event = nullptr;
  return nccl::kSuccess;
}

template <typename Description>
int Start(void* context, void** event, Description* description) {
  *event = nullptr;
  switch (static_cast<int>(description->type)) {
    case nccl::kProfileGroup:
    case nccl::kProfileGroupCall:
      *event = profiler::StartGroup();
      break;
    case nccl::kProfileCollectiveCall:
      *event = profiler::StartCall(description->call.captured);
      break;
    case nccl::kProfileCollective:
      *event = profiler::StartCollective(context, description->parent, description->collective.function,
                                         description->collective.algorithm, description->collective.protocol,
                                         description->collective.datatype, description->collective.count);
      break;
    case nccl::kProfileProxyOperation:
      *event = profiler::StartOperation(description->parent, description->operation);
      break;
    case nccl::kProfileProxyStep:
      *event = profiler::StartStep(description->parent, description->step.step);
      break;
    case nccl::kProfileNetPlugin:
      profiler::StartNetPlugin(description->parent, description->plugin);
      break;
    default:
      break;
  }
  return nccl::kSuccess;
}

int Stop(void* /*event*/) { return nccl::kSuccess; }
int Record(void* /*event*/, int /*state*/, void* /*arguments*/) { return nccl::kSuccess; }

template <typename Table>
constexpr Table Make(decltype(Table::init) init, decltype(Table::start) start) {
  return {.name = profiler::kName,
          .init = init,
          .start = start,
          .stop = Stop,
          .record = Record,
          .finalize = profiler::Finalize};
}

}  // namespace
}  // namespace forgive

extern "C" {

FORGIVE_EXPORT extern const forgive::nccl::ProfilerV1 ncclProfiler_v1;
const forgive::nccl::ProfilerV1 ncclProfiler_v1 =
    forgive::Make<forgive::nccl::ProfilerV1>(forgive::InitWithout, forgive::StartNothing);

FORGIVE_EXPORT extern const forgive::nccl::ProfilerV2 ncclProfiler_v2;
const forgive::nccl::ProfilerV2 ncclProfiler_v2 =
    forgive::Make<forgive::nccl::ProfilerV2>(forgive::InitWithout, forgive::StartNothing);

FORGIVE_EXPORT extern const forgive::nccl::ProfilerV3 ncclProfiler_v3;
const forgive::nccl::ProfilerV3 ncclProfiler_v3 =
    forgive::Make<forgive::nccl::ProfilerV3>(forgive::InitV3, forgive::Start<forgive::nccl::ProfilerDescriptionV3>);

FORGIVE_EXPORT extern const forgive::nccl::ProfilerV4 ncclProfiler_v4;
const forgive::nccl::ProfilerV4 ncclProfiler_v4 =
    forgive::Make<forgive::nccl::ProfilerV4>(forgive::InitV4, forgive::Start<forgive::nccl::ProfilerDescriptionV4>);

FORGIVE_EXPORT extern const forgive::nccl::ProfilerV5 ncclProfiler_v5;
const forgive::nccl::ProfilerV5 ncclProfiler_v5 =
    forgive::Make<forgive::nccl::ProfilerV5>(forgive::InitV5, forgive::Start<forgive::nccl::ProfilerDescriptionV5>);

FORGIVE_EXPORT extern const forgive::nccl::ProfilerV5 ncclProfiler_v6;
const forgive::nccl::ProfilerV5 ncclProfiler_v6 =
    forgive::Make<forgive::nccl::ProfilerV5>(forgive::InitV5, forgive::Start<forgive::nccl::ProfilerDescriptionV5>);

}  // extern "C"
