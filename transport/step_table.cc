// SPDX-License-Identifier: Apache-2.0
// Opening, charging and closing of the loss budgets of one rank.
#include "transport/step_table.h"

#include "transport/check.h"

namespace forgive {

StepTable::StepTable(uint32_t max_steps, Fraction forgiveness_probability, uint64_t seed,
                     const Experiments& experiments, BudgetUnit unit)
    : entries_(max_steps),
      used_(max_steps),
      known_(max_steps),
      forgiveness_probability_(forgiveness_probability),
      draw_(seed),
      vesting_(experiments.vesting),
      forgives_from_(experiments.forgives_from),
      bounded_(experiments.bounded),
      unit_(unit) {
  FORGIVE_CHECK(max_steps > 0);
  FORGIVE_CHECK(max_steps < UINT16_MAX);
  FORGIVE_CHECK(forgiveness_probability.ppm <= Fraction::kOne);
}

StepResult StepTable::Begin(const StepPlan& plan, bool may_overlap) {
  FORGIVE_CHECK(plan.p.ppm <= Fraction::kOne);
  if (open_steps_ != 0 && !may_overlap) return StepResult::kStepOpen;
  if (any_step_ && plan.step <= newest_step_) return StepResult::kNotRising;
  const StepIndex slot = FreeSlot();
  if (!slot.has_value()) return StepResult::kTableFull;

  StepAccount& account = entries_[slot.value];
  account = StepAccount{};
  account.step = plan.step;
  account.critical = plan.critical;
  account.open = true;
  account.p = plan.p;
  account.expected = plan.expected_bytes != 0 ? plan.expected_bytes : last_closed_settled_;
  account.budget = plan.p.Of(account.expected);
  used_[slot.value] = true;
  known_[slot.value] = true;
  newest_ = slot;
  newest_step_ = plan.step;
  any_step_ = true;
  ++open_steps_;
  ++changes_;
  CheckInvariants(account);
  return StepResult::kOk;
}

StepResult StepTable::End(uint64_t step) {
  const StepIndex index = FindOpen(step);
  if (!index.has_value()) return StepResult::kNotOpen;
  StepAccount& account = entries_[index.value];
  account.open = false;
  last_closed_step_ = step;
  last_closed_settled_ = account.settled;
  any_closed_ = true;
  --open_steps_;
  ++changes_;
  CheckInvariants(account);
  ReleaseIfDone(index.value);
  return StepResult::kOk;
}

// An entry without an account, else the oldest account that nothing refers to; no value if all are in use.
StepIndex StepTable::FreeSlot() const {
  StepIndex oldest;
  for (uint16_t slot = 0; slot < entries_.size(); ++slot) {
    if (!known_[slot]) return StepIndex{slot};
    if (used_[slot]) continue;
    if (!oldest.has_value() || entries_[slot].step < entries_[oldest.value].step) oldest = StepIndex{slot};
  }
  return oldest;
}

StepIndex StepTable::FindOpen(uint64_t step) const {
  // Nearly always the newest step is the only one open.
  if (newest_.has_value() && entries_[newest_.value].step == step) {
    return entries_[newest_.value].open ? newest_ : StepIndex{};
  }
  for (uint16_t slot = 0; slot < entries_.size(); ++slot) {
    if (used_[slot] && entries_[slot].open && entries_[slot].step == step) return StepIndex{slot};
  }
  return StepIndex{};
}

bool StepTable::IsOpen(StepIndex index) const { return account(index).open; }

const StepAccount& StepTable::account(StepIndex index) const {
  FORGIVE_CHECK(index.value < entries_.size());
  FORGIVE_CHECK(used_[index.value]);
  return entries_[index.value];
}

StepAccount& StepTable::Entry(StepIndex index) {
  FORGIVE_CHECK(index.value < entries_.size());
  FORGIVE_CHECK(used_[index.value]);
  return entries_[index.value];
}

const StepAccount* StepTable::Find(uint64_t step) const {
  for (size_t slot = 0; slot < entries_.size(); ++slot) {
    if (known_[slot] && entries_[slot].step == step) return &entries_[slot];
  }
  return nullptr;
}

void StepTable::AddMessage(StepIndex index, uint32_t contributions) {
  StepAccount& account = Entry(index);
  FORGIVE_CHECK(account.open);
  FORGIVE_CHECK(contributions > 0);
  if (unit_ == BudgetUnit::kContributions && contributions > account.largest_cost) {
    account.largest_cost = contributions;
  }
  ++account.messages;
}

void StepTable::RemoveMessage(StepIndex index) {
  StepAccount& account = Entry(index);
  FORGIVE_CHECK(account.messages > 0);
  --account.messages;
  // Every counted byte belongs to an unfinished message.
  if (account.messages == 0) FORGIVE_CHECK(account.outstanding == 0);
  ReleaseIfDone(index.value);
}

bool StepTable::CountTrimmed(StepIndex index, uint64_t new_bytes, uint32_t contributions) {
  StepAccount& account = Entry(index);
  ++account.trims;
  if (!account.open) return false;
  const uint64_t used_before = account.charged + account.outstanding_charge;
  account.outstanding += new_bytes;
  account.outstanding_charge += new_bytes * CostOf(contributions);
  NoteUse(account, used_before);
  return true;
}

void StepTable::UncountTrimmed(StepIndex index, uint64_t counted_bytes, uint32_t contributions) {
  StepAccount& account = Entry(index);
  FORGIVE_CHECK(counted_bytes <= account.outstanding);
  const uint64_t charge = counted_bytes * CostOf(contributions);
  FORGIVE_CHECK(charge <= account.outstanding_charge);
  const uint64_t used_before = account.charged + account.outstanding_charge;
  account.outstanding -= counted_bytes;
  account.outstanding_charge -= charge;
  NoteUse(account, used_before);
}

void StepTable::CountReceived(StepIndex index, uint64_t bytes) {
  StepAccount& account = Entry(index);
  account.settled += bytes;
  if (account.open) {
    account.received += bytes;
  } else if (any_closed_ && account.step == last_closed_step_) {
    last_closed_settled_ = account.settled;
  }
  CheckInvariants(account);
}

Decision StepTable::Decide(StepIndex index, uint64_t bytes, uint32_t contributions) {
  const StepAccount& account = Entry(index);
  if (!account.open) return Decision::kNoOpenBudget;
  const uint128 charged = uint128{account.charged} + bytes * CostOf(contributions);
  // What is forgiven, with len more, is at most p (received + forgiven + len), in parts per million.
  const uint128 arrived = uint128{account.received} + account.forgiven + bytes;
  const bool vested = charged * Fraction::kOne <= arrived * account.p.ppm;
  if (vesting_ && !vested) return Decision::kNotVested;
  if (uint128{account.received} * Fraction::kOne < uint128{account.expected} * forgives_from_.ppm) {
    return Decision::kNotVested;
  }
  // Expected is a prediction: more may arrive than the budget was sized for.
  if (bounded_ && charged > account.budget) return Decision::kOverBudget;
  if (!draw_(forgiveness_probability_)) return Decision::kDrawRefused;
  return Decision::kForgiven;
}

void StepTable::Forgive(StepIndex index, uint64_t bytes, uint64_t counted_bytes, uint32_t contributions) {
  StepAccount& account = Entry(index);
  FORGIVE_CHECK(account.open);
  FORGIVE_CHECK(counted_bytes <= bytes);
  FORGIVE_CHECK(counted_bytes <= account.outstanding);
  const uint64_t cost = CostOf(contributions);
  FORGIVE_CHECK(counted_bytes * cost <= account.outstanding_charge);
  const uint64_t used_before = account.charged + account.outstanding_charge;
  account.forgiven += bytes;
  account.charged += bytes * cost;
  account.settled += bytes;
  account.outstanding -= counted_bytes;
  account.outstanding_charge -= counted_bytes * cost;
  account.contributions_lost += bytes * contributions;
  NoteUse(account, used_before);
  CheckInvariants(account);
}

bool StepTable::Exhausted(StepIndex index, uint32_t packet_bytes, uint32_t contributions) const {
  return forgive::Exhausted(account(index), packet_bytes * CostOf(contributions));
}

// A connection of packet size s says exhausted while used + s > budget, with kUnitBytes <= s <= kMaxPayloadBytes,
// times a cost from 1 to the largest: outside that band no connection's flag depends on what changed.
void StepTable::NoteUse(const StepAccount& account, uint64_t used_before) {
  const uint64_t used = account.charged + account.outstanding_charge;
  if (!account.open || used == used_before) return;
  const uint64_t low = used < used_before ? used : used_before;
  const uint64_t high = used < used_before ? used_before : used;
  const bool clear_for_all = high + uint64_t{kMaxPayloadBytes} * account.largest_cost <= account.budget;
  const bool exhausted_for_all = low + kUnitBytes > account.budget;
  if (!clear_for_all && !exhausted_for_all) ++changes_;
}

void StepTable::CheckInvariants(const StepAccount& account) const {
  FORGIVE_CHECK(account.forgiven <= account.charged);
  if (bounded_) FORGIVE_CHECK(account.charged <= account.budget);
  if (vesting_) {
    FORGIVE_CHECK(uint128{account.charged} * Fraction::kOne <=
                  (uint128{account.received} + account.forgiven) * account.p.ppm);
  }
  FORGIVE_CHECK(account.received + account.forgiven <= account.settled);
}

// The account stays readable until its entry is needed for another step.
void StepTable::ReleaseIfDone(uint16_t slot) {
  if (entries_[slot].open || entries_[slot].messages != 0) return;
  FORGIVE_CHECK(entries_[slot].outstanding == 0);
  used_[slot] = false;
}

}  // namespace forgive
