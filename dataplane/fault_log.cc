// SPDX-License-Identifier: Apache-2.0
// The record of what a fault driver trimmed, written by a thread of its own.
#include "dataplane/fault_log.h"

#include <fcntl.h>
#include <time.h>
#include <unistd.h>

#include <cerrno>
#include <cinttypes>
#include <cstdio>
#include <cstring>

#include "dataplane/thread_signals.h"

namespace forgive {
namespace {

constexpr int64_t kFlushNanoseconds = 10000000;
constexpr size_t kFlushBytes = 1 << 16;

void WriteAll(int fd, const std::string& text) {
  size_t written = 0;
  while (written < text.size()) {
    const ssize_t n = write(fd, text.data() + written, text.size() - written);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) {
      std::fprintf(stderr, "forgive: the fault log cannot be written: %s\n", std::strerror(errno));
      return;
    }
    written += static_cast<size_t>(n);
  }
}

}  // namespace

std::shared_ptr<FaultLog> FaultLog::Open(const std::string& path, std::string* error) {
  // A second engine of one process appends to what the first one wrote.
  static std::atomic<bool> first{true};
  const std::string name = path + "." + std::to_string(getpid());
  const int empty = first.exchange(false) ? O_TRUNC : 0;
  const int fd = open(name.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | empty, 0644);
  if (fd < 0) {
    *error = "fault log " + name + ": " + std::strerror(errno) + ": set FORGIVE_FAULT_LOG to a file that can be made";
    return nullptr;
  }
  return std::shared_ptr<FaultLog>(new FaultLog(fd));
}

FaultLog::FaultLog(int fd) : fd_(fd) {
  text_.reserve(2 * kFlushBytes);
  const BlockedSignals blocked;
  thread_ = std::thread([this] { Run(); });
}

FaultLog::~FaultLog() {
  stop_.store(true);
  thread_.join();
  close(fd_);
}

void FaultLog::Run() {
  while (!stop_.load()) {
    Drain();
    const timespec pause{0, kFlushNanoseconds};
    nanosleep(&pause, nullptr);
  }
  Drain();
}

void FaultLog::Flush() const {
  constexpr int kMostWaits = 2000;
  // The drain that runs now may have passed what was added last; the one after it has not.
  const uint64_t enough = drained_.load() + 2;
  for (int wait = 0; wait < kMostWaits && drained_.load() < enough; ++wait) {
    const timespec pause{0, 1000000};
    nanosleep(&pause, nullptr);
  }
}

void FaultLog::Drain() {
  TrimRecord record;
  text_.clear();
  while (ring_.Pop(&record)) {
    char line[80];
    const int length = std::snprintf(line, sizeof(line), "trim %016" PRIx64 " %" PRIu32 " %" PRIu32 " %" PRIu32 "\n",
                                     record.connection_id, record.message, record.offset, record.length);
    text_.append(line, static_cast<size_t>(length));
    if (text_.size() >= kFlushBytes) {
      WriteAll(fd_, text_);
      text_.clear();
    }
  }
  WriteAll(fd_, text_);
  drained_.fetch_add(1);
}

}  // namespace forgive
