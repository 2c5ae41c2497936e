// SPDX-License-Identifier: Apache-2.0
// What NCCL tells a plugin about its messages besides the data calls: attributes, the tuner's init, profiler events.
#ifndef FORGIVE_TESTBED_PERF_PROOF_DRIVER_H_
#define FORGIVE_TESTBED_PERF_PROOF_DRIVER_H_

#include <cstdint>

#include "testbed/perf/nccl_abi.h"
#include "testbed/perf/nccl_proof_abi.h"
#include "testbed/perf/net.h"

namespace forgive::perf {

// One communicator's. BeginCollective by the application's thread; the rest by the progress thread, which starts a
// collective after it has begun. One at a time in a process: NCCL's callback names nobody.
class ProofDriver {
 public:
  // `version` of the net table in use. Throws UsageError: this version has no such proof, or the library no such
  // table.
  ProofDriver(void* library, int version, const CommunicatorFacts& facts, std::uint64_t comm_id);
  ~ProofDriver();
  ProofDriver(const ProofDriver&) = delete;
  ProofDriver& operator=(const ProofDriver&) = delete;

  // For the table's init; null: no profiler.
  static abi::ProfilerCallback CallbackFor(Proof proof);

  // ncclAllReduce and the like: the call, the collective and its proxy operation.
  void BeginCollective(const CollectiveFacts& facts);
  // True if setNetAttr must be called before the next post, with *out: NCCL calls it on change only.
  bool TakeAttributes(abi::Attributes* out);
  // The profiler handle of the next post, which is this message of the collective; null: none.
  void* HandleOf(std::int64_t message);

 private:
  struct Record {  // what NCCL's handle points to; its first word is the event of the message
    void* step = nullptr;
    void* unused = nullptr;
  };
  template <typename Fill>
  void* Start(const Fill& fill);
  static int OnNetEvent(void** event, int type, void* handle, std::int64_t id, void* data);
  void SayRanks(void* library, int ranks, std::uint64_t comm_id);
  void LoadProfiler(void* library, const CommunicatorFacts& facts, std::uint64_t comm_id);

  const int version_;
  const bool attributes_;
  const bool profiler_;
  const abi::ProfilerV4* v4_ = nullptr;
  const abi::ProfilerV5* v5_ = nullptr;
  void* context_ = nullptr;
  CollectiveFacts facts_;
  void* operation_ = nullptr;
  Record record_;
  abi::Attributes said_;  // to this thread
};

}  // namespace forgive::perf

#endif  // FORGIVE_TESTBED_PERF_PROOF_DRIVER_H_
