// SPDX-License-Identifier: Apache-2.0
// Folding what happened into steps, fifths and flows.
#include "testbed/simulator/metrics.h"

#include <algorithm>

#include "transport/check.h"

namespace forgive::sim {

void Metrics::AddJob(uint32_t ranks, uint32_t steps) {
  Job& job = jobs_.emplace_back();
  job.ranks.resize(ranks);
  job.steps.resize(steps);
}

void Metrics::OnStepBegin(uint8_t job, uint32_t, uint64_t step, bool critical, SimTime now) {
  StepRecord& record = jobs_[job].steps[step - 1];
  record.step = step;
  record.critical = critical;
  record.begin = std::min(record.begin, now);
}

void Metrics::OnStepEnd(uint8_t job, uint64_t step, SimTime now) {
  StepRecord& record = jobs_[job].steps[step - 1];
  record.end = std::max(record.end, now);
}

void Metrics::OnTensorDone(uint8_t job, uint64_t step, Picoseconds time) {
  jobs_[job].steps[step - 1].tensor_times.push_back(time);
}

void Metrics::OnGradientBegin(uint8_t job, uint32_t index, SimTime now, const StepAccount* account) {
  Rank& rank = jobs_[job].ranks[index];
  rank.begin = now;
  rank.account = account;
}

// In fifths of the bytes that the rank expects: what has settled by now.
uint32_t Metrics::Progress(const Rank& rank) {
  if (rank.account == nullptr || rank.account->expected == 0) return 0;
  return static_cast<uint32_t>(
      std::min<uint64_t>(rank.account->settled * kFifths / rank.account->expected, kFifths - 1));
}

void Metrics::OnGradientEnd(uint8_t job, uint32_t index, SimTime now, const StepAccount& account, uint64_t shed,
                            bool vests) {
  Rank& rank = jobs_[job].ranks[index];
  StepRecord& record = jobs_[job].steps[account.step - 1];
  const Picoseconds time = now - rank.begin;
  record.gradient_times.push_back(time);
  record.expected += account.expected;
  record.budget += account.budget;
  record.received += account.received;
  record.forgiven += account.forgiven;
  record.shed += shed;
  record.contributions_lost += account.contributions_lost;
  record.trims += account.trims;
  const uint128 vested = uint128{account.received} * account.p.ppm;
  const bool within = account.forgiven <= account.budget && account.outstanding == 0;
  record.invariant = record.invariant && within &&
                     (!vests || uint128{account.forgiven} * (Fraction::kOne - account.p.ppm) <= vested);
  for (const Note& note : rank.notes) {
    const int64_t since = std::max<int64_t>(0, (note.time - rank.begin).value);
    const auto fifth = static_cast<size_t>(
        std::min<int64_t>(time.value == 0 ? 0
                                          : static_cast<int64_t>(uint128{static_cast<uint64_t>(since)} * kFifths /
                                                                 static_cast<uint64_t>(time.value)),
                          kFifths - 1));
    record.trimmed_by_time[fifth] += note.trimmed;
    record.forgiven_by_time[fifth] += note.forgiven;
    record.trimmed_by_progress[note.fifth] += note.trimmed;
    record.forgiven_by_progress[note.fifth] += note.forgiven;
  }
  rank.notes.clear();
  rank.account = nullptr;
}

void Metrics::OnReport(uint8_t job, uint32_t channel, SimTime now, bool eligible, bool exhausted) {
  if (channel >= flows_.size()) flows_.resize(channel + 1);
  Flow& flow = flows_[channel];
  if (!eligible) {
    if (flow.open) EndFlow(&flow, now);
    return;
  }
  if (!flow.open) {
    flow = Flow{};
    flow.job = job;
    flow.open = true;
    flow.exhausted = exhausted;
    flow.was_exempt = !exhausted;
    return;
  }
  if (exhausted == flow.exhausted) return;
  flow.exhausted = exhausted;
  ++flow.flag_changes;
  if (exhausted) {
    flow.obeyed_again = true;
    flow.obeys_since = now;
    return;
  }
  if (flow.obeys_since != kSimNever) flow.obeyed = flow.obeyed + (now - flow.obeys_since);
  flow.obeys_since = kSimNever;
  flow.was_exempt = true;
}

void Metrics::EndFlow(Flow* flow, SimTime now) {
  ExemptionRecord& record = jobs_[flow->job].exemption;
  if (flow->was_exempt) {
    if (flow->obeys_since != kSimNever) flow->obeyed = flow->obeyed + (now - flow->obeys_since);
    ++record.flows;
    record.flag_changes += flow->flag_changes;
    record.obeyed_again += flow->obeyed_again ? 1 : 0;
    record.obeyed_time = record.obeyed_time + flow->obeyed;
  }
  *flow = Flow{};
}

void Metrics::Finish(SimTime now) {
  for (Flow& flow : flows_) {
    if (flow.open) EndFlow(&flow, now);
  }
}

}  // namespace forgive::sim
