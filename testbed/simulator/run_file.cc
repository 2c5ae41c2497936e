// SPDX-License-Identifier: Apache-2.0
// One run for the command line: progress with the time left, and a file that is whole or not there.
#include <fmt/format.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdio>

#include "testbed/entry_lib/whole_file.h"
#include "testbed/simulator/results.h"
#include "testbed/simulator/sweep.h"

namespace forgive::sim {
namespace {

volatile std::sig_atomic_t interrupted = 0;

void OnInterrupt(int) { interrupted = 1; }

// A line that is written over on a terminal, and now and then elsewhere.
class ProgressLine {
 public:
  using Clock = std::chrono::steady_clock;

  void Show(const Progress& progress) {
    const Clock::time_point now = Clock::now();
    if (now < next_) return;
    const bool terminal = isatty(STDERR_FILENO) != 0;
    next_ = now + (terminal ? std::chrono::seconds(1) : std::chrono::seconds(30));
    const double elapsed = std::chrono::duration<double>(now - begin_).count();
    std::string text = fmt::format("{:5.1f} %  {:.3f} ms simulated", 100 * progress.share,
                                   static_cast<double>(progress.now.ps) / 1e9);
    if (progress.steps != 0) text += fmt::format("  step {} of {}", progress.step, progress.steps);
    if (progress.share > 0.01) text += "  " + Left(elapsed / progress.share * (1 - progress.share)) + " left";
    std::fprintf(stderr, terminal ? "\r%s\033[K" : "%s\n", text.c_str());
    shown_ = terminal;
  }
  ~ProgressLine() {
    if (shown_) std::fprintf(stderr, "\r\033[K");
  }

 private:
  static std::string Left(double seconds) {
    const auto whole = static_cast<int64_t>(seconds + 0.5);
    return whole < 60 ? fmt::format("{} s", whole) : fmt::format("{} min {} s", whole / 60, whole % 60);
  }
  Clock::time_point begin_ = Clock::now();
  Clock::time_point next_ = begin_ + std::chrono::seconds(1);
  bool shown_ = false;
};

// Both throw PlanError; `option` is what the user wrote.
void CheckWritable(const std::string& option, const std::string& file) {
  if (!WholeFileIsWritable(file)) throw PlanError(option + ": cannot write there; name another file");
}

void WriteWhole(const std::string& option, const std::string& file, const std::string& lines) {
  if (WriteWholeFile(file, lines).empty()) return;
  throw PlanError(option + ": cannot write there; name another file");
}

}  // namespace

void CatchInterrupts() {
  struct sigaction action = {};
  action.sa_handler = OnInterrupt;
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) sigaction(signal, &action, nullptr);
}

bool Interrupted() { return interrupted != 0; }

int RunToFile(const Plan& plan, uint64_t seed, const RunFiles& files, bool quiet) {
  const std::string json = "--json " + files.json;
  const std::string ledger = "--ledger " + files.ledger;
  if (!files.json.empty()) CheckWritable(json, files.json);
  if (!files.ledger.empty()) CheckWritable(ledger, files.ledger);
  Simulation run(plan, seed);
  if (!files.ledger.empty()) run.KeepLedger();
  {
    ProgressLine line;
    const bool ended = run.ToEnd([&](const Progress& progress) {
      if (!quiet) line.Show(progress);
      return !Interrupted();
    });
    if (!ended) return 130;
  }
  const std::string wrong = run.CheckConservation();
  if (!wrong.empty()) throw std::runtime_error(fmt::format("{} seed {}: {}", plan.name(), seed, wrong));
  if (const uint64_t broken = BudgetViolations(run)) {
    throw std::runtime_error(
        fmt::format("{} seed {}: the loss budget was broken on {} steps", plan.name(), seed, broken));
  }
  const std::string lines = ResultLines(run);
  if (!files.ledger.empty()) WriteWhole(ledger, files.ledger, LedgerLines(run));
  if (files.json.empty()) {
    std::fputs(lines.c_str(), stdout);
  } else {
    WriteWhole(json, files.json, lines);
  }
  if (!quiet) std::fputs(Summary(run).c_str(), stderr);
  return 0;
}

}  // namespace forgive::sim
