// SPDX-License-Identifier: Apache-2.0
// What facts prove: masks, the rule, phases.
#include "plugin/proof.h"

#include <bit>

#include "transport/units.h"

namespace forgive {
namespace {

// setNetAttr's bits.
constexpr uint32_t kReduceScatterBit = 1u << 3;
constexpr uint32_t kAllReduceBit = 1u << 4;
constexpr uint32_t kLastCollectiveBit = kAllReduceBit;  // above it are send, receive and what is made of them
constexpr uint32_t kRingBit = 1u << 1;
constexpr uint32_t kSimpleBit = 1u << 2;

}  // namespace

const char* NameOf(Proof proof) {
  switch (proof) {
    case Proof::kAttributes:
      return "attributes";
    case Proof::kProfiler:
      return "profiler";
    case Proof::kOperatorsWord:
      return "operators_word";
    case Proof::kNone:
    case Proof::kCount:
      break;
  }
  return "none";
}

const char* NameOf(Refusal refusal) {
  switch (refusal) {
    case Refusal::kNotMarked:
      return "NotMarked";
    case Refusal::kUnproved:
      return "Unproved";
    case Refusal::kSeveralRanks:
      return "SeveralRanks";
    case Refusal::kOptionalCompletion:
      return "OptionalCompletion";
    case Refusal::kNoOperation:
      return "NoOperation";
    case Refusal::kOtherOperation:
      return "OtherOperation";
    case Refusal::kOtherAlgorithm:
      return "OtherAlgorithm";
    case Refusal::kOtherProtocol:
      return "OtherProtocol";
    case Refusal::kNotAQuarter:
      return "NotAQuarter";
    case Refusal::kNotFloat:
      return "NotFloat";
    case Refusal::kTooFew:
      return "TooFew";
    case Refusal::kRanksUnknown:
      return "RanksUnknown";
    case Refusal::kSplit:
      return "Split";
    case Refusal::kPhasesDisagree:
      return "PhasesDisagree";
    case Refusal::kCutShort:
      return "CutShort";
    case Refusal::kLatched:
      return "Latched";
    case Refusal::kStaleStamp:
      return "StaleStamp";
    case Refusal::kNoStep:
      return "NoStep";
    case Refusal::kNone:
    case Refusal::kCount:
      break;
  }
  return "None";
}

Finding Examine(const Collective& collective) {
  Finding finding;
  // For point to point, NCCL leaves algorithm and protocol of some earlier collective in place.
  if (!std::has_single_bit(collective.operation) || collective.operation > kLastCollectiveBit) {
    finding.refusal = Refusal::kNoOperation;
    return finding;
  }
  if (collective.operation == kAllReduceBit) finding.operation = Operation::kAllReduce;
  if (collective.operation == kReduceScatterBit) finding.operation = Operation::kReduceScatter;
  finding.ring_and_simple = collective.algorithm == kRingBit && collective.protocol == kSimpleBit;
  if (finding.operation == Operation::kOther) {
    finding.refusal = Refusal::kOtherOperation;
  } else if (collective.algorithm != kRingBit) {
    finding.refusal = Refusal::kOtherAlgorithm;
  } else if (collective.protocol != kSimpleBit) {
    finding.refusal = Refusal::kOtherProtocol;
  }
  return finding;
}

Finding Examine(const ProfiledPost& profiled, uint64_t least_count) {
  Finding finding;
  finding.operation = profiled.operation;
  finding.ring_and_simple = profiled.ring && profiled.simple;
  if (profiled.operation == Operation::kOther) {
    finding.refusal = Refusal::kOtherOperation;
  } else if (!profiled.ring) {
    finding.refusal = Refusal::kOtherAlgorithm;
  } else if (!profiled.simple) {
    finding.refusal = Refusal::kOtherProtocol;
  } else if (!profiled.floating_point) {
    finding.refusal = Refusal::kNotFloat;
  } else if (profiled.count < least_count) {
    finding.refusal = Refusal::kTooFew;
  }
  return finding;
}

bool PassesRule(const Post& post) {
  return post.registrations == kRingRegistrations && kPostsPerBuffer * post.posted_bytes == post.region_bytes;
}

uint32_t Period(Operation operation, uint32_t ring_ranks) {
  const uint32_t phases = operation == Operation::kReduceScatter ? 1 : 2;
  return phases * (ring_ranks - 1) * kSlicesPerChunk;
}

uint64_t ExpectedBytes(const ProfiledPost& profiled, uint32_t ring_ranks, bool only_reduce) {
  if (ring_ranks < 2 || profiled.operation == Operation::kOther) return 0;
  const uint64_t bytes = profiled.count * profiled.element_bytes;
  // NCCL counts what a rank gets of a reduce-scatter, and all of an all-reduce.
  if (profiled.operation == Operation::kReduceScatter) return bytes * (ring_ranks - 1);
  const uint64_t phase = static_cast<uint64_t>(uint128{bytes} * (ring_ranks - 1) / ring_ranks);
  return only_reduce ? phase : 2 * phase;
}

bool IsReducePhase(Operation operation, uint32_t message, uint32_t ring_ranks) {
  if (operation == Operation::kReduceScatter) return true;
  return message / kSlicesPerChunk % (2 * (ring_ranks - 1)) < ring_ranks - 1;
}

uint32_t Contributions(Operation operation, uint32_t message, uint32_t ring_ranks, uint32_t gradient_ranks) {
  // What arrives at reduce-scatter hop j (from 1) is the sum of j ranks. A final value holds every rank's.
  if (!IsReducePhase(operation, message, ring_ranks)) return gradient_ranks;
  return message / kSlicesPerChunk % (ring_ranks - 1) + 1;
}

}  // namespace forgive
