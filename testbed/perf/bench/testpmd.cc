// SPDX-License-Identifier: Apache-2.0
// dpdk-testpmd: one process txonly, one rxonly, and the figures that it prints every second.
#include "testbed/perf/bench/testpmd.h"

#include <fmt/format.h>
#include <sched.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <string>
#include <vector>

#include "testbed/perf/bench/commands.h"
#include "testbed/perf/bench/turns.h"
#include "testbed/perf/error.h"
#include "transport/wire.h"

namespace forgive::perf {
namespace {

constexpr size_t kFrameBytes = 14 + 20 + 8 + kDataHeaderBytes + kMaxPayloadBytes;  // Ethernet, IPv4, UDP
constexpr int kMbufBytes = 128 + 4608;  // DPDK's headroom, and a frame: one mbuf holds it
constexpr int kMbufs = 8192;
// Around what is measured: both start, the link comes up, and the sender leaves first, since DPDK's memif frees the
// same things twice where both ends leave at the same moment.
constexpr long kStartSeconds = 3;
constexpr long kLeaveSeconds = 1;

// Two CPUs that this process may use, if there are two.
std::vector<int> TwoCpus() {
  cpu_set_t allowed;
  CPU_ZERO(&allowed);
  sched_getaffinity(0, sizeof(allowed), &allowed);
  std::vector<int> cpus;
  for (int cpu = 0; cpu < CPU_SETSIZE && cpus.size() < 2; ++cpu) {
    if (CPU_ISSET(static_cast<size_t>(cpu), &allowed)) cpus.push_back(cpu);
  }
  if (cpus.empty()) throw RunError("no CPU may be used");
  return {cpus.front(), cpus.back()};
}

std::string Command(const DpdkPortOptions& port, const char* mode, int cpu, long seconds) {
  // Ordinary memory, as the driver has here; nothing shared between the two; the port's socket is a new one. The size
  // of mbufs stands before that of frames, which is measured against it when it is read, and else is left at 64 bytes.
  return fmt::format(
      "timeout -k 5 -s INT {} dpdk-testpmd --no-huge -m 256 --no-pci --no-telemetry --no-shconf "
      "--file-prefix=forgive-{} "
      "--lcores 0@{},1@{} --vdev={} -- --forward-mode={} --burst=64 --mbuf-size={} --txpkts={} --total-num-mbufs={} "
      "--stats-period=1 </dev/null 2>&1",
      seconds, mode, cpu, cpu, Quoted(port.device), mode, kMbufBytes, kFrameBytes, kMbufs);
}

// Bits a second, of whole frames, of each second in which some arrived.
std::vector<double> ReceivedRates(const std::string& output) {
  static constexpr std::string_view kWord = "Rx-bps:";
  std::vector<double> rates;
  for (size_t at = output.find(kWord); at != std::string::npos; at = output.find(kWord, at + 1)) {
    const double rate = std::strtod(output.c_str() + at + kWord.size(), nullptr);
    if (rate > 0) rates.push_back(rate);
  }
  return rates;
}

}  // namespace

bool HasTestpmd() { return RunCommand("command -v dpdk-testpmd 2>&1").status == 0; }

double RunTestpmd(Wire& wire, double seconds) {
  const std::vector<int> cpus = TwoCpus();
  const long span = std::max(3L, std::lround(seconds) + 2);  // of the first and the last second only a part counts
  const DpdkPortOptions ports[] = {wire.OptionsAt(0).dpdk.ports.at(0), wire.OptionsAt(1).dpdk.ports.at(0)};
  const std::string socket = ports[0].argument("socket");
  const std::string wait =
      fmt::format("for i in $(seq 100); do test -S {0} && break; sleep 0.1; done; sleep 0.3; ", Quoted(socket));
  const auto results =
      RunAtBothEnds(wire, {wait + Command(ports[1], "txonly", cpus[0], kStartSeconds + span),
                           "rm -f " + Quoted(socket) + "; " +
                               Command(ports[0], "rxonly", cpus[1], kStartSeconds + span + kLeaveSeconds + 1)});
  std::vector<double> rates = ReceivedRates(results[1].output);
  if (rates.size() < 3) throw RunError("dpdk-testpmd moves no packets over " + ports[0].name());
  rates = {rates.begin() + 1, rates.end() - 1};
  return Median(rates) * kMaxPayloadBytes / kFrameBytes * 1e-9;
}

}  // namespace forgive::perf
