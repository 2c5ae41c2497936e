// SPDX-License-Identifier: Apache-2.0
// Each driver, as the library itself answers when it is asked for it, and what the kernel offers for it.
#include <dlfcn.h>
#include <fmt/format.h>
#include <linux/capability.h>
#include <netinet/in.h>
#include <netinet/udp.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <filesystem>

#include "testbed/doctor/ask_library.h"
#include "testbed/doctor/bounded.h"
#include "testbed/doctor/checks.h"
#include "testbed/doctor/host.h"

#ifndef UDP_SEGMENT
#define UDP_SEGMENT 103
#endif
#ifndef UDP_GRO
#define UDP_GRO 104
#endif
#ifndef SYS_io_uring_setup
#define SYS_io_uring_setup 425
#endif

namespace forgive::doctor {
namespace {

constexpr size_t kRingParametersBytes = 120;  // of io_uring_setup(2)

void CheckRawSocket(Section* section) {
  const int fd = socket(AF_INET, SOCK_RAW | SOCK_CLOEXEC, IPPROTO_UDP);
  if (fd >= 0) {
    close(fd);
    section->Ok("raw socket", "permitted: cut packets are seen whatever lengths and checksum the switch left");
  } else if (Variable("FORGIVE_TRIM") == "0") {
    section->Info("raw socket", fmt::format("{}; not needed with FORGIVE_TRIM=0", std::strerror(errno)));
  } else {
    section->Warn("raw socket",
                  fmt::format("{}: cut packets whose UDP length or checksum the switch left stale are "
                              "dropped by the kernel and recovered as drops; they are not forgiven",
                              std::strerror(errno)),
                  "give CAP_NET_RAW (docker run --cap-add NET_RAW, or setcap cap_net_raw+ep on the program)");
  }
}

void CheckUdpOffloads(Section* section) {
  const int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  const int zero = 0;
  const int one = 1;
  const bool segment = fd >= 0 && setsockopt(fd, IPPROTO_UDP, UDP_SEGMENT, &zero, sizeof(zero)) == 0;
  const bool coalesce = fd >= 0 && setsockopt(fd, IPPROTO_UDP, UDP_GRO, &one, sizeof(one)) == 0;
  if (fd >= 0) close(fd);
  if (segment && coalesce) {
    section->Ok("UDP_SEGMENT, UDP_GRO", "the kernel has both");
  } else {
    section->Warn("UDP_SEGMENT, UDP_GRO", "the kernel lacks one: each packet costs a system call's share",
                  "use Linux 5.0 or later");
  }
}

void CheckRing(Section* section) {
  alignas(8) char parameters[kRingParametersBytes] = {};
  const long fd = syscall(SYS_io_uring_setup, 4, parameters);
  if (fd >= 0) {
    close(static_cast<int>(fd));
    section->Info("io_uring", "the kernel offers it to this process");
    return;
  }
  const std::string disabled = ReadLine("/proc/sys/kernel/io_uring_disabled");
  section->Info("io_uring", fmt::format("not offered: {}{}", std::strerror(errno),
                                        disabled.empty() || disabled == "0"
                                            ? " (a container's seccomp profile refuses it, or the kernel is old)"
                                            : ", kernel.io_uring_disabled=" + disabled));
}

void CheckHugePages(Section* section) {
  std::vector<std::string> sizes;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator("/sys/kernel/mm/hugepages", error)) {
    const std::string folder = entry.path().string();
    sizes.push_back(fmt::format("{}: {} of {} free", entry.path().filename().string(),
                                ReadLine(folder + "/free_hugepages"), ReadLine(folder + "/nr_hugepages")));
  }
  section->Info("hugepages", (sizes.empty() ? "the kernel has none" : Join(sizes, "; ")) +
                                 " (only DPDK could use them, and runs without)");
}

// DPDK's libraries carry the version of their binary interface: 23 is 22.11, and each year's is one more.
void CheckDpdkLibrary(Section* section) {
  std::string found;
  for (int version = 20; version <= 30 && found.empty(); ++version) {
    const std::string name = fmt::format("librte_eal.so.{}", version);
    if (dlopen(name.c_str(), RTLD_LAZY | RTLD_LOCAL) != nullptr) found = name;
  }
  section->Info("DPDK", found.empty() ? "no librte_eal on the loader's path" : found + " is on the loader's path");
}

// The driver's module lies beside the plugin. Loading it starts nothing.
void CheckDpdkModule(const std::string& library, Section* section) {
  const std::string module = (std::filesystem::path(library).parent_path() / "libforgive_dpdk.so").string();
  if (dlopen(module.c_str(), RTLD_LAZY | RTLD_LOCAL) != nullptr) {
    section->Info("driver dpdk", "its module loads; with FORGIVE_DRIVER=dpdk the doctor tries its ports too");
  } else {
    section->Info("driver dpdk", fmt::format("not usable: {}", dlerror()));
  }
}

void CheckCapabilities(Section* section) {
  const bool raw = HasCapability(CAP_NET_RAW);
  const bool admin = HasCapability(CAP_NET_ADMIN);
  section->Info("capabilities", fmt::format("CAP_NET_RAW {}, CAP_NET_ADMIN {} (af_packet needs both)",
                                            raw ? "yes" : "no", admin ? "yes" : "no"));
}

// Asks the library for a driver by its own init, so that there is one truth about what is built and what works.
void AskDriver(const Context& context, const std::string& driver, Section* section) {
  const std::string chosen = context.in_force.value("driver", "");
  const InitFacts facts =
      AskInit(context.library, NetVersionInUse(context), context.limit, {{"FORGIVE_DRIVER", driver}});
  std::string text = facts.answered ? "usable" : "init " + facts.problem;
  if (facts.answered && facts.result != 0) {
    text = fmt::format("init returned {}", facts.result);
    for (const InitLine& line : facts.lines) text = line.warning ? line.text : text;
  }
  const bool usable = facts.answered && facts.result == 0;
  const std::string name = "driver " + driver;
  if (driver == chosen && usable) {
    section->Ok(name, fmt::format("usable, and the one in use ({})", context.in_force.value("driver_reason", "")));
  } else if (driver == chosen) {
    section->Fail(name, text, "choose another with FORGIVE_DRIVER");
  } else {
    section->Info(name, text);
  }
}

}  // namespace

Section CheckDrivers(const Context& context) {
  Section section{"Drivers", {}};
  if (context.started) {
    for (const char* driver : {"udp", "uring"}) AskDriver(context, driver, &section);
    // DPDK's start of a port sets the interface's address anew, so it is asked only where it is in use anyway.
    if (Variable("FORGIVE_DRIVER") == "dpdk") AskDriver(context, "dpdk", &section);
  } else {
    section.Info("drivers", "not asked, since the library did not start");
  }
  CheckBounded(context, "raw socket", Status::kWarn, &section, CheckRawSocket);
  CheckBounded(context, "UDP offloads", Status::kWarn, &section, CheckUdpOffloads);
  CheckBounded(context, "io_uring", Status::kInfo, &section, CheckRing);
  CheckBounded(context, "DPDK", Status::kInfo, &section, CheckDpdkLibrary);
  if (Variable("FORGIVE_DRIVER") != "dpdk") {
    CheckBounded(context, "driver dpdk", Status::kInfo, &section,
                 [&](Section* found) { CheckDpdkModule(context.library, found); });
  }
  CheckBounded(context, "hugepages", Status::kInfo, &section, CheckHugePages);
  CheckBounded(context, "capabilities", Status::kInfo, &section, CheckCapabilities);
  return section;
}

}  // namespace forgive::doctor
