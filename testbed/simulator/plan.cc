// SPDX-License-Identifier: Apache-2.0
// What of a plan fits together, and what scaling does to it.
#include "testbed/simulator/plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "testbed/simulator/policy.h"

namespace forgive::sim {
namespace {

void ValidateTraining(const WorkloadPlan& workload, const std::string& job) {
  const auto fail = [&job](const std::string& what) { throw PlanError(job + what); };
  if (workload.dp > 1 && (workload.dp_chunk_bytes() == 0 || workload.dp_chunk_bytes() >> 32 != 0)) {
    fail(fmt::format("workload.dp_bytes = {}: a message of dp_bytes / dp_streams / dp has from 1 byte to 4 GiB",
                     workload.dp_bytes));
  }
  const bool uses_tp = workload.tp > 1 && workload.tp_on_fabric && workload.tp_all_reduces != 0;
  if (uses_tp && (workload.tp_chunk_bytes() == 0 || workload.tp_chunk_bytes() >> 32 != 0)) {
    fail(fmt::format("workload.tp_bytes = {}: a message of tp_bytes / tp_streams / tp has from 1 byte to 4 GiB",
                     workload.tp_bytes));
  }
  if (workload.burst_flows == 0) return;
  if (workload.burst_rank >= workload.ranks()) {
    fail(fmt::format("workload.burst_rank = {}: there are {} ranks, from 0", workload.burst_rank, workload.ranks()));
  }
  if (workload.burst_flows >= workload.dp) {
    fail(fmt::format("workload.burst_flows = {}: a rank has {} data-parallel peers (dp - 1)", workload.burst_flows,
                     workload.dp - 1));
  }
  if (workload.burst_step > workload.steps) {
    fail(fmt::format("workload.burst_step = {}: there are {} steps", workload.burst_step, workload.steps));
  }
}

void ValidateTransport(const JobPlan& plan, const std::string& job) {
  const TransportPlan& transport = plan.transport;
  const auto fail = [&job](const std::string& what) { throw PlanError(job + what); };
  if (transport.max_rto_us < transport.min_rto_us) {
    fail(fmt::format("transport.max_rto_us = {}: at least min_rto_us, {}", transport.max_rto_us,
                     transport.min_rto_us));
  }
  const bool sprays = transport.path_policy != PathPolicy::kSingle;
  if (sprays != (transport.paths > 1)) {
    fail(fmt::format("transport.paths = {}: path_policy single has 1, oblivious and reps have 2 to {}",
                     transport.paths, kMaxPaths));
  }
  if (transport.recovery != Recovery::kGoBackN) return;
  if (sprays) fail("transport.recovery = go-back-n: it needs packets in order, so path_policy = single");
  if (MarksEligible(plan.policy)) {
    fail("transport.recovery = go-back-n: its receivers forgive nothing, so policy.rule is none or shed");
  }
}

void ValidateJob(const JobPlan& plan, const FabricPlan& fabric, const std::string& job) {
  const WorkloadPlan& workload = plan.workload;
  const auto fail = [&job](const std::string& what) { throw PlanError(job + what); };
  ValidateTransport(plan, job);
  if (workload.pattern != Pattern::kTraining) {
    if (workload.pattern == Pattern::kIncast && workload.fan_in >= fabric.hosts()) {
      fail(fmt::format("workload.fan_in = {}: the fabric has {} hosts besides the one they send to", workload.fan_in,
                       fabric.hosts() - 1));
    }
    return;
  }
  if (workload.first_host + workload.ranks_per_leaf > fabric.hosts_per_leaf) {
    fail(fmt::format("workload.ranks_per_leaf = {} from first_host = {}: a leaf has {} hosts (fabric.hosts_per_leaf)",
                     workload.ranks_per_leaf, workload.first_host, fabric.hosts_per_leaf));
  }
  const uint32_t room = workload.ranks_per_leaf * fabric.leaves;
  if (workload.ranks() > room) {
    fail(fmt::format("workload.tp x dp = {} ranks: {} leaves with {} each have room for {}", workload.ranks(),
                     fabric.leaves, workload.ranks_per_leaf, room));
  }
  ValidateTraining(workload, job);
}

void ScaleBytes(uint64_t* bytes, double scale) {
  *bytes = std::max<uint64_t>(1, static_cast<uint64_t>(std::llround(static_cast<double>(*bytes) * scale)));
}

void ScaleJob(WorkloadPlan* workload, double scale) {
  ScaleBytes(&workload->tp_bytes, scale);
  ScaleBytes(&workload->burst_bytes, scale);
  ScaleBytes(&workload->flow_bytes, scale);
  // The artefact of the seed's workload hangs on the remainder: it stays.
  const uint64_t remainder = workload->dp_bytes % workload->dp_streams;
  ScaleBytes(&workload->dp_bytes, scale);
  workload->dp_bytes = workload->dp_bytes / workload->dp_streams * workload->dp_streams + remainder;
}

}  // namespace

bool WorkloadPlan::IsCritical(uint64_t step) const {
  return std::find(critical_steps.begin(), critical_steps.end(), step) != critical_steps.end();
}

void ValidatePlan(const Plan& plan) {
  const std::string wrong = plan.fabric.Validate();
  if (!wrong.empty()) throw PlanError(wrong);
  ValidateJob(plan.job, plan.fabric, "");
  if (!plan.job2) return;
  ValidateJob(*plan.job2, plan.fabric, "job2.");
  const WorkloadPlan& first = plan.job.workload;
  const WorkloadPlan& second = plan.job2->workload;
  const bool apart = first.first_host + first.ranks_per_leaf <= second.first_host ||
                     second.first_host + second.ranks_per_leaf <= first.first_host;
  if (!apart) {
    throw PlanError(fmt::format("job2.workload.first_host = {}: the first job has hosts {} to {} of each leaf",
                                second.first_host, first.first_host, first.first_host + first.ranks_per_leaf - 1));
  }
}

void ScalePlan(Plan* plan, double scale) {
  if (!(scale > 0) || scale > 1000) {
    throw PlanError(fmt::format("--scale {}: allowed is a number above 0 and at most 1000", scale));
  }
  plan->scale = scale;
  ScaleJob(&plan->job.workload, scale);
  if (plan->job2) ScaleJob(&plan->job2->workload, scale);
}

}  // namespace forgive::sim
