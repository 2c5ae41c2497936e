// SPDX-License-Identifier: Apache-2.0
// The four facts that no packet contains, on v8 by the operator's word: which step, which bytes, whose, forgivable or
// not.
#ifndef FORGIVE_PLUGIN_STEP_FACTS_H_
#define FORGIVE_PLUGIN_STEP_FACTS_H_

#include <atomic>
#include <cstdint>
#include <mutex>
#include <string>
#include <vector>

#include "plugin/settings.h"
#include "transport/receiver.h"

namespace forgive {

// NCCL posts a Simple chunk as two slices.
inline constexpr uint32_t kSlicesPerChunk = 2;
// In a ring's Simple protocol a posted receive is this part of its registered buffer.
inline constexpr uint64_t kPostsPerBuffer = 4;
// The host buffers that a ring connection registers, one for each protocol.
inline constexpr uint32_t kRingRegistrations = 3;

// What one receive communicator has done in the open step. Written by its progress thread, read by step_end.
struct ConnectionStep {
  std::atomic<uint64_t> epoch{0};     // of the step that `messages` counts
  std::atomic<uint32_t> messages{0};  // accepted posts in it, up to a latch
  std::atomic<bool> latched{false};   // a post failed the rule while a step was open: reliable for ever
};

// StepOf and IsGradientAllReduce. The operator promises (FORGIVE_GRADIENT_TRAFFIC=all, FORGIVE_RING_RANKS=k): between
// begin and end only Ring and Simple all-reduces of one communicator of k ranks. What can be checked is checked, and
// what fails makes a connection, or the whole process, reliable for ever (docs/using.md, The operator's word).
//
// Classify and Commit run on progress threads without a lock; Begin and End on the application's.
class StepFacts {
 public:
  explicit StepFacts(const Settings& settings);

  // ---- Progress threads. ----

  // A receive is about to be posted, or is no longer posted. Before Classify, so that either the post sees the step
  // or its begin sees the post.
  void AddPosted() { posted_.fetch_add(1, std::memory_order_seq_cst); }
  void RemovePosted(uint32_t count = 1) { posted_.fetch_sub(count, std::memory_order_seq_cst); }

  struct Verdict {
    uint64_t epoch = 0;  // 0: no step
    bool counts = false;
    bool refused = false;  // by the rule, or by an earlier refusal
  };
  // Fills the facts of the next receive of a connection. `posted_bytes` into a region of `region_bytes`, on a
  // communicator with `registrations` of them.
  Verdict Classify(ConnectionStep* connection, uint64_t posted_bytes, uint64_t region_bytes, uint32_t registrations,
                   ReceiveRequest* out);
  // The engine took the receive.
  void Commit(ConnectionStep* connection, const Verdict& verdict);

  // ---- Service threads. ----
  void Register(ConnectionStep* connection);
  void Unregister(ConnectionStep* connection);

  // ---- The application's threads; one at a time (the caller holds a lock). ----
  enum class BeginResult { kOk, kLatched, kStepOpen, kReceivesPosted };
  // Stops posts from being eligible and checks that none is posted. kOk: Open or Abandon must follow.
  BeginResult Prepare();
  void Open(uint64_t step, Fraction p);
  void Abandon();
  // No post belongs to the step afterwards.
  void Close();
  // After Close: false if some connection's posts were not whole all-reduces. The process is then latched, and
  // *what says so.
  bool CheckCounts(std::string* what);

  bool latched() const { return process_latched_.load(std::memory_order_acquire); }
  bool step_open() const { return (state_.load(std::memory_order_acquire) & kPhaseMask) == kOpen; }
  uint64_t open_step() const { return step_.load(std::memory_order_acquire); }
  uint64_t refused_posts() const { return refused_posts_.load(std::memory_order_relaxed); }

  // One phrase for the line at init: what is eligible and why.
  std::string Description() const;

  // Facts of message m of a step on a ring of k ranks (docs/using.md).
  static bool IsReducePhase(uint32_t message, uint32_t ring_ranks);
  static uint32_t Contributions(uint32_t message, uint32_t ring_ranks, uint32_t gradient_ranks);

 private:
  // state_: epoch << 2 | phase.
  static constexpr uint64_t kPhaseMask = 3;
  static constexpr uint64_t kClosed = 0;
  static constexpr uint64_t kOpening = 1;
  static constexpr uint64_t kOpen = 2;

  bool Promised() const { return operators_word_ && eligible_ != Eligible::kNone; }

  const bool operators_word_;
  const Eligible eligible_;
  const uint32_t ring_ranks_;
  const uint32_t gradient_ranks_;
  const Fraction p_low_;
  const Fraction p_high_;
  const Fraction forgiveness_probability_;

  std::atomic<uint64_t> state_{kClosed};
  std::atomic<uint64_t> step_{0};
  std::atomic<bool> budget_{false};  // the open step has p > 0
  std::atomic<uint64_t> posted_{0};
  std::atomic<uint64_t> refused_posts_{0};
  std::atomic<bool> process_latched_{false};

  std::mutex connections_mutex_;
  std::vector<ConnectionStep*> connections_;
  uint64_t closed_early_epoch_ = 0;  // a communicator was closed in the middle of this step's all-reduce
};

}  // namespace forgive

#endif  // FORGIVE_PLUGIN_STEP_FACTS_H_
