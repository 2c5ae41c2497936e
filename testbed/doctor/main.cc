// SPDX-License-Identifier: Apache-2.0
// forgive_doctor: says what FORGIVE would do on this host, and what to do about what would not work.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <csignal>
#include <cstdio>

#include "testbed/doctor/checks.h"
#include "testbed/doctor/report.h"
#include "testbed/entry_lib/command_line.h"
#include "testbed/entry_lib/standard_streams.h"

namespace forgive::doctor {
namespace {

constexpr double kLeastLimitS = 0.1;
constexpr double kMostLimitS = 600;
constexpr const char* kFooter =
    "Exit status: 0 it works (warnings or none), 1 warnings and --strict, 2 it cannot work as things stand,\n"
    "3 bad input. Run it on every host, in the job's own environment.";

struct Options {
  std::string library;
  bool json = false;
  bool strict = false;
  double limit_s = 10;
};

int Refuse(const std::string& text) {
  fmt::print(stderr, "forgive_doctor: {}\n", text);
  return kExitUsage;
}

std::vector<Section> Examine(Context* context) {
  std::vector<Section> sections;
  sections.push_back(ReadNcclFiles(*context));
  if (sections.back().findings.empty()) sections.pop_back();
  sections.push_back(CheckLibrary(context));
  sections.push_back(CheckNccl(context));
  sections.push_back(CheckEnvironment(*context));
  sections.push_back(CheckStart(context));
  sections.push_back(CheckNetwork(*context));
  sections.push_back(CheckDrivers(*context));
  sections.push_back(CheckLimits(*context));
  return sections;
}

int Run(const Options& options) {
  Context context;
  context.library_option = options.library;
  context.limit = std::chrono::milliseconds(static_cast<int64_t>(options.limit_s * 1000));
  const std::vector<Section> sections = Examine(&context);
  const std::string text = options.json ? JsonText(context, sections, options.strict) : Text(sections);
  std::fputs(text.c_str(), stdout);
  return FinishStandardOutput("forgive_doctor", ExitStatus(sections, options.strict), kExitUsage);
}

}  // namespace
}  // namespace forgive::doctor

int main(int argc, char** argv) {
  namespace doctor = forgive::doctor;
  forgive::OpenStandardDescriptors();
  std::signal(SIGPIPE, SIG_IGN);
  doctor::Options options;
  CLI::App app("Says what FORGIVE would do on this host, and what to do about what would not work.",
               "forgive_doctor");
  app.add_option("--library", options.library, "the plugin's file (default: NCCL_NET_PLUGIN's, else this build's)");
  app.add_flag("--json", options.json, "one JSON object on standard output");
  app.add_flag("--strict", options.strict, "warnings give exit status 1");
  forgive::AddNumber(app, "--timeout", options.limit_s, "seconds for each question that could hang (default 10)");
  app.footer(doctor::kFooter);
  try {
    app.parse(argc, argv);
    forgive::RefuseEmptyValues(app);
  } catch (const CLI::CallForHelp&) {
    fmt::print("{}", app.help());
    return forgive::FinishStandardOutput("forgive_doctor", doctor::kExitWorks, doctor::kExitUsage);
  } catch (const CLI::ParseError& error) {
    return doctor::Refuse(forgive::OneLine(error) + "; see forgive_doctor --help");
  }
  if (!(options.limit_s >= doctor::kLeastLimitS && options.limit_s <= doctor::kMostLimitS)) {
    return doctor::Refuse(fmt::format("--timeout {}: give seconds from 0.1 to 600", options.limit_s));
  }
  try {
    return doctor::Run(options);
  } catch (const std::exception& error) {
    return doctor::Refuse(error.what());
  }
}
