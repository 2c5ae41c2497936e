// SPDX-License-Identifier: Apache-2.0
// Steps as the tests of the plugin drive them: forgive.h, a ring's connection, and all-reduces checked by the ledger.
#ifndef FORGIVE_TESTS_PLUGIN_RING_STEPS_H_
#define FORGIVE_TESTS_PLUGIN_RING_STEPS_H_

#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "fake_nccl.h"

namespace forgive::testing {

using Variables = std::vector<std::pair<std::string, std::string>>;

constexpr int kPosted = 1 << 20;  // what NCCL posts in a ring's Simple protocol
constexpr int kBuffer = 4 * kPosted;

// forgive.h of the loaded library.
struct Interface {
  explicit Interface(const Library& library)
      : last_error(library.Get<const char*()>("forgive_last_error")),
        begin(library.Get<int(uint64_t, int, uint64_t)>("forgive_step_begin")),
        begin_norm(library.Get<int(uint64_t, double, uint64_t)>("forgive_step_begin_norm")),
        end(library.Get<int(uint64_t)>("forgive_step_end")),
        stats(library.Get<int(forgive_stats_t*)>("forgive_stats")),
        step_stats(library.Get<int(uint64_t, forgive_step_stats_t*)>("forgive_step_stats")),
        ranges(library.Get<int64_t(uint64_t, forgive_range_t*, uint64_t)>("forgive_forgiven_ranges")),
        lost(library.Get<uint64_t()>("forgive_ledger_lost")) {}

  const char* (*last_error)();
  int (*begin)(uint64_t, int, uint64_t);
  int (*begin_norm)(uint64_t, double, uint64_t);
  int (*end)(uint64_t);
  int (*stats)(forgive_stats_t*);
  int (*step_stats)(uint64_t, forgive_step_stats_t*);
  int64_t (*ranges)(uint64_t, forgive_range_t*, uint64_t);
  uint64_t (*lost)();
};

// Every line of the ledger.
std::vector<forgive_range_t> Ledger(const Interface& forgive);

// A receive connection as NCCL's ring has it: three registered host buffers, the last of 4 MiB.
struct RingConnection {
  Pair pair;
  std::vector<uint8_t> small;
  std::vector<uint8_t> middle;
  void* small_handle = nullptr;
  void* middle_handle = nullptr;
};

RingConnection MakeRing(const Net& net);

// `count` messages of `bytes` each, posted with `posted` bytes, four deep; whatever arrives is given to `check`.
void Transfer(const Net& net, Pair* pair, int count, int bytes, int posted,
              const std::function<void(int message, const uint8_t* got, const std::vector<uint8_t>& sent)>& check);

// The operator's word with k = 2, and a network that trims every fifth packet.
inline const Variables kWord = {
    {"FORGIVE_GRADIENT_TRAFFIC", "all"}, {"FORGIVE_RING_RANKS", "2"}, {"FORGIVE_SEED", "1"}};
inline const Variables kTrims = {{"FORGIVE_FAULT", "trim=0.2,seed=5"}};
Variables operator+(Variables a, const Variables& b);

// Loads and initialises v8 with these variables in a process of its own, and runs `body` there.
void RunPlugin(const Variables& environment, const std::function<void(const Net&, const Interface&)>& body);

// `loops` of an all-reduce on one connection with k = 2: two messages of reduce-scatter, two of all-gather. Checks
// that a byte differs exactly where the ledger says so, and is zero there; returns the bytes forgiven.
uint64_t AllReduce(const Net& net, const Interface& forgive, RingConnection* ring, int loops, int bytes,
                   int first_message);

}  // namespace forgive::testing

#endif  // FORGIVE_TESTS_PLUGIN_RING_STEPS_H_
