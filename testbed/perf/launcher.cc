// SPDX-License-Identifier: Apache-2.0
// Forks ranks, records why each failed, and ends them together.
#include "testbed/perf/launcher.h"

#include <fmt/format.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <vector>

#include "testbed/entry_lib/standard_streams.h"
#include "testbed/perf/error.h"
#include "testbed/perf/modes.h"
#include "testbed/perf/rank.h"
#include "testbed/perf/rendezvous.h"

namespace forgive::perf {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::seconds kEndByThemselves(10);   // after a failure elsewhere, before SIGTERM
constexpr std::chrono::milliseconds kEndByTerm(1000);  // after SIGTERM, before SIGKILL

// Why a rank failed. Lies in memory that parent and children share.
struct Failure {
  int status = 0;
  bool follows = false;  // only because another rank failed
  std::int64_t time_ns = 0;
  char text[1000] = {};
};

// What must be alike on all ranks, as one text.
std::string Fingerprint(const Options& options, const Word& word) {
  std::string text = fmt::format(
      "{} {} mode{} b{} e{} f{} n{} w{} steps{} B{} learn{} seed{} check{} tcp{} traffic{} eligible{} p{} {} "
      "proof{} operation{} contributions{}",
      NameOf(options.collective), NameOf(options.algorithm), static_cast<int>(options.mode), options.first_bytes,
      options.last_bytes, options.factor, options.iterations, options.warmup, options.steps, options.step_bytes,
      options.learn_expected, options.seed, options.check, static_cast<int>(BaselineOf(options.plugin)),
      word.gradient_traffic, static_cast<int>(word.eligible), word.p_low_ppm, word.p_high_ppm,
      static_cast<int>(options.proof), word.by_operation, word.contributions);
  for (const std::uint64_t step : options.critical) text += fmt::format(" c{}", step);
  return text;
}

int RunMode(Rank& rank, const Word& word) {
  switch (rank.options().mode) {
    case Mode::kSteps:
      return RunSteps(rank, word);
    case Mode::kMixed:
      return RunMixed(rank, word);
    case Mode::kSweep:
      break;
  }
  return RunSweep(rank, word);
}

// Says why this rank fails, to the launcher and to the other ranks; the first reason stays.
void Record(int status, bool follows, const std::string& text, Failure& failure, Rendezvous* rendezvous) {
  if (failure.status != kExitOk) return;
  failure.time_ns = Clock::now().time_since_epoch().count();
  failure.follows = follows;
  std::snprintf(failure.text, sizeof(failure.text), "%s", text.c_str());
  failure.status = status;
  if (rendezvous == nullptr) return;
  rendezvous->Abort(follows ? text : fmt::format("rank {} failed: {}", rendezvous->rank(), text));
}

void Guard(const std::function<void()>& run, Failure& failure, Rendezvous* rendezvous) {
  try {
    run();
  } catch (const UsageError& error) {
    Record(kExitUsage, false, error.what(), failure, rendezvous);
  } catch (const PeerError& error) {
    Record(kExitRunFailed, true, error.what(), failure, rendezvous);
  } catch (const std::exception& error) {
    Record(kExitRunFailed, false, error.what(), failure, rendezvous);
  }
}

void RunConnected(const Options& options, const Word& word, Rendezvous& rendezvous, Failure& failure) {
  Rank rank(options, rendezvous);
  // A failure is told before this rank's connections close: what the neighbours see then is only its consequence.
  Guard(
      [&] {
        const int status = RunMode(rank, word);
        rank.Drain();
        rendezvous.Barrier();  // nobody closes while another still sends
        failure.status = status;
      },
      failure, &rendezvous);
  std::fflush(stdout);
}

int RunRank(const Options& options, const Word& word, int rank, int listen_fd, const std::string& where,
            Failure& failure) {
  Guard(
      [&] {
        const std::chrono::seconds timeout(options.timeout_s);
        const std::string options_text = Fingerprint(options, word);
        Rendezvous rendezvous = rank == 0 ? Rendezvous::Serve(listen_fd, options.ranks, timeout, options_text)
                                          : Rendezvous::Join(where, rank, options.ranks, timeout, options_text);
        Guard([&] { RunConnected(options, word, rendezvous, failure); }, failure, &rendezvous);
      },
      failure, nullptr);
  return failure.status;
}

class Launcher {
 public:
  Launcher(const Options& options, const Word& word) : options_(options), word_(word) {
    const std::size_t bytes = sizeof(Failure) * static_cast<std::size_t>(options.ranks);
    void* const memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) throw RunError("no shared memory for the ranks' reports");
    failures_ = static_cast<Failure*>(memory);
  }

  int Run() {
    sigset_t signals;
    sigemptyset(&signals);
    for (const int number : {SIGINT, SIGTERM, SIGCHLD}) sigaddset(&signals, number);
    sigprocmask(SIG_BLOCK, &signals, &old_mask_);
    ForkAll();
    while (running_ > 0) {
      const timespec tick = {0, 100'000'000};
      const int number = sigtimedwait(&signals, nullptr, &tick);
      if (number == SIGINT || number == SIGTERM) {
        if (interrupted_by_ == 0) interrupted_by_ = number;
        Send(SIGTERM);
      }
      Reap();
      Press();
    }
    return Report();
  }

 private:
  struct Child {
    pid_t pid = -1;
    bool ended = false;
    int wait_status = 0;
  };

  void ForkAll() {
    const int listen_fd = ListenAt("127.0.0.1:0");
    const std::string where = AddressOf(listen_fd);
    const pid_t parent = getpid();
    std::fflush(stdout);
    for (int rank = 0; rank < options_.ranks; ++rank) {
      const pid_t pid = fork();
      if (pid < 0) {
        Send(SIGKILL);
        throw RunError(fmt::format("cannot fork rank {}: {}", rank, std::strerror(errno)));
      }
      if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (getppid() != parent) _exit(kExitRunFailed);
        sigprocmask(SIG_SETMASK, &old_mask_, nullptr);
        if (rank != 0) close(listen_fd);
        RunRank(options_, word_, rank, listen_fd, where, failures_[rank]);
        if (const char* const error = StandardOutputError()) {
          Record(kExitRunFailed, false, fmt::format("standard output: {}", error), failures_[rank], nullptr);
        }
        std::exit(failures_[rank].status);
      }
      Child child;
      child.pid = pid;
      children_.push_back(child);
      ++running_;
    }
    close(listen_fd);
  }

  void Send(int number) {
    for (const Child& child : children_) {
      if (!child.ended) kill(child.pid, number);
    }
  }

  void Reap() {
    for (Child& child : children_) {
      if (child.ended || waitpid(child.pid, &child.wait_status, WNOHANG) != child.pid) continue;
      child.ended = true;
      --running_;
      const bool well = WIFEXITED(child.wait_status) && WEXITSTATUS(child.wait_status) <= kExitCheckFailed;
      if (!well && first_failure_ == Clock::time_point()) first_failure_ = Clock::now();
    }
  }

  // Ends the ranks that do not end by themselves.
  void Press() {
    if (running_ == 0) return;
    const Clock::time_point now = Clock::now();
    if (interrupted_by_ == 0) {
      if (first_failure_ == Clock::time_point() || now < first_failure_ + kEndByThemselves) return;
    }
    if (term_sent_ == Clock::time_point()) {
      Send(SIGTERM);
      term_sent_ = now;
    } else if (now > term_sent_ + kEndByTerm) {
      Send(SIGKILL);
    }
  }

  int Report() const {
    if (interrupted_by_ != 0) {
      std::fprintf(stderr, "forgive_perf: interrupted; all ranks have ended\n");
      return 128 + interrupted_by_;
    }
    for (std::size_t rank = 0; rank < children_.size(); ++rank) {
      const int status = children_[rank].wait_status;
      const bool pressed = term_sent_ != Clock::time_point();
      if (WIFSIGNALED(status) && !pressed) {
        std::fprintf(stderr, "forgive_perf: rank %zu was killed by signal %d (%s); all ranks have ended\n", rank,
                     WTERMSIG(status), strsignal(WTERMSIG(status)));
        return kExitRunFailed;
      }
    }
    const Failure* first = nullptr;
    int status = kExitOk;
    for (int rank = 0; rank < options_.ranks; ++rank) {
      const Failure& failure = failures_[rank];
      status = std::max(status, failure.status);
      if (failure.text[0] == '\0') continue;
      const bool earlier = first == nullptr || (first->follows && !failure.follows) ||
                           (first->follows == failure.follows && failure.time_ns < first->time_ns);
      if (earlier) first = &failure;
    }
    if (first != nullptr) {
      const auto rank = static_cast<long>(first - failures_);
      const std::string who = first->status == kExitUsage ? "" : fmt::format("rank {}: ", rank);
      std::fprintf(stderr, "forgive_perf: %s%s\n", who.c_str(), first->text);
      return first->status;
    }
    if (status != kExitOk) return status;
    for (const Child& child : children_) {
      if (!WIFEXITED(child.wait_status) || WEXITSTATUS(child.wait_status) != 0) {
        std::fprintf(stderr, "forgive_perf: a rank ended without a report\n");
        return kExitRunFailed;
      }
    }
    return kExitOk;
  }

  const Options& options_;
  const Word& word_;
  Failure* failures_ = nullptr;  // by rank
  std::vector<Child> children_;  // by rank
  int running_ = 0;
  int interrupted_by_ = 0;
  Clock::time_point first_failure_;
  Clock::time_point term_sent_;
  sigset_t old_mask_ = {};
};

}  // namespace

int RunOneRank(const Options& options, const Word& word) {
  const int listen_fd = options.rank == 0 ? ListenAt(options.rendezvous) : -1;
  Failure failure;
  RunRank(options, word, options.rank, listen_fd, options.rendezvous, failure);
  if (failure.text[0] != '\0') std::fprintf(stderr, "forgive_perf: rank %d: %s\n", options.rank, failure.text);
  return failure.status;
}

int RunLocalRanks(const Options& options, const Word& word) { return Launcher(options, word).Run(); }

}  // namespace forgive::perf
