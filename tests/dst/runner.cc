// SPDX-License-Identifier: Apache-2.0
// Starts and watches the processes that run schedules.
#include "runner.h"

#include <malloc.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <csignal>
#include <memory>
#include <stdexcept>

#include "schedule.h"

namespace forgive::dst {
namespace {

using Clock = std::chrono::steady_clock;
constexpr uint64_t kChunk = 16;
constexpr int kLookEveryMs = 50;

// In memory that all processes share.
struct WorkerState {
  Journal journal;
  Tally tally;
  std::atomic<uint64_t> done{0};
  std::atomic<uint64_t> current{0};  // which of the job's schedules
};
struct Board {
  std::atomic<uint64_t> next{0};
  std::atomic<uint64_t> end{UINT64_MAX};  // nothing from this one on matters any more
};

// A worker keeps what it has allocated: to give a schedule's pages back and to ask for them again costs more than the
// schedule.
void Work(const Job& job, Board* board, WorkerState* state) {
  mallopt(M_MMAP_THRESHOLD, 1 << 28);
  mallopt(M_TRIM_THRESHOLD, 1 << 28);
  mallopt(M_TOP_PAD, 16 << 20);
  Stage stage(&state->journal, &state->tally);
  while (true) {
    const uint64_t begin = board->next.fetch_add(kChunk);
    if (begin >= job.size()) return;
    for (uint64_t n = begin; n < std::min(begin + kChunk, job.size()); ++n) {
      if (n >= board->end) return;
      state->current = n;
      const Task task = job.at(n);
      stage.Run(task.seed, task.large, job.traces);
      if (state->journal.failed()) return;
      ++state->done;
    }
  }
}

class Watch {
 public:
  Watch(const Job& job, size_t workers) : job_(job), words_(workers, -1), pids_(workers, -1) {
    board_ = Map<Board>(1);
    states_ = Map<WorkerState>(workers);
  }
  ~Watch() {
    for (const pid_t pid : pids_) {
      if (pid > 0) kill(pid, SIGKILL);
    }
    for (const int file : words_) {
      if (file >= 0) close(file);
    }
    if (shown_) std::fprintf(stderr, "\r\033[K");
  }

  Outcome Run() {
    for (size_t n = 0; n < pids_.size(); ++n) Start(n);
    size_t running = pids_.size();
    while (running != 0) {
      int status = 0;
      const pid_t pid = waitpid(-1, &status, WNOHANG);
      if (pid <= 0) {
        poll(nullptr, 0, kLookEveryMs);
        Show();
        continue;
      }
      const auto place = std::find(pids_.begin(), pids_.end(), pid);
      if (place == pids_.end()) continue;
      *place = -1;
      --running;
      Note(static_cast<size_t>(place - pids_.begin()), status);
    }
    if (!outcome_.failed) {
      for (size_t n = 0; n < pids_.size(); ++n) outcome_.tally.Add(states_[n].tally);
    }
    outcome_.seconds = std::chrono::duration<double>(Clock::now() - begin_).count();
    rusage used{};
    getrusage(RUSAGE_CHILDREN, &used);
    outcome_.cpu_seconds = 1e-6 + SecondsOf(used.ru_utime) + SecondsOf(used.ru_stime);
    if (job_.traces) states_[worker_].journal.Print(stderr);
    return outcome_;
  }

 private:
  static double SecondsOf(const timeval& time) {
    return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_usec) / 1e6;
  }
  template <typename T>
  T* Map(size_t count) {
    void* const memory = mmap(nullptr, count * sizeof(T), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) throw std::runtime_error("no shared memory; use fewer --jobs");
    return new (memory) T[count];
  }

  void Start(size_t n) {
    words_[n] = memfd_create("last words", MFD_CLOEXEC);
    const pid_t parent = getpid();
    pids_[n] = fork();
    if (pids_[n] < 0) throw std::runtime_error("no process for a job: fork failed; use fewer --jobs");
    if (pids_[n] != 0) return;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) _exit(1);
    dup2(words_[n], STDERR_FILENO);
    Work(job_, board_, &states_[n]);
    _exit(0);
  }

  // A worker has ended: whole, at a broken rule, or by a crash.
  void Note(size_t n, int status) {
    const WorkerState& state = states_[n];
    const bool crashed = !WIFEXITED(status) || WEXITSTATUS(status) != 0;
    if (!crashed && !state.journal.failed()) return;
    const uint64_t current = state.current;
    uint64_t end = board_->end;
    while (current < end && !board_->end.compare_exchange_weak(end, current)) {
    }
    if (outcome_.failed && current > failed_at_) return;
    failed_at_ = current;
    worker_ = n;
    outcome_.failed = true;
    outcome_.task = job_.at(current);
    outcome_.failure = state.journal.failure();
    if (!crashed) return;
    const std::string why = WIFSIGNALED(status) ? strsignal(WTERMSIG(status)) : "it ended";
    const std::string words = LastWords(n);
    outcome_.failure = words.empty() ? why : words + " (" + why + ")";
  }

  // The last line of a worker that crashed; all of them are shown if there are many.
  std::string LastWords(size_t n) {
    std::string text(64 << 10, '\0');
    const ssize_t length = pread(words_[n], text.data(), text.size(), 0);
    text.resize(length > 0 ? static_cast<size_t>(length) : 0);
    while (!text.empty() && text.back() == '\n') text.pop_back();
    const size_t last = text.rfind('\n');
    if (last == std::string::npos) return text;
    std::fprintf(stderr, "%s\n", text.c_str());
    return text.substr(last + 1);
  }

  // A line that is written over on a terminal, and now and then elsewhere.
  void Show() {
    const Clock::time_point now = Clock::now();
    if (now < next_) return;
    const bool terminal = isatty(STDERR_FILENO) != 0;
    next_ = now + (terminal ? std::chrono::seconds(1) : std::chrono::seconds(30));
    uint64_t done = 0;
    for (size_t n = 0; n < pids_.size(); ++n) done += states_[n].done;
    if (done == 0) return;
    const double elapsed = std::chrono::duration<double>(now - begin_).count();
    const auto left =
        static_cast<uint64_t>(elapsed / static_cast<double>(done) * static_cast<double>(job_.size() - done) + 0.5);
    std::fprintf(stderr,
                 terminal ? "\r%llu of %llu schedules, %llu min %llu s left\033[K"
                          : "%llu of %llu schedules, %llu min %llu s left\n",
                 static_cast<unsigned long long>(done), static_cast<unsigned long long>(job_.size()),
                 static_cast<unsigned long long>(left / 60), static_cast<unsigned long long>(left % 60));
    shown_ = terminal;
  }

  const Job& job_;
  Board* board_ = nullptr;
  WorkerState* states_ = nullptr;
  std::vector<int> words_;  // what each worker wrote to its standard error
  std::vector<pid_t> pids_;
  Outcome outcome_;
  uint64_t failed_at_ = 0;
  size_t worker_ = 0;
  Clock::time_point begin_ = Clock::now();
  Clock::time_point next_ = begin_ + std::chrono::seconds(2);
  bool shown_ = false;
};

}  // namespace

Outcome RunJob(const Job& job) {
  const uint64_t useful = (job.size() + kChunk - 1) / kChunk;
  return Watch(job, static_cast<size_t>(std::clamp<uint64_t>(job.workers, 1, std::max<uint64_t>(useful, 1)))).Run();
}

}  // namespace forgive::dst
