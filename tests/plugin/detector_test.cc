// SPDX-License-Identifier: Apache-2.0
// Known answers of the detector: norms constructed by hand, boundaries, bad norms, checkpoints, and its C interface.
#include "plugin/detector.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "plugin/forgive.h"

namespace forgive {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

DetectorConfig Config(DetectorKind kind, uint64_t window, double threshold = 0.5) {
  DetectorConfig config;
  config.kind = kind;
  config.window = window;
  config.threshold = threshold;
  return config;
}

// Steps from 1, each classified before its norm is observed: "C" critical, "-" not.
std::string Classes(Detector* detector, const std::vector<double>& norms, uint64_t first = 1) {
  std::string classes;
  for (size_t i = 0; i < norms.size(); ++i) {
    classes += detector->IsCritical(first + i) ? 'C' : '-';
    EXPECT_TRUE(detector->Observe(first + i, {&norms[i], 1}));
  }
  return classes;
}

std::string Classes(const DetectorConfig& config, const std::vector<double>& norms) {
  Detector detector(config);
  return Classes(&detector, norms);
}

TEST(Detector, CallsStepsCriticalUntilTwoWindowsAreWhole) {
  EXPECT_EQ(Classes(Config(DetectorKind::kAccordion, 3), std::vector<double>(9, 1.0)), "CCCCCC---");
  EXPECT_EQ(Classes(Config(DetectorKind::kAccordion, 1), {1, 1, 1}), "CC-");
}

TEST(Detector, CallsAChangeOfExactlyTheThresholdCritical) {
  // The third step is classified by the first two norms.
  const auto third = [](double previous, double current) {
    return Classes(Config(DetectorKind::kAccordion, 1), {previous, current, 0}).back();
  };
  for (const double norm : {1.0, 3.0, 1e-300, 1e300, 0.1, 7.0e-5}) {
    EXPECT_EQ(third(norm, norm / 2), 'C') << norm;
    EXPECT_EQ(third(norm, norm * 1.5), 'C') << norm;
    EXPECT_EQ(third(norm, std::nextafter(norm, kInfinity)), '-') << norm;
    EXPECT_EQ(third(norm, norm), '-') << norm;
  }
  EXPECT_EQ(third(2, 1.0000000000000002), '-');
  EXPECT_EQ(third(2, 2.9999999999999996), '-');
  EXPECT_EQ(third(2, 3.0000000000000004), 'C');
}

TEST(Detector, ComparesTheMeansOfWholeWindows) {
  // Means 2, 4, 4, 3: the change 1 to 4 within a window does not count.
  const std::vector<double> norms = {1, 3, 4, 4, 1, 7, 3, 3, 3, 3};
  EXPECT_EQ(Classes(Config(DetectorKind::kAccordion, 2), norms), "CCCCCC----");
}

TEST(Detector, FollowsTheNormInBothDirectionsAndBack) {
  const std::vector<double> norms = {8, 8, 8, 4, 4, 4, 6, 6, 1, 1, 1};
  //                                 C  C  -  -  C  -  -  C  -  C  -
  EXPECT_EQ(Classes(Config(DetectorKind::kAccordion, 1), norms), "CC--C--C-C-");
}

TEST(Detector, CallsStepsAfterAWindowOfNormZeroCritical) {
  EXPECT_EQ(Classes(Config(DetectorKind::kAccordion, 1), {0, 0, 0, 5, 5, 5}), "CCCCC-");
  EXPECT_EQ(Classes(Config(DetectorKind::kAccordion, 1), {5, 5, 0, 0}), "CC-C");
}

TEST(Detector, TakesAnyThreshold) {
  EXPECT_EQ(Classes(Config(DetectorKind::kAccordion, 1, 0.25), {4, 3, 3, 3}), "CCC-");
  EXPECT_EQ(Classes(Config(DetectorKind::kAccordion, 1, 0.26), {4, 3, 3, 3}), "CC--");
  EXPECT_EQ(Classes(Config(DetectorKind::kAccordion, 1, 2), {4, 12, 35, 35}), "CCC-");
}

TEST(Detector, CallsStepsCriticalWhileABadNormIsInAWindowThatCounts) {
  for (const double bad : {kNan, kInfinity, -kInfinity, -1.0, -1e-300}) {
    Detector detector(Config(DetectorKind::kAccordion, 2));
    //                             1  1  1  1  1  bad 1  1  1  1  1  1
    EXPECT_EQ(Classes(&detector, {1, 1, 1, 1, 1, bad, 1, 1, 1, 1, 1, 1}), "CCCC--CCCC--") << bad;
    EXPECT_EQ(detector.bad_norms(), 1u);
    EXPECT_EQ(detector.observed_steps(), 12u);
    EXPECT_EQ(detector.windows(), 6u);
  }
  Detector detector(Config(DetectorKind::kAccordion, 4));
  // At once, before its window is whole; a good norm after it does not repair the window.
  EXPECT_EQ(Classes(&detector, {1, 1, 1, 1, 1, 1, 1, 1, kNan, 1, 1, kNan}), "CCCCCCCC-CCC");
  EXPECT_EQ(detector.bad_norms(), 2u);
}

TEST(Detector, TakesMinusZeroForZero) {
  Detector detector(Config(DetectorKind::kAccordion, 1));
  EXPECT_EQ(Classes(&detector, {1, 1, -0.0, 1}), "CC-C");
  EXPECT_EQ(detector.bad_norms(), 0u);
}

TEST(Detector, CallsStepsCriticalWhereTheNormsOfAWindowOverflow) {
  EXPECT_EQ(Classes(Config(DetectorKind::kAccordion, 2), {1e308, 1e308, 1e308, 1e308, 1, 1}), "CCCCCC");
}

TEST(Detector, SamplesTheLastNormOfEachWindowByDblpsVariant) {
  // Windows of three end with 4, 4, 2, 2; what lies between does not count.
  const std::vector<double> norms = {9, 9, 4, 1, 1, 4, 7, 7, 2, 5, 5, 2, 1};
  EXPECT_EQ(Classes(Config(DetectorKind::kDblp, 3), norms), "CCCCCC---CCC-");
  // A bad norm counts wherever in its window it lies.
  EXPECT_EQ(Classes(Config(DetectorKind::kDblp, 3), {1, 1, 1, 1, 1, 1, kNan, 1, 1, 1}), "CCCCCC-CCC");
  EXPECT_EQ(DetectorConfig().window, 10u);  // DBLP's rounds
}

TEST(Detector, FollowsAFixedListWhateverTheNormsAre) {
  DetectorConfig config = Config(DetectorKind::kSteps, 1);
  config.steps = {20, 3, 1, 2};
  std::string expected(20, '-');
  for (const size_t step : {1, 2, 3, 20}) expected[step - 1] = 'C';
  Detector detector(config);
  std::vector<double> norms(20, 1.0);
  norms[7] = kNan;
  EXPECT_EQ(Classes(&detector, norms), expected);
  EXPECT_EQ(detector.bad_norms(), 1u);
  EXPECT_EQ(DetectorConfig().steps, (std::vector<uint64_t>{1, 2, 3, 20}));  // the seed's
}

TEST(Detector, CallsAStepCriticalIfOneLayerIs) {
  DetectorConfig config = Config(DetectorKind::kAccordion, 1);
  config.layers = 3;
  Detector detector(config);
  const std::vector<double> before = {1, 10, 100};
  const std::vector<double> after = {1, 15, 100};
  ASSERT_TRUE(detector.Observe(1, before));
  ASSERT_TRUE(detector.Observe(2, before));
  EXPECT_FALSE(detector.IsCritical(3));
  ASSERT_TRUE(detector.Observe(3, after));
  EXPECT_TRUE(detector.IsCritical(4));
  EXPECT_FALSE(detector.IsLayerCritical(0));
  EXPECT_TRUE(detector.IsLayerCritical(1));
  EXPECT_FALSE(detector.IsLayerCritical(2));
}

TEST(Detector, RefusesAWrongNumberOfNormsAndStepsThatDoNotRise) {
  Detector detector(Config(DetectorKind::kAccordion, 1));
  const std::vector<double> norms = {1, 1};
  EXPECT_FALSE(detector.Observe(1, norms));
  EXPECT_TRUE(detector.Observe(5, {norms.data(), 1}));
  EXPECT_FALSE(detector.Observe(5, {norms.data(), 1}));
  EXPECT_FALSE(detector.Observe(4, {norms.data(), 1}));
  EXPECT_EQ(detector.observed_steps(), 1u);
  EXPECT_TRUE(detector.Observe(9, {norms.data(), 1}));
}

TEST(Detector, BeginsAStepByTheNormOfTheStepBegunBefore) {
  const std::vector<double> norms = {8, 8, 8, 4, 4, 4};
  Detector detector(Config(DetectorKind::kAccordion, 1));
  std::string classes;
  double before = kNan;  // of no step: not looked at
  for (uint64_t step = 1; step <= norms.size(); ++step) {
    bool critical = false;
    ASSERT_TRUE(detector.Begin(step, {&before, 1}, &critical));
    const uint64_t observed = detector.observed_steps();
    ASSERT_TRUE(detector.Begin(step, {&before, 1}, &critical));  // once more, as after a refusal
    EXPECT_EQ(detector.observed_steps(), observed);
    classes += critical ? 'C' : '-';
    before = norms[step - 1];
  }
  EXPECT_EQ(classes, "CC--C-");
  EXPECT_EQ(detector.bad_norms(), 0u);
  bool critical = false;
  EXPECT_FALSE(detector.Begin(2, {&before, 1}, &critical));
}

TEST(Detector, GoesOnFromASavedStateAsIfItHadNeverStopped) {
  std::mt19937_64 random(7);
  std::uniform_real_distribution<double> norm(0.5, 2);
  for (const DetectorKind kind : {DetectorKind::kAccordion, DetectorKind::kDblp, DetectorKind::kSteps}) {
    const DetectorConfig config = Config(kind, 4, 0.3);
    std::vector<double> norms;
    for (int i = 0; i < 200; ++i) norms.push_back(i % 37 == 30 ? kNan : norm(random));
    const std::string whole = Classes(config, norms);
    EXPECT_NE(whole.find('-', 20), std::string::npos);
    for (const size_t stop : {0u, 1u, 7u, 8u, 31u, 33u, 150u}) {
      Detector before(config);
      std::string classes = Classes(&before, {norms.begin(), norms.begin() + static_cast<ptrdiff_t>(stop)});
      Detector after(config);
      std::string error;
      ASSERT_TRUE(after.Restore(before.Save(), &error)) << error;
      classes += Classes(&after, {norms.begin() + static_cast<ptrdiff_t>(stop), norms.end()}, stop + 1);
      EXPECT_EQ(classes, whole) << "stopped after " << stop;
      EXPECT_EQ(after.bad_norms(), 5u);
    }
  }
}

TEST(Detector, RefusesASavedStateThatIsDamagedOrOfAnotherConfiguration) {
  Detector detector(Config(DetectorKind::kAccordion, 4));
  Classes(&detector, {1, 2, 3, 4, 5});
  const std::string saved = detector.Save();
  std::string error;
  for (size_t i = 0; i < saved.size(); ++i) {
    std::string damaged = saved;
    damaged[i] = static_cast<char>(damaged[i] ^ 1);
    EXPECT_FALSE(detector.Restore(damaged, &error)) << i;
    EXPECT_FALSE(detector.Restore(saved.substr(0, i), &error)) << i;
  }
  EXPECT_EQ(detector.Save(), saved);
  for (const DetectorConfig& other : {Config(DetectorKind::kAccordion, 5), Config(DetectorKind::kDblp, 4),
                                      Config(DetectorKind::kAccordion, 4, 0.4)}) {
    Detector different(other);
    EXPECT_FALSE(different.Restore(saved, &error));
    EXPECT_NE(error.find("another kind"), std::string::npos) << error;
  }
}

TEST(Detector, RefusesAConfigurationThatMakesNoSense) {
  std::string error;
  const auto refused = [&error](auto change, const std::string& word) {
    DetectorConfig config;
    change(&config);
    EXPECT_FALSE(CheckDetectorConfig(config, &error));
    EXPECT_NE(error.find(word), std::string::npos) << error;
  };
  refused([](DetectorConfig* c) { c->window = 0; }, "window=0");
  refused([](DetectorConfig* c) { c->layers = 0; }, "layers=0");
  for (const double threshold : {0.0, -1.0, kNan, kInfinity, 1001.0}) {
    refused([threshold](DetectorConfig* c) { c->threshold = threshold; }, "threshold");
  }
  refused([](DetectorConfig* c) { c->kind = DetectorKind::kSteps, c->steps.clear(); }, "0 steps");
  refused([](DetectorConfig* c) { c->kind = DetectorKind::kDblp, c->layers = 2; }, "whole model");
}

forgive_detector_config_t CConfig(uint32_t kind, uint64_t window) {
  forgive_detector_config_t config{};
  config.size = sizeof(config);
  config.kind = kind;
  config.layers = 1;
  config.window = window;
  config.threshold = 0.5;
  return config;
}

TEST(DetectorInterface, DecidesAsTheClassDoesAndSavesItsState) {
  const std::vector<double> norms = {1, 3, 4, 4, 1, 7, 1, 1, kNan, 3, 3, 3};
  const forgive_detector_config_t config = CConfig(FORGIVE_DETECTOR_ACCORDION, 2);
  forgive_detector_t* detector = forgive_detector_create(&config);
  ASSERT_NE(detector, nullptr) << forgive_last_error();
  std::string classes;
  for (size_t i = 0; i < norms.size(); ++i) {
    if (i == 5) {
      std::vector<char> saved(static_cast<size_t>(forgive_detector_save(detector, nullptr, 0)));
      ASSERT_EQ(forgive_detector_save(detector, saved.data(), saved.size()), static_cast<int64_t>(saved.size()));
      forgive_detector_destroy(detector);
      detector = forgive_detector_create(&config);
      ASSERT_EQ(forgive_detector_restore(detector, saved.data(), saved.size()), FORGIVE_OK);
    }
    const int critical = forgive_detector_is_critical(detector, i + 1);
    EXPECT_EQ(critical, forgive_detector_is_layer_critical(detector, 0));
    classes += critical == 1 ? 'C' : '-';
    EXPECT_EQ(forgive_detector_observe(detector, i + 1, &norms[i], 1), FORGIVE_OK);
  }
  EXPECT_EQ(classes, Classes(Config(DetectorKind::kAccordion, 2), norms));
  forgive_detector_stats_t stats{};
  stats.size = sizeof(stats);
  ASSERT_EQ(forgive_detector_stats(detector, &stats), FORGIVE_OK);
  EXPECT_EQ(stats.observed_steps, 12u);
  EXPECT_EQ(stats.windows, 6u);
  EXPECT_EQ(stats.bad_norms, 1u);
  forgive_detector_destroy(detector);
}

TEST(DetectorInterface, SaysInOneLineWhatIsWrong) {
  const auto last_error_has = [](const char* word) {
    return std::string(forgive_last_error()).find(word) != std::string::npos;
  };
  forgive_detector_config_t config = CConfig(7, 2);
  EXPECT_EQ(forgive_detector_create(&config), nullptr);
  EXPECT_TRUE(last_error_has("kind 7"));
  config = CConfig(FORGIVE_DETECTOR_ACCORDION, 0);
  EXPECT_EQ(forgive_detector_create(&config), nullptr);
  EXPECT_TRUE(last_error_has("window=0"));
  config.size = 8;
  EXPECT_EQ(forgive_detector_create(&config), nullptr);
  EXPECT_EQ(forgive_detector_create(nullptr), nullptr);
  config = CConfig(FORGIVE_DETECTOR_ACCORDION, 1);
  forgive_detector_t* detector = forgive_detector_create(&config);
  ASSERT_NE(detector, nullptr);
  const double norms[] = {1, 2};
  EXPECT_EQ(forgive_detector_observe(detector, 1, norms, 2), FORGIVE_ERROR_BAD_ARGUMENT);
  EXPECT_TRUE(last_error_has("2 norms given, the detector has 1 layer"));
  EXPECT_EQ(forgive_detector_observe(detector, 1, norms, 1), FORGIVE_OK);
  EXPECT_EQ(forgive_detector_observe(detector, 1, norms, 1), FORGIVE_ERROR_BAD_ARGUMENT);
  EXPECT_TRUE(last_error_has("step 1"));
  EXPECT_EQ(forgive_detector_is_layer_critical(detector, 1), FORGIVE_ERROR_BAD_ARGUMENT);
  EXPECT_EQ(forgive_detector_restore(detector, "no state", 8), FORGIVE_ERROR_BAD_ARGUMENT);
  EXPECT_TRUE(last_error_has("not a saved state"));
  forgive_detector_destroy(detector);
  EXPECT_EQ(forgive_detector_is_critical(nullptr, 1), FORGIVE_ERROR_BAD_ARGUMENT);
}

}  // namespace
}  // namespace forgive
