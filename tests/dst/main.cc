// SPDX-License-Identifier: Apache-2.0
// forgive_dst: worlds of endpoints under faults, each from its seed; a failure is one line that repeats it.
#include <CLI/CLI.hpp>
#include <cinttypes>
#include <cstdio>
#include <fstream>
#include <sstream>
#include <stdexcept>

#include "runner.h"
#include "testbed/entry_lib/command_line.h"
#include "testbed/entry_lib/standard_streams.h"

namespace forgive::dst {
namespace {

constexpr int kBroken = 1;
constexpr int kMisused = 2;
// So many schedules of the default worlds leave nothing out.
constexpr uint64_t kCompleteRuns = 5000;
constexpr uint32_t kMostJobs = 1024;

struct Options {
  uint64_t seed = 1;
  uint64_t runs = 1000;
  uint32_t jobs = 1;
  std::string world = "default";
  std::string replay;
  bool traces = false;
  bool counts = false;
};

void AddOptions(CLI::App& app, Options* options) {
  AddNumber(app, "--seed", options->seed, "the first schedule's seed")->capture_default_str();
  AddNumber(app, "--runs", options->runs, "how many schedules, of rising seeds")->capture_default_str();
  AddNumber(app, "--jobs", options->jobs, "how many at a time; the result is the same")->capture_default_str();
  app.add_option("--world", options->world, "default: a few hosts and hundreds of packets; large: many and thousands")
      ->check(CLI::IsMember({"default", "large"}))
      ->capture_default_str();
  app.add_option("--replay", options->replay, "runs the seeds of a file instead: SEED [large] [# why] a line")
      ->check(CLI::ExistingFile)
      ->excludes("--seed")
      ->excludes("--runs")
      ->excludes("--world");
  app.add_flag("--trace", options->traces, "shows the last events of the schedule that fails, or of the last one");
  app.add_flag("--counts", options->counts, "shows how often each thing happened");
}

std::vector<Task> ReadSeeds(const std::string& file) {
  std::ifstream stream(file);
  std::vector<Task> tasks;
  std::string line;
  for (int number = 1; std::getline(stream, line); ++number) {
    std::istringstream words(line.substr(0, line.find('#')));
    std::string seed, world;
    if (!(words >> seed)) continue;
    Task task;
    words >> world;
    if (!ParseNumber(seed, &task.seed) || (!world.empty() && world != "large")) {
      throw std::runtime_error(file + ":" + std::to_string(number) + ": write SEED, SEED large, or a # comment");
    }
    task.large = world == "large";
    tasks.push_back(task);
  }
  if (tasks.empty()) throw std::runtime_error(file + ": holds no seed; write one a line");
  return tasks;
}

Job MakeJob(const Options& options) {
  Job job;
  job.workers = options.jobs;
  job.traces = options.traces;
  if (options.jobs == 0 || options.jobs > kMostJobs) {
    throw std::runtime_error("--jobs: give a number from 1 to " + std::to_string(kMostJobs));
  }
  if (!options.replay.empty()) {
    job.list = ReadSeeds(options.replay);
    return job;
  }
  if (options.runs == 0) throw std::runtime_error("--runs: give a number from 1");
  if (options.runs - 1 > UINT64_MAX - options.seed) {
    throw std::runtime_error("--runs: there are not so many seeds from --seed on; give fewer");
  }
  job.first = {options.seed, options.world == "large"};
  job.runs = options.runs;
  return job;
}

// What no schedule did is not proved. Returns the exit status.
int Report(const Options& options, const Job& job, const Outcome& outcome) {
  if (outcome.failed) {
    std::printf("forgive_dst: %s; repeat: forgive_dst --seed %" PRIu64 " --runs 1%s --trace\n",
                outcome.failure.c_str(), outcome.task.seed, outcome.task.large ? " --world large" : "");
    return kBroken;
  }
  std::printf("forgive_dst: %" PRIu64 " schedules, %" PRIu64 " packets, digest %016" PRIx64 ": every rule held\n",
              outcome.tally[Count::kSchedules], outcome.tally[Count::kPackets], outcome.tally[Count::kDigest]);
  int status = 0;
  for (size_t i = 0; i < static_cast<size_t>(Count::kDigest); ++i) {
    const char* const name = NameOf(static_cast<Count>(i));
    if (options.counts) std::printf("%-26s %" PRIu64 "\n", name, outcome.tally.counts[i]);
    if (outcome.tally.counts[i] != 0 || job.runs < kCompleteRuns || job.first.large) continue;
    std::printf("forgive_dst: %s never happened: these schedules prove nothing about it\n", name);
    status = kBroken;
  }
  std::fprintf(stderr, "%.1f s, of processors %.1f s: %.0f schedules a second and core\n", outcome.seconds,
               outcome.cpu_seconds, static_cast<double>(job.size()) / outcome.cpu_seconds);
  return status;
}

int Main(int argc, char** argv) {
  Options options;
  CLI::App app("Deterministic worlds of transport endpoints under faults.", "forgive_dst");
  AddOptions(app, &options);
  try {
    app.parse(argc, argv);
    RefuseEmptyValues(app);
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) return app.exit(error);  // --help
    std::fprintf(stderr, "forgive_dst: %s\n", OneLine(error).c_str());
    return kMisused;
  }
  try {
    const Job job = MakeJob(options);
    return Report(options, job, RunJob(job));
  } catch (const std::runtime_error& error) {
    std::fprintf(stderr, "forgive_dst: %s\n", error.what());
    return kMisused;
  }
}

}  // namespace
}  // namespace forgive::dst

int main(int argc, char** argv) {
  forgive::OpenStandardDescriptors();
  return forgive::FinishStandardOutput("forgive_dst", forgive::dst::Main(argc, argv), 1);
}
