// SPDX-License-Identifier: Apache-2.0
// The steps of a job: compute, tensor-parallel all-reduces, the gradient all-reduce, compute.
#include "testbed/simulator/training.h"

#include <algorithm>

#include "testbed/simulator/policy.h"

namespace forgive::sim {
namespace {

constexpr Picoseconds kCloseRetry{100'000'000};

Picoseconds FromMicroseconds(uint64_t n) { return {static_cast<int64_t>(n) * 1000000}; }

}  // namespace

void Training::Begin(SimTime now) {
  begin_ = now;
  burst_.Prepare(now);
  for (uint32_t rank = 0; rank < ranks_.size(); ++rank) BeginStep(now, rank);
}

uint64_t Training::step_of_slowest() const {
  uint64_t step = plan_.workload.steps;
  for (const Rank& rank : ranks_) step = std::min(step, rank.step);
  return step;
}

void Training::BeginStep(SimTime now, uint32_t index) {
  Rank& rank = ranks_[index];
  ++rank.step;
  rank.tensor_done = 0;
  rank.shed = 0;
  const bool critical = plan_.workload.IsCritical(rank.step);
  metrics_->OnStepBegin(job_, index, rank.step, critical, now);
  if (HasGradient()) {
    StepPlan step;
    step.step = rank.step;
    step.critical = critical;
    step.p = ReceiverTolerance(plan_.policy, critical);
    step.expected_bytes = ForgivableBytes();
    FORGIVE_CHECK(rank.steps->Begin(step) == StepResult::kOk);
  }
  WantReceives(now, index);
  if (plan_.workload.tp_all_reduces != 0) {
    Compute(now, index, Phase::kCompute);
  } else {
    WaitForGradient(now, index);
  }
}

// Everything that the step will bring is posted before its first byte can come.
void Training::WantReceives(SimTime now, uint32_t index) {
  Rank& rank = ranks_[index];
  const auto want = [&](ChannelIndex channel) {
    Use& use = uses_[channel - first_channel_];
    use.wanted += MessagesPerStep(use);
    PostReceives(now, channel);
  };
  for (Ring& ring : rank.tensor) want(ring.in);
  for (Ring& ring : rank.ring) want(ring.in);
  for (Direct& direct : rank.direct) {
    for (int phase = 0; phase < 2; ++phase) {
      for (ChannelIndex channel : direct.in[phase]) want(channel);
      direct.received[phase] = 0;
      direct.sent[phase] = 0;
    }
    direct.phase = 0;
  }
}

void Training::Compute(SimTime now, uint32_t index, Phase phase) {
  ranks_[index].phase = phase;
  const uint64_t time = phase == Phase::kTensorElsewhere ? plan_.workload.tp_us : plan_.workload.compute_us;
  queue_->Schedule(now + FromMicroseconds(time), {SimEvent::Kind::kCompute, index, job_});
}

void Training::OnCompute(SimTime now, uint32_t index) {
  switch (ranks_[index].phase) {
    case Phase::kCompute:
      BeginTensor(now, index);
      break;
    case Phase::kTensorElsewhere:
      EndTensor(now, index);
      break;
    case Phase::kSkew:
      BeginGradient(now, index);
      break;
    case Phase::kLastCompute:
      EndStep(now, index);
      break;
    case Phase::kStart:
    case Phase::kTensor:
    case Phase::kGradient:
    case Phase::kDone:
      FORGIVE_CHECK(false);
  }
}

void Training::BeginTensor(SimTime now, uint32_t index) {
  Rank& rank = ranks_[index];
  rank.phase_begin = now;
  if (!HasTensor()) {
    Compute(now, index, Phase::kTensorElsewhere);
    return;
  }
  rank.phase = Phase::kTensor;
  rank.streams_left = plan_.workload.tp_streams;
  rank.next_stream = 0;
  StartStreams(now, index, TrafficKind::kTensor);
}

void Training::EndTensor(SimTime now, uint32_t index) {
  Rank& rank = ranks_[index];
  metrics_->OnTensorDone(job_, rank.step, now - rank.phase_begin);
  if (++rank.tensor_done < plan_.workload.tp_all_reduces) {
    Compute(now, index, Phase::kCompute);
  } else {
    WaitForGradient(now, index);
  }
}

// Ranks are never quite in step. The same rank and step wait as long under every policy.
void Training::WaitForGradient(SimTime now, uint32_t index) {
  const auto most = static_cast<uint64_t>(FromMicroseconds(plan_.workload.gradient_skew_us).value);
  if (most == 0) {
    BeginGradient(now, index);
    return;
  }
  ranks_[index].phase = Phase::kSkew;
  const uint64_t of_step = Draw(Draw(seed_).Next() ^ ranks_[index].step).Next();
  const uint64_t chance = Draw(of_step ^ (uint64_t{job_} << 32 | index)).Next();
  queue_->Schedule(now + Picoseconds{static_cast<int64_t>(chance % (most + 1))},
                   {SimEvent::Kind::kCompute, index, job_});
}

void Training::BeginGradient(SimTime now, uint32_t index) {
  Rank& rank = ranks_[index];
  const WorkloadPlan& workload = plan_.workload;
  if (!burst_.empty() && index == workload.burst_rank && rank.step == workload.burst_step) burst_.Begin(now);
  if (!HasGradient()) {
    Compute(now, index, Phase::kLastCompute);
    return;
  }
  rank.phase = Phase::kGradient;
  rank.phase_begin = now;
  rank.streams_left = workload.dp_stream_count();
  rank.next_stream = 0;
  metrics_->OnGradientBegin(job_, index, now, rank.steps->Find(rank.step));
  ArmClose(now, index);
  StartStreams(now, index, TrafficKind::kGradient);
}

void Training::EndGradient(SimTime now, uint32_t index) {
  Rank& rank = ranks_[index];
  FORGIVE_CHECK(rank.steps->End(rank.step) == StepResult::kOk);
  const StepAccount& account = *rank.steps->Find(rank.step);
  metrics_->OnGradientEnd(job_, index, now, account, rank.shed, PromisesVesting(plan_.policy));
  if (rank.step <= plan_.policy.warm_up_steps)
    rank.longest_round = std::max(rank.longest_round, now - rank.phase_begin);
  Compute(now, index, Phase::kLastCompute);
}

void Training::EndStep(SimTime now, uint32_t index) {
  Rank& rank = ranks_[index];
  metrics_->OnStepEnd(job_, rank.step, now);
  if (rank.step < plan_.workload.steps) {
    BeginStep(now, index);
    return;
  }
  rank.phase = Phase::kDone;
  end_ = std::max(end_, now);
  ++ranks_done_;
}

void Training::OnCompletion(SimTime now, const Completion& completion) {
  if (burst_.Owns(completion.channel) && !burst_.empty()) {
    burst_.OnCompletion(now, completion);
  } else if (completion.received) {
    OnReceived(now, completion);
  }
}

// ---- Rounds that end by time ----

void Training::ArmClose(SimTime now, uint32_t index) {
  const Rank& rank = ranks_[index];
  const PolicyPlan& policy = plan_.policy;
  Picoseconds round{};
  if (policy.rule == LossRule::kCloseRound) {
    round = SerializationTime(plan_.workload.gradient_bytes(), host_rate_);
  } else if (policy.rule == LossRule::kBoundRound && rank.step > policy.warm_up_steps) {
    round = rank.longest_round;
  } else {
    return;
  }
  const auto wait = static_cast<int64_t>(static_cast<double>(round.value) * policy.close_factor);
  queue_->Schedule(now + Picoseconds{wait},
                   {SimEvent::Kind::kTimer, index, static_cast<uint32_t>(rank.step << 8 | job_)});
}

void Training::OnTimer(SimTime now, uint32_t index, uint64_t step) {
  Rank& rank = ranks_[index];
  if (rank.phase != Phase::kGradient || rank.step != step) return;
  const StepAccount& account = *rank.steps->Find(step);
  const uint64_t missing = account.expected - account.settled;
  if (plan_.policy.rule == LossRule::kCloseRound && missing > account.p.Of(account.expected)) {
    queue_->Schedule(now + kCloseRetry, {SimEvent::Kind::kTimer, index, static_cast<uint32_t>(step << 8 | job_)});
    return;
  }
  CloseRound(now, index);
}

void Training::CloseRound(SimTime now, uint32_t index) {
  const Rank& rank = ranks_[index];
  for (const Ring& ring : rank.ring) hosts_->GiveUp(now, ring.in);
  for (const Direct& direct : rank.direct) {
    for (int phase = 0; phase < 2; ++phase) {
      for (ChannelIndex channel : direct.in[phase]) hosts_->GiveUp(now, channel);
    }
  }
}

}  // namespace forgive::sim
