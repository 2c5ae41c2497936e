// SPDX-License-Identifier: Apache-2.0
// The detector over recorded norms, by the plugin's own class through its C interface.
#include "testbed/replay/classify.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>

#include "plugin/forgive.h"
#include "testbed/replay/error.h"

namespace forgive::replay {
namespace {

using DetectorPointer = std::unique_ptr<forgive_detector_t, decltype(&forgive_detector_destroy)>;

uint32_t KindOf(const std::string& name) {
  if (name == "accordion") return FORGIVE_DETECTOR_ACCORDION;
  if (name == "dblp") return FORGIVE_DETECTOR_DBLP;
  if (name == "steps") return FORGIVE_DETECTOR_STEPS;
  throw InputError(fmt::format("--detector {}: accepted are accordion, dblp and steps", name));
}

DetectorPointer MakeDetector(const Options& options, size_t layers, uint64_t window, double threshold) {
  forgive_detector_config_t config{};
  config.size = sizeof(config);
  config.kind = KindOf(options.detector);
  config.layers = static_cast<uint32_t>(layers);
  config.window = window;
  config.threshold = threshold;
  config.steps = options.steps.data();
  config.step_count = options.steps.size();
  DetectorPointer detector(forgive_detector_create(&config), forgive_detector_destroy);
  if (detector == nullptr) throw InputError(forgive_last_error());
  return detector;
}

}  // namespace

Classes Classify(const std::vector<NormRow>& rows, const Options& options, uint64_t window, double threshold) {
  const DetectorPointer detector = MakeDetector(options, rows.front().norms.size(), window, threshold);
  Classes classes;
  for (const NormRow& row : rows) {
    classes.critical.push_back(forgive_detector_is_critical(detector.get(), row.step) == 1);
    if (forgive_detector_observe(detector.get(), row.step, row.norms.data(), row.norms.size()) != FORGIVE_OK) {
      throw InputError(forgive_last_error());
    }
  }
  forgive_detector_stats_t stats{};
  stats.size = sizeof(stats);
  forgive_detector_stats(detector.get(), &stats);
  classes.bad_norms = stats.bad_norms;
  return classes;
}

Comparison Compare(const std::vector<NormRow>& rows, const Classes& classes, const std::map<uint64_t, bool>& labels) {
  Comparison comparison;
  for (size_t i = 0; i < rows.size(); ++i) {
    const auto label = labels.find(rows[i].step);
    if (label == labels.end()) continue;
    ++comparison.labelled;
    if (label->second) ++comparison.critical;
    if (label->second && !classes.critical[i]) ++comparison.missed;
    if (!label->second && classes.critical[i]) ++comparison.false_alarms;
  }
  return comparison;
}

std::vector<SweepPoint> Sweep(const std::vector<NormRow>& rows, const Options& options,
                              const std::map<uint64_t, bool>& labels) {
  std::vector<SweepPoint> points;
  for (const uint64_t window : options.windows) {
    for (const double threshold : options.thresholds) {
      const Classes classes = Classify(rows, options, window, threshold);
      const auto critical = static_cast<uint64_t>(std::ranges::count(classes.critical, true));
      points.push_back({window, threshold, critical, Compare(rows, classes, labels)});
    }
  }
  return points;
}

}  // namespace forgive::replay
