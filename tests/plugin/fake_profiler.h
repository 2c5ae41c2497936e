// SPDX-License-Identifier: Apache-2.0
// NCCL's side of attributes, tuner and profiler, as far as they prove what a message is for.
#ifndef FORGIVE_TESTS_PLUGIN_FAKE_PROFILER_H_
#define FORGIVE_TESTS_PLUGIN_FAKE_PROFILER_H_

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstring>

#include "plugin/nccl_profiler_abi.h"
#include "plugin/nccl_tuner_abi.h"
#include "ring_steps.h"

namespace forgive::testing {

inline nccl::Attributes AllReduceAttributes(uint32_t operation = 16) {
  nccl::Attributes attributes;
  std::memset(&attributes, 0xff, sizeof(attributes));
  attributes.operation = operation;
  attributes.algorithm = 2;
  attributes.protocol = 4;
  return attributes;
}

// The tuner's init, as NCCL calls it for a communicator of two ranks.
inline void SayRanks(const Library& library, uint64_t comm_id, size_t ranks) {
  const auto* tuner = static_cast<const nccl::TunerV5*>(library.Symbol("ncclTunerPlugin_v5"));
  void* context = nullptr;
  ASSERT_EQ(tuner->init(&context, comm_id, ranks, ranks, nullptr, nullptr, nullptr), nccl::kSuccess);
  ASSERT_EQ(tuner->finalize(context), nccl::kSuccess);
}

// NCCL's side of the profiler, v3 to v6: it holds the handles that the profiler returned.
struct FakeProfiler {
  FakeProfiler() = default;
  FakeProfiler(const FakeProfiler&) = delete;
  FakeProfiler& operator=(const FakeProfiler&) = delete;
  ~FakeProfiler() {
    if (v3 != nullptr) v3->finalize(context);
    if (v4 != nullptr) v4->finalize(context);
    if (v5 != nullptr) v5->finalize(context);
  }

  const nccl::ProfilerV3* v3 = nullptr;
  const nccl::ProfilerV4* v4 = nullptr;
  const nccl::ProfilerV5* v5 = nullptr;
  void* context = nullptr;
  int mask = 0;
  void* call = nullptr;
  void* operation = nullptr;
  // NCCL's record behind the profiler handle.
  struct Record {
    void* step = nullptr;
    void* context = nullptr;
  } record;

  template <typename Description, typename Table>
  void* StartWith(const Table* table, const std::function<void(Description*)>& fill) {
    Description description;
    std::memset(&description, 0, sizeof(description));
    fill(&description);
    void* event = nullptr;
    EXPECT_EQ(table->start(context, &event, &description), nccl::kSuccess);
    return event;
  }
  template <typename Fill>
  void* Start(const Fill& fill) {
    if (v3 != nullptr) return StartWith<nccl::ProfilerDescriptionV3>(v3, fill);
    if (v4 != nullptr) return StartWith<nccl::ProfilerDescriptionV4>(v4, fill);
    return StartWith<nccl::ProfilerDescriptionV5>(v5, fill);
  }
};
inline FakeProfiler* the_profiler = nullptr;

inline int ProfilerCallback(void** event, int type, void* handle, int64_t id, void* data) {
  if (type != nccl::kEventStart) return nccl::kSuccess;
  const auto* record = static_cast<const FakeProfiler::Record*>(handle);
  *event = the_profiler->Start([&](auto* description) {
    description->type = nccl::kProfileNetPlugin;
    description->parent = record->step;
    description->plugin = {.id = id, .data = data};
  });
  return nccl::kSuccess;
}

inline void LoadProfiler(const Library& library, int version, int ranks, FakeProfiler* profiler,
                         const char* name = "gradients") {
  const void* table = library.Symbol(("ncclProfiler_v" + std::to_string(version)).c_str());
  ASSERT_NE(table, nullptr);
  if (version == 3) {
    profiler->v3 = static_cast<const nccl::ProfilerV3*>(table);
    ASSERT_EQ(profiler->v3->init(&profiler->context, &profiler->mask), nccl::kSuccess);
  } else if (version == 4) {
    profiler->v4 = static_cast<const nccl::ProfilerV4*>(table);
    ASSERT_EQ(profiler->v4->init(&profiler->context, &profiler->mask, name, 7, 2, ranks, 0, nullptr), 0);
  } else {
    profiler->v5 = static_cast<const nccl::ProfilerV5*>(table);
    ASSERT_EQ(profiler->v5->init(&profiler->context, 7, &profiler->mask, name, 2, ranks, 0, nullptr), 0);
  }
  the_profiler = profiler;
}

// ncclAllReduce of floats, in the application's thread, and its proxy operation.
inline void StartAllReduce(FakeProfiler* profiler, const char* function = "AllReduce",
                           const char* datatype = "ncclFloat32", bool captured = false, pid_t process = getpid(),
                           uint64_t count = 1 << 20) {
  profiler->call = nullptr;
  if (profiler->v5 != nullptr) {
    profiler->call = profiler->Start([&](auto* description) {
      description->type = static_cast<decltype(description->type)>(nccl::kProfileCollectiveCall);
      description->call.captured = captured;
    });
  }
  void* collective = profiler->Start([&](auto* description) {
    description->type = nccl::kProfileCollective;
    description->parent = profiler->call;
    description->collective.function = function;
    description->collective.algorithm = "RING";
    description->collective.protocol = "SIMPLE";
    description->collective.datatype = datatype;
    description->collective.count = count;
  });
  profiler->operation = profiler->Start([&](auto* description) {
    description->type = nccl::kProfileProxyOperation;
    description->parent = collective;
    description->operation.process_id = process;
  });
}

inline void StartMessage(FakeProfiler* profiler, const Net& net, int message) {
  profiler->record.step = profiler->Start([&](auto* description) {
    description->type = nccl::kProfileProxyStep;
    description->parent = profiler->operation;
    description->step.step = message;
  });
  net.communicator->profiler_handle = &profiler->record;
}

// `count` messages, each started as a step of the operation before it is posted, in any order of numbers.
inline uint64_t TransferProfiled(const Net& net, const Interface& forgive, FakeProfiler* profiler,
                                 RingConnection* ring, const std::vector<int>& messages) {
  const size_t lines_before = Ledger(forgive).size();
  for (const int message : messages) {
    StartMessage(profiler, net, message);
    StartMessage(profiler, net, message);  // a retry starts it again
    Transfer(net, &ring->pair, 1, kPosted, kPosted, nullptr);
  }
  uint64_t forgiven = 0;
  const std::vector<forgive_range_t> lines = Ledger(forgive);
  for (size_t i = lines_before; i < lines.size(); ++i) forgiven += lines[i].length;
  return forgiven;
}

}  // namespace forgive::testing

#endif  // FORGIVE_TESTS_PLUGIN_FAKE_PROFILER_H_
