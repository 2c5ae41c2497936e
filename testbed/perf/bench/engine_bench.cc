// SPDX-License-Identifier: Apache-2.0
// One core, engine to engine in memory, payload CRC and copy included, beside a loop that does only that work.
#include <fmt/format.h>
#include <sched.h>

#include <cstring>

#include "dataplane/memory_driver.h"
#include "testbed/perf/bench/program.h"
#include "testbed/perf/bench/transfer.h"
#include "testbed/perf/bench/turns.h"
#include "transport/check.h"
#include "transport/crc32c.h"

// Both engines, the poster and the ceiling's loop share one CPU, so that "one core" is what it says. Figures are
// bytes by the processor time of the whole process: what other programs take of the CPU does not count, spinning
// does.

namespace forgive::perf {
namespace {

constexpr uint64_t kMemoryBytes = 256u << 20;
constexpr uint32_t kSegmentBytes = kMaxPayloadBytes;

struct Options {
  uint32_t rounds = 7;
  double seconds = 1;
  uint32_t queue_packets = 256;
  uint32_t window_bytes = Config{}.window_bytes;
  std::string json_file;
};

// Keeps this process on the CPU on which it is.
void StayOnOneCpu() {
  const int cpu = sched_getcpu();
  cpu_set_t one;
  CPU_ZERO(&one);
  CPU_SET(static_cast<size_t>(cpu < 0 ? 0 : cpu), &one);
  if (sched_setaffinity(0, sizeof(one), &one) != 0) throw RunError("the process cannot be kept on one CPU");
}

std::unique_ptr<Engine> StartEngine(const std::shared_ptr<MemoryHub>& hub, const Options& options) {
  EngineOptions engine;
  engine.transport.congestion_control = CongestionControlKind::kNone;
  engine.transport.window_bytes = options.window_bytes;
  engine.devices.emplace_back();
  engine.devices.back().local_address = "127.0.0.1";
  engine.driver_factory = [hub](const DeviceOptions&, const EngineOptions&, std::string*) { return hub->Open(); };
  std::string error;
  std::unique_ptr<Engine> started = Engine::Start(engine, &error);
  if (started == nullptr) throw RunError(error);
  return started;
}

// The work that the data itself needs: a CRC at each side and the copy to its place, a segment at a time.
double CeilingGigabytesPerSecond(const std::vector<uint8_t>& source, std::vector<uint8_t>* destination,
                                 uint32_t (*crc32c)(const void*, size_t)) {
  const double begin = ProcessCpuSeconds();
  uint32_t sum = 0;
  for (size_t at = 0; at < source.size(); at += kSegmentBytes) {
    const uint32_t sent = crc32c(source.data() + at, kSegmentBytes);
    std::memcpy(destination->data() + at, source.data() + at, kSegmentBytes);
    const uint32_t arrived = crc32c(destination->data() + at, kSegmentBytes);
    sum += sent == arrived;
  }
  FORGIVE_CHECK(sum == source.size() / kSegmentBytes);
  return static_cast<double>(source.size()) / (ProcessCpuSeconds() - begin) * 1e-9;
}

bool Parse(int argc, char** argv, Options* options) {
  CLI::App app("One core, engine to engine in memory, beside the CRCs and the copy alone", "engine_bench");
  AddNumber(app, "--rounds", options->rounds, "turns of each contestant (7)");
  AddNumber(app, "--seconds", options->seconds, "length of the engines' turn (1)");
  AddNumber(app, "--queue", options->queue_packets, "packets that the memory driver's queue holds (256)");
  AddNumber(app, "--window", options->window_bytes, "bytes in flight (the transport's default)");
  app.add_option("--json", options->json_file, "write the figures to this file");
  if (!ParseCommandLine(app, argc, argv)) return false;
  CheckTurns(options->rounds, options->seconds);
  if (options->queue_packets < 64) throw UsageError("--queue: give 64 packets or more");
  if (options->window_bytes < 65536) throw UsageError("--window: give 65536 bytes or more");
  return true;
}

nlohmann::json Json(const Options& options, const Turns& turns) {
  return {
      {"program", "engine_bench"},
      {"segment_bytes", kSegmentBytes},
      {"queue_packets", options.queue_packets},
      {"window_bytes", options.window_bytes},
      {"figures", turns.Json()},
      {"ratios",
       {{"engine/ceiling", turns.Ratio("engine", "ceiling")}, {"engine/own_crc", turns.Ratio("engine", "own_crc")}}}};
}

int Run(int argc, char** argv) {
  Options options;
  if (!Parse(argc, argv, &options)) return kExitOk;
  StayOnOneCpu();
  const std::vector<uint8_t> source(kMemoryBytes, 0x5a);
  std::vector<uint8_t> destination(kMemoryBytes, 0xa5);
  const auto hub = MemoryHub::Make(options.queue_packets);
  const auto from = StartEngine(hub, options);
  const auto to = StartEngine(hub, options);
  Transfer transfer(*from, *to, TransferShape{});
  Turns turns;
  for (uint32_t round = 0; round < options.rounds; ++round) {
    turns.Add("engine", "GB/s", transfer.Run(0.1, options.seconds).GigabytesPerCpuSecond());
    turns.Add("ceiling", "GB/s", CeilingGigabytesPerSecond(source, &destination, Crc32cThreeLanes));
    turns.Add("own_crc", "GB/s", CeilingGigabytesPerSecond(source, &destination, Crc32c));
  }
  turns.Print();
  fmt::print("engine/ceiling {:.3f} (two three-way CRC32C and one copy over 256 MiB), engine/own_crc {:.3f}\n",
             turns.Ratio("engine", "ceiling"), turns.Ratio("engine", "own_crc"));
  WriteJsonFile(options.json_file, Json(options, turns));
  return kExitOk;
}

}  // namespace
}  // namespace forgive::perf

int main(int argc, char** argv) { return forgive::perf::RunProgram("engine_bench", argc, argv, forgive::perf::Run); }
