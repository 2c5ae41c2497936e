// SPDX-License-Identifier: Apache-2.0
// One rank of a run: its network, threads and connections, and the operations that it runs over them.
#ifndef FORGIVE_TESTBED_PERF_RANK_H_
#define FORGIVE_TESTBED_PERF_RANK_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "testbed/perf/connections.h"
#include "testbed/perf/forgive_api.h"
#include "testbed/perf/inputs.h"
#include "testbed/perf/net.h"
#include "testbed/perf/options.h"
#include "testbed/perf/progress.h"
#include "testbed/perf/rendezvous.h"
#include "testbed/perf/schedule.h"
#include "testbed/perf/worker.h"

namespace forgive::perf {

// The training step in which an operation runs, as the harness plans it.
struct StepPlan {
  std::uint64_t step = 0;
  bool critical = false;
  std::uint64_t declared = 0;  // what forgive_step_begin is told; 0: learn
  std::uint64_t expected = 0;  // what the budget must be computed from
};

// Where an operation's messages lie on one receive communicator.
struct MessageSpan {
  const void* receive_comm = nullptr;
  int source = 0;
  std::uint64_t first = 0;
  std::uint64_t count = 0;
};

// A finished operation. Numbers are the same on all ranks.
struct Operation {
  std::uint64_t number = 0;
  std::shared_ptr<const Schedule> schedule;
  std::int64_t rotation = 0;
  const float* result = nullptr;  // null: it was not kept
  double seconds = 0;
  std::optional<StepPlan> step;
  std::vector<MessageSpan> spans;
};

class Rank {
 public:
  // Loads the network. Throws UsageError, RunError.
  Rank(const Options& options, Rendezvous& rendezvous);
  // Stops the threads and closes everything. If one of them hangs in the network, ends the process with `status`.
  ~Rank();
  Rank(const Rank&) = delete;
  Rank& operator=(const Rank&) = delete;

  // Makes the connections for these topologies and the inputs for up to `most_elements`.
  void Connect(const std::vector<Topology>& topologies, std::int64_t most_elements);

  const Options& options() const { return options_; }
  Rendezvous& rendezvous() const { return rendezvous_; }
  Net& net() const { return *net_; }
  const ForgiveApi& api() const { return api_; }
  const Inputs& inputs() const { return inputs_; }
  int rank() const { return rendezvous_.rank(); }
  int ranks() const { return rendezvous_.ranks(); }

  // Memory for results, valid until the next call. The rank owns it, so that an operation that a failure cuts short
  // still has it.
  float* ResultMemory(std::int64_t elements);

  // Runs one collective and waits for its result. `result` holds ResultOf(rank).count elements; a broadcast is in
  // place at its root, whose result is its input.
  Operation Run(const std::shared_ptr<const Schedule>& schedule, float* result);
  // The same in two halves, for tests that act in between.
  void Start(const std::shared_ptr<const Schedule>& schedule, float* result);
  Operation Finish();
  // Waits until everything sent has left its slots.
  void Drain();
  int posted_receives() const { return progress_->posted_receives(); }

  // forgive_step_begin. False: the plugin has latched itself reliable. Throws RunError for any other refusal.
  bool BeginStep(const StepPlan& plan);
  // forgive_step_end, likewise.
  bool EndStep(std::uint64_t step);

 private:
  Connections& ConnectionsFor(const Shape& shape) const;
  std::unique_ptr<Kernel> MakeKernel(const Schedule& schedule, UserMemory memory) const;

  const Options options_;
  Rendezvous& rendezvous_;
  std::chrono::seconds timeout_;
  std::unique_ptr<Net> net_;
  ForgiveApi api_;
  Inputs inputs_;
  std::vector<float> input_;
  std::vector<float> results_;
  std::unique_ptr<Worker> service_;
  std::vector<std::pair<Topology, std::unique_ptr<Connections>>> connections_;
  std::unique_ptr<Progress> progress_;
  std::uint64_t next_operation_ = 0;
  Operation running_;
  std::chrono::steady_clock::time_point started_;
};

}  // namespace forgive::perf

#endif  // FORGIVE_TESTBED_PERF_RANK_H_
