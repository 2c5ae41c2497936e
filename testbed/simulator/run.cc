// SPDX-License-Identifier: Apache-2.0
// The event loop, the order of what follows an event, and the account of bytes at the end.
#include "testbed/simulator/run.h"

#include <fmt/format.h>

#include <algorithm>
#include <stdexcept>

namespace forgive::sim {
namespace {

constexpr uint64_t kEventsPerLook = 1 << 16;
// From the posts of a pattern's receives to its sends: credit is there by then.
constexpr Picoseconds kPatternDelay{1'000'000'000};

uint64_t FlowBytes(const FlowSet& set) {
  uint64_t bytes = 0;
  for (const Flow& flow : set.flows()) bytes += flow.bytes;
  return bytes;
}

void Add(Counters* sum, const Counters& part) {
  sum->sent_bytes += part.sent_bytes;
  sum->sent_exempt_bytes += part.sent_exempt_bytes;
  sum->retransmitted_bytes += part.retransmitted_bytes;
  sum->packets_sent += part.packets_sent;
  sum->reports_received += part.reports_received;
  sum->rate_cuts_mark += part.rate_cuts_mark;
  sum->rate_cuts_trim += part.rate_cuts_trim;
  sum->rate_cuts_timeout += part.rate_cuts_timeout;
  sum->signals_ignored += part.signals_ignored;
  sum->notifications += part.notifications;
  sum->skipped_bytes += part.skipped_bytes;
  sum->timeouts += part.timeouts;
  sum->lost_by_request += part.lost_by_request;
  sum->lost_by_rack += part.lost_by_rack;
  sum->segment_cuts += part.segment_cuts;
  sum->mode_changes += part.mode_changes;
  sum->received_bytes += part.received_bytes;
  sum->duplicate_bytes += part.duplicate_bytes;
  sum->late_bytes += part.late_bytes;
  sum->out_of_order_bytes += part.out_of_order_bytes;
  sum->forgiven_bytes += part.forgiven_bytes;
  sum->contributions_lost += part.contributions_lost;
  sum->packets_received += part.packets_received;
  sum->trims += part.trims;
  sum->trimmed_bytes += part.trimmed_bytes;
  sum->marks += part.marks;
  sum->reports_sent += part.reports_sent;
  sum->malformed += part.malformed;
  sum->out_of_window += part.out_of_window;
  sum->unknown_connection += part.unknown_connection;
  sum->replayed += part.replayed;
  for (size_t i = 0; i < part.decisions.size(); ++i) sum->decisions[i] += part.decisions[i];
}

}  // namespace

Simulation::Simulation(const Plan& plan, uint64_t seed)
    : plan_(plan),
      seed_(seed),
      fabric_(plan.fabric, Draw(seed).Next(), &queue_, &arena_),
      no_steps_(1, {0}, 0),
      hosts_(Draw(seed + 1).Next(), &queue_, &arena_, &fabric_, &metrics_) {
  AddJob(plan_.job);
  if (plan_.job2) AddJob(*plan_.job2);
}

Simulation::~Simulation() = default;

void Simulation::AddJob(const JobPlan& plan) {
  const auto index = static_cast<uint8_t>(jobs_.size());
  Job& job = jobs_.emplace_back();
  if (plan.workload.pattern == Pattern::kTraining) {
    job.training = std::make_unique<Training>(plan, index, seed_, &queue_, &metrics_);
    job.training->Build(plan_.fabric, &hosts_);
  } else {
    const bool incast = plan.workload.pattern == Pattern::kIncast;
    job.flows =
        std::make_unique<FlowSet>(plan, index,
                                  incast ? IncastOf(plan_.fabric, plan.workload.fan_in, plan.workload.flow_bytes)
                                         : PermutationOf(plan_.fabric, plan.workload.flow_bytes),
                                  &no_steps_);
    metrics_.AddJob(0, 0);
    job.flows->Build(plan_.fabric, &hosts_);
  }
  job_of_channel_.resize(hosts_.channels(), index);
}

// ---- The loop ----

bool Simulation::ToEnd(const std::function<bool(const Progress&)>& tell) {
  hosts_.Connect({});
  hosts_.Flush({});
  Complete({});  // a job without connections begins at once
  SimTime now{};
  SimEvent event;
  uint64_t until_look = kEventsPerLook;
  const auto all_done = [this] {
    return begun_ && std::all_of(jobs_.begin(), jobs_.end(), [](const Job& job) { return job.done(); });
  };
  bool done = false;
  while (!done || arena_.in_use() != 0) {
    if (!queue_.Next(&now, &event)) throw std::runtime_error("the run stands still: no event is left before its end");
    Dispatch(now, event);
    Complete(now);
    hosts_.Flush(now);
    if (!done) done = all_done();
    if (--until_look != 0) continue;
    until_look = kEventsPerLook;
    if (tell && !tell(ProgressAt(now))) return false;
  }
  metrics_.Finish(now);
  return true;
}

void Simulation::Dispatch(SimTime now, const SimEvent& event) {
  switch (event.kind) {
    case SimEvent::Kind::kPortFree:
    case SimEvent::Kind::kArrival:
    case SimEvent::Kind::kLink: {
      const Fabric::Outcome outcome = fabric_.OnEvent(now, event);
      if (outcome.nic_ready_host != Fabric::kNoHost) hosts_.OnNicReady(now, outcome.nic_ready_host);
      if (outcome.delivered != kNoPacket) hosts_.Deliver(now, outcome.delivered);
      break;
    }
    case SimEvent::Kind::kHostDeadline:
      hosts_.OnDeadline(now, event.object);
      break;
    case SimEvent::Kind::kHostSend:
      break;
    case SimEvent::Kind::kCompute:
      jobs_[event.value].training->OnCompute(now, event.object);
      break;
    case SimEvent::Kind::kTimer:
      OnTimer(now, event);
      break;
  }
}

void Simulation::OnTimer(SimTime now, const SimEvent& event) {
  Job& job = jobs_[event.value & 0xff];
  if (job.training) {
    job.training->OnTimer(now, event.object, event.value >> 8);
  } else {
    job.flows->Begin(now);
  }
}

// What an event completed, and what that lets the jobs do.
void Simulation::Complete(SimTime now) {
  if (!begun_ && hosts_.connected()) Begin(now);
  Completion completion;
  while (hosts_.PopCompletion(&completion)) {
    Job& job = jobs_[job_of_channel_[completion.channel]];
    if (job.training) {
      job.training->OnCompletion(now, completion);
    } else {
      job.flows->OnCompletion(now, completion);
    }
  }
}

void Simulation::Begin(SimTime now) {
  begun_ = true;
  begin_ = now;
  for (Job& job : jobs_) {
    if (job.training) {
      job.training->Begin(now);
    } else {
      job.flows->Prepare(now);
      const auto index = static_cast<uint32_t>(&job - jobs_.data());
      queue_.Schedule(now + kPatternDelay, {SimEvent::Kind::kTimer, 0, index});
    }
  }
}

// ---- Sums ----

uint64_t Simulation::PlannedBytes() const {
  uint64_t bytes = 0;
  for (const Job& job : jobs_) {
    if (job.flows) bytes += FlowBytes(*job.flows);
    if (!job.training) continue;
    const WorkloadPlan& workload = (&job == jobs_.data() ? plan_.job : *plan_.job2).workload;
    uint64_t step = workload.gradient_bytes() * workload.ranks();
    if (workload.tp > 1 && workload.tp_on_fabric) {
      step += uint64_t{workload.tp_all_reduces} * 2 * (workload.tp - 1) * workload.tp_streams *
              workload.tp_chunk_bytes() * workload.ranks();
    }
    bytes += step * workload.steps + FlowBytes(job.training->burst());
  }
  return bytes;
}

Progress Simulation::ProgressAt(SimTime now) const {
  Progress progress;
  progress.now = now;
  const uint64_t planned = PlannedBytes();
  progress.share =
      planned == 0 ? 0 : std::min(1.0, static_cast<double>(hosts_.bytes().arrived) / static_cast<double>(planned));
  if (jobs_[0].training && begun_) {
    progress.step = jobs_[0].training->step_of_slowest();
    progress.steps = plan_.job.workload.steps;
  }
  return progress;
}

Counters Simulation::CountersOf(size_t job, TrafficKind kind) const {
  Counters sum;
  for (EndpointIndex endpoint = 0; endpoint < hosts_.endpoints(); ++endpoint) {
    const EndpointSpec& spec = hosts_.spec(endpoint);
    if (spec.job == job && spec.kind == kind) Add(&sum, hosts_.counters(endpoint));
  }
  return sum;
}

Picoseconds Simulation::time_of(size_t job) const {
  return jobs_[job].training ? jobs_[job].training->end() - jobs_[job].training->begin() : jobs_[job].flows->time();
}

std::string Simulation::CheckConservation() const {
  const std::string packets = fabric_.CheckConservation();
  if (!packets.empty()) return packets;
  if (arena_.in_use() != 0) return fmt::format("{} packets are still under way", arena_.in_use());
  Counters all;
  uint64_t owed = 0;  // what receivers must have settled: bytes of posted messages that were not shed
  for (size_t job = 0; job < jobs_.size(); ++job) {
    for (int kind = 0; kind < kTrafficKinds; ++kind) Add(&all, CountersOf(job, static_cast<TrafficKind>(kind)));
    if (jobs_[job].flows) owed += FlowBytes(*jobs_[job].flows);
    if (!jobs_[job].training) continue;
    const Training& training = *jobs_[job].training;
    owed += training.posted_bytes() - training.shed_bytes() + FlowBytes(training.burst());
  }
  if (all.received_bytes + all.forgiven_bytes != owed) {
    return fmt::format("{} bytes were owed, {} received and {} forgiven", owed, all.received_bytes,
                       all.forgiven_bytes);
  }
  const Hosts::Bytes& bytes = hosts_.bytes();
  if (all.sent_bytes != bytes.sent)
    return fmt::format("transport sent {} bytes, hosts {}", all.sent_bytes, bytes.sent);
  const uint64_t known = all.received_bytes + all.duplicate_bytes + all.late_bytes + all.out_of_order_bytes;
  if (known != bytes.arrived) {
    return fmt::format("{} bytes arrived, the transport knows of {}", bytes.arrived, known);
  }
  if (bytes.sent < bytes.arrived + bytes.arrived_trimmed) return "more bytes arrived, whole or cut, than were sent";
  const bool lost = fabric_.counters().drops_total() != 0;
  if (!lost && bytes.sent != bytes.arrived + bytes.arrived_trimmed) {
    return fmt::format("{} bytes were sent, {} arrived whole and {} cut, and nothing was dropped", bytes.sent,
                       bytes.arrived, bytes.arrived_trimmed);
  }
  if (all.malformed + all.out_of_window + all.unknown_connection + all.replayed != 0) {
    return fmt::format(
        "the transport refused packets: {} malformed, {} out of window, {} of unknown connections, {} "
        "replayed",
        all.malformed, all.out_of_window, all.unknown_connection, all.replayed);
  }
  return "";
}

}  // namespace forgive::sim
