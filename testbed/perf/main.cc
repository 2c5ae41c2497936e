// SPDX-License-Identifier: Apache-2.0
// forgive_perf: runs collectives over an ncclNet plugin as NCCL does, and checks every byte.
#include <fmt/format.h>

#include <cstdio>
#include <cstdlib>

#include "testbed/entry_lib/standard_streams.h"
#include "testbed/entry_lib/whole_file.h"
#include "testbed/perf/error.h"
#include "testbed/perf/launcher.h"
#include "testbed/perf/options.h"

namespace {

using forgive::perf::Options;
using forgive::perf::UsageError;

// Refuses an output file that cannot be written before anything runs.
void CheckOutputs(const Options& options) {
  const auto refuse = [](const char* option, const std::string& file) {
    throw UsageError(fmt::format("{} {}: cannot write there; name another file", option, file));
  };
  const std::string& json = options.json_file;
  const std::string& ledger = options.ledger_file;  // written as it grows
  if (!json.empty() && !forgive::WholeFileIsWritable(json)) refuse("--json", json);
  if (!ledger.empty() && !forgive::FileIsWritable(ledger)) refuse("--ledger", ledger);
}

// What NCCL's environment would say on the same host: loopback for local ranks, and the k of the operator's word.
void SetDefaults(const Options& options, const forgive::perf::Word& word) {
  if (options.rank < 0 && std::getenv("FORGIVE_RAILS") == nullptr) setenv("FORGIVE_INTERFACE", "lo", 0);
  // What the plugin warns of is shown here, as by NCCL: it need not say it on standard error too.
  setenv("NCCL_DEBUG", "WARN", 0);
  if (!word.by_operator) return;
  // The direct algorithms post two reduce-scatter and two all-gather slices a loop: the pattern of a ring of two.
  const bool direct = options.algorithm == forgive::perf::Algorithm::kDirect;
  setenv("FORGIVE_RING_RANKS", std::to_string(direct ? 2 : options.ranks).c_str(), 0);
  setenv("FORGIVE_GRADIENT_RANKS", std::to_string(options.ranks).c_str(), 0);
}

int Run(int argc, char** argv) {
  try {
    std::optional<Options> options = forgive::perf::ParseOptions(argc, argv);
    if (!options) return forgive::perf::kExitOk;
    CheckOutputs(*options);
    forgive::perf::Word word = forgive::perf::ReadWord();
    options->traffic_class = word.traffic_class;
    // Where NCCL proves, the communicator's mark counts as well.
    if (options->proof != forgive::perf::Proof::kWord && word.by_mark) word.gradient_traffic = true;
    SetDefaults(*options, word);
    return options->rank < 0 ? forgive::perf::RunLocalRanks(*options, word)
                             : forgive::perf::RunOneRank(*options, word);
  } catch (const UsageError& error) {
    std::fprintf(stderr, "forgive_perf: %s\n", error.what());
    return forgive::perf::kExitUsage;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "forgive_perf: %s\n", error.what());
    return forgive::perf::kExitRunFailed;
  }
}

}  // namespace

int main(int argc, char** argv) {
  forgive::OpenStandardDescriptors();
  const int status = Run(argc, argv);
  return forgive::FinishStandardOutput("forgive_perf", status, forgive::perf::kExitRunFailed);
}
