// SPDX-License-Identifier: Apache-2.0
// Parses the command line of forgive_replay.
#include "testbed/replay/options.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <iostream>

#include "testbed/entry_lib/command_line.h"
#include "testbed/replay/error.h"

namespace forgive::replay {
namespace {

void AddOptions(CLI::App& app, Options& options) {
  app.add_option("norms", options.norms_file, "recorded norms: CSV with the header step,norm, or JSON lines")
      ->required();
  app.add_option("--detector", options.detector, "accordion, dblp or steps")->capture_default_str();
  AddNumber(app, "--window", options.window, "steps a window has")->capture_default_str();
  AddNumber(app, "--threshold", options.threshold, "the least relative change that is critical")
      ->capture_default_str();
  app.add_option("--steps", options.steps, "the critical steps of --detector steps, by comma")
      ->delimiter(',')
      ->check(IsNumber<uint64_t>());
  app.add_option("--truth", options.truth_file, "labels: CSV with the header step,critical, or JSON lines");
  AddNumber(app, "--p-low", options.p_low, "the budget's fraction on critical steps")->capture_default_str();
  AddNumber(app, "--p-high", options.p_high, "the same on all others")->capture_default_str();
  AddNumber(app, "--expected-bytes", options.expected_bytes, "forgivable bytes of a step, to show budgets in bytes");
  app.add_flag("--sweep", options.sweep, "every window with every threshold");
  app.add_option("--windows", options.windows, "the windows of --sweep, by comma")
      ->delimiter(',')
      ->check(IsNumber<uint64_t>());
  app.add_option("--thresholds", options.thresholds, "the thresholds of --sweep, by comma")
      ->delimiter(',')
      ->check(IsNumber<double>());
  app.add_option("--csv", options.csv_file, "write one row a step to this file");
  app.add_option("--json", options.json_file, "write everything to this file");
  app.add_option("--plot", options.plots, "draw into this file: .png or .html (may be given twice)");
}

void CheckFractions(const Options& options) {
  for (const auto& [name, value] : {std::pair("--p-low", options.p_low), std::pair("--p-high", options.p_high)}) {
    if (!(value >= 0 && value <= 1)) throw InputError(fmt::format("{} {}: accepted is 0 to 1", name, value));
  }
}

}  // namespace

std::optional<Options> ParseOptions(int argc, const char* const* argv) {
  CLI::App app("Replays the detector of critical steps over the gradient norms of a recorded run.", "forgive_replay");
  Options options;
  AddOptions(app, options);
  try {
    app.parse(argc, argv);
    RefuseEmptyValues(app);
  } catch (const CLI::CallForHelp&) {
    std::cout << app.help();
    return std::nullopt;
  } catch (const CLI::ParseError& error) {
    throw InputError(OneLine(error) + "; see --help");
  }
  CheckFractions(options);
  if (options.detector == "steps" && options.sweep) {
    throw InputError("--sweep: a list of steps has neither window nor threshold; give --detector accordion or dblp");
  }
  if (options.sweep && (options.windows.empty() || options.thresholds.empty())) {
    throw InputError("--sweep: needs at least one of --windows and of --thresholds");
  }
  for (const std::string& plot : options.plots) {
    if (!plot.ends_with(".png") && !plot.ends_with(".html")) {
      throw InputError(fmt::format("--plot {}: the name must end in .png or .html", plot));
    }
  }
  return options;
}

}  // namespace forgive::replay
