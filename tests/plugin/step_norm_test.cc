// SPDX-License-Identifier: Apache-2.0
// Steps that the built-in detector classifies: the budget follows the norms of the steps before.
#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <string>
#include <vector>

#include "ring_steps.h"

namespace forgive::testing {
namespace {

// Begins and ends steps from 1; the norm given to each is that of the step before. "C" for a step with P_low.
std::string Classes(const Interface& forgive, const std::vector<double>& norms) {
  std::string classes;
  double before = std::nan("");
  for (uint64_t step = 1; step <= norms.size(); ++step) {
    EXPECT_EQ(forgive.begin_norm(step, before, 1000000), FORGIVE_OK) << forgive.last_error();
    forgive_step_stats_t account{};
    EXPECT_EQ(forgive.step_stats(step, &account), FORGIVE_OK);
    EXPECT_EQ(account.budget, account.critical != 0 ? 5000u : 100000u);
    classes += account.critical != 0 ? 'C' : '-';
    EXPECT_EQ(forgive.end(step), FORGIVE_OK);
    before = norms[step - 1];
  }
  return classes;
}

TEST(PluginStepsByNorm, GiveCriticalStepsTheSmallerBudget) {
  RunPlugin(kWord + Variables{{"FORGIVE_DETECTOR_WINDOW", "1"}}, [](const Net&, const Interface& forgive) {
    EXPECT_EQ(Classes(forgive, {8, 8, 8, 4, 4, 4}), "CC--C-");
    EXPECT_EQ(forgive.begin_norm(6, 4, 1000000), FORGIVE_ERROR_BAD_ARGUMENT);
  });
}

TEST(PluginStepsByNorm, FollowTheSettingsOfTheDetector) {
  RunPlugin(kWord + Variables{{"FORGIVE_DETECTOR", "steps"}, {"FORGIVE_DETECTOR_STEPS", "2,4"}},
            [](const Net&, const Interface& forgive) {
              EXPECT_EQ(Classes(forgive, {1, 1, 1, 1, 1}), "-C-C-");
            });
  RunPlugin(kWord + Variables{{"FORGIVE_DETECTOR", "dblp"},
                              {"FORGIVE_DETECTOR_WINDOW", "2"},
                              {"FORGIVE_DETECTOR_THRESHOLD", "0.25"}},
            [](const Net&, const Interface& forgive) {
              EXPECT_EQ(Classes(forgive, {9, 4, 1, 4, 7, 3, 7, 3, 1}), "CCCC--CC-");
            });
}

TEST(PluginStepsByNorm, GoOnFromACheckpointInAnotherProcess) {
  const std::string file = ::testing::TempDir() + "forgive_detector_state_" + std::to_string(getpid());
  const Variables variables = kWord + Variables{{"FORGIVE_DETECTOR_WINDOW", "1"}};
  using Save = int64_t(forgive_detector_t*, void*, uint64_t);
  using Restore = int(forgive_detector_t*, const void*, uint64_t);
  ExpectInChild(variables, [&] {
    const Library library;
    ASSERT_EQ(library.Get<forgive_detector_t*()>("forgive_detector_of_process")(), nullptr);
    ASSERT_EQ(library.Table(8).init(), nccl::kSuccess);
    EXPECT_EQ(Classes(Interface(library), {8, 8, 8}), "CC-");
    std::vector<char> saved(4096);
    const int64_t size = library.Get<Save>("forgive_detector_save")(
        library.Get<forgive_detector_t*()>("forgive_detector_of_process")(), saved.data(), saved.size());
    ASSERT_GT(size, 0);
    FILE* out = std::fopen(file.c_str(), "wb");
    ASSERT_NE(out, nullptr);
    std::fwrite(saved.data(), 1, static_cast<size_t>(size), out);
    std::fclose(out);
  });
  ExpectInChild(variables, [&] {
    const Library library;
    ASSERT_EQ(library.Table(8).init(), nccl::kSuccess);
    std::vector<char> saved(4096);
    FILE* in = std::fopen(file.c_str(), "rb");
    ASSERT_NE(in, nullptr);
    const size_t size = std::fread(saved.data(), 1, saved.size(), in);
    std::fclose(in);
    ASSERT_EQ(library.Get<Restore>("forgive_detector_restore")(
                  library.Get<forgive_detector_t*()>("forgive_detector_of_process")(), saved.data(), size),
              FORGIVE_OK);
    // Step 3's norm is the one that comes with step 4: 2 after 8.
    const Interface forgive(library);
    ASSERT_EQ(forgive.begin_norm(4, 2, 1000000), FORGIVE_OK);
    forgive_step_stats_t account{};
    ASSERT_EQ(forgive.step_stats(4, &account), FORGIVE_OK);
    EXPECT_EQ(account.critical, 1u);
  });
  std::remove(file.c_str());
}

}  // namespace
}  // namespace forgive::testing
