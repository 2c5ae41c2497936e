// SPDX-License-Identifier: Apache-2.0
// Three runs and their user time.
#include "testbed/simulator/bench.h"

#include <fmt/format.h>
#include <sys/resource.h>

#include <cstdio>
#include <nlohmann/json.hpp>

#include "testbed/simulator/commit.h"
#include "testbed/simulator/plan_file.h"
#include "testbed/simulator/run.h"

namespace forgive::sim {
namespace {

double UserSeconds() {
  rusage usage = {};
  getrusage(RUSAGE_SELF, &usage);
  return static_cast<double>(usage.ru_utime.tv_sec) + static_cast<double>(usage.ru_utime.tv_usec) / 1e6;
}

nlohmann::ordered_json Measure(const char* name, const Plan& plan) {
  const double begin = UserSeconds();
  Simulation run(plan, 1);
  const double built = UserSeconds();
  run.ToEnd({});
  const double seconds = UserSeconds() - built;
  uint64_t packets = 0;
  for (int kind = 0; kind < kTrafficKinds; ++kind) {
    packets += run.CountersOf(0, static_cast<TrafficKind>(kind)).packets_sent;
  }
  nlohmann::ordered_json line;
  line["kind"] = "bench";
  line["case"] = name;
  line["plan"] = plan.name();
  line["scale"] = plan.scale;
  line["commit"] = kCommit;
  line["data_packets"] = packets;
  line["events"] = run.events();
  line["set_up_s"] = built - begin;
  line["user_s"] = seconds;
  line["data_packets_per_s"] = static_cast<double>(packets) / seconds;
  line["events_per_s"] = static_cast<double>(run.events()) / seconds;
  return line;
}

}  // namespace

int Bench(const std::string& plans, double scale, bool json) {
  const struct {
    const char* name;
    Plan plan;
  } cases[] = {
      {"worst-fabric", ReadPlan(plans, "worst-fabric/forgive", {}, scale)},
      {"permutation", ReadPlan(plans, "worst-fabric/no-loss", {"workload.pattern=permutation"}, 1)},
      {"incast", ReadPlan(plans, "worst-fabric/no-loss", {"workload.pattern=incast"}, 1)},
  };
  if (!json)
    std::printf("%-14s %12s %12s %10s %14s %14s\n", "case", "packets", "events", "user s", "packets/s", "events/s");
  for (const auto& [name, plan] : cases) {
    const nlohmann::ordered_json line = Measure(name, plan);
    if (json) {
      std::printf("%s\n", line.dump().c_str());
    } else {
      std::printf("%-14s %12llu %12llu %10.2f %14.0f %14.0f\n", name, line["data_packets"].get<unsigned long long>(),
                  line["events"].get<unsigned long long>(), line["user_s"].get<double>(),
                  line["data_packets_per_s"].get<double>(), line["events_per_s"].get<double>());
    }
    std::fflush(stdout);
  }
  rusage usage = {};
  getrusage(RUSAGE_SELF, &usage);
  if (!json) std::printf("most memory: %ld MiB\n", usage.ru_maxrss / 1024);
  return 0;
}

}  // namespace forgive::sim
