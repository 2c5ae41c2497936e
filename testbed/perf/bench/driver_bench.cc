// SPDX-License-Identifier: Apache-2.0
// One driver over a wire: engines, beside the driver alone, and TCP or DPDK's own program on the same wire, in turns.
#include <malloc.h>
#include <unistd.h>

#include <algorithm>

#include "testbed/perf/bench/commands.h"
#include "testbed/perf/bench/program.h"
#include "testbed/perf/bench/raw_driver.h"
#include "testbed/perf/bench/tcp_stream.h"
#include "testbed/perf/bench/testpmd.h"
#include "testbed/perf/bench/transfer.h"
#include "testbed/perf/bench/turns.h"
#include "testbed/perf/bench/wires.h"

namespace forgive::perf {
namespace {

struct Options {
  std::string driver = "udp", network = "veth", dpdk_module, json_file;
  uint32_t rounds = 5;
  uint32_t connections = 64;
  double seconds = 1;
  double idle_seconds = 2;
  uint64_t window_bytes = Config{}.window_bytes;
};

// Two engines, one at each end of the wire.
struct Pair {
  explicit Pair(Wire& wire) {
    for (int end = 0; end < 2; ++end) {
      wire.At(end, [&] {
        std::string error;
        engines[end] = Engine::Start(wire.OptionsAt(end), &error);
        if (engines[end] == nullptr) throw RunError(error);
      });
    }
  }
  std::unique_ptr<Engine> engines[2];
};

bool Parse(int argc, char** argv, Options* options) {
  CLI::App app("Engines over one driver, beside the driver alone, iperf3's TCP or testpmd, in turns", "driver_bench");
  app.add_option("--driver", options->driver, "udp, uring or dpdk")->required();
  app.add_option("--network", options->network,
                 "veth between two namespaces; dpdk only: memif, or null (sending alone)");
  AddNumber(app, "--rounds", options->rounds, "turns of each contestant (5)");
  AddNumber(app, "--seconds", options->seconds, "length of a turn (1)");
  AddNumber(app, "--connections", options->connections, "of the engine with many; 1: leave it out (64)");
  AddNumber(app, "--window", options->window_bytes, "bytes in flight of a connection (the transport's default)");
  AddNumber(app, "--idle-seconds", options->idle_seconds, "how long idle engines are watched; 0: not (2)");
  app.add_option("--dpdk-module", options->dpdk_module, "libforgive_dpdk.so, if not the build's");
  app.add_option("--json", options->json_file, "write the figures to this file");
  if (!ParseCommandLine(app, argc, argv)) return false;
  CheckTurns(options->rounds, options->seconds);
  CheckWire(options->driver, options->network);
  if (options->connections == 0 || options->connections > 1024) throw UsageError("--connections: give 1 to 1024");
  if (options->window_bytes < 65536) throw UsageError("--window: give 65536 bytes or more");
  if (!(options->idle_seconds >= 0 && options->idle_seconds <= 60)) throw UsageError("--idle-seconds: give 0 to 60");
  if (options->dpdk_module.empty()) options->dpdk_module = BuildFolder() + "plugin/libforgive_dpdk.so";
  return true;
}

constexpr double kWarmSeconds = 0.2;

// Four messages of 1 MiB take one connection 0.8 ms: looked at every 500 us, it would wait for posts.
constexpr uint32_t kPollOneMicroseconds = 150;

// As NCCL posts: four messages of 1 MiB in a buffer of 4 MiB; with many connections fewer, in 1 MiB each.
TransferShape Shape(uint32_t connections) {
  TransferShape shape;
  shape.connections = connections;
  shape.messages_ahead = connections == 1 ? 4 : 2;
  if (connections == 1) shape.poll_microseconds = kPollOneMicroseconds;
  shape.memory_bytes = std::max(kLeastSourceBytes, uint64_t{connections} * shape.message_bytes);
  return shape;
}

double HeapBytes() {
  const struct mallinfo2 info = mallinfo2();
  return static_cast<double>(info.uordblks) + static_cast<double>(info.hblkhd);
}

// Without the messages' own memory. Both ends are in this process.
double BytesPerConnectionEnd(Wire& wire, uint32_t connections) {
  const Pair pair(wire);
  TransferShape shape = Shape(connections);
  shape.memory_bytes = shape.message_bytes;
  const double before = HeapBytes();
  const Transfer transfer(*pair.engines[0], *pair.engines[1], shape);
  return (HeapBytes() - before - 2.0 * static_cast<double>(shape.memory_bytes)) / (2.0 * connections);
}

Moved RunEngine(Wire& wire, const TransferShape& shape, double seconds) {
  const Pair pair(wire);
  Transfer transfer(*pair.engines[0], *pair.engines[1], shape);
  return transfer.Run(kWarmSeconds, seconds);
}

// One connection through as much memory as `connections` have, so that what memory costs is told from what
// connections cost.
TransferShape Wide(uint32_t connections) {
  TransferShape shape = Shape(1);
  shape.memory_bytes = Shape(connections).memory_bytes;
  return shape;
}

// The driver alone, with as much on the way, from as much memory.
Moved RunRaw(Wire& wire, uint32_t connections, double seconds) {
  return RunRawDriver(wire, connections, Shape(connections).memory_bytes, kWarmSeconds, seconds);
}

// By the clock, and by the processor time of both ends together, which other programs hardly change.
void AddMoved(const std::string& name, const Moved& moved, Turns* turns) {
  turns->Add(name, "Gbit/s", moved.GigabitsPerSecond());
  turns->Add(name + " a CPU", "Gbit/s", 8 * moved.GigabytesPerCpuSecond());
}

// Percent of a CPU that one engine takes while nothing is posted, with a connection that has been used.
double IdlePercent(Wire& wire, double seconds) {
  const Pair pair(wire);
  Transfer transfer(*pair.engines[0], *pair.engines[1], Shape(1));
  transfer.Run(0, 0.1);
  usleep(500000);
  const double begin = WallSeconds();
  const double begin_cpu = ProcessCpuSeconds();
  usleep(static_cast<useconds_t>(seconds * 1e6));
  return 100 * (ProcessCpuSeconds() - begin_cpu) / (WallSeconds() - begin) / 2;
}

nlohmann::json Ratios(const Turns& turns) {
  nlohmann::json ratios = nlohmann::json::object();
  if (!turns.Has("engine")) return ratios;
  ratios["engine/raw"] = turns.Ratio("engine", "raw");
  ratios["engine/raw a CPU"] = turns.Ratio("engine a CPU", "raw a CPU");
  if (turns.Has("tcp")) ratios["engine/tcp"] = turns.Ratio("engine", "tcp");
  if (turns.Has("testpmd")) ratios["engine/testpmd"] = turns.Ratio("engine", "testpmd");
  if (turns.Has("many")) {
    for (const std::string suffix : {"", " a CPU"}) {
      ratios["many/engine" + suffix] = turns.Ratio("many" + suffix, "engine" + suffix);
      ratios["many/wide" + suffix] = turns.Ratio("many" + suffix, "wide" + suffix);
      ratios["raw many/raw" + suffix] = turns.Ratio("raw many" + suffix, "raw" + suffix);
    }
  }
  return ratios;
}

// Nothing comes back from a null port, so no connection can be made over it, and there is only the driver to measure.
void RunNull(Wire& wire, const Options& options, Turns* turns) {
  for (uint32_t round = 0; round < options.rounds; ++round) {
    turns->Add("send", "ns a packet", RunSendOnly(wire, options.seconds));
  }
}

void RunPairs(Wire& wire, const Options& options, Turns* turns) {
  const bool testpmd = options.network == "memif" && HasTestpmd();
  if (options.network == "memif" && !testpmd) {
    fmt::print(stderr, "driver_bench: left out: testpmd: dpdk-testpmd is missing: apt-get install dpdk-dev\n");
  }
  for (uint32_t round = 0; round < options.rounds; ++round) {
    AddMoved("raw", RunRaw(wire, 1, options.seconds), turns);
    AddMoved("engine", RunEngine(wire, Shape(1), options.seconds), turns);
    if (options.connections > 1) {
      AddMoved("raw many", RunRaw(wire, options.connections, options.seconds), turns);
      AddMoved("wide", RunEngine(wire, Wide(options.connections), options.seconds), turns);
      AddMoved("many", RunEngine(wire, Shape(options.connections), options.seconds), turns);
    }
    if (!wire.KernelAddressAt(1).empty()) turns->Add("tcp", "Gbit/s", RunTcpStream(wire, options.seconds));
    if (testpmd) turns->Add("testpmd", "Gbit/s", RunTestpmd(wire, options.seconds));
  }
  if (options.idle_seconds > 0) turns->Add("idle", "% CPU", IdlePercent(wire, options.idle_seconds));
  if (options.connections > 1) {
    turns->Add("memory", "KiB", BytesPerConnectionEnd(wire, options.connections) / 1024);
  }
}

int Run(int argc, char** argv) {
  Options options;
  if (!Parse(argc, argv, &options)) return kExitOk;
  const auto wire = MakeWire(options.driver, options.network, options.dpdk_module, options.window_bytes);
  Turns turns;
  if (options.network == "null") {
    RunNull(*wire, options, &turns);
  } else {
    RunPairs(*wire, options, &turns);
  }
  fmt::print("{} over {}: 4,096-byte segments, CRC on; many: {} connections; wide: one, through their memory\n",
             options.driver, options.network, options.connections);
  turns.Print();
  const nlohmann::json ratios = Ratios(turns);
  for (const auto& [name, ratio] : ratios.items()) fmt::print("{} {:.3f}  ", name, ratio.get<double>());
  fmt::print("\n");
  WriteJsonFile(options.json_file, {{"program", "driver_bench"},
                                    {"driver", options.driver},
                                    {"network", options.network},
                                    {"connections", options.connections},
                                    {"window_bytes", options.window_bytes},
                                    {"figures", turns.Json()},
                                    {"ratios", ratios}});
  return kExitOk;
}

}  // namespace
}  // namespace forgive::perf

int main(int argc, char** argv) { return forgive::perf::RunProgram("driver_bench", argc, argv, forgive::perf::Run); }
