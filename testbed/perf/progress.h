// SPDX-License-Identifier: Apache-2.0
// The progress thread: posts, tests and runs the kernel of the operation at hand.
#ifndef FORGIVE_TESTBED_PERF_PROGRESS_H_
#define FORGIVE_TESTBED_PERF_PROGRESS_H_

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "testbed/perf/kernels.h"
#include "testbed/perf/lanes.h"

namespace forgive::perf {

class Progress {
 public:
  Progress(Net& net, std::vector<SendLane*> sends, std::vector<ReceiveLane*> receives);
  // Stops the thread within `patience`; a thread that hangs in the network is left behind, and the process must end.
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  // Starts an operation; one at a time.
  void Start(std::unique_ptr<Kernel> kernel);
  // Waits until its result stands. Calls `watch` about every 20 ms, which may throw. Throws RunError if the network
  // failed or nothing moved for `timeout`. Returns the time at which it was done.
  std::chrono::steady_clock::time_point Wait(std::chrono::seconds timeout, const std::function<void()>& watch);
  // Waits until also everything sent is out of its slots.
  void Drain(std::chrono::seconds timeout, const std::function<void()>& watch);
  // Stops the thread. False: it hangs.
  bool Stop();

  // Receives posted and not complete, over all lanes.
  int posted_receives() const;

 private:
  struct State;
  static void Loop(const std::shared_ptr<State>& state);
  static bool Turn(State& state);
  void WaitUntil(const std::function<bool()>& done, const char* what, std::chrono::seconds timeout,
                 const std::function<void()>& watch);

  std::shared_ptr<State> state_;  // shared with the thread, which may outlive this object
  std::thread thread_;
};

}  // namespace forgive::perf

#endif  // FORGIVE_TESTBED_PERF_PROGRESS_H_
