// SPDX-License-Identifier: Apache-2.0
// What the results say, and how it is computed from counters and records.
#include "testbed/simulator/results.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "testbed/simulator/commit.h"
#include "testbed/simulator/plan_keys.h"
#include "testbed/simulator/policy.h"

namespace forgive::sim {
namespace {

using Json = nlohmann::ordered_json;

double Micros(int64_t ps) { return static_cast<double>(ps) / 1e6; }

// Nearest rank: the smallest value that at least half of them do not exceed.
Picoseconds Median(std::vector<Picoseconds> times) {
  if (times.empty()) return {};
  const size_t middle = (times.size() - 1) / 2;
  std::nth_element(times.begin(), times.begin() + static_cast<std::ptrdiff_t>(middle), times.end());
  return times[middle];
}

Json Spread(const std::vector<Picoseconds>& times) {
  if (times.empty()) return Json{{"min", nullptr}, {"median", nullptr}, {"max", nullptr}};
  const auto [least, most] = std::minmax_element(times.begin(), times.end());
  return Json{{"min", Micros(least->value)}, {"median", Micros(Median(times).value)}, {"max", Micros(most->value)}};
}

Json StepLine(const StepRecord& record, size_t job) {
  Json line;
  line["kind"] = job == 0 ? "step" : "job2_step";
  line["step"] = record.step;
  line["critical"] = record.critical;
  line["start_us"] = Micros(record.begin.ps);
  line["step_us"] = Micros(record.end.ps - record.begin.ps);
  line["dp_us"] = Spread(record.gradient_times);
  line["tp_us"] = Spread(record.tensor_times);
  line["expected"] = record.expected;
  line["budget"] = record.budget;
  line["received"] = record.received;
  line["forgiven"] = record.forgiven;
  line["shed"] = record.shed;
  line["contributions_lost"] = record.contributions_lost;
  line["trims"] = record.trims;
  line["trimmed_bytes_by_fifth"] = record.trimmed_by_time;
  line["forgiven_bytes_by_fifth"] = record.forgiven_by_time;
  line["trimmed_bytes_by_progress_fifth"] = record.trimmed_by_progress;
  line["forgiven_bytes_by_progress_fifth"] = record.forgiven_by_progress;
  line["invariant"] = record.invariant;
  return line;
}

std::vector<Picoseconds> Times(const std::vector<StepRecord>& steps, bool tensor, bool critical, bool other) {
  std::vector<Picoseconds> all;
  for (const StepRecord& step : steps) {
    if (step.critical ? !critical : !other) continue;
    const std::vector<Picoseconds>& times = tensor ? step.tensor_times : step.gradient_times;
    all.insert(all.end(), times.begin(), times.end());
  }
  return all;
}

Json MedianMillis(const std::vector<Picoseconds>& times) {
  return times.empty() ? Json(nullptr) : Json(Micros(Median(times).value) / 1e3);
}

Json Share(double part, double whole) { return whole == 0 ? Json(nullptr) : Json(part / whole); }

Json TrafficOf(const Counters& counters) {
  return Json{{"packets", counters.packets_sent},
              {"bytes", counters.sent_bytes},
              {"retransmitted_bytes", counters.retransmitted_bytes},
              {"exempt_bytes", counters.sent_exempt_bytes},
              {"trims", counters.trims},
              {"lost_by_rack", counters.lost_by_rack},
              {"segment_cuts", counters.segment_cuts},
              {"duplicate_bytes", counters.duplicate_bytes},
              {"late_bytes", counters.late_bytes},
              {"out_of_order_bytes", counters.out_of_order_bytes},
              {"skipped_bytes", counters.skipped_bytes},
              {"timeouts", counters.timeouts},
              {"rate_cuts", counters.rate_cuts_mark + counters.rate_cuts_trim + counters.rate_cuts_timeout}};
}

struct JobSums {
  std::array<Counters, kTrafficKinds> kinds;
  uint64_t Sum(uint64_t Counters::*member) const {
    uint64_t sum = 0;
    for (const Counters& counters : kinds) sum += counters.*member;
    return sum;
  }
};

JobSums SumsOf(const Simulation& run, size_t job) {
  JobSums sums;
  for (int kind = 0; kind < kTrafficKinds; ++kind) {
    sums.kinds[static_cast<size_t>(kind)] = run.CountersOf(job, static_cast<TrafficKind>(kind));
  }
  return sums;
}

void AddDecisions(const Counters& gradient, Json* out) {
  const char* names[kDecisions] = {"AlreadySettled", "NotForgivable", "NoOpenBudget", "NotVested",
                                   "OverBudget",     "DrawRefused",   "Forgiven"};
  Json decisions = Json::object();
  for (size_t i = 0; i < kDecisions; ++i) decisions[names[i]] = gradient.decisions[i];
  (*out)["decisions"] = decisions;
}

void AddTraining(const Simulation& run, size_t job, Json* out) {
  const Training* training = run.training(job);
  if (training == nullptr) return;
  const auto& steps = run.metrics().steps(static_cast<uint8_t>(job));
  const WorkloadPlan& workload = (job == 0 ? run.plan().job : *run.plan().job2).workload;
  uint64_t given_up = 0;
  uint64_t contributions = 0;
  for (const StepRecord& step : steps) {
    given_up += step.forgiven + step.shed;
    contributions += step.contributions_lost;
  }
  Json& line = *out;
  line["gradient_bytes"] = workload.dp > 1 ? workload.gradient_bytes() * workload.ranks() * workload.steps : 0;
  line["gradient_bytes_given_up"] = given_up;
  line["contributions_lost"] = contributions;
  const ExemptionRecord& exemption = run.metrics().exemption(static_cast<uint8_t>(job));
  line["flag_changes_per_exempt_flow"] =
      Share(static_cast<double>(exemption.flag_changes), static_cast<double>(exemption.flows));
  line["exempt_flows"] = exemption.flows;
  line["obeyed_again_share"] =
      Share(static_cast<double>(exemption.obeyed_again), static_cast<double>(exemption.flows));
  line["obeyed_again_us_mean"] =
      Share(Micros(exemption.obeyed_time.value), static_cast<double>(exemption.obeyed_again));
  line["dp_ms_median"] = Json{{"critical", MedianMillis(Times(steps, false, true, false))},
                              {"other", MedianMillis(Times(steps, false, false, true))}};
  line["tp_ms_median"] = MedianMillis(Times(steps, true, true, true));
  if (!training->burst().empty()) line["burst_ms"] = Micros(training->burst().time().value) / 1e3;
}

void AddFlows(const Simulation& run, size_t job, Json* out) {
  const FlowSet* flows = run.flows(job);
  if (flows == nullptr) return;
  std::vector<Picoseconds> times;
  for (size_t i = 0; i < flows->flows().size(); ++i) times.push_back(flows->time_of(i));
  (*out)["flow_us"] = Spread(times);
}

Json JobLine(const Simulation& run, size_t job) {
  const JobSums sums = SumsOf(run, job);
  Json line;
  line["training_us"] = Micros(run.time_of(job).value);
  line["data_packets"] = sums.Sum(&Counters::packets_sent);
  line["data_bytes"] = sums.Sum(&Counters::sent_bytes);
  AddTraining(run, job, &line);
  AddFlows(run, job, &line);
  line["retransmitted_bytes"] = sums.Sum(&Counters::retransmitted_bytes);
  const uint64_t trims = sums.Sum(&Counters::trims);
  line["trim_rate"] = Share(static_cast<double>(trims), static_cast<double>(sums.Sum(&Counters::packets_sent)));
  line["trims"] = trims;
  const FabricCounters& fabric = run.fabric().counters();
  line["trims_last_hop"] = fabric.trims[static_cast<size_t>(HopKind::kLast)][job];
  line["marks"] = fabric.marks[job];
  line["rate_cuts"] = Json{{"mark", sums.Sum(&Counters::rate_cuts_mark)},
                           {"trim", sums.Sum(&Counters::rate_cuts_trim)},
                           {"timeout", sums.Sum(&Counters::rate_cuts_timeout)}};
  line["notifications"] = sums.Sum(&Counters::notifications);
  line["signals_ignored"] = sums.Sum(&Counters::signals_ignored);
  line["timeouts"] = sums.Sum(&Counters::timeouts);
  AddDecisions(sums.kinds[static_cast<size_t>(TrafficKind::kGradient)], &line);
  line["traffic"] = Json{{"tensor", TrafficOf(sums.kinds[static_cast<size_t>(TrafficKind::kTensor)])},
                         {"gradient", TrafficOf(sums.kinds[static_cast<size_t>(TrafficKind::kGradient)])},
                         {"flow", TrafficOf(sums.kinds[static_cast<size_t>(TrafficKind::kFlow)])}};
  return line;
}

Json SummaryLine(const Simulation& run) {
  Json line;
  line["kind"] = "summary";
  line.update(JobLine(run, 0));
  const FabricCounters& fabric = run.fabric().counters();
  line["drops"] = fabric.drops_total();
  line["header_drops"] =
      fabric.drops[static_cast<size_t>(DropCause::kHeaderQueue)][static_cast<size_t>(QueueClass::kTrimmed)].packets;
  line["peak_data_queue_bytes"] = fabric.peak_queue_bytes[static_cast<size_t>(QueueClass::kData)];
  line["peak_shared_bytes"] = fabric.peak_shared_bytes;
  if (run.jobs() > 1) line["job2"] = JobLine(run, 1);
  line["events"] = run.events();
  line["conservation"] = run.CheckConservation().empty();
  line["budget_violations"] = BudgetViolations(run);
  return line;
}

}  // namespace

std::string LedgerLines(const Simulation& run) {
  std::string lines = "job,step,rank,connection_id,message,offset,length,contributions,time_ns\n";
  auto out = std::back_inserter(lines);
  for (const LedgerLine& line : run.metrics().ledger()) {
    fmt::format_to(out, "{},{},{},{},{},{},{},{},{}\n", line.job + 1, line.step, line.rank, line.connection,
                   line.message, line.offset, line.length, line.contributions,
                   line.time.ps / kPicosecondsPerNanosecond);
  }
  return lines;
}

uint64_t BudgetViolations(const Simulation& run) {
  uint64_t violations = 0;
  for (size_t job = 0; job < run.jobs(); ++job) {
    const PolicyPlan& policy = (job == 0 ? run.plan().job : *run.plan().job2).policy;
    if (!PromisesBudget(policy)) continue;
    for (const StepRecord& step : run.metrics().steps(static_cast<uint8_t>(job)))
      violations += step.invariant ? 0 : 1;
  }
  return violations;
}

std::string RunLine(const Plan& plan, uint64_t seed) {
  Json line;
  line["kind"] = "run";
  line["plan"] = plan.name();
  line["family"] = plan.family;
  line["policy"] = plan.variant.empty() ? plan.family : plan.variant;
  line["about"] = plan.about;
  line["seed"] = seed;
  line["scale"] = plan.scale;
  line["commit"] = kCommit;
  line["parameters"] = ParametersOf(plan);
  return line.dump();
}

std::string ResultLines(const Simulation& run) {
  std::string lines = RunLine(run.plan(), run.seed()) + "\n";
  for (size_t job = 0; job < run.jobs(); ++job) {
    for (const StepRecord& step : run.metrics().steps(static_cast<uint8_t>(job))) {
      lines += StepLine(step, job).dump() + "\n";
    }
  }
  return lines + SummaryLine(run).dump() + "\n";
}

std::string Summary(const Simulation& run) {
  const Json line = SummaryLine(run);
  std::string text = fmt::format(
      "{} seed {}{}: {:.3f} ms, {} data packets, {:.2f} % of packets trimmed, {:.2f} % of bytes "
      "sent again, {} timeouts",
      run.plan().name(), run.seed(),
      run.plan().scale == 1 ? "" : fmt::format(" (bytes scaled by {})", run.plan().scale),
      line["training_us"].get<double>() / 1e3, line["data_packets"].get<uint64_t>(),
      100 * (line["trim_rate"].is_null() ? 0 : line["trim_rate"].get<double>()),
      100 * line["retransmitted_bytes"].get<double>() / std::max(1.0, line["data_bytes"].get<double>()),
      line["timeouts"].get<uint64_t>());
  if (line.contains("gradient_bytes") && line["gradient_bytes"].get<uint64_t>() != 0) {
    text += fmt::format(", {:.2f} % of gradient bytes given up",
                        100 * line["gradient_bytes_given_up"].get<double>() / line["gradient_bytes"].get<double>());
  }
  return text + "\n";
}

}  // namespace forgive::sim
