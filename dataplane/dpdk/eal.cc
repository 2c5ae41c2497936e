// SPDX-License-Identifier: Apache-2.0
// DPDK's environment inside a process that knows nothing of it: started once, quietly, and never ended.
#include "dataplane/dpdk/eal.h"

#include <rte_eal.h>
#include <rte_errno.h>
#include <rte_log.h>
#include <sched.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <mutex>
#include <system_error>
#include <thread>

#include "dataplane/thread_signals.h"

namespace forgive {
namespace {

// Ordinary memory is reserved at the start and costs only what is touched.
constexpr uint32_t kOrdinaryMegabytes = 1024;
// Below this many free bytes of hugepages they are not worth a try: one port takes about half of it.
constexpr uint64_t kLeastHugeBytes = 128u << 20;
constexpr size_t kMostComplaintBytes = 300;

std::mutex complaints_mutex;
std::string complaints;

// DPDK's log stream: lines at error level, kept until somebody asks.
ssize_t KeepComplaint(void*, const char* text, size_t length) {
  const std::lock_guard<std::mutex> lock(complaints_mutex);
  std::string line(text, length);
  while (!line.empty() && (line.back() == '\n' || line.back() == '\r')) line.pop_back();
  std::ranges::replace(line, '\n', ' ');
  if (!line.empty()) complaints += (complaints.empty() ? "" : "; ") + line;
  if (complaints.size() > kMostComplaintBytes) complaints.resize(kMostComplaintBytes);
  return static_cast<ssize_t>(length);
}

bool RedirectLogs() {
  cookie_io_functions_t functions{};
  functions.write = KeepComplaint;
  FILE* stream = fopencookie(nullptr, "w", functions);  // for the life of the process
  if (stream == nullptr) return false;
  setvbuf(stream, nullptr, _IOLBF, 1024);
  rte_openlog_stream(stream);
  rte_log_set_global_level(RTE_LOG_ERR);
  return true;
}

std::string AllowedCpus() {
  cpu_set_t set;
  std::string list;
  if (sched_getaffinity(0, sizeof(set), &set) != 0) return "0";
  for (size_t cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (CPU_ISSET(cpu, &set)) list += (list.empty() ? "" : ",") + std::to_string(cpu);
  }
  return list;
}

uint64_t FreeHugeBytes() {
  uint64_t bytes = 0;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator("/sys/kernel/mm/hugepages", error)) {
    // hugepages-2048kB
    const std::string name = entry.path().filename().string();
    const uint64_t kilobytes = std::strtoull(name.c_str() + std::min<size_t>(name.size(), 10), nullptr, 10);
    uint64_t pages = 0;
    std::ifstream(entry.path() / "free_hugepages") >> pages;
    bytes += pages * kilobytes * 1024;
  }
  return bytes;
}

// Whether this process may have one: a container's limits may say no.
bool MayMapHugePage() {
  constexpr size_t kBytes = 2u << 20;
  void* page = mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_HUGETLB, -1, 0);
  if (page == MAP_FAILED) return false;
  munmap(page, kBytes);
  return true;
}

std::vector<std::string> EalWords(const DpdkDriverOptions& options, bool huge) {
  const std::string prefix = "forgive-" + std::to_string(getpid());
  std::vector<std::string> words{"forgive", "--lcores=0@(" + AllowedCpus() + ")", "--no-telemetry"};
  const auto given = [&](const char* key) {
    return std::ranges::any_of(options.eal, [&](const std::string& word) { return word.starts_with(key); });
  };
  if (!given("--file-prefix=")) words.push_back("--file-prefix=" + prefix);
  if (!huge) {
    words.insert(words.end(), {"--no-huge", "--no-shconf", "-m", std::to_string(kOrdinaryMegabytes)});
  } else if (given("--huge-dir=")) {
    words.insert(words.end(), {"--no-shconf", "--huge-unlink"});
  } else {
    words.push_back("--in-memory");
  }
  // Of the machine's PCI devices only the one that was asked for is touched.
  if (options.port.is_pci()) {
    words.push_back("--allow=" + options.port.device);
  } else {
    words.push_back("--no-pci");
  }
  words.insert(words.end(), options.eal.begin(), options.eal.end());
  return words;
}

struct EalState {
  bool started = false;
  bool huge = false;
  bool pci = false;
  pid_t process = 0;
  std::string error;  // why it does not run
};

// EAL pins the thread that initialises it, so that thread is one of its own which then ends.
void RunInit(std::vector<std::string> words, EalState* state) {
  std::vector<char*> arguments;
  for (std::string& word : words) arguments.push_back(word.data());
  int result = -1;
  const BlockedSignals blocked;  // the mask that EAL's own threads inherit
  try {
    std::thread([&] { result = rte_eal_init(static_cast<int>(arguments.size()), arguments.data()); }).join();
  } catch (const std::system_error& refused) {
    state->error = std::string("no thread to start DPDK: ") + refused.what() + " (raise ulimit -u)";
    return;
  }
  state->started = result >= 0;
  const int code = rte_errno;
  const std::string said = TakeEalComplaints();
  // EAL leaves an empty folder for each prefix.
  if (const char* folder = rte_eal_get_runtime_dir(); folder != nullptr && folder[0] != '\0') rmdir(folder);
  if (state->started) return;
  state->error = std::string("DPDK does not start: ") + (code != 0 ? rte_strerror(code) : "bad options") + said +
                 ": see FORGIVE_DPDK in docs/using.md, or choose FORGIVE_DRIVER=udp";
}

EalState FirstStart(const DpdkDriverOptions& options) {
  EalState state;
  const bool offered = FreeHugeBytes() >= kLeastHugeBytes && MayMapHugePage();
  state.huge = options.huge_pages != HugePages::kOff && offered;
  state.pci = options.port.is_pci();
  state.process = getpid();
  if (options.huge_pages == HugePages::kRequired && !offered) {
    state.error = "FORGIVE_DPDK asks for hugepages and this process can have " +
                  std::to_string(FreeHugeBytes() >> 20) + " MB of them, " + std::to_string(kLeastHugeBytes >> 20) +
                  " are needed: raise vm.nr_hugepages, or say --no-huge";
    return state;
  }
  if (!RedirectLogs()) {
    state.error = "no memory for DPDK's log";
    return state;
  }
  RunInit(EalWords(options, state.huge), &state);
  return state;
}

std::mutex state_mutex;
bool tried = false;
EalState eal_state;

}  // namespace

bool StartEal(const DpdkDriverOptions& options, std::string* error) {
  const std::lock_guard<std::mutex> lock(state_mutex);
  // Without a start EAL may still be tried: only rte_eal_init is once for ever.
  if (!eal_state.started && !tried) {
    eal_state = FirstStart(options);
    tried = eal_state.error.starts_with("DPDK does not start");
  }
  *error = eal_state.error;
  if (!eal_state.started) return false;
  if (eal_state.process != getpid()) {
    *error = "DPDK cannot be used in the forked child of a process that uses it: choose FORGIVE_DRIVER=udp";
    return false;
  }
  if (options.port.is_pci() && !eal_state.pci) {
    *error = "DPDK started in this process without PCI devices: start anew with the PCI port in FORGIVE_DPDK";
    return false;
  }
  if (options.huge_pages == HugePages::kRequired && !eal_state.huge) {
    *error = "DPDK started in this process without hugepages: start anew to have them";
    return false;
  }
  return true;
}

std::string EalMemory() {
  const std::lock_guard<std::mutex> lock(state_mutex);
  return eal_state.huge ? "hugepages" : "no hugepages";
}

std::string TakeEalComplaints() {
  const std::lock_guard<std::mutex> lock(complaints_mutex);
  std::string text;
  std::swap(text, complaints);
  return text.empty() ? text : " (" + text + ")";
}

}  // namespace forgive
