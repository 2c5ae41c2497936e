// SPDX-License-Identifier: Apache-2.0
// The commands: list, run, sweep, bench.
#include "testbed/simulator/command_line.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "testbed/entry_lib/command_line.h"
#include "testbed/entry_lib/standard_streams.h"
#include "testbed/simulator/bench.h"
#include "testbed/simulator/plan_file.h"
#include "testbed/simulator/plan_keys.h"
#include "testbed/simulator/sweep.h"

namespace forgive::sim {
namespace {

constexpr int kExitFailed = 1;
constexpr int kExitUsage = 2;

struct Options {
  std::string plans = FORGIVE_SIM_PLANS;
  std::string name;
  std::string json_file;
  std::string ledger_file;
  uint64_t seed = 1;
  std::vector<uint64_t> seeds;
  std::vector<std::string> assignments;
  double scale = 1;
  bool quiet = false;
  std::string out;
  std::string emit_jobs;
  int jobs = 1;
  bool json = false;
  double bench_scale = 0.02;
};

void List(const Options& options) {
  for (const Family& family : ReadFamilies(options.plans)) {
    std::printf("%-28s %s\n", family.name.c_str(), family.about.c_str());
    for (const std::string& other : family.include) std::printf("  includes %s\n", other.c_str());
    for (const Family::Variant& variant : family.variants) {
      std::printf("  %-26s %s\n", (family.name + "/" + variant.name).c_str(), variant.about.c_str());
    }
  }
}

void Show(const Options& options) {
  Plan plan = ReadPlan(options.plans, options.name, options.assignments, options.scale);
  for (const PlanKey& key : KeysOf(&plan)) {
    std::printf("%-42s = %-12s # %s\n", key.name.c_str(), key.get().dump().c_str(), key.allowed.c_str());
  }
}

int RunOne(const Options& options) {
  CatchInterrupts();
  return RunToFile(ReadPlan(options.plans, options.name, options.assignments, options.scale), options.seed,
                   {options.json_file, options.ledger_file}, options.quiet);
}

int RunSweep(const Options& options) {
  CatchInterrupts();
  SweepOptions sweep;
  sweep.program = std::filesystem::read_symlink("/proc/self/exe").string();
  sweep.plans = options.plans;
  sweep.family = options.name;
  sweep.out = options.out;
  sweep.seeds = options.seeds;
  sweep.assignments = options.assignments;
  sweep.scale = options.scale;
  sweep.jobs = options.jobs;
  sweep.emit_jobs = options.emit_jobs;
  return Sweep(sweep);
}

void AddPlanOptions(CLI::App* command, Options* options, const char* what) {
  command->add_option(what, options->name, "a name that `list` shows, or a TOML file")->required();
  command->add_option("--set", options->assignments, "key=value: changes a key of the plan (`show` names them)")
      ->allow_extra_args(false);
  AddNumber(*command, "--scale", options->scale, "multiplies the bytes of every message; results say so");
}

}  // namespace

namespace {

int ParseAndRun(int argc, char** argv) {
  Options options;
  CLI::App app("Simulates training traffic over a fabric, packet by packet, on FORGIVE's own transport.",
               "forgive_sim");
  app.require_subcommand(1);
  const auto add = [&](const char* name, const char* about) {
    CLI::App* command = app.add_subcommand(name, about);
    command->add_option("--plans", options.plans, "folder of the plans");
    return command;
  };
  CLI::App* list = add("list", "the plans");
  CLI::App* show = add("show", "a plan's keys and what is allowed");
  AddPlanOptions(show, &options, "PLAN");
  CLI::App* run = add("run", "one run of a plan");
  AddPlanOptions(run, &options, "PLAN");
  AddNumber(*run, "--seed", options.seed, "chance: hashes, marks, draws");
  run->add_option("--json", options.json_file, "file for the results; else standard output");
  run->add_option("--ledger", options.ledger_file, "file (CSV) for the forgiven ranges");
  run->add_flag("--quiet", options.quiet, "no progress");
  CLI::App* sweep = add("sweep", "all runs of a family; goes on where it was stopped");
  AddPlanOptions(sweep, &options, "FAMILY");
  sweep->add_option("--seeds", options.seeds, "instead of the family's")->delimiter(',')->check(IsNumber<uint64_t>());
  sweep->add_option("--jobs", options.jobs, "runs at a time")->check(CLI::Range(1, 1024));
  sweep->add_option("--out", options.out, "folder for the results")->required();
  sweep->add_option("--emit-jobs", options.emit_jobs, "write the commands of the runs to this file, and run none");
  CLI::App* bench = add("bench", "packets and events a second");
  bench->add_flag("--json", options.json, "a line of JSON a case");
  AddNumber(*bench, "--scale", options.bench_scale, "of the worst fabric's bytes");
  try {
    app.parse(argc, argv);
    RefuseEmptyValues(app);
    if (list->parsed()) List(options);
    if (show->parsed()) Show(options);
    if (run->parsed()) return RunOne(options);
    if (sweep->parsed()) return RunSweep(options);
    if (bench->parsed()) return Bench(options.plans, options.bench_scale, options.json);
    return 0;
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) return app.exit(error);  // help
    std::fprintf(stderr, "forgive_sim: %s; see forgive_sim --help\n", OneLine(error).c_str());
    return kExitUsage;
  } catch (const PlanError& error) {
    std::fprintf(stderr, "forgive_sim: %s\n", error.what());
    return kExitUsage;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "forgive_sim: %s\n", error.what());
    return kExitFailed;
  }
}

}  // namespace

int Main(int argc, char** argv) {
  OpenStandardDescriptors();
  const int status = ParseAndRun(argc, argv);
  return FinishStandardOutput("forgive_sim", status, kExitFailed);
}

}  // namespace forgive::sim
