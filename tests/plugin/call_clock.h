// SPDX-License-Identifier: Apache-2.0
// Measures that no call of the plugin's tables blocks, without taking a busy machine for a blocking plugin.
#ifndef FORGIVE_TESTS_PLUGIN_CALL_CLOCK_H_
#define FORGIVE_TESTS_PLUGIN_CALL_CLOCK_H_

#include <cstdint>
#include <map>
#include <mutex>
#include <string>

#include "fake_nccl.h"

namespace forgive::testing {

// How much of a call's duration is its own: not counted is what the calling thread, or another thread of the process
// that it may wait for, spent ready to run and without a processor.
class CallClock {
 public:
  static constexpr uint64_t kBoundNs = 1000000;

  // The same table; every call through it is measured. The clock must outlive it.
  Net Wrap(const Net& net);

  // A kind of call blocks if it goes over the bound again and again: three times at least, and in a twentieth of its
  // calls. What a busy machine does to single calls does not fail a test; what the code does in each of them does.
  void ExpectNothingBlocked();
  // For the test of this class: the kinds that block.
  std::string Blocking();
  uint64_t calls();

 private:
  struct Kind {
    uint64_t calls = 0;
    uint64_t over = 0;
    uint64_t longest_ns = 0;
  };
  template <typename... Arguments>
  std::function<int(Arguments...)> Measure(const char* kind, std::function<int(Arguments...)> call);

  std::mutex mutex_;
  std::map<std::string, Kind> kinds_;
};

}  // namespace forgive::testing

#endif  // FORGIVE_TESTS_PLUGIN_CALL_CLOCK_H_
