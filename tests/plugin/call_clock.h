// SPDX-License-Identifier: Apache-2.0
// Measures that no call of the plugin's tables blocks, without taking a busy machine for a blocking plugin.
#ifndef FORGIVE_TESTS_PLUGIN_CALL_CLOCK_H_
#define FORGIVE_TESTS_PLUGIN_CALL_CLOCK_H_

#include <cstdint>
#include <map>
#include <mutex>
#include <set>
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

  // A kind of call blocks if it goes over the bound again and again: eight times at least, and in three quarters of
  // its calls. What a busy machine does to some calls must not fail a test: a hypervisor that takes the processor
  // away, or lets a thread that was woken wait for one, is told by no clock of the guest. What the code does, it does
  // each time; so the call that starts a handshake is a kind of its own beside those that ask for its end.
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
  std::function<int(Arguments...)> Measure(int version, const char* kind, std::function<int(Arguments...)> call);

  // Whether `handle` has a handshake under way that an earlier connect began.
  bool IsUnderWay(const void* handle);
  void SetUnderWay(const void* handle, bool under_way);
  std::function<int(int, void*, void**)> MeasureConnect(const Net& net);
  std::function<int(int, void*, void**)> MeasureListen(const Net& net);

  std::mutex mutex_;
  std::map<std::string, Kind> kinds_;
  std::set<const void*> under_way_;
};

}  // namespace forgive::testing

#endif  // FORGIVE_TESTS_PLUGIN_CALL_CLOCK_H_
