// SPDX-License-Identifier: Apache-2.0
// The service thread's loop.
#include "testbed/perf/worker.h"

#include <fmt/format.h>

#include <condition_variable>
#include <exception>
#include <mutex>
#include <utility>

#include "testbed/perf/error.h"

namespace forgive::perf {

struct Worker::State {
  std::mutex mutex;
  std::condition_variable changed;
  std::function<void()> job;
  std::exception_ptr failure;
  bool stop = false;
  bool stuck = false;  // a job did not return in time: nothing more is run
};

Worker::Worker(std::chrono::seconds timeout)
    : timeout_(timeout), state_(std::make_shared<State>()), thread_([state = state_] { Loop(state); }) {}

Worker::~Worker() {
  bool stuck = false;
  {
    const std::lock_guard<std::mutex> lock(state_->mutex);
    state_->stop = true;
    stuck = state_->stuck;
  }
  state_->changed.notify_all();
  if (stuck) {
    thread_.detach();
  } else {
    thread_.join();
  }
}

void Worker::Run(const char* what, std::function<void()> job) {
  std::unique_lock<std::mutex> lock(state_->mutex);
  if (state_->stuck) throw RunError(fmt::format("{} was not called: an earlier call has not returned", what));
  state_->job = std::move(job);
  state_->changed.notify_all();
  if (!state_->changed.wait_for(lock, timeout_, [this] { return state_->job == nullptr; })) {
    state_->stuck = true;
    throw RunError(fmt::format("{} did not return within {} s", what, timeout_.count()));
  }
  if (state_->failure) std::rethrow_exception(std::exchange(state_->failure, nullptr));
}

void Worker::Loop(const std::shared_ptr<State>& state) {
  std::unique_lock<std::mutex> lock(state->mutex);
  for (;;) {
    state->changed.wait(lock, [&] { return state->stop || state->job != nullptr; });
    if (state->job == nullptr) return;
    const std::function<void()> job = state->job;
    lock.unlock();
    std::exception_ptr failure;
    try {
      job();
    } catch (...) {
      failure = std::current_exception();
    }
    lock.lock();
    state->failure = failure;
    state->job = nullptr;
    state->changed.notify_all();
  }
}

}  // namespace forgive::perf
