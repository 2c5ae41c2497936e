// SPDX-License-Identifier: Apache-2.0
// What is known about one posted receive, whoever says it, and why its bytes may or may not be lost.
#ifndef FORGIVE_PLUGIN_PROOF_H_
#define FORGIVE_PLUGIN_PROOF_H_

#include <cstdint>

#include "plugin/context.h"

namespace forgive {

// The gradient collectives, and everything else.
enum class Operation : uint8_t { kAllReduce, kReduceScatter, kOther };

// What the chain of profiler events says about a message (v10 on, with our own profiler loaded).
struct ProfiledPost {
  bool known = false;
  Operation operation = Operation::kOther;
  bool ring = false;
  bool simple = false;
  bool floating_point = false;
  uint64_t count = 0;       // elements of the collective
  uint32_t message = 0;     // 0-based within the operation, on its connection
  uint32_t ring_ranks = 0;  // k; 0: not said
  bool stamped = false;     // at enqueue: the two below hold
  bool captured = false;    // into a CUDA graph, so the stamp says nothing about a later launch
  uint64_t epoch = 0;       // StepFacts::open_epoch() then; 0: no step was open
  // Of the collective's start, wherever it was launched from.
  uint64_t collective = 0;     // its number in this process, from 1
  uint32_t element_bytes = 0;  // 0: a type that is not known
  bool named = false;          // its communicator is one of FORGIVE_COMMUNICATOR
  bool critical = true;        // as the detector then said (FORGIVE_STEP=operation)
};

// What is known about a receive when it is posted.
struct Post {
  uint64_t posted_bytes = 0;
  uint64_t region_bytes = 0;
  uint32_t registrations = 0;        // of its communicator
  bool optional_completion = false;  // NCCL's hint: LL or LL128. Its absence proves nothing
  bool marked = true;                // its communicator carries gradients
  bool has_collective = false;       // setNetAttr was called by this thread
  Collective collective = {};
  uint32_t ring_ranks = 0;  // k as the tuner's init said it; 0: not said
  ProfiledPost profiled = {};
};

// Who said what a message is for.
enum class Proof : uint8_t { kNone, kAttributes, kProfiler, kOperatorsWord, kCount };

// Why a receive in an open step may not lose bytes. The first that applies.
enum class Refusal : uint8_t {
  kNone,
  kNotMarked,           // not a gradient communicator
  kUnproved,            // nobody says what the message is for
  kSeveralRanks,        // several ranks in this process
  kOptionalCompletion,  // LL or LL128
  kNoOperation,         // the attributes name none, or more than one
  kOtherOperation,
  kOtherAlgorithm,
  kOtherProtocol,
  kNotAQuarter,  // the post is not a quarter of its buffer: not Ring and Simple
  kNotFloat,
  kTooFew,          // elements: a barrier, a norm
  kRanksUnknown,    // k: another tuner is loaded
  kSplit,           // a split communicator shares the connections, so k varies
  kPhasesDisagree,  // the counter and the profiler
  kCutShort,        // an operation ended in the middle
  kLatched,         // one of these happened here before
  kStaleStamp,      // enqueued outside of the open step, or captured into a graph
  kNoStep,          // FORGIVE_STEP=operation, and the profiler does not say which operation
  kCount
};

// As statistics write them.
const char* NameOf(Proof proof);
const char* NameOf(Refusal refusal);

// What a post is found to be. `operation` is kOther where the facts do not say.
struct Finding {
  Operation operation = Operation::kOther;
  bool ring_and_simple = false;  // as said, before the rule is checked
  Refusal refusal = Refusal::kNone;
};
Finding Examine(const Collective& collective);
// `least_count`: elements below which an operation is not a gradient's.
Finding Examine(const ProfiledPost& profiled, uint64_t least_count);

// NCCL posts a Simple chunk as two slices.
inline constexpr uint32_t kSlicesPerChunk = 2;
// In a ring's Simple protocol a posted receive is this part of its registered buffer.
inline constexpr uint64_t kPostsPerBuffer = 4;
// The host buffers that a ring connection registers, one for each protocol.
inline constexpr uint32_t kRingRegistrations = 3;

// True for Ring and Simple whatever says so: nothing else posts a quarter of one of three buffers.
bool PassesRule(const Post& post);

// Messages of one loop of an operation on one connection of a ring of k ranks.
uint32_t Period(Operation operation, uint32_t ring_ranks);
// The bytes that a rank of a ring of k receives in an operation's reduce-scatter phase, or in all of it, if every hop
// to it is ours; 0: not known.
uint64_t ExpectedBytes(const ProfiledPost& profiled, uint32_t ring_ranks, bool only_reduce);
// Of message m, 0-based: whether what arrives is a partial sum, and of how many ranks at most.
bool IsReducePhase(Operation operation, uint32_t message, uint32_t ring_ranks);
uint32_t Contributions(Operation operation, uint32_t message, uint32_t ring_ranks, uint32_t gradient_ranks);

}  // namespace forgive

#endif  // FORGIVE_PLUGIN_PROOF_H_
