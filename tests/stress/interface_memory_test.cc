// SPDX-License-Identifier: Apache-2.0
// Memory that runs out in a call of forgive.h: an error with its text, never an exception in the caller, and nothing
// was done; the calls of a step need none.
#include <gtest/gtest.h>

#include <cstring>
#include <new>
#include <string>

#include "allocation_hook.h"
#include "ring_steps.h"

namespace {

// The allocations that this thread may still make; below 0: any number.
thread_local int left = -1;
thread_local bool failed = false;

}  // namespace

void forgive::OnAllocation() {
  if (left < 0 || testing::InLogger()) return;
  if (left == 0) {
    failed = true;
    throw std::bad_alloc();
  }
  --left;
}

namespace forgive::testing {
namespace {

// What `call` returns with memory for so many allocations and no more.
template <typename Call>
auto WithAllocations(int count, const Call& call) {
  failed = false;
  left = count;
  const auto result = call();
  left = -1;
  return result;
}

template <typename Call>
auto WithoutMemory(const Call& call) {
  const auto result = WithAllocations(0, call);
  EXPECT_FALSE(failed) << "this call needs memory";
  return result;
}

// Calls it with ever more memory until it is enough, and returns what it returns then. Before that it must return
// `no_memory` and say so; `check` looks whether it has done nothing.
template <typename Result, typename Call, typename Check>
Result WithEverMoreMemory(const Interface& forgive, Result no_memory, const Call& call, const Check& check) {
  for (int count = 0; count < 1000; ++count) {
    const Result result = WithAllocations(count, call);
    if (!failed) {
      EXPECT_GT(count, 0) << "the library's allocations are not this program's";
      return result;
    }
    EXPECT_EQ(result, no_memory) << "after " << count << " allocations";
    EXPECT_STREQ(forgive.last_error(), "no memory is left in this process");
    check();
  }
  ADD_FAILURE() << "it never has enough memory";
  return no_memory;
}

TEST(InterfaceWithoutMemory, BeginsAndEndsStepsAndGivesTheirAccountsAllTheSame) {
  RunPlugin(kWord + kTrims, [](const Net& net, const Interface& forgive) {
    RingConnection ring = MakeRing(net);
    forgive_stats_t totals{};
    totals.size = sizeof(totals);
    forgive_step_stats_t account{};
    std::vector<forgive_range_t> lines(100000);
    ASSERT_EQ(WithoutMemory([&] { return forgive.begin_norm(1, 1, 8 << 20); }), FORGIVE_OK);
    Transfer(net, &ring.pair, 16, kPosted, kPosted, nullptr);
    EXPECT_EQ(WithoutMemory([&] { return forgive.end(1); }), FORGIVE_OK);
    EXPECT_EQ(WithoutMemory([&] { return forgive.stats(&totals); }), FORGIVE_OK);
    EXPECT_EQ(WithoutMemory([&] { return forgive.step_stats(1, &account); }), FORGIVE_OK);
    EXPECT_GT(account.forgiven, 0u) << "nothing came into the ledger: this proves nothing";
    EXPECT_GT(WithoutMemory([&] { return forgive.ranges(0, lines.data(), lines.size()); }), 0);
    EXPECT_EQ(WithoutMemory([&] { return forgive.lost(); }), 0u);
  });
}

TEST(InterfaceWithoutMemory, LatchesAndSaysWhyAllTheSame) {
  RunPlugin(kWord, [](const Net& net, const Interface& forgive) {
    RingConnection ring = MakeRing(net);
    ASSERT_EQ(forgive.begin(7, 0, 8 << 20), FORGIVE_OK);
    EXPECT_EQ(WithoutMemory([&] { return forgive.begin(8, 0, 8 << 20); }), FORGIVE_ERROR_STEP_OPEN);
    EXPECT_STREQ(forgive.last_error(), "step 7 is open; end it first");
    EXPECT_EQ(WithoutMemory([&] { return forgive.end(6); }), FORGIVE_ERROR_STEP_OPEN);
    EXPECT_STREQ(forgive.last_error(), "step 6 is not open");
    Transfer(net, &ring.pair, 4 + 2, kPosted, kPosted, nullptr);  // an all-reduce, and half of one
    EXPECT_EQ(WithoutMemory([&] { return forgive.end(7); }), FORGIVE_ERROR_LATCHED);
    EXPECT_NE(std::strstr(forgive.last_error(), "6 messages in the step, not a multiple of 4"), nullptr)
        << forgive.last_error();
    EXPECT_EQ(WithoutMemory([&] { return forgive.begin(8, 0, 8 << 20); }), FORGIVE_ERROR_LATCHED);
  });
}

TEST(DetectorWithoutMemory, IsNotMadeSavedOrRestoredAndSaysSo) {
  ExpectInChild({}, [] {
    const Library library;
    const Interface forgive(library);
    const auto create = library.Get<forgive_detector_t*(const forgive_detector_config_t*)>("forgive_detector_create");
    const auto destroy = library.Get<void(forgive_detector_t*)>("forgive_detector_destroy");
    const auto is_critical = library.Get<int(forgive_detector_t*, uint64_t)>("forgive_detector_is_critical");
    const auto save = library.Get<int64_t(forgive_detector_t*, void*, uint64_t)>("forgive_detector_save");
    const auto restore = library.Get<int(forgive_detector_t*, const void*, uint64_t)>("forgive_detector_restore");
    const auto nothing = [] {};
    const uint64_t steps[] = {3, 5};
    forgive_detector_config_t config{};
    config.size = sizeof(config);
    config.kind = FORGIVE_DETECTOR_STEPS;
    config.layers = 1;
    config.window = 1;
    config.threshold = 0.5;
    config.steps = steps;
    config.step_count = 2;
    forgive_detector_t* const none = nullptr;
    forgive_detector_t* const detector = WithEverMoreMemory(
        forgive, none, [&] { return create(&config); }, nothing);
    ASSERT_NE(detector, nullptr);
    EXPECT_EQ(is_critical(detector, 5), 1);

    std::string state(1000, '\0');
    const int64_t size = WithEverMoreMemory(
        forgive, int64_t{FORGIVE_ERROR_NO_MEMORY}, [&] { return save(detector, state.data(), state.size()); },
        [&] { EXPECT_EQ(state[0], '\0') << "half a state was written"; });
    ASSERT_GT(size, 0);
    EXPECT_EQ(WithEverMoreMemory(
                  forgive, int{FORGIVE_ERROR_NO_MEMORY},
                  [&] { return restore(detector, state.data(), static_cast<uint64_t>(size)); }, nothing),
              FORGIVE_OK);
    EXPECT_EQ(is_critical(detector, 5), 1);

    config.step_count = UINT64_MAX;  // nothing is copied
    EXPECT_EQ(create(&config), nullptr);
    EXPECT_NE(std::strstr(forgive.last_error(), "18446744073709551615 steps"), nullptr) << forgive.last_error();
    destroy(detector);
  });
}

}  // namespace
}  // namespace forgive::testing
