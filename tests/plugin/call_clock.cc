// SPDX-License-Identifier: Apache-2.0
// Durations of calls, less the time without a processor.
#include "call_clock.h"

#include <dirent.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>

#include "call_record.h"

namespace forgive::testing {
namespace {

// Of a shorter call it is not asked how long it waited: to ask takes longer.
constexpr uint64_t kShortNs = 50000;
constexpr uint64_t kAgainAndAgain = 8;

uint64_t Now(clockid_t clock) {
  timespec now{};
  clock_gettime(clock, &now);
  return static_cast<uint64_t>(now.tv_sec) * 1000000000 + static_cast<uint64_t>(now.tv_nsec);
}

// Nanoseconds that the threads of this process have been ready without a processor. 0 where the kernel does not say.
uint64_t WaitedForProcessorNs() {
  uint64_t sum = 0;
  DIR* tasks = opendir("/proc/self/task");
  if (tasks == nullptr) return 0;
  while (const dirent* entry = readdir(tasks)) {
    char name[300];
    std::snprintf(name, sizeof(name), "/proc/self/task/%s/schedstat", entry->d_name);
    const int file = open(name, O_RDONLY | O_CLOEXEC);
    if (file < 0) continue;
    char text[128] = {};
    if (read(file, text, sizeof(text) - 1) > 0) {
      char* end = nullptr;
      std::strtoull(text, &end, 10);
      sum += std::strtoull(end, nullptr, 10);
    }
    close(file);
  }
  closedir(tasks);
  return sum;
}

long VoluntarySwitches() {
  rusage usage{};
  getrusage(RUSAGE_THREAD, &usage);
  return usage.ru_nvcsw;
}

}  // namespace

template <typename... Arguments>
std::function<int(Arguments...)> CallClock::Measure(int version, const char* kind,
                                                    std::function<int(Arguments...)> call) {
  if (!call) return call;
  return [this, version, kind, call](Arguments... arguments) {
    // Each pair of readings encloses the ones within: what the waits say always lies inside of `whole`.
    const uint64_t whole_begin = Now(CLOCK_MONOTONIC);
    const uint64_t waited = WaitedForProcessorNs();
    const long switches = VoluntarySwitches();
    const uint64_t processor_begin = Now(CLOCK_THREAD_CPUTIME_ID);
    const uint64_t begin = Now(CLOCK_MONOTONIC);
    const int result = call(arguments...);
    const uint64_t duration = Now(CLOCK_MONOTONIC) - begin;
    const uint64_t processor = Now(CLOCK_THREAD_CPUTIME_ID) - processor_begin;
    uint64_t own = duration;
    if (duration > kShortNs) {
      // It computed for so long, or it slept by its own will; being preempted is neither.
      const bool slept = VoluntarySwitches() != switches;
      const uint64_t without = WaitedForProcessorNs() - waited;
      const uint64_t whole = Now(CLOCK_MONOTONIC) - whole_begin;
      own = slept ? std::min(duration, whole - std::min(whole, without)) : processor;
    }
    RecordCall(version, kind, own);
    const std::lock_guard<std::mutex> lock(mutex_);
    Kind& seen = kinds_[kind];
    ++seen.calls;
    if (own > kBoundNs) ++seen.over;
    seen.longest_ns = std::max(seen.longest_ns, own);
    return result;
  };
}

bool CallClock::IsUnderWay(const void* handle) {
  const std::lock_guard<std::mutex> lock(mutex_);
  return under_way_.contains(handle);
}

void CallClock::SetUnderWay(const void* handle, bool under_way) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (under_way) {
    under_way_.insert(handle);
  } else {
    under_way_.erase(handle);
  }
}

std::function<int(int, void*, void**)> CallClock::MeasureConnect(const Net& net) {
  const auto first = Measure(net.version, "connect", net.connect);
  const auto again = Measure(net.version, "connect again", net.connect);
  if (!first) return first;
  return [this, first, again](int device, void* handle, void** comm) {
    const int result = IsUnderWay(handle) ? again(device, handle, comm) : first(device, handle, comm);
    SetUnderWay(handle, result == nccl::kSuccess && *comm == nullptr);
    return result;
  };
}

// A handle that is written anew has no handshake.
std::function<int(int, void*, void**)> CallClock::MeasureListen(const Net& net) {
  const auto listen = Measure(net.version, "listen", net.listen);
  if (!listen) return listen;
  return [this, listen](int device, void* handle, void** comm) {
    SetUnderWay(handle, false);
    return listen(device, handle, comm);
  };
}

Net CallClock::Wrap(const Net& net) {
  Net timed = net;
  timed.init = net.init;  // reads the settings, opens sockets and starts threads: the one call that may take longer
  timed.finalize = Measure(net.version, "finalize", net.finalize);
  timed.set_attributes = Measure(net.version, "setNetAttr", net.set_attributes);
  timed.devices = Measure(net.version, "devices", net.devices);
  timed.properties = Measure(net.version, "getProperties", net.properties);
  timed.listen = MeasureListen(net);
  timed.connect = MeasureConnect(net);
  timed.accept = Measure(net.version, "accept", net.accept);
  timed.register_memory = Measure(net.version, "regMr", net.register_memory);
  timed.register_dma_buffer = Measure(net.version, "regMrDmaBuf", net.register_dma_buffer);
  timed.deregister_memory = Measure(net.version, "deregMr", net.deregister_memory);
  timed.send = Measure(net.version, "isend", net.send);
  timed.receive = Measure(net.version, "irecv", net.receive);
  timed.flush = Measure(net.version, "iflush", net.flush);
  timed.test = Measure(net.version, "test", net.test);
  timed.close_send = Measure(net.version, "closeSend", net.close_send);
  timed.close_receive = Measure(net.version, "closeRecv", net.close_receive);
  timed.close_listen = Measure(net.version, "closeListen", net.close_listen);
  return timed;
}

std::string CallClock::Blocking() {
  const std::lock_guard<std::mutex> lock(mutex_);
  std::string blocking;
  for (const auto& [name, kind] : kinds_) {
    if (kind.over < kAgainAndAgain || kind.over * 4 < kind.calls * 3) continue;
    blocking += name + ": " + std::to_string(kind.over) + " of " + std::to_string(kind.calls) + " calls, longest " +
                std::to_string(kind.longest_ns / 1000) + " us; ";
  }
  return blocking;
}

uint64_t CallClock::calls() {
  const std::lock_guard<std::mutex> lock(mutex_);
  uint64_t calls = 0;
  for (const auto& [name, kind] : kinds_) calls += kind.calls;
  return calls;
}

// The bound is the product's: under a sanitizer the engine that a call waits for takes many times as long.
void CallClock::ExpectNothingBlocked() {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  return;
#endif
  EXPECT_EQ(Blocking(), "") << "a call must not block for more than a millisecond";
}

}  // namespace forgive::testing
