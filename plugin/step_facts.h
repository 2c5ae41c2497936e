// SPDX-License-Identifier: Apache-2.0
// The four facts that no packet contains: which step, which bytes, whose, forgivable or not.
#ifndef FORGIVE_PLUGIN_STEP_FACTS_H_
#define FORGIVE_PLUGIN_STEP_FACTS_H_

#include <array>
#include <atomic>
#include <cstdint>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "plugin/error_text.h"
#include "plugin/proof.h"
#include "plugin/settings.h"
#include "transport/receiver.h"

namespace forgive {

// What one receive communicator has done in the open step. Written by its progress thread, read by step_end.
struct ConnectionStep {
  std::atomic<uint64_t> epoch{0};     // of the step that `messages` counts
  std::atomic<uint32_t> messages{0};  // accepted posts in it, up to a latch
  std::atomic<bool> latched{false};   // what was said about a post was not so: reliable for ever
  // Proved by attributes: accepted posts of Ring and Simple since the connection was made, by operation. The progress
  // thread's own.
  std::array<uint32_t, 2> counted{};
  Operation last = Operation::kOther;
  std::atomic<bool> whole{true};  // the last operation has come to the end of a loop
  uint64_t operation = 0;         // FORGIVE_STEP=operation: the step begun last from here. The progress thread's own
};

// StepOf and IsGradientAllReduce, for each receive by the best that is known about it (docs/eligibility.md):
//
// - NCCL's own attributes (v11 on) and a counter of the connection's posts, for the phase;
// - our profiler's chain of events (v10 on);
// - else the operator's word, unless each operation is a step (FORGIVE_STEP=operation), which only the profiler
// tells. The operator promises (FORGIVE_GRADIENT_TRAFFIC=all, FORGIVE_RING_RANKS=k): between begin and end only Ring
// and Simple all-reduces of one communicator of k ranks. What can be checked is checked, and what fails makes a
// connection, or the whole process, reliable for ever (docs/using.md, The operator's word).
//
// Classify and Commit run on progress threads without a lock; Begin and End on the application's.
class StepFacts {
 public:
  explicit StepFacts(const Settings& settings);

  // ---- Progress threads. ----

  // A receive is about to be posted, or is no longer posted. Before Classify, so that either the post sees the step
  // or its begin sees the post.
  void AddPosted() { posted_.fetch_add(1, std::memory_order_seq_cst); }
  bool HasPosted() const { return posted_.load(std::memory_order_relaxed) != 0; }
  void RemovePosted(uint32_t count = 1) { posted_.fetch_sub(count, std::memory_order_seq_cst); }

  struct Verdict {
    uint64_t epoch = 0;                       // 0: no step
    bool counts = false;                      // in the count of the operator's word
    bool refused = false;                     // by the rule, or by an earlier refusal
    Operation operation = Operation::kOther;  // counts in the connection's count of it
    uint32_t ring_ranks = 0;
    Proof proof = Proof::kNone;
    Refusal refusal = Refusal::kNone;
    bool has_plan = false;  // FORGIVE_STEP=operation: the receive's step, to be begun where it is not yet
    StepPlan plan;
  };
  // Fills the facts of the next receive of a connection.
  Verdict Classify(ConnectionStep* connection, const Post& post, ReceiveRequest* out);
  // The engine took the receive.
  void Commit(ConnectionStep* connection, const Verdict& verdict);

  // ---- Communicator-init and service threads. ----
  // Whether a communicator of this traffic class carries gradients.
  bool IsMarked(int traffic_class) const;
  // The same, once the profiler has said its name, where FORGIVE_COMMUNICATOR asks for one.
  bool IsMarked(const ProfiledPost& profiled) const { return !by_name_ || profiled.named; }
  // Whether its AllReduce and ReduceScatter should be Ring and Simple. Without a class (before v11): by the word.
  // `named`: FORGIVE_COMMUNICATOR means it.
  bool WantsRingAndSimple(const int* traffic_class, bool named = false) const;
  // Several ranks share this process's budget and counts: nothing is eligible from now on. Said once.
  void OnSeveralRanks();
  // A split communicator shares another's connections: k varies, so the counters prove nothing from now on.
  void OnSharedConnections();
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
  bool CheckCounts(ErrorText* what);

  bool latched() const { return process_latched_.load(std::memory_order_acquire); }
  bool step_open() const { return (state_.load(std::memory_order_acquire) & kPhaseMask) == kOpen; }
  uint64_t open_step() const { return step_.load(std::memory_order_acquire); }
  // The open step as a stamp of an enqueued operation; 0: none is open.
  uint64_t open_epoch() const {
    const uint64_t state = state_.load(std::memory_order_acquire);
    return (state & kPhaseMask) == kOpen ? state >> 2 : 0;
  }
  bool several_ranks() const { return several_ranks_.load(std::memory_order_acquire); }
  // Receives in open steps, by what proved them and by what refused them.
  uint64_t proved(Proof proof) const { return proved_[static_cast<size_t>(proof)].load(std::memory_order_relaxed); }
  uint64_t refused(Refusal refusal) const {
    return refused_[static_cast<size_t>(refusal)].load(std::memory_order_relaxed);
  }
  uint64_t refused_posts() const { return refused_posts_.load(std::memory_order_relaxed); }

  // One phrase for the line at init: what is eligible and why.
  std::string Description() const;
  bool by_operation() const { return by_operation_; }

 private:
  // state_: epoch << 2 | phase.
  static constexpr uint64_t kPhaseMask = 3;
  static constexpr uint64_t kClosed = 0;
  static constexpr uint64_t kOpening = 1;
  static constexpr uint64_t kOpen = 2;

  bool Promised() const { return operators_word_ && eligible_ != Eligible::kNone && !by_operation_; }
  bool FindStep(ConnectionStep* connection, const Post& post, ReceiveRequest* out, Verdict* verdict);
  Fraction OperationP(const ProfiledPost& profiled) const { return profiled.critical ? p_low_ : p_high_; }
  bool HasBudget(const ProfiledPost& profiled) const {
    return by_operation_ ? OperationP(profiled).ppm > 0 : budget_.load(std::memory_order_acquire);
  }
  void BelongToOperation(const ProfiledPost& profiled, uint32_t ring_ranks, ReceiveRequest* out,
                         Verdict* verdict) const;
  std::string Marks() const;
  Proof BestProof(const Post& post) const;
  void ClassifyByWord(ConnectionStep* connection, const Post& post, bool open, ReceiveRequest* out, Verdict* verdict);
  void ClassifyProved(ConnectionStep* connection, const Post& post, bool open, ReceiveRequest* out, Verdict* verdict);
  Refusal CheckProved(ConnectionStep* connection, const Post& post, const Finding& finding, uint32_t ring_ranks,
                      uint32_t message);
  void Latch(ConnectionStep* connection, Refusal refusal, const Post& post);

  const bool operators_word_;
  const std::optional<int> traffic_class_;
  const bool by_name_;
  const bool by_operation_;
  const bool by_contributions_;
  const uint64_t least_count_;
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
  std::atomic<bool> several_ranks_{false};
  std::atomic<bool> shared_connections_{false};
  std::array<std::atomic<uint64_t>, static_cast<size_t>(Proof::kCount)> proved_{};
  std::array<std::atomic<uint64_t>, static_cast<size_t>(Refusal::kCount)> refused_{};

  std::mutex connections_mutex_;
  std::vector<ConnectionStep*> connections_;
  uint64_t closed_early_epoch_ = 0;  // a communicator was closed in the middle of this step's all-reduce
};

}  // namespace forgive

#endif  // FORGIVE_PLUGIN_STEP_FACTS_H_
