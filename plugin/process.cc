// SPDX-License-Identifier: Apache-2.0
// The start of the plugin in a process, its behaviour across fork and exit, and the opening and closing of steps.
#include "plugin/process.h"

#include <pthread.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cinttypes>
#include <new>

#include "dataplane/socket_address.h"
#include "plugin/device_facts.h"
#include "plugin/forgive.h"
#include "plugin/fork_generation.h"
#include "plugin/log.h"

namespace forgive {
namespace {

std::atomic<Process*> running{nullptr};
// Where start_mutex lives, so that a forked child can begin with a fresh one, whoever held it.
alignas(std::mutex) unsigned char start_mutex_memory[sizeof(std::mutex)];
std::mutex* start_mutex = new (start_mutex_memory) std::mutex;

// The child has no poll thread and shares the parent's sockets: it leaves everything of the parent's alone, without
// running any destructor, and may initialise its own.
void OnForkInChild() {
  running.store(nullptr, std::memory_order_relaxed);
  start_mutex = new (start_mutex_memory) std::mutex;
  SetLogger(nullptr);
  RaiseForkGeneration();
}

// At exit, also of a library that is never unloaded: the last line of the statistics and of the fault log. The engine
// is left to the end of the process, since NCCL's threads may still call.
__attribute__((destructor)) void OnExit() {
  SetLogger(nullptr);
  Process* const process = running.load(std::memory_order_acquire);
  if (process == nullptr) return;
  process->statistics()->Stop();
  process->engine()->FlushFaultLog();
}

}  // namespace

Process* Process::Get() { return running.load(std::memory_order_acquire); }

Process::Process(Settings settings, std::vector<Device> devices)
    : settings_(std::move(settings)),
      devices_(std::move(devices)),
      facts_(settings_),
      ledger_(settings_.ledger_lines),
      detector_(settings_.detector) {}

Process* Process::Start(nccl::Logger logger, int api_version, std::string* error) {
  SetLogger(logger);
  const std::lock_guard<std::mutex> lock(*start_mutex);
  if (Process* process = Get()) return process;
  std::unique_ptr<Process> made = Make(api_version, error);
  if (made == nullptr) return nullptr;
  static std::once_flag fork_handler;
  std::call_once(fork_handler, [] { pthread_atfork(nullptr, nullptr, OnForkInChild); });
  running.store(made.release(), std::memory_order_release);
  return Get();
}

std::unique_ptr<Process> Process::Make(int api_version, std::string* error) {
  Settings settings;
  std::vector<std::string> warnings;
  if (!ParseSettings(ReadEnvironment(), &settings, &warnings, error)) return nullptr;
  SetStandardErrorLevel(settings.log);
  for (const std::string& warning : warnings) Log(LogLevel::kWarning, "%s", warning.c_str());
  std::vector<Device> devices;
  const std::vector<InterfaceAddress> addresses = ListInterfaceAddresses();
  if (addresses.empty() && errno != 0) {
    *error = CannotListInterfaces(errno);
    return nullptr;
  }
  const DpdkOptions& dpdk = settings.engine.dpdk;
  const bool by_ports = settings.engine.driver == "dpdk" && !dpdk.ports.empty();
  const bool selected =
      !settings.rails.empty() ? SelectRails(addresses, settings.rails, settings.family, &devices, error)
      : by_ports              ? SelectDpdkDevices(addresses, dpdk, settings.family, &devices, error)
                              : SelectDevices(addresses, settings.interfaces, settings.family, &devices, error);
  if (!selected) return nullptr;
  FactSources sources;
  if (!settings.verbs) sources.verbs_library.clear();
  DescribeDevices(sources, &devices);
  // The ports of FORGIVE_DPDK are devices in their own order, and the kernel may know nothing of them. Rails have their
  // own order, too, and all of them are needed.
  std::vector<std::string> problems;
  if (!settings.rails.empty()) {
    for (const Device& rail : devices) {
      const std::string problem = PortProblem(rail);
      if (!problem.empty()) problems.push_back("FORGIVE_RAILS: " + rail.interface + ": " + problem);
    }
  } else if (!by_ports && !ArrangeDevices(&devices, &problems, error)) {
    return nullptr;
  }
  for (const std::string& line : problems) Log(LogLevel::kWarning, "%s", line.c_str());
  NumberDevices(&devices);
  if (!settings.rails.empty()) JoinRails(&devices);

  std::unique_ptr<Process> process(new Process(std::move(settings), std::move(devices)));
  process->driver_ = process->settings_.choose_driver ? ChooseDriver(ReadDriverFacts(), UringMeasurements())
                                                      : DriverChoice{process->settings_.engine.driver, ""};
  process->engine_ = StartChosen(ToEngineOptions(process->settings_, process->devices_), &process->driver_, error);
  if (process->engine_ == nullptr) return nullptr;
  process->statistics_ =
      std::make_unique<Statistics>(process->settings_, process->devices_, process->driver_, process->engine_.get(),
                                   &process->ledger_, &process->facts_, api_version);
  process->SayStarted(api_version);
  return process;
}

void Process::SayStarted(int api_version) const {
  std::string interfaces;
  for (size_t i = 0; i < devices_.size(); ++i) {
    interfaces += (i == 0 ? "" : ", ") + devices_[i].interface + " " + devices_[i].address + " (" +
                  engine_->driver_description(static_cast<uint32_t>(i)) + ")";
  }
  const std::string chosen = driver_.reason.empty() ? "" : " (auto: " + driver_.reason + ")";
  Log(LogLevel::kInfo, "version " FORGIVE_VERSION ", ncclNet v%d, driver %s%s on %s; %s", api_version,
      driver_.driver.c_str(), chosen.c_str(), interfaces.c_str(), facts_.Description().c_str());
  for (size_t i = 0; i < devices_.size(); ++i) {
    Log(LogLevel::kInfo, "device %zu is %s", i, DescribeFacts(devices_[i]).c_str());
    for (const Device& rail : devices_[i].rails) {
      Log(LogLevel::kInfo, "device %zu has the rail %s", i, DescribeFacts(rail).c_str());
    }
  }
}

bool Process::IsOperationCritical(uint64_t number) {
  if (!settings_.step_by_operation) return true;
  const std::unique_lock<std::mutex> lock(detector_.mutex, std::try_to_lock);
  return !lock.owns_lock() || detector_.detector.IsCritical(number);
}

int Process::BeginStep(uint64_t step, bool critical, uint64_t expected_bytes, ErrorText* error) {
  if (settings_.step_by_operation) {
    error->Write("FORGIVE_STEP=operation: each operation is a step of its own; leave the calls out, or the variable");
    return FORGIVE_ERROR_BAD_ARGUMENT;
  }
  const std::lock_guard<std::mutex> lock(steps_mutex_);
  switch (facts_.Prepare()) {
    case StepFacts::BeginResult::kOk:
      break;
    case StepFacts::BeginResult::kLatched:
      error->Write("an earlier step was not made of whole all-reduces: this process stays reliable until it ends");
      return FORGIVE_ERROR_LATCHED;
    case StepFacts::BeginResult::kStepOpen:
      error->Write("step %" PRIu64 " is open; end it first", facts_.open_step());
      return FORGIVE_ERROR_STEP_OPEN;
    case StepFacts::BeginResult::kReceivesPosted:
      error->Write("receives are posted: synchronise the device before the step begins; the step stays reliable");
      return FORGIVE_ERROR_RECEIVES_POSTED;
  }
  StepPlan plan;
  plan.step = step;
  plan.critical = critical;
  plan.p = critical ? settings_.p_low : settings_.p_high;
  if (facts_.several_ranks()) plan.p = Fraction{0};
  plan.expected_bytes = expected_bytes;
  StepAccount opened;
  const StepResult result = engine_->BeginStep(plan, &opened);
  if (result == StepResult::kOk) {
    facts_.Open(step, plan.p);
    statistics_->OnStepBegin(opened);
    return FORGIVE_OK;
  }
  facts_.Abandon();
  if (result == StepResult::kNotRising) {
    error->Write("step %" PRIu64 ": step numbers must rise", step);
    return FORGIVE_ERROR_BAD_ARGUMENT;
  }
  if (result == StepResult::kTableFull) {
    error->Write("too many closed steps have receives that never completed; the step stays reliable");
    return FORGIVE_ERROR_RECEIVES_POSTED;
  }
  error->Write("a step is open; end it first");
  return FORGIVE_ERROR_STEP_OPEN;
}

int Process::BeginStepByNorm(uint64_t step, double gradient_norm, uint64_t expected_bytes, ErrorText* error) {
  if (settings_.step_by_operation) return BeginStep(step, true, expected_bytes, error);
  bool critical = true;
  {
    const std::lock_guard<std::mutex> lock(detector_.mutex);
    if (!detector_.detector.Begin(step, {&gradient_norm, 1}, &critical)) {
      error->Write("step %" PRIu64 ": step numbers must rise", step);
      return FORGIVE_ERROR_BAD_ARGUMENT;
    }
  }
  return BeginStep(step, critical, expected_bytes, error);
}

int Process::EndStep(uint64_t step, ErrorText* error) {
  const std::lock_guard<std::mutex> lock(steps_mutex_);
  if (!facts_.step_open() || facts_.open_step() != step) {
    if (facts_.latched()) {
      error->Write("an earlier step was not made of whole all-reduces: this process stays reliable until it ends");
      return FORGIVE_ERROR_LATCHED;
    }
    error->Write("step %" PRIu64 " is not open", step);
    return FORGIVE_ERROR_STEP_OPEN;
  }
  facts_.Close();
  StepAccount closed;
  const StepResult result = engine_->EndStep(step, &closed);
  FORGIVE_CHECK(result == StepResult::kOk);
  ErrorText what;
  const bool whole = facts_.CheckCounts(&what);
  ledger_.Drain(engine_.get());
  statistics_->OnStepEnd(closed, !whole);
  if (whole) return FORGIVE_OK;
  error->Write("step %" PRIu64
               ": %s: something else than all-reduces of the promised ring ran inside; this process stays reliable "
               "until it ends, and what the step forgave may have hit other traffic",
               step, what.c_str());
  Log(LogLevel::kError, "%s", error->c_str());
  return FORGIVE_ERROR_LATCHED;
}

}  // namespace forgive
