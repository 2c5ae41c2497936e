// SPDX-License-Identifier: Apache-2.0
// What the plugin holds once a process: settings, devices, the engine, the step facts, ledger and statistics.
#ifndef FORGIVE_PLUGIN_PROCESS_H_
#define FORGIVE_PLUGIN_PROCESS_H_

#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_set>
#include <vector>

#include "dataplane/driver_choice.h"
#include "dataplane/engine.h"
#include "plugin/context.h"
#include "plugin/detector_handle.h"
#include "plugin/devices.h"
#include "plugin/error_text.h"
#include "plugin/ledger.h"
#include "plugin/nccl_abi.h"
#include "plugin/settings.h"
#include "plugin/statistics.h"
#include "plugin/step_facts.h"

namespace forgive {

// Handshakes between two polls of connect, by the number that the handle carries.
struct ConnectingTable {
  std::mutex mutex;
  uint64_t next = 1;
  std::map<uint64_t, std::shared_ptr<ConnectionSlot>> slots;
};

// The communicators that NCCL holds by plain pointer. A close of one that is not there is an error and no crash.
class LiveTable {
 public:
  void Add(const void* comm) {
    const std::lock_guard<std::mutex> lock(mutex_);
    live_.insert(comm);
  }
  // False: not a live one.
  bool Remove(const void* comm) {
    const std::lock_guard<std::mutex> lock(mutex_);
    return live_.erase(comm) != 0;
  }

 private:
  std::mutex mutex_;
  std::unordered_set<const void*> live_;
};

// Made by the first init that succeeds; it lives until the process ends, across dlclose and dlopen, because until
// v11 NCCL never says that it is done. A forked child has none until it initialises its own.
class Process {
 public:
  // The running one; nullptr: no init has succeeded in this process.
  static Process* Get();
  // Makes it, or finds the one that runs. nullptr: *error is one line.
  static Process* Start(nccl::Logger logger, int api_version, std::string* error);

  const Settings& settings() const { return settings_; }
  const std::vector<Device>& devices() const { return devices_; }
  Engine* engine() { return engine_.get(); }
  StepFacts* facts() { return &facts_; }
  const StepFacts* facts() const { return &facts_; }
  Ledger* ledger() { return &ledger_; }
  Statistics* statistics() { return statistics_.get(); }
  ConnectingTable* connecting() { return &connecting_; }
  forgive_detector* detector() { return &detector_; }
  ContextTable* contexts() const { return &contexts_; }
  LiveTable* live() { return &live_; }
  // True from the first context on: NCCL is of 2.28 or later.
  bool has_contexts() const { return has_contexts_.load(std::memory_order_acquire); }
  void SetHasContexts() { has_contexts_.store(true, std::memory_order_release); }

  // What v10's init gave, for communicators without a context; nullptr: none.
  void SetProfilerCallback(nccl::ProfilerCallback profiler) { profiler_.store(profiler, std::memory_order_release); }
  nccl::ProfilerCallback profiler_callback() const { return profiler_.load(std::memory_order_acquire); }

  // FORGIVE_STEP=operation: the class of the collective with this number, as the detector says it now. Never waits:
  // true (the smaller budget) where another thread has the detector.
  bool IsOperationCritical(uint64_t number);

  // forgive.h: each returns FORGIVE_OK or a negative code with *error. They need no memory: a step that ends is always
  // closed and looked at.
  int BeginStep(uint64_t step, bool critical, uint64_t expected_bytes, ErrorText* error);
  // Classified by the detector, which gets the norm of the step begun before.
  int BeginStepByNorm(uint64_t step, double gradient_norm, uint64_t expected_bytes, ErrorText* error);
  int EndStep(uint64_t step, ErrorText* error);

 private:
  Process(Settings settings, std::vector<Device> devices);
  static std::unique_ptr<Process> Make(int api_version, std::string* error);
  void SayStarted(int api_version) const;

  const Settings settings_;
  const std::vector<Device> devices_;
  std::unique_ptr<Engine> engine_;
  DriverChoice driver_;
  StepFacts facts_;
  Ledger ledger_;
  std::unique_ptr<Statistics> statistics_;
  ConnectingTable connecting_;
  forgive_detector detector_;
  mutable ContextTable contexts_;
  LiveTable live_;
  std::atomic<bool> has_contexts_{false};
  std::atomic<nccl::ProfilerCallback> profiler_{nullptr};
  std::mutex steps_mutex_;  // one step_begin or step_end at a time
};

}  // namespace forgive

#endif  // FORGIVE_PLUGIN_PROCESS_H_
