// SPDX-License-Identifier: Apache-2.0
// The loss budgets of one receiving rank, one entry a training step, and the decision to forgive.
#ifndef FORGIVE_TRANSPORT_STEP_TABLE_H_
#define FORGIVE_TRANSPORT_STEP_TABLE_H_

#include <cstdint>
#include <vector>

#include "transport/config.h"
#include "transport/counters.h"
#include "transport/draw.h"
#include "transport/units.h"

namespace forgive {

struct StepPlan {
  uint64_t step = 0;
  bool critical = false;
  Fraction p;
  uint64_t expected_bytes = 0;  // forgivable bytes this rank will receive; 0: what the last closed step settled
};

// Names an entry of the table while messages of the step are unfinished or the step is open.
struct StepIndex {
  uint16_t value = UINT16_MAX;
  constexpr bool has_value() const { return value != UINT16_MAX; }
  friend constexpr bool operator==(StepIndex, StepIndex) = default;
};

// One step's account. Bytes; only forgivable bytes count in expected, received, forgiven and settled; trimmed bytes
// of every exempt-eligible flow count in outstanding.
struct StepAccount {
  uint64_t step = 0;
  bool critical = false;
  bool open = false;
  Fraction p;
  uint64_t expected = 0;
  uint64_t budget = 0;
  uint64_t received = 0;  // while open
  uint64_t forgiven = 0;
  uint64_t outstanding = 0;
  uint64_t settled = 0;  // received + forgiven, counted also after closing: what the next step may expect
  uint64_t contributions_lost = 0;
  // In the budget's unit (BudgetUnit): what was forgiven, and what outstanding bytes would cost.
  uint64_t charged = 0;
  uint64_t outstanding_charge = 0;
  uint32_t largest_cost = 1;  // of a byte of the messages so far
  uint64_t trims = 0;         // trimmed headers of its flows
  uint32_t messages = 0;      // posted and unfinished
};

// Seed: budget-exhausted, for a connection whose largest packet would cost packet_charge: its bytes, times the cost
// of a byte. True if the step is not open.
constexpr bool Exhausted(const StepAccount& account, uint64_t packet_charge) {
  return !account.open || account.charged + account.outstanding_charge + packet_charge > account.budget;
}

enum class StepResult : uint8_t { kOk, kStepOpen, kNotRising, kTableFull, kNotOpen };

// The step table (seed: State per training step). One per receiving rank, shared by all flows to it, owned by the
// thread that turns the crank.
//
// Invariants, checked after every change, in release too:
//   forgiven <= charged <= budget
//   charged <= p (received + forgiven)
//   outstanding == the sum over the connections of the bytes they counted and did not settle (each takes off exactly
//     what it added), so never negative, and 0 when the step's bytes are settled
//
// `contributions`, everywhere: of the message that the bytes belong to.
class StepTable {
 public:
  // `experiments`: vesting and bounded; without them the invariant that they name is not kept.
  StepTable(uint32_t max_steps, Fraction forgiveness_probability, uint64_t seed, const Experiments& experiments = {},
            BudgetUnit unit = BudgetUnit::kBytes);

  // Seed: Receiver::OnStepBegin. Step numbers rise. Several steps may be open only if `may_overlap` is set by
  // whoever opens them; the default refuses a second one (kStepOpen).
  StepResult Begin(const StepPlan& plan, bool may_overlap = false);
  // Seed: Receiver::OnAllReduceComplete. Nothing is charged to the step afterwards.
  StepResult End(uint64_t step);

  // The entry of a step that is open; no value if there is none.
  StepIndex FindOpen(uint64_t step) const;
  bool IsOpen(StepIndex index) const;
  const StepAccount& account(StepIndex index) const;
  // The account of a step that is still in the table; nullptr otherwise. A step that is done stays until its entry
  // is needed for another.
  const StepAccount* Find(uint64_t step) const;

  // A message of the step was posted, or has completed or was abandoned. The entry stays while there is one.
  void AddMessage(StepIndex index, uint32_t contributions = 1);
  void RemoveMessage(StepIndex index);

  // A trimmed header of an exempt-eligible message arrived: `new_bytes` of it were not counted before. Counts only
  // while the step is open; returns whether it did (the caller marks the bytes as counted).
  bool CountTrimmed(StepIndex index, uint64_t new_bytes, uint32_t contributions = 1);
  // Counted bytes left outstanding without being forgiven: they arrived, or their message was abandoned.
  void UncountTrimmed(StepIndex index, uint64_t counted_bytes, uint32_t contributions = 1);
  // `bytes` of a forgivable message became Received.
  void CountReceived(StepIndex index, uint64_t bytes);

  // Seed: the rules of OnTrimmedHeader, from "no loss budget is open" on. Draws only if both bounds allow.
  // Returns kNoOpenBudget, kNotVested, kOverBudget, kDrawRefused or kForgiven; changes nothing but the draw's state.
  Decision Decide(StepIndex index, uint64_t bytes, uint32_t contributions = 1);
  // Charges what Decide allowed: counted_bytes of them (all, as every trim is counted first) leave outstanding.
  void Forgive(StepIndex index, uint64_t bytes, uint64_t counted_bytes, uint32_t contributions);

  // The flag of a connection whose first unfinished message has these contributions.
  bool Exhausted(StepIndex index, uint32_t packet_bytes, uint32_t contributions = 1) const;

  // Rises whenever a flag of some connection may have changed.
  uint64_t changes() const { return changes_; }

 private:
  StepAccount& Entry(StepIndex index);
  // Of a byte.
  uint64_t CostOf(uint32_t contributions) const { return unit_ == BudgetUnit::kBytes ? 1 : contributions; }
  StepIndex FreeSlot() const;
  void NoteUse(const StepAccount& account, uint64_t used_before);
  void CheckInvariants(const StepAccount& account) const;
  void ReleaseIfDone(uint16_t slot);

  std::vector<StepAccount> entries_;
  // Whole bytes: a bit costs more to find, and every change of an account asks.
  std::vector<uint8_t> used_;   // open, or with unfinished messages: an index may name it
  std::vector<uint8_t> known_;  // holds an account, perhaps of a step that is done
  StepIndex newest_;            // the step begun last
  uint32_t open_steps_ = 0;
  Fraction forgiveness_probability_;
  Draw draw_;
  bool vesting_;
  Fraction forgives_from_;
  bool bounded_;
  BudgetUnit unit_;
  uint64_t changes_ = 0;
  uint64_t newest_step_ = 0;
  bool any_step_ = false;
  // What the last closed step settled; kept when its entry is released.
  uint64_t last_closed_step_ = 0;
  uint64_t last_closed_settled_ = 0;
  bool any_closed_ = false;
};

}  // namespace forgive

#endif  // FORGIVE_TRANSPORT_STEP_TABLE_H_
