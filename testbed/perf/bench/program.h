// SPDX-License-Identifier: Apache-2.0
// How a benchmark program begins and ends: options, one line for what went wrong, figures to a file.
#ifndef FORGIVE_TESTBED_PERF_BENCH_PROGRAM_H_
#define FORGIVE_TESTBED_PERF_BENCH_PROGRAM_H_

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <exception>
#include <nlohmann/json.hpp>
#include <string>

#include "testbed/entry_lib/command_line.h"
#include "testbed/entry_lib/standard_streams.h"
#include "testbed/entry_lib/whole_file.h"
#include "testbed/perf/error.h"

namespace forgive::perf {

// Parses into the options that were added. False: help was asked for and printed. Throws UsageError.
inline bool ParseCommandLine(CLI::App& app, int argc, char** argv) {
  try {
    app.parse(argc, argv);
    RefuseEmptyValues(app);
  } catch (const CLI::CallForHelp&) {
    fmt::print("{}", app.help());
    return false;
  } catch (const CLI::ParseError& error) {
    throw UsageError(OneLine(error));
  }
  return true;
}

// The turns of every benchmark here. Throws UsageError where they make no sense.
inline void CheckTurns(uint32_t rounds, double seconds) {
  if (rounds == 0 || rounds > 1000) throw UsageError(fmt::format("--rounds {}: give 1 to 1000", rounds));
  if (!(seconds > 0 && seconds <= 60)) {
    throw UsageError(fmt::format("--seconds {}: give more than 0 and at most 60", seconds));
  }
}

// Nothing if no file was named. Throws RunError.
inline void WriteJsonFile(const std::string& name, const nlohmann::json& json) {
  if (name.empty()) return;
  const std::string error = WriteWholeFile(name, json.dump(1) + '\n');
  if (!error.empty()) throw RunError(fmt::format("{}: cannot be written: {}; name another file", name, error));
}

// Runs `run(argc, argv)` and turns what it throws into one line and an exit status (testbed/perf/error.h).
template <typename Run>
int RunProgram(const char* name, int argc, char** argv, const Run& run) {
  OpenStandardDescriptors();
  int status = kExitRunFailed;
  try {
    status = run(argc, argv);
  } catch (const UsageError& error) {
    fmt::print(stderr, "{}: {}\n", name, error.what());
    status = kExitUsage;
  } catch (const std::exception& error) {
    fmt::print(stderr, "{}: {}\n", name, error.what());
  }
  return FinishStandardOutput(name, status, kExitRunFailed);
}

}  // namespace forgive::perf

#endif  // FORGIVE_TESTBED_PERF_BENCH_PROGRAM_H_
