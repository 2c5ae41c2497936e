// SPDX-License-Identifier: Apache-2.0
// Limits of the kernel and of this process: socket buffers, open files, locked and shared memory, CPUs, the clock.
#include <fmt/format.h>
#include <linux/capability.h>
#include <sched.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/statvfs.h>
#include <time.h>

#include <filesystem>
#include <fstream>

#include "testbed/doctor/bounded.h"
#include "testbed/doctor/checks.h"
#include "testbed/doctor/host.h"

namespace forgive::doctor {
namespace {

constexpr int64_t kMiB = 1 << 20;
constexpr int64_t kReceiveBufferBytes = 64 * kMiB;  // FORGIVE_RECEIVE_BUFFER_BYTES' default
constexpr int64_t kSendBufferBytes = 4 * kMiB;      // what the udp driver asks for
constexpr uint64_t kOpenFiles = 4096;
constexpr uint64_t kSharedMemoryBytes = 256u << 20;  // below this, NCCL's own shared memory of one node is tight
constexpr int kClockReadings = 2000;

void CheckBuffer(const char* name, int64_t wanted_bytes, Section* section) {
  const std::string file = fmt::format("/proc/sys/net/core/{}", name);
  const std::optional<int64_t> most = ReadNumber(file);
  const std::string key = fmt::format("net.core.{}", name);
  if (!most) {
    section->Info(key, "not readable here (a container's own network hides it); the library's line says what it got");
  } else if (*most >= wanted_bytes) {
    section->Ok(key, fmt::format("{} bytes", *most));
  } else if (HasCapability(CAP_NET_ADMIN)) {
    section->Ok(key, fmt::format("{} bytes; CAP_NET_ADMIN allows the {} that are wanted", *most, wanted_bytes));
  } else {
    section->Warn(key, fmt::format("{} bytes, {} are wanted: bursts may be lost in the socket", *most, wanted_bytes),
                  fmt::format("on the host: sysctl -w {}={}, or give CAP_NET_ADMIN", key, wanted_bytes));
  }
}

std::string LimitText(rlim_t limit) { return limit == RLIM_INFINITY ? "unlimited" : std::to_string(limit); }

void CheckResources(Section* section) {
  rlimit files{};
  getrlimit(RLIMIT_NOFILE, &files);
  if (files.rlim_cur >= kOpenFiles) {
    section->Ok("open files", LimitText(files.rlim_cur));
  } else {
    section->Warn(
        "open files", fmt::format("{}: NCCL opens several for each peer", files.rlim_cur),
        fmt::format("ulimit -n {} (docker run --ulimit nofile=65536)", files.rlim_max >= 65536 ? 65536 : kOpenFiles));
  }
  rlimit locked{};
  getrlimit(RLIMIT_MEMLOCK, &locked);
  section->Info("locked memory", locked.rlim_cur == RLIM_INFINITY
                                     ? "unlimited"
                                     : fmt::format("{} KiB (kernel UDP locks none)", locked.rlim_cur / 1024));
  struct statvfs shared {};
  if (statvfs("/dev/shm", &shared) != 0) return;
  const uint64_t bytes = static_cast<uint64_t>(shared.f_blocks) * shared.f_frsize;
  if (bytes >= kSharedMemoryBytes) {
    section->Ok("/dev/shm", fmt::format("{} MiB", bytes >> 20));
  } else {
    section->Warn("/dev/shm", fmt::format("{} MiB: NCCL keeps the traffic inside a node there", bytes >> 20),
                  "docker run --shm-size=1g, or --ipc=host");
  }
}

void CheckCpus(Section* section) {
  cpu_set_t allowed;
  const int cpus = sched_getaffinity(0, sizeof(allowed), &allowed) == 0 ? CPU_COUNT(&allowed) : 1;
  const std::vector<std::string> quota = Split(ReadLine("/sys/fs/cgroup/cpu.max"), ' ');
  double share = cpus;
  if (quota.size() == 2 && ToNumber(quota[0]) && ToNumber(quota[1]).value_or(0) > 0) {
    share = std::min(share, static_cast<double>(*ToNumber(quota[0])) / static_cast<double>(*ToNumber(quota[1])));
  }
  const std::string text = fmt::format("{:g} for this process", share);
  if (share >= 2) {
    section->Ok("CPUs", text);
  } else {
    section->Warn("CPUs", text + ": the library's poll thread and NCCL's proxy thread share it",
                  "give two or more CPUs to a rank");
  }
}

void CheckClock(Section* section) {
  timespec begin{};
  timespec end{};
  clock_gettime(CLOCK_MONOTONIC, &begin);
  for (int i = 0; i < kClockReadings; ++i) clock_gettime(CLOCK_MONOTONIC, &end);
  const int64_t took_ns = (end.tv_sec - begin.tv_sec) * 1000000000 + end.tv_nsec - begin.tv_nsec;
  const std::string folder = "/sys/devices/system/clocksource/clocksource0/";
  const std::string source = ReadLine(folder + "current_clocksource");
  const std::string text =
      fmt::format("{}, one reading takes {} ns", source.empty() ? "unknown" : source, took_ns / kClockReadings);
  if (source == "hpet" || source == "acpi_pm" || source == "jiffies") {
    section->Warn("clock", text + ": slow or coarse",
                  "boot with clocksource=tsc if it is among: " + ReadLine(folder + "available_clocksource"));
  } else {
    section->Ok("clock", text);
  }
}

void CheckGpu(Section* section) {
  std::error_code error;
  std::ifstream version("/proc/driver/nvidia/version");
  std::string line;
  if (std::getline(version, line)) {
    section->Info("GPU", line);
  } else {
    section->Info("GPU", "no NVIDIA driver: NCCL itself needs one; forgive_perf tries the library without");
  }
}

}  // namespace

Section CheckLimits(const Context& context) {
  Section section{"Kernel and limits", {}};
  CheckBounded(context, "limits", Status::kWarn, &section, [](Section* found) {
    const int64_t wanted = ToNumber(Variable("FORGIVE_RECEIVE_BUFFER_BYTES")).value_or(kReceiveBufferBytes);
    CheckBuffer("rmem_max", wanted, found);
    CheckBuffer("wmem_max", kSendBufferBytes, found);
    CheckResources(found);
    CheckCpus(found);
    CheckClock(found);
    CheckGpu(found);
  });
  return section;
}

}  // namespace forgive::doctor
