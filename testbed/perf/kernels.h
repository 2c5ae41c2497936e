// SPDX-License-Identifier: Apache-2.0
// What a GPU's kernel does in NCCL: moves and adds elements between user memory and the slots, slice by slice.
#ifndef FORGIVE_TESTBED_PERF_KERNELS_H_
#define FORGIVE_TESTBED_PERF_KERNELS_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "testbed/perf/lanes.h"
#include "testbed/perf/program.h"

namespace forgive::perf {

// User memory of one operation. Element e of the whole vector is input[e] and result[e - result_first].
struct UserMemory {
  const float* input = nullptr;
  float* result = nullptr;
  std::int64_t result_first = 0;
};

// One running operation. Used by the progress thread.
class Kernel {
 public:
  virtual ~Kernel() = default;
  // Sets the lanes up; before the first Run.
  virtual void Begin() = 0;
  // Does what is possible, at most a few slices. True if anything moved. Throws RunError for a message of a wrong
  // size.
  virtual bool Run() = 0;
  // True once the whole result stands and everything to send is in its slot.
  virtual bool Done() const = 0;
};

std::unique_ptr<Kernel> MakeRingKernel(const Schedule& schedule, int rank, UserMemory memory, SendLane* next,
                                       ReceiveLane* previous);

// Lanes by peer; null for the rank itself and for peers without messages.
std::unique_ptr<Kernel> MakeDirectKernel(const Schedule& schedule, int rank, UserMemory memory,
                                         std::vector<SendLane*> sends, std::vector<ReceiveLane*> receives);

}  // namespace forgive::perf

#endif  // FORGIVE_TESTBED_PERF_KERNELS_H_
