// SPDX-License-Identifier: Apache-2.0
// Keeps bursts and the handlers of EAL's interrupt thread apart, for ports whose memory those handlers unmap.
#include "dataplane/dpdk/interrupt_gate.h"

#include <poll.h>
#include <rte_interrupts.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <cerrno>
#include <condition_variable>
#include <exception>
#include <filesystem>
#include <fstream>
#include <mutex>
#include <system_error>

#include "transport/check.h"

namespace forgive {
namespace {

// How often the other handlers have their turn at least: a wrong guess may cost time, and not the process.
constexpr int kTurnMilliseconds = 1000;
// And where EAL's epoll descriptor is not known (no /proc).
constexpr int kBlindTurnMilliseconds = 20;
constexpr size_t kMostListedNumbers = 1024;

std::mutex gate_mutex;
std::condition_variable turned;
int users = 0;
uint64_t turns = 0;
int turn_fd = -1;  // readable: EAL is to call OnTurn; for the life of the process

void AskForTurn() { FORGIVE_CHECK(eventfd_write(turn_fd, 1) == 0); }

// Whether this is an epoll descriptor that lists turn_fd.
bool AwaitsTurn(const std::filesystem::path& descriptor_facts) {
  std::ifstream facts(descriptor_facts);
  for (std::string word; facts >> word;) {
    int waited_for = -1;
    if (word == "tfd:" && facts >> waited_for && waited_for == turn_fd) return true;
  }
  return false;
}

// EAL's own epoll descriptor, which it makes anew with each change of its list; `last` is where it was. -1: not
// found.
int FindEpoll(int last) try {
  const std::filesystem::path folder = "/proc/self/fdinfo";
  if (last >= 0 && AwaitsTurn(folder / std::to_string(last))) return last;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    if (AwaitsTurn(entry.path())) return std::stoi(entry.path().filename().string());
  }
  return -1;
} catch (const std::exception&) {  // no /proc, no descriptor, no memory: nothing that may end EAL's thread
  return -1;
}

// An epoll of somebody else's lists a closed descriptor on while a forked process has its file, and the number is
// given out again: ours is one that none lists, and then stays ours.
void OpenTurnFd() {
  int listed[kMostListedNumbers];
  size_t count = 0;
  turn_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  while (turn_fd >= 0 && count < kMostListedNumbers && FindEpoll(-1) >= 0) {
    listed[count++] = turn_fd;
    turn_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  }
  const int code = errno;
  while (count > 0) close(listed[--count]);
  errno = code;
}

// Once in a process: EAL calls back for its life.
bool Register(void (*on_turn)(void*), std::string* error) {
  OpenTurnFd();
  const std::string why = turn_fd < 0 ? " (" + std::system_category().message(errno) + ")" : "";
  rte_intr_handle* handle = rte_intr_instance_alloc(RTE_INTR_INSTANCE_F_PRIVATE);
  const bool registered = handle != nullptr && turn_fd >= 0 && rte_intr_fd_set(handle, turn_fd) == 0 &&
                          rte_intr_type_set(handle, RTE_INTR_HANDLE_EXT) == 0 &&
                          rte_intr_callback_register(handle, on_turn, nullptr) == 0;
  rte_intr_instance_free(handle);  // EAL keeps a copy
  if (registered) return true;
  if (turn_fd >= 0) close(turn_fd);
  turn_fd = -1;
  *error =
      "DPDK's interrupt thread takes no handler of ours" + why + ": raise ulimit -n, or choose FORGIVE_DRIVER=udp";
  return false;
}

bool CountTurn() {
  const std::lock_guard<std::mutex> lock(gate_mutex);
  ++turns;
  turned.notify_all();
  return users != 0;
}

}  // namespace

pthread_rwlock_t InterruptGate::lock_ = PTHREAD_RWLOCK_WRITER_NONRECURSIVE_INITIALIZER_NP;

// Between two calls other handlers run, and the lock is ours. EAL takes its events from one level-triggered epoll:
// what ended the wait below is still there when EAL looks next.
void InterruptGate::OnTurn(void*) {
  static bool locked = false;
  static int epoll_fd = -1;
  eventfd_t asked = 0;
  (void)eventfd_read(turn_fd, &asked);
  if (locked) pthread_rwlock_unlock(&lock_);
  locked = CountTurn();
  if (!locked) return;
  epoll_fd = FindEpoll(epoll_fd);
  pollfd others{epoll_fd, POLLIN, 0};
  (void)poll(&others, 1, epoll_fd < 0 ? kBlindTurnMilliseconds : kTurnMilliseconds);
  AskForTurn();
  FORGIVE_CHECK(pthread_rwlock_wrlock(&lock_) == 0);
}

bool InterruptGate::Enter(std::string* error) {
  std::unique_lock<std::mutex> lock(gate_mutex);
  if (turn_fd < 0 && !Register(OnTurn, error)) return false;
  ++users;
  AskForTurn();
  turned.wait(lock, [before = turns] { return turns != before; });
  return true;
}

void InterruptGate::Leave() {
  const std::lock_guard<std::mutex> lock(gate_mutex);
  --users;
  AskForTurn();
}

}  // namespace forgive
