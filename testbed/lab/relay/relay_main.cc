// SPDX-License-Identifier: Apache-2.0
// forgive_relay: a trimming switch in user space on loopback, which stands for the real one where nobody is root.
#include <fcntl.h>
#include <poll.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cinttypes>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <string>

#include "testbed/lab/relay/relay_options.h"
#include "testbed/lab/relay/relay_socket.h"
#include "testbed/lab/relay/relay_switch.h"

namespace forgive::lab {
namespace {

constexpr int64_t kNanosecondsPerSecond = 1'000'000'000;
constexpr int64_t kFilesPeriodNs = 10'000'000;  // logs and statistics are at most this old

volatile std::sig_atomic_t g_ended = 0;
void End(int) { g_ended = 1; }

int64_t Now() {
  timespec time{};
  clock_gettime(CLOCK_MONOTONIC, &time);
  return time.tv_sec * kNanosecondsPerSecond + time.tv_nsec;
}

// What the relay leaves behind on disk.
class Files {
 public:
  ~Files() {
    if (log_ != nullptr) std::fclose(log_);
  }
  bool Open(const RelayOptions& options, std::string* error) {
    statistics_ = options.statistics;
    if (!options.trims_log.empty()) {
      log_ = std::fopen(options.trims_log.c_str(), "ae");
      if (log_ == nullptr) {
        *error = "--trims-log " + options.trims_log + ": " + std::strerror(errno);
        return false;
      }
    }
    if (!WriteStatistics(RelayCounters{}, 0, 0)) {
      *error = "--statistics " + statistics_ + ": " + std::strerror(errno);
      return false;
    }
    return true;
  }
  void Update(RelaySwitch* from, const RelaySocket& socket) {
    RelayTrim trim;
    bool any = false;
    while (from->NextTrim(&trim)) {
      any = true;
      if (log_ == nullptr) continue;
      std::fprintf(log_, "trim %016" PRIx64 " %" PRIu32 " %" PRIu32 " %" PRIu32 "\n", trim.connection_id,
                   trim.message, trim.offset, trim.length);
    }
    if (any && log_ != nullptr) std::fflush(log_);
    const RelayCounters& counters = from->counters();
    if (std::memcmp(&counters, &written_, sizeof(counters)) == 0) return;
    if (WriteStatistics(counters, socket.socket_drops(), socket.send_errors())) written_ = counters;
  }

 private:
  // Writes beside and renames, so that a reader always finds a whole file.
  bool WriteStatistics(const RelayCounters& c, uint64_t socket_drops, uint64_t send_errors) {
    if (statistics_.empty()) return true;
    const std::string beside = statistics_ + ".new";
    FILE* file = std::fopen(beside.c_str(), "we");
    if (file == nullptr) return false;
    std::fprintf(file,
                 "{\"whole\": %" PRIu64 ", \"trimmed\": %" PRIu64 ", \"marked\": %" PRIu64 ", \"control\": %" PRIu64
                 ", \"other\": %" PRIu64 ", \"dropped\": %" PRIu64 ", \"header_dropped\": %" PRIu64
                 ", \"foreign\": %" PRIu64 ", \"socket_drops\": %" PRIu64 ", \"send_errors\": %" PRIu64 "}\n",
                 c.whole, c.trimmed, c.marked, c.control, c.other, c.dropped, c.header_dropped, c.foreign,
                 socket_drops, send_errors);
    return std::fclose(file) == 0 && std::rename(beside.c_str(), statistics_.c_str()) == 0;
  }

  FILE* log_ = nullptr;
  std::string statistics_;
  RelayCounters written_;
};

void Relay(const RelayOptions& options, RelaySocket* socket, Files* files) {
  RelaySwitch relay_switch(options.parameters);
  int64_t now = Now();
  const int64_t end = now + options.max_seconds * kNanosecondsPerSecond;
  int64_t next_files = now;
  while (g_ended == 0 && now < end) {
    size_t work = socket->Receive(now, &relay_switch);
    relay_switch.Advance(now);
    work += socket->Send(&relay_switch);
    if (now >= next_files) {
      files->Update(&relay_switch, *socket);
      next_files = now + kFilesPeriodNs;
    }
    if (work == 0) {
      const int64_t until = std::min({relay_switch.next_deadline_ns(), next_files, end});
      const int64_t wait = std::max<int64_t>(until - Now(), 0);
      const timespec timeout{wait / kNanosecondsPerSecond, wait % kNanosecondsPerSecond};
      pollfd readable{socket->fd(), POLLIN, 0};
      ppoll(&readable, 1, &timeout, nullptr);
    }
    now = Now();
  }
  files->Update(&relay_switch, *socket);
}

int Main(int argc, char** argv) {
  RelayOptions options;
  std::string error;
  if (!ParseRelayOptions(argc, argv, &options, &error)) {
    std::fprintf(stderr, "forgive_relay: %s\n", error.c_str());
    return 2;
  }
  if (options.help) {
    std::fputs(kRelayUsage, stdout);
    return 0;
  }
  RelaySocket socket;
  Files files;
  if (!socket.Open(options.listen_host, options.listen_port, &error) || !files.Open(options, &error)) {
    std::fprintf(stderr, "forgive_relay: %s\n", error.c_str());
    return 1;
  }
  struct sigaction action {};
  action.sa_handler = End;
  sigaction(SIGINT, &action, nullptr);
  sigaction(SIGTERM, &action, nullptr);
  prctl(PR_SET_TIMERSLACK, 1, 0, 0, 0);
  std::printf("ready %s\n", socket.name().c_str());
  std::fflush(stdout);
  Relay(options, &socket, &files);
  return 0;
}

}  // namespace
}  // namespace forgive::lab

int main(int argc, char** argv) { return forgive::lab::Main(argc, argv); }
