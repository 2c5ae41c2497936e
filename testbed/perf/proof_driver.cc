// SPDX-License-Identifier: Apache-2.0
// NCCL's order of calls around a collective, as its profiler, tuner and setNetAttr see it.
#include "testbed/perf/proof_driver.h"

#include <dlfcn.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cstring>

#include "testbed/perf/error.h"

namespace forgive::perf {
namespace {

constexpr int kFirstWithProfiler = 10;
constexpr int kFirstWithAttributes = 11;
constexpr char kCommunicatorName[] = "gradients";

ProofDriver* the_driver = nullptr;

std::uint32_t OperationBit(Collective collective) {
  switch (collective) {
    case Collective::kBroadcast:
      return 1u << 0;
    case Collective::kAllGather:
      return 1u << 2;
    case Collective::kReduceScatter:
      return 1u << 3;
    case Collective::kAllReduce:
      return 1u << 4;
    case Collective::kSendRecv:
      break;
  }
  return 1u << 6;
}

const char* FunctionName(Collective collective) {
  switch (collective) {
    case Collective::kBroadcast:
      return "Broadcast";
    case Collective::kAllGather:
      return "AllGather";
    case Collective::kReduceScatter:
      return "ReduceScatter";
    case Collective::kAllReduce:
      return "AllReduce";
    case Collective::kSendRecv:
      break;
  }
  return "Send";
}

// As NCCL's call has it: what a rank gives or gets, not the whole vector, where the vector is cut by ranks.
std::size_t CountOf(const CollectiveFacts& facts) {
  const bool sharded = facts.collective == Collective::kReduceScatter || facts.collective == Collective::kAllGather;
  return static_cast<std::size_t>(sharded ? facts.elements / facts.ranks : facts.elements);
}

template <typename Description, typename Table, typename Fill>
void* StartWith(const Table* table, void* context, const Fill& fill) {
  Description description;
  std::memset(&description, 0, sizeof(description));
  fill(&description);
  void* event = nullptr;
  if (table->start(context, &event, &description) != abi::kSuccess) throw RunError("the profiler failed");
  return event;
}

}  // namespace

ProofDriver::ProofDriver(void* library, int version, const CommunicatorFacts& facts, std::uint64_t comm_id)
    : version_(version),
      attributes_(facts.proof == Proof::kAttributes ||
                  (facts.proof == Proof::kNccl && version >= kFirstWithAttributes)),
      profiler_(facts.proof == Proof::kProfiler || facts.proof == Proof::kNccl) {
  if (attributes_ && version < kFirstWithAttributes) {
    throw UsageError(fmt::format("--proof attributes: v{} has none; give --api v11 or v12", version));
  }
  if (profiler_ && version < kFirstWithProfiler) {
    throw UsageError(fmt::format("--proof {}: v{} carries no handles; give --api v10 or later",
                                 facts.proof == Proof::kNccl ? "nccl" : "profiler", version));
  }
  std::memset(&said_, 0xff, sizeof(said_));
  if (attributes_) SayRanks(library, facts.ranks, comm_id);
  if (profiler_) LoadProfiler(library, facts, comm_id);
  the_driver = this;
}

ProofDriver::~ProofDriver() {
  if (v4_ != nullptr) v4_->finalize(context_);
  if (v5_ != nullptr) v5_->finalize(context_);
  the_driver = nullptr;
}

abi::ProfilerCallback ProofDriver::CallbackFor(Proof proof) {
  return proof == Proof::kProfiler || proof == Proof::kNccl ? &ProofDriver::OnNetEvent : nullptr;
}

void ProofDriver::SayRanks(void* library, int ranks, std::uint64_t comm_id) {
  const auto* const tuner = static_cast<const abi::TunerV5*>(dlsym(library, "ncclTunerPlugin_v5"));
  if (tuner == nullptr) throw UsageError("--proof attributes: the plugin has no ncclTunerPlugin_v5, which learns k");
  void* context = nullptr;
  const auto count = static_cast<std::size_t>(ranks);
  if (tuner->init(&context, comm_id, count, count, nullptr, nullptr, nullptr) != abi::kSuccess) {
    throw RunError("the tuner's init failed");
  }
  tuner->finalize(context);
}

void ProofDriver::LoadProfiler(void* library, const CommunicatorFacts& facts, std::uint64_t comm_id) {
  // v10 comes with NCCL's profiler v4, v11 with v5, v12 with v6.
  const std::string symbol = fmt::format("ncclProfiler_v{}", version_ - 6);
  const void* const table = dlsym(library, symbol.c_str());
  if (table == nullptr) throw UsageError(fmt::format("--proof: the plugin has no {}", symbol));
  int mask = 0;
  int result = 0;
  if (version_ == kFirstWithProfiler) {
    v4_ = static_cast<const abi::ProfilerV4*>(table);
    result = v4_->init(&context_, &mask, kCommunicatorName, comm_id, facts.ranks, facts.ranks, facts.rank, nullptr);
  } else {
    v5_ = static_cast<const abi::ProfilerV5*>(table);
    result = v5_->init(&context_, comm_id, &mask, kCommunicatorName, facts.ranks, facts.ranks, facts.rank, nullptr);
  }
  if (result != abi::kSuccess) throw RunError("the profiler's init failed");
  if ((mask & abi::kEventNetPlugin) == 0) {
    throw UsageError("--proof: the plugin's profiler asks for no events (FORGIVE_PROFILER=0?)");
  }
}

template <typename Fill>
void* ProofDriver::Start(const Fill& fill) {
  if (v4_ != nullptr) return StartWith<abi::EventStartV4>(v4_, context_, fill);
  return StartWith<abi::EventStartV5>(v5_, context_, fill);
}

void ProofDriver::BeginCollective(const CollectiveFacts& facts) {
  facts_ = facts;
  if (!profiler_) return;
  void* parent = nullptr;
  if (v5_ != nullptr) {
    parent = Start([](auto* description) {
      description->type = static_cast<decltype(description->type)>(abi::kEventCollectiveCall);
    });
  }
  void* const collective = Start([&](auto* description) {
    description->type = abi::kEventCollective;
    description->parent = parent;
    description->collective.function = FunctionName(facts.collective);
    description->collective.algorithm = "RING";
    description->collective.protocol = facts.protocol == Protocol::kSimple ? "SIMPLE" : "LL";
    description->collective.datatype = "ncclFloat32";
    description->collective.count = CountOf(facts);
  });
  operation_ = Start([&](auto* description) {
    description->type = abi::kEventProxyOperation;
    description->parent = collective;
    description->operation.process_id = getpid();
  });
}

bool ProofDriver::TakeAttributes(abi::Attributes* out) {
  if (!attributes_) return false;
  abi::Attributes now;
  std::memset(&now, 0xff, sizeof(now));
  now.op = OperationBit(facts_.collective);
  // For point to point, NCCL leaves the last collective's in place.
  now.algo = facts_.collective == Collective::kSendRecv ? said_.algo : 1u << 1;
  now.proto = facts_.collective == Collective::kSendRecv ? said_.proto
                                                         : (facts_.protocol == Protocol::kSimple ? 1u << 2 : 1u << 0);
  if (std::memcmp(&now, &said_, sizeof(now)) == 0) return false;
  said_ = *out = now;
  return true;
}

void* ProofDriver::HandleOf(std::int64_t message) {
  if (!profiler_) return nullptr;
  record_.step = Start([&](auto* description) {
    description->type = abi::kEventProxyStep;
    description->parent = operation_;
    description->step = static_cast<int>(message);
  });
  return &record_;
}

int ProofDriver::OnNetEvent(void** event, int type, void* handle, std::int64_t id, void* data) {
  if (type != abi::kNetEventStart || the_driver == nullptr) return abi::kSuccess;
  const auto* const record = static_cast<const Record*>(handle);
  *event = the_driver->Start([&](auto* description) {
    description->type = abi::kEventNetPlugin;
    description->parent = record->step;
    description->plugin = {.id = id, .data = data};
  });
  return abi::kSuccess;
}

}  // namespace forgive::perf
