// SPDX-License-Identifier: Apache-2.0
// One run of a plan: everything it is made of, and the loop that turns it to its end.
#ifndef FORGIVE_TESTBED_SIMULATOR_RUN_H_
#define FORGIVE_TESTBED_SIMULATOR_RUN_H_

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "testbed/simulator/event_queue.h"
#include "testbed/simulator/fabric.h"
#include "testbed/simulator/flows.h"
#include "testbed/simulator/host.h"
#include "testbed/simulator/metrics.h"
#include "testbed/simulator/packet.h"
#include "testbed/simulator/plan.h"
#include "testbed/simulator/training.h"

namespace forgive::sim {

// How far a run has come.
struct Progress {
  double share = 0;  // of its bytes
  uint64_t step = 0;
  uint64_t steps = 0;
  SimTime now{};
};

class Simulation {
 public:
  Simulation(const Plan& plan, uint64_t seed);
  ~Simulation();

  // To the end, and on until no packet is under way. `tell` hears now and then; if it returns false, so does this.
  // Throws std::runtime_error for what should not happen: a connection that failed, a run that stands still.
  bool ToEnd(const std::function<bool(const Progress&)>& tell);

  // Before ToEnd: keeps a line for every range that is forgiven.
  void KeepLedger() { metrics_.KeepLedger(); }

  const Plan& plan() const { return plan_; }
  uint64_t seed() const { return seed_; }
  uint64_t events() const { return queue_.fired(); }
  const Fabric& fabric() const { return fabric_; }
  const Hosts& hosts() const { return hosts_; }
  const Metrics& metrics() const { return metrics_; }
  size_t jobs() const { return jobs_.size(); }
  const Training* training(size_t job) const { return jobs_[job].training.get(); }  // nullptr: a pattern
  const FlowSet* flows(size_t job) const { return jobs_[job].flows.get(); }
  // Sums over the job's endpoints for one kind of traffic.
  Counters CountersOf(size_t job, TrafficKind kind) const;
  Picoseconds time_of(size_t job) const;
  // "" if every byte and packet is accounted for and every queue kept its limits, else what does not add up.
  std::string CheckConservation() const;

 private:
  struct Job {
    std::unique_ptr<Training> training;
    std::unique_ptr<FlowSet> flows;
    bool done() const { return training ? training->done() : flows->done(); }
  };
  void AddJob(const JobPlan& plan);
  void Begin(SimTime now);
  void Dispatch(SimTime now, const SimEvent& event);
  void OnTimer(SimTime now, const SimEvent& event);
  void Complete(SimTime now);
  Progress ProgressAt(SimTime now) const;
  uint64_t PlannedBytes() const;

  Plan plan_;
  uint64_t seed_;
  EventQueue queue_;
  PacketArena arena_;
  Metrics metrics_;
  Fabric fabric_;
  // Endpoints close their receives in the step tables of the jobs, so these outlive the hosts.
  StepTable no_steps_;
  std::vector<Job> jobs_;
  Hosts hosts_;
  std::vector<uint8_t> job_of_channel_;
  bool begun_ = false;
  SimTime begin_{};
};

}  // namespace forgive::sim

#endif  // FORGIVE_TESTBED_SIMULATOR_RUN_H_
