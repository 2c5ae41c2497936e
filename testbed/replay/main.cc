// SPDX-License-Identifier: Apache-2.0
// forgive_replay: which steps of a recorded run the detector calls critical, and what its errors would cost.
#include <fmt/format.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <system_error>
#include <vector>

#include "testbed/entry_lib/standard_streams.h"
#include "testbed/entry_lib/whole_file.h"
#include "testbed/replay/error.h"
#include "testbed/replay/report.h"

namespace {

using forgive::replay::Findings;
using forgive::replay::InputError;
using forgive::replay::Options;

void WriteFile(const std::string& file, const std::string& text) {
  const std::string error = forgive::WriteWholeFile(file, text);
  if (!error.empty()) throw InputError(fmt::format("{}: cannot be written: {}", file, error));
}

// A result may take the place of neither what it is made of nor another result.
void CheckOutputs(const Options& options) {
  std::vector<std::string> outputs = options.plots;
  for (const std::string& file : {options.json_file, options.csv_file}) {
    if (!file.empty()) outputs.push_back(file);
  }
  std::vector<std::string> taken = {options.norms_file};
  if (!options.truth_file.empty()) taken.push_back(options.truth_file);
  for (const std::string& output : outputs) {
    for (const std::string& other : taken) {
      std::error_code ignored;
      const bool device =
          std::filesystem::exists(output, ignored) && !std::filesystem::is_regular_file(output, ignored);
      if (device || (output != other && !std::filesystem::equivalent(output, other, ignored))) continue;
      throw InputError(fmt::format("{}: is read or written already: give each file a name of its own", output));
    }
    taken.push_back(output);
  }
}

// A file for the script that draws, gone when this is.
class TemporaryFile {
 public:
  explicit TemporaryFile(const std::string& text) {
    const int file = mkstemp(name_.data());
    if (file < 0) throw InputError(fmt::format("{}: cannot be made: {}", name_, std::strerror(errno)));
    close(file);
    WriteFile(name_, text);
  }
  ~TemporaryFile() { unlink(name_.c_str()); }
  TemporaryFile(const TemporaryFile&) = delete;
  TemporaryFile& operator=(const TemporaryFile&) = delete;
  const std::string& name() const { return name_; }

 private:
  std::string name_ = (std::filesystem::temp_directory_path() / "forgive_replay.XXXXXX").string();
};

constexpr int kScriptHasSaid = 2;  // plot.py's exit status after its own line

// False: it could not be drawn, and the script has said why.
bool Draw(const std::string& json, const std::string& plot) {
  std::error_code ignored;
  const std::filesystem::path program = std::filesystem::read_symlink("/proc/self/exe", ignored);
  const std::string script = program.parent_path() / "forgive_replay_plot.py";
  if (!std::filesystem::exists(script, ignored)) {
    throw InputError(fmt::format("--plot: {} is missing; it is made with the build", script));
  }
  const TemporaryFile data(json);
  const pid_t child = fork();
  if (child == 0) {
    execl("/usr/bin/python3", "python3", "-B", script.c_str(), data.name().c_str(), plot.c_str(), nullptr);
    std::fprintf(stderr, "forgive_replay: --plot: /usr/bin/python3: %s\n", std::strerror(errno));
    _exit(kScriptHasSaid);
  }
  int status = 0;
  const bool ended = child > 0 && waitpid(child, &status, 0) == child;
  if (ended && WIFEXITED(status) && WEXITSTATUS(status) == kScriptHasSaid) return false;
  if (!ended || status != 0) throw InputError(fmt::format("--plot {}: not drawn", plot));
  return true;
}

Findings Replay(const Options& options) {
  Findings findings;
  findings.rows = forgive::replay::ReadNorms(options.norms_file);
  if (!options.truth_file.empty()) findings.labels = forgive::replay::ReadLabels(options.truth_file);
  findings.classes = Classify(findings.rows, options, options.window, options.threshold);
  findings.comparison = Compare(findings.rows, findings.classes, findings.labels);
  if (!findings.labels.empty() && findings.comparison.labelled == 0) {
    throw InputError(fmt::format("{}: labels none of the steps of {}", options.truth_file, options.norms_file));
  }
  if (options.sweep) findings.sweep = Sweep(findings.rows, options, findings.labels);
  return findings;
}

}  // namespace

int main(int argc, char** argv) {
  forgive::OpenStandardDescriptors();
  try {
    const std::optional<Options> options = forgive::replay::ParseOptions(argc, argv);
    if (!options) return forgive::FinishStandardOutput("forgive_replay", 0, 2);
    CheckOutputs(*options);
    const Findings findings = Replay(*options);
    const std::string json = forgive::replay::ToJson(*options, findings);
    if (!options->json_file.empty()) WriteFile(options->json_file, json);
    if (!options->csv_file.empty()) WriteFile(options->csv_file, ToCsv(*options, findings));
    for (const std::string& plot : options->plots) {
      if (!Draw(json, plot)) return 2;
    }
    std::fputs(ToText(*options, findings).c_str(), stdout);
    return forgive::FinishStandardOutput("forgive_replay", 0, 2);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "forgive_replay: %s\n", error.what());
    return 2;
  }
}
