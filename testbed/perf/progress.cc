// SPDX-License-Identifier: Apache-2.0
// The progress thread's loop and the bounded waits for it.
#include "testbed/perf/progress.h"

#include <fmt/format.h>
#include <sys/prctl.h>

#include <exception>

#include "testbed/perf/error.h"

namespace forgive::perf {

using Clock = std::chrono::steady_clock;

namespace {
constexpr std::chrono::milliseconds kWatchEvery(20);
constexpr std::chrono::seconds kStopPatience(2);
constexpr unsigned long kTimerSlackNs = 1000;  // so that a pause of 20 us is not one of 70
}  // namespace

struct Progress::State {
  Net* net = nullptr;
  std::vector<SendLane*> sends;
  std::vector<ReceiveLane*> receives;

  std::mutex mutex;
  std::condition_variable changed;
  std::unique_ptr<Kernel> kernel;  // set by Start, cleared by the thread when done
  Clock::time_point finished;
  std::exception_ptr failure;
  bool stop = false;
  bool stopped = false;
  bool drained = true;

  std::atomic<bool> stop_now = false;  // as stop, for the loop that holds no lock
  std::atomic<bool> has_kernel = false;
  std::atomic<std::uint64_t> moves = 0;  // turns in which something moved
  bool begun = false;                    // the thread's own: Begin was called
};

Progress::Progress(Net& net, std::vector<SendLane*> sends, std::vector<ReceiveLane*> receives)
    : state_(std::make_shared<State>()) {
  state_->net = &net;
  state_->sends = std::move(sends);
  state_->receives = std::move(receives);
  thread_ = std::thread([state = state_] { Loop(state); });
}

Progress::~Progress() { Stop(); }

bool Progress::Stop() {
  if (!thread_.joinable()) return true;
  std::unique_lock<std::mutex> lock(state_->mutex);
  state_->stop = true;
  state_->stop_now = true;
  state_->changed.notify_all();
  const bool stopped = state_->changed.wait_for(lock, kStopPatience, [this] { return state_->stopped; });
  lock.unlock();
  if (stopped) {
    thread_.join();
  } else {
    thread_.detach();
  }
  return stopped;
}

void Progress::Start(std::unique_ptr<Kernel> kernel) {
  const std::lock_guard<std::mutex> lock(state_->mutex);
  state_->kernel = std::move(kernel);
  state_->drained = false;
  state_->has_kernel = true;
  state_->changed.notify_all();
}

void Progress::WaitUntil(const std::function<bool()>& done, const char* what, std::chrono::seconds timeout,
                         const std::function<void()>& watch) {
  std::uint64_t moves = state_->moves.load();
  Clock::time_point last_move = Clock::now();
  std::unique_lock<std::mutex> lock(state_->mutex);
  while (!done() && !state_->failure) {
    if (state_->changed.wait_for(lock, kWatchEvery, [&] { return done() || state_->failure; })) break;
    lock.unlock();
    watch();
    const std::uint64_t now_moves = state_->moves.load();
    if (now_moves != moves) {
      moves = now_moves;
      last_move = Clock::now();
    } else if (Clock::now() - last_move > timeout) {
      throw RunError(fmt::format("{} made no progress for {} s", what, timeout.count()));
    }
    lock.lock();
  }
  if (state_->failure) std::rethrow_exception(state_->failure);
}

Clock::time_point Progress::Wait(std::chrono::seconds timeout, const std::function<void()>& watch) {
  WaitUntil([this] { return state_->kernel == nullptr; }, "the collective", timeout, watch);
  return state_->finished;
}

void Progress::Drain(std::chrono::seconds timeout, const std::function<void()>& watch) {
  WaitUntil([this] { return state_->drained; }, "the rest of the sends", timeout, watch);
}

int Progress::posted_receives() const {
  int posted = 0;
  for (const ReceiveLane* lane : state_->receives) posted += lane->posted();
  return posted;
}

bool Progress::Turn(State& state) {
  bool moved = false;
  for (SendLane* lane : state.sends) moved = lane->Progress(*state.net) || moved;
  if (!state.has_kernel.load(std::memory_order_acquire)) return moved;
  Kernel& kernel = *state.kernel;
  if (!state.begun) {
    kernel.Begin();
    state.begun = true;
  }
  for (ReceiveLane* lane : state.receives) moved = lane->Progress(*state.net) || moved;
  moved = kernel.Run() || moved;
  if (!kernel.Done()) return moved;
  const std::lock_guard<std::mutex> lock(state.mutex);
  state.finished = Clock::now();
  state.has_kernel = false;
  state.begun = false;
  state.kernel = nullptr;
  state.changed.notify_all();
  return true;
}

void Progress::Loop(const std::shared_ptr<State>& state_pointer) {
  State& state = *state_pointer;
  prctl(PR_SET_TIMERSLACK, kTimerSlackNs);
  int idle_turns = 0;
  try {
    while (!state.stop_now) {
      if (Turn(state)) {
        idle_turns = 0;
        state.moves.fetch_add(1, std::memory_order_relaxed);
        continue;
      }
      if (!state.has_kernel) {
        std::unique_lock<std::mutex> lock(state.mutex);
        bool drained = true;
        for (const SendLane* lane : state.sends) drained = drained && lane->idle();
        if (drained && state.kernel == nullptr) {
          state.drained = true;
          state.changed.notify_all();
          state.changed.wait(lock, [&] { return state.stop || state.kernel != nullptr; });
          idle_turns = 0;
          continue;
        }
      }
      state.net->Idle(idle_turns++);
    }
  } catch (...) {
    const std::lock_guard<std::mutex> lock(state.mutex);
    state.failure = std::current_exception();
  }
  const std::lock_guard<std::mutex> lock(state.mutex);
  state.stopped = true;
  state.changed.notify_all();
}

}  // namespace forgive::perf
