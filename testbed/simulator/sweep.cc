// SPDX-License-Identifier: Apache-2.0
// Starting, watching and stopping the processes of a sweep.
#include "testbed/simulator/sweep.h"

#include <fmt/format.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <set>

#include "testbed/simulator/plan_file.h"
#include "testbed/simulator/results.h"

namespace forgive::sim {
namespace {

namespace fs = std::filesystem;

struct Task {
  std::string plan;
  uint64_t seed = 0;
  std::string file;
  std::string run_line;
};

void AddFamily(const SweepOptions& options, const std::string& name, std::set<std::string>* seen,
               std::vector<Task>* tasks) {
  if (!seen->insert(name).second) return;
  const Family family = ReadFamily(options.plans, name);
  std::vector<std::string> plans;
  for (const Family::Variant& variant : family.variants) plans.push_back(fmt::format("{}/{}", name, variant.name));
  if (family.variants.empty() && family.include.empty()) plans.push_back(name);
  for (const std::string& plan_name : plans) {
    const Plan plan = ReadPlan(options.plans, plan_name, options.assignments, options.scale);
    for (const uint64_t seed : options.seeds.empty() ? family.seeds : options.seeds) {
      const std::string leaf = fmt::format("{}-seed{}.jsonl", plan.variant.empty() ? "run" : plan.variant, seed);
      tasks->push_back({plan_name, seed, (fs::path(options.out) / plan.family / leaf).string(), RunLine(plan, seed)});
    }
  }
  for (const std::string& other : family.include) AddFamily(options, other, seen, tasks);
}

// What two runs must share besides the commit: everything before and after it in the line.
std::string WithoutCommit(const std::string& line) {
  const size_t begin = line.find("\"commit\":");
  const size_t end = begin == std::string::npos ? begin : line.find(',', begin);
  return begin == std::string::npos || end == std::string::npos ? line : line.substr(0, begin) + line.substr(end);
}

// True if the task's file is there and holds this very run. Throws PlanError if it holds another.
bool IsFinished(const Task& task, bool* other_commit) {
  std::ifstream stream(task.file);
  std::string line;
  if (!stream || !std::getline(stream, line)) return false;
  if (WithoutCommit(line) != WithoutCommit(task.run_line)) {
    throw PlanError(fmt::format("{} holds a run with other parameters; name another folder with --out", task.file));
  }
  *other_commit = *other_commit || line != task.run_line;
  return true;
}

std::vector<std::string> CommandOf(const SweepOptions& options, const Task& task) {
  std::vector<std::string> command{options.program,          "run", task.plan, "--plans", options.plans, "--seed",
                                   std::to_string(task.seed)};
  for (const std::string& assignment : options.assignments) {
    command.push_back("--set");
    command.push_back(assignment);
  }
  if (options.scale != 1) {
    command.push_back("--scale");
    command.push_back(fmt::format("{}", options.scale));
  }
  command.insert(command.end(), {"--quiet", "--json", task.file});
  return command;
}

std::string Quoted(const std::string& word) {
  const std::string plain = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-./=,:";
  if (!word.empty() && word.find_first_not_of(plain) == std::string::npos) return word;
  std::string quoted(1, '\'');
  for (const char c : word) {
    if (c == '\'') {
      quoted.append("'\\''");
    } else {
      quoted.push_back(c);
    }
  }
  quoted.push_back('\'');
  return quoted;
}

int EmitJobs(const SweepOptions& options, const std::vector<Task>& tasks) {
  std::string lines;
  for (const Task& task : tasks) {
    std::string line;
    for (const std::string& word : CommandOf(options, task)) {
      if (!line.empty()) line.push_back(' ');
      line.append(Quoted(word));
    }
    lines += line + "\n";
    fs::create_directories(fs::path(task.file).parent_path());
  }
  std::ofstream stream(options.emit_jobs);
  stream << lines;
  stream.close();
  if (!stream)
    throw PlanError(fmt::format("--emit-jobs {}: cannot write there; name another file", options.emit_jobs));
  std::fprintf(stderr, "%zu runs, a command a line\n", tasks.size());
  return 0;
}

pid_t Start(const std::vector<std::string>& command) {
  std::vector<char*> arguments;
  for (const std::string& word : command) arguments.push_back(const_cast<char*>(word.c_str()));
  arguments.push_back(nullptr);
  const pid_t parent = getpid();
  const pid_t child = fork();
  if (child != 0) return child;
  // A sweep that is killed takes its runs along.
  prctl(PR_SET_PDEATHSIG, SIGTERM);
  if (getppid() != parent) _exit(1);
  execv(arguments[0], arguments.data());
  _exit(127);
}

class Pool {
 public:
  Pool(const SweepOptions& options, const std::vector<Task>& tasks) : options_(options), tasks_(tasks) {}

  int Work() {
    while (next_ < tasks_.size() || !running_.empty()) {
      while (!Interrupted() && next_ < tasks_.size() && running_.size() < static_cast<size_t>(options_.jobs))
        Launch();
      if (running_.empty()) break;
      Reap();
    }
    if (Interrupted()) {
      std::fprintf(stderr, "interrupted: %zu of %zu runs are finished; the same command goes on from there\n", done_,
                   tasks_.size());
      return 130;
    }
    return failed_ == 0 ? 0 : 1;
  }

 private:
  void Launch() {
    const pid_t child = Start(CommandOf(options_, tasks_[next_]));
    if (child < 0) throw std::runtime_error("no process for a run: fork failed; use fewer --jobs");
    running_[child] = next_++;
  }

  void Reap() {
    int status = 0;
    const pid_t child = wait(&status);
    if (child < 0) {
      if (errno != EINTR) throw std::runtime_error("waiting for a run failed");
      for (const auto& [pid, task] : running_) kill(pid, SIGTERM);
      return;
    }
    const Task& task = tasks_[running_.at(child)];
    running_.erase(child);
    if (Interrupted()) {
      for (const auto& [pid, other] : running_) kill(pid, SIGTERM);
    }
    const bool good = WIFEXITED(status) && WEXITSTATUS(status) == 0;
    if (!good) fs::remove(task.file + ".partial");
    done_ += good ? 1 : 0;
    if (good || Interrupted()) {
      if (good) Report(task);
      return;
    }
    ++failed_;
    std::fprintf(stderr, "%s seed %llu failed\n", task.plan.c_str(), static_cast<unsigned long long>(task.seed));
  }

  void Report(const Task& task) {
    const double elapsed = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin_).count();
    const double left = elapsed / static_cast<double>(done_) * static_cast<double>(tasks_.size() - done_);
    std::fprintf(stderr, "[%zu/%zu] %s seed %llu; about %.0f min left\n", done_, tasks_.size(), task.plan.c_str(),
                 static_cast<unsigned long long>(task.seed), left / 60);
  }

  const SweepOptions& options_;
  const std::vector<Task>& tasks_;
  std::map<pid_t, size_t> running_;
  size_t next_ = 0;
  size_t done_ = 0;
  size_t failed_ = 0;
  std::chrono::steady_clock::time_point begin_ = std::chrono::steady_clock::now();
};

}  // namespace

int Sweep(const SweepOptions& options) {
  std::vector<Task> all;
  std::set<std::string> seen;
  AddFamily(options, options.family, &seen, &all);
  std::vector<Task> tasks;
  bool other_commit = false;
  for (const Task& task : all) {
    if (!IsFinished(task, &other_commit)) tasks.push_back(task);
  }
  if (all.size() != tasks.size()) {
    std::fprintf(stderr, "%zu of %zu runs are finished already%s\n", all.size() - tasks.size(), all.size(),
                 other_commit ? ", some of them by another commit" : "");
  }
  if (!options.emit_jobs.empty()) return EmitJobs(options, tasks);
  for (const Task& task : tasks) {
    std::error_code error;
    fs::create_directories(fs::path(task.file).parent_path(), error);
    if (error) throw PlanError(fmt::format("--out {}: {}", options.out, error.message()));
    fs::remove(task.file + ".partial", error);
  }
  return Pool(options, tasks).Work();
}

}  // namespace forgive::sim
