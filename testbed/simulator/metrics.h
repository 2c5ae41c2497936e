// SPDX-License-Identifier: Apache-2.0
// What is measured while a run goes on: steps, collectives, trims by when they came, and the flags of reports.
#ifndef FORGIVE_TESTBED_SIMULATOR_METRICS_H_
#define FORGIVE_TESTBED_SIMULATOR_METRICS_H_

#include <array>
#include <cstdint>
#include <vector>

#include "testbed/simulator/clock.h"
#include "transport/step_table.h"

namespace forgive::sim {

// A range that was forgiven: bytes [offset, offset + length) of a connection's message.
struct LedgerLine {
  SimTime time;
  uint32_t step;
  uint32_t rank;
  uint32_t connection;
  uint32_t message;
  uint32_t offset;
  uint32_t length;
  uint32_t contributions;
  uint8_t job;
};

// What a connection carries. kFlow: a burst, or a pattern's flow.
enum class TrafficKind : uint8_t { kTensor, kGradient, kFlow };
inline constexpr int kTrafficKinds = 3;

inline constexpr int kFifths = 5;
using Fifths = std::array<uint64_t, kFifths>;

// One training step of a job, over all its ranks. Bytes are sums over the ranks.
struct StepRecord {
  uint64_t step = 0;
  bool critical = false;
  SimTime begin = kSimNever;                // of the first rank
  SimTime end{};                            // of the last one, compute included
  std::vector<Picoseconds> gradient_times;  // one a rank
  std::vector<Picoseconds> tensor_times;    // one a rank and all-reduce
  uint64_t expected = 0;
  uint64_t budget = 0;
  uint64_t received = 0;
  uint64_t forgiven = 0;
  uint64_t shed = 0;
  uint64_t contributions_lost = 0;
  uint64_t trims = 0;
  // By when they came: in fifths of the time of the receiving rank's gradient all-reduce, and of the bytes it
  // expects.
  Fifths trimmed_by_time{};
  Fifths forgiven_by_time{};
  Fifths trimmed_by_progress{};
  Fifths forgiven_by_progress{};
  bool invariant = true;  // of every rank: forgiven <= budget, and vested where the policy says so
};

// The exemption as the senders' reports told it, over all flows (a flow: one connection during one step).
struct ExemptionRecord {
  uint64_t flows = 0;         // that were exempt at some time
  uint64_t flag_changes = 0;  // of budget-exhausted, in these
  uint64_t obeyed_again = 0;  // of these: how many obeyed after their exemption had begun
  Picoseconds obeyed_time{};  // how long, together
};

class Metrics {
 public:
  void AddJob(uint32_t ranks, uint32_t steps);

  // Of the ranks' programs. `step` counts from 1.
  void OnStepBegin(uint8_t job, uint32_t rank, uint64_t step, bool critical, SimTime now);
  void OnStepEnd(uint8_t job, uint64_t step, SimTime now);
  void OnTensorDone(uint8_t job, uint64_t step, Picoseconds time);
  void OnGradientBegin(uint8_t job, uint32_t rank, SimTime now, const StepAccount* account);
  // `vests`: the policy keeps the vesting bound.
  void OnGradientEnd(uint8_t job, uint32_t rank, SimTime now, const StepAccount& account, uint64_t shed, bool vests);

  // Of the hosts, for gradients: the header of a cut packet; bytes forgiven; the flags of a report at its sender.
  void OnTrim(uint8_t job, uint32_t rank, SimTime now, uint32_t bytes) {
    jobs_[job].ranks[rank].notes.push_back({now, bytes, 0, Progress(jobs_[job].ranks[rank])});
  }
  void OnForgiven(const LedgerLine& line) {
    Rank* rank = &jobs_[line.job].ranks[line.rank];
    rank->notes.push_back({line.time, 0, line.length, Progress(*rank)});
    if (keeps_ledger_) ledger_.push_back(line);
  }
  void OnReport(uint8_t job, uint32_t channel, SimTime now, bool eligible, bool exhausted);
  // Ends every flow that is still open.
  void Finish(SimTime now);

  // Forgiven ranges are kept from now on: 40 bytes each.
  void KeepLedger() { keeps_ledger_ = true; }
  const std::vector<LedgerLine>& ledger() const { return ledger_; }
  const std::vector<StepRecord>& steps(uint8_t job) const { return jobs_[job].steps; }
  const ExemptionRecord& exemption(uint8_t job) const { return jobs_[job].exemption; }

 private:
  // Of a cut header or of forgiven bytes, until the all-reduce is over and its fifths are known.
  struct Note {
    SimTime time;
    uint32_t trimmed;
    uint32_t forgiven;
    uint32_t fifth;  // by progress
  };
  struct Rank {
    std::vector<Note> notes;
    SimTime begin = kSimNever;
    const StepAccount* account = nullptr;
  };
  struct Job {
    std::vector<Rank> ranks;
    std::vector<StepRecord> steps;
    ExemptionRecord exemption;
  };
  struct Flow {
    uint8_t job = 0;
    bool open = false;
    bool exhausted = false;
    bool was_exempt = false;
    bool obeyed_again = false;
    uint32_t flag_changes = 0;
    SimTime obeys_since = kSimNever;
    Picoseconds obeyed{};
  };

  static uint32_t Progress(const Rank& rank);
  void EndFlow(Flow* flow, SimTime now);

  std::vector<Job> jobs_;
  std::vector<Flow> flows_;  // by channel
  bool keeps_ledger_ = false;
  std::vector<LedgerLine> ledger_;
};

}  // namespace forgive::sim

#endif  // FORGIVE_TESTBED_SIMULATOR_METRICS_H_
