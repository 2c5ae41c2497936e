// SPDX-License-Identifier: Apache-2.0
// All-reduce of two processes, one at each end of a wire: the plugin beside kernel TCP, in turns.
#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <utility>
#include <vector>

#include "testbed/perf/bench/commands.h"
#include "testbed/perf/bench/program.h"
#include "testbed/perf/bench/turns.h"
#include "testbed/perf/bench/wires.h"

namespace forgive::perf {
namespace {

struct Options {
  std::string driver = "udp", network = "veth", plugin, congestion_control = "none", json_file;
  uint32_t rounds = 5;
};

// Sizes as forgive_perf reads them, with timed iterations and warm-ups.
struct Size {
  const char* bytes;
  int iterations, warm_up;
};
constexpr Size kSizes[] = {{"64M", 8, 2}, {"1K", 3000, 100}};
constexpr int kRunSeconds = 120;  // the longest that a run may take

bool Parse(int argc, char** argv, Options* options) {
  CLI::App app("All-reduce of two processes over a wire, the plugin beside kernel TCP, in turns", "collective_bench");
  app.add_option("--driver", options->driver, "the plugin's: udp (default), uring or dpdk");
  app.add_option("--network", options->network, "veth between two namespaces (default), or memif (dpdk only)");
  app.add_option("--plugin", options->plugin, "libnccl-net-forgive.so, if not the build's");
  app.add_option("--cc", options->congestion_control, "the plugin's FORGIVE_CC (none)");
  AddNumber(app, "--rounds", options->rounds, "turns of each contestant (5)");
  app.add_option("--json", options->json_file, "write the figures to this file");
  if (!ParseCommandLine(app, argc, argv)) return false;
  CheckTurns(options->rounds, 1);
  CheckWire(options->driver, options->network);
  if (options->network == "null") throw UsageError("--network null: nothing comes back from it; give veth or memif");
  if (options->plugin.empty()) options->plugin = BuildFolder() + "plugin/libnccl-net-forgive.so";
  return true;
}

// A folder that ends with the object.
class Folder {
 public:
  Folder() {
    if (mkdtemp(path_.data()) == nullptr) throw RunError("no folder can be made in " + path_);
  }
  ~Folder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  const std::string& path() const { return path_; }

 private:
  std::string path_ = (std::filesystem::temp_directory_path() / "forgive-bench-XXXXXX").string();
};

// Microseconds of one all-reduce. `variables`: what the process at each end has in its environment besides.
double RunAllReduce(Wire& wire, const std::string& plugin, const std::array<std::string, 2>& variables,
                    const Size& size) {
  const Folder folder;
  const std::string json = folder.path() + "/result.json";
  std::array<std::string, 2> commands;
  for (size_t rank = 0; rank < 2; ++rank) {
    commands[rank] = fmt::format(
        "env {} timeout -k 5 {} {} --plugin {} --rank {} --world 2 --rendezvous {} --no-check --timeout 30 -b {} -e "
        "{} "
        "-n {} -w {} --json {} 2>&1 >/dev/null",
        variables[rank], kRunSeconds, Quoted(BuildFolder() + "testbed/perf/forgive_perf"), Quoted(plugin), rank,
        Quoted("unix:" + folder.path() + "/rendezvous"), size.bytes, size.bytes, size.iterations, size.warm_up,
        Quoted(json));
  }
  for (const CommandResult& result : RunAtBothEnds(wire, commands)) {
    if (result.status == 0) continue;
    std::string text = result.output.substr(0, result.output.find_last_not_of('\n') + 1);
    text = text.substr(text.rfind('\n') + 1);
    throw RunError(text.empty() ? fmt::format("forgive_perf ended with status {}", result.status) : text);
  }
  std::ifstream file(json);
  const nlohmann::json found = nlohmann::json::parse(file, nullptr, false);
  if (!found.is_array() || found.empty()) throw RunError("forgive_perf wrote no result");
  return found[0]["time_us"];
}

void Round(Wire& wire, const Options& options, Turns* turns) {
  std::array<std::string, 2> tcp, forgive;
  for (int end = 0; end < 2; ++end) {
    const auto at = static_cast<size_t>(end);
    const std::string interface = "FORGIVE_INTERFACE=" + wire.KernelInterfaceAt(end);
    tcp[at] = interface;
    forgive[at] = "FORGIVE_CC=" + Quoted(options.congestion_control) + " FORGIVE_DRIVER=" + options.driver + " " +
                  (wire.DpdkPortAt(end).empty() ? interface : "FORGIVE_DPDK=" + Quoted(wire.DpdkPortAt(end)));
  }
  for (const Size& size : kSizes) {
    const std::string text = std::string(" ") + size.bytes;
    turns->Add("tcp" + text, "us", RunAllReduce(wire, "tcp", tcp, size));
    turns->Add("tcp-threaded" + text, "us", RunAllReduce(wire, "tcp-threaded", tcp, size));
    turns->Add("forgive" + text, "us", RunAllReduce(wire, options.plugin, forgive, size));
  }
}

int Run(int argc, char** argv) {
  Options options;
  if (!Parse(argc, argv, &options)) return kExitOk;
  const auto wire = MakeWire(options.driver, options.network, "", Config{}.window_bytes);
  Turns turns;
  for (uint32_t round = 0; round < options.rounds; ++round) Round(*wire, options, &turns);
  fmt::print("all-reduce of two processes, {} over {}; tcp over {}\n", options.driver, options.network,
             wire->KernelInterfaceAt(0) == "lo" ? "loopback" : options.network);
  turns.Print();
  nlohmann::json ratios;
  for (const char* size : {"64M", "1K"}) {
    for (const char* baseline : {"tcp", "tcp-threaded"}) {
      ratios[fmt::format("{}/forgive {}", baseline, size)] =
          turns.Ratio(fmt::format("{} {}", baseline, size), fmt::format("forgive {}", size));
    }
  }
  for (const auto& [name, ratio] : ratios.items()) fmt::print("{} {:.3f}  ", name, ratio.get<double>());
  fmt::print("\n");
  WriteJsonFile(options.json_file, {{"program", "collective_bench"},
                                    {"driver", options.driver},
                                    {"network", options.network},
                                    {"congestion_control", options.congestion_control},
                                    {"figures", turns.Json()},
                                    {"ratios", ratios}});
  return kExitOk;
}

}  // namespace
}  // namespace forgive::perf

int main(int argc, char** argv) {
  return forgive::perf::RunProgram("collective_bench", argc, argv, forgive::perf::Run);
}
