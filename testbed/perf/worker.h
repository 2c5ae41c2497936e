// SPDX-License-Identifier: Apache-2.0
// The service thread: runs one short job at a time and hands its exception back.
#ifndef FORGIVE_TESTBED_PERF_WORKER_H_
#define FORGIVE_TESTBED_PERF_WORKER_H_

#include <chrono>
#include <functional>
#include <memory>
#include <thread>

namespace forgive::perf {

class Worker {
 public:
  explicit Worker(std::chrono::seconds timeout);
  // Joins the thread, or leaves it behind if a job never returned: the process must then end.
  ~Worker();
  Worker(const Worker&) = delete;
  Worker& operator=(const Worker&) = delete;

  // Runs `job` on the thread and waits for it. Rethrows what it threw; throws RunError if it does not return in time.
  void Run(const char* what, std::function<void()> job);

 private:
  struct State;
  static void Loop(const std::shared_ptr<State>& state);

  std::chrono::seconds timeout_;
  std::shared_ptr<State> state_;  // shared with the thread, which may outlive this object
  std::thread thread_;
};

}  // namespace forgive::perf

#endif  // FORGIVE_TESTBED_PERF_WORKER_H_
