// SPDX-License-Identifier: Apache-2.0
// Which collectives are made Ring and Simple, and what a communicator's size is good for elsewhere.
#include "plugin/tuner.h"

#include <new>

#include "plugin/nccl_tuner_abi.h"
#include "plugin/process.h"
#include "plugin/profiler.h"

namespace forgive::tuner {
namespace {

struct TunerContext {
  bool has_id = false;
  uint64_t comm_id = 0;
};

bool IsGradientCollective(const void* context, int function) {
  if (function != nccl::kFunctionAllReduce && function != nccl::kFunctionReduceScatter) return false;
  const Process* process = Process::Get();
  if (context == nullptr || process == nullptr) return false;  // another network is in use
  const auto* tuned = static_cast<const TunerContext*>(context);
  if (!tuned->has_id) return process->facts()->WantsRingAndSimple(nullptr);
  const std::shared_ptr<Context> found = process->contexts()->FindComm(tuned->comm_id);
  return found != nullptr &&
         process->facts()->WantsRingAndSimple(&found->traffic_class, profiler::IsNamed(tuned->comm_id));
}

int Make(void** context, const TunerContext& made) {
  if (context != nullptr) *context = new (std::nothrow) TunerContext(made);
  return nccl::kSuccess;
}

}  // namespace

int Init(void** context) { return Make(context, {}); }

int InitWithId(void** context, uint64_t comm_id, size_t ranks) {
  if (Process* process = Process::Get(); process != nullptr && process->has_contexts()) {
    const std::shared_ptr<Context> found = process->contexts()->FindComm(comm_id);
    if (found != nullptr) {
      found->ring_ranks.store(static_cast<uint32_t>(ranks), std::memory_order_relaxed);
    } else {
      process->facts()->OnSharedConnections();
    }
  }
  return Make(context, {.has_id = true, .comm_id = comm_id});
}

int Finalize(void* context) {
  delete static_cast<TunerContext*>(context);
  return nccl::kSuccess;
}

int Choose(const void* context, int function, int* algorithm, int* protocol) {
  if (!IsGradientCollective(context, function)) return nccl::kSuccess;
  *algorithm = nccl::kAlgorithmRing;
  *protocol = nccl::kProtocolSimple;
  return nccl::kSuccess;
}

int Choose(const void* context, int function, float* costs, int algorithms, int protocols) {
  if (algorithms <= nccl::kAlgorithmRing || protocols <= nccl::kProtocolSimple) return nccl::kSuccess;
  if (!IsGradientCollective(context, function)) return nccl::kSuccess;
  float& wanted = costs[nccl::kAlgorithmRing * protocols + nccl::kProtocolSimple];
  if (wanted < 0) return nccl::kSuccess;
  for (int i = 0; i < algorithms * protocols; ++i) costs[i] = nccl::kIgnored;
  wanted = 0;
  return nccl::kSuccess;
}

}  // namespace forgive::tuner
