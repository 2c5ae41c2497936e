// SPDX-License-Identifier: Apache-2.0
// One stream of TCP over a wire, by iperf3.
#include "testbed/perf/bench/tcp_stream.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cmath>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <string>

#include "testbed/perf/bench/commands.h"
#include "testbed/perf/error.h"

namespace forgive::perf {
namespace {

// The server is bound to end with its one client; where none comes, by time.
constexpr int kServerSeconds = 90;
constexpr int kTries = 30;
constexpr useconds_t kTryMicroseconds = 100000;

// The figure in iperf3's report; below 0: the server does not listen yet.
double Received(const std::string& report) {
  const nlohmann::json json = nlohmann::json::parse(report, nullptr, false);
  if (!json.is_object()) throw RunError("iperf3 is missing or answers without JSON: install iperf3 3.7 or later");
  if (json.contains("error")) {
    const std::string error = json["error"];
    if (error.find("unable to connect") != std::string::npos) return -1;
    throw RunError("iperf3: " + error);
  }
  const double bits = json["end"]["sum_received"]["bits_per_second"];
  return bits * 1e-9;
}

}  // namespace

double RunTcpStream(Wire& wire, double seconds) {
  const std::string address = wire.KernelAddressAt(1);
  FILE* server = nullptr;
  wire.At(1, [&] {
    const std::string command = fmt::format("timeout {} iperf3 -s -1 -B {} 2>&1 >/dev/null", kServerSeconds, address);
    server = popen(command.c_str(), "r");
    if (server == nullptr) throw RunError("iperf3 cannot be started");
  });
  double figure = -1;
  wire.At(0, [&] {
    const long whole = std::max(1L, std::lround(seconds));
    const std::string command = fmt::format("iperf3 -c {} -t {} -J 2>&1", address, whole);
    for (int i = 0; i < kTries && figure < 0; ++i) {
      if (i != 0) usleep(kTryMicroseconds);
      figure = Received(RunCommand(command).output);
    }
  });
  pclose(server);
  if (figure < 0) throw RunError("iperf3's server does not listen at " + address);
  return figure;
}

}  // namespace forgive::perf
