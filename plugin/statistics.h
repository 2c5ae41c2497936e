// SPDX-License-Identifier: Apache-2.0
// The accounts of the last steps, the totals, and the statistics file with the thread that writes it.
#ifndef FORGIVE_PLUGIN_STATISTICS_H_
#define FORGIVE_PLUGIN_STATISTICS_H_

#include <array>
#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "dataplane/driver_choice.h"
#include "dataplane/engine.h"
#include "plugin/devices.h"
#include "plugin/forgive.h"
#include "plugin/ledger.h"
#include "plugin/settings.h"
#include "plugin/step_facts.h"

namespace forgive {

inline constexpr size_t kStepHistory = 256;

// Thread-safe. Its own thread drains the ledger, takes samples and writes; the data path and the callers of
// forgive.h never wait for the file.
class Statistics {
 public:
  Statistics(const Settings& settings, const std::vector<Device>& devices, const DriverChoice& driver, Engine* engine,
             Ledger* ledger, StepFacts* facts, int api_version);
  ~Statistics() { Stop(); }

  void OnStepBegin(const StepAccount& opened);
  void OnStepEnd(const StepAccount& closed, bool latched);
  // FORGIVE_STEP=operation: takes over the steps that the engine has ended.
  void DrainOperations();
  // Writes the last line and ends the thread. Does nothing in a forked child, or the second time.
  void Stop();

  // forgive.h's totals; out->size is the caller's.
  void FillTotals(forgive_stats_t* out);
  // False: the step is not among the last 256.
  bool FindStep(uint64_t step, forgive_step_stats_t* out);

 private:
  void Run();
  void WriteSample(uint64_t now_ns);
  void WriteInit(const Settings& settings, const std::vector<Device>& devices, const DriverChoice& driver,
                 int api_version);
  void WriteLine(const std::string& line);
  // A line that needs memory where none is left is left out, and counted; what it would say is not.
  template <typename Work>
  void WithMemory(const Work& work);
  void QueueStep(const forgive_step_stats_t& step, bool latched, const forgive_stats_t& totals);
  bool tracing() const { return trace_interval_ns_ != 0 && file_ >= 0; }
  // Takes over a newer account of a step; checks the bounds. Needs mutex_.
  void Update(forgive_step_stats_t* kept, const StepAccount& account);

  Engine* const engine_;
  Ledger* const ledger_;
  StepFacts* const facts_;
  const int process_id_;
  const std::string file_name_;
  const uint64_t trace_interval_ns_;
  const uint32_t budget_unit_;
  const bool by_operation_;
  const uint32_t paths_;  // over which each connection sprays
  const uint32_t rails_;  // and to which they belong
  int file_ = -1;         // used by the thread only, once it runs

  std::mutex mutex_;
  std::condition_variable wake_;
  bool stop_ = false;
  std::atomic<bool> stopping_{false};
  std::vector<std::string> queued_;
  std::array<forgive_step_stats_t, kStepHistory> steps_{};
  uint64_t steps_begun_ = 0;
  std::mutex operations_mutex_;  // one thread drains at a time
  uint64_t budget_violations_ = 0;
  std::atomic<uint64_t> lines_left_out_{0};
  std::thread thread_;
};

}  // namespace forgive

#endif  // FORGIVE_PLUGIN_STATISTICS_H_
