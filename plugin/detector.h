// SPDX-License-Identifier: Apache-2.0
// The detector of critical steps: from the gradient norms of the steps before, whether a step is critical.
#ifndef FORGIVE_PLUGIN_DETECTOR_H_
#define FORGIVE_PLUGIN_DETECTOR_H_

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace forgive {

enum class DetectorKind : uint8_t {
  kAccordion,  // compares the mean norms of windows
  kDblp,       // compares the whole model's norm at the last step of each window
  kSteps,      // a fixed list of steps; norms are counted and otherwise ignored
};

struct DetectorConfig {
  DetectorKind kind = DetectorKind::kAccordion;
  uint32_t layers = 1;                       // norms a step brings: 1, the whole model's; else one a layer
  uint64_t window = 10;                      // steps
  double threshold = 0.5;                    // the least relative change that is critical
  std::vector<uint64_t> steps{1, 2, 3, 20};  // of kSteps: the seed's
};

inline constexpr uint32_t kMaxDetectorLayers = 1u << 20;
inline constexpr uint64_t kMaxDetectorWindow = 1u << 30;
inline constexpr uint64_t kMaxDetectorSteps = 1u << 20;  // of a list
inline constexpr double kMaxDetectorThreshold = 1000;

// True if a detector can be made of it; else *error is one line.
bool CheckDetectorConfig(const DetectorConfig& config, std::string* error);

// Accordion's criterion: with p the norm of the window before the last and c that of the last whole window, a step is
// critical if |p - c| / p is at least the threshold. Steps that have not two whole windows behind them are critical,
// and so are those after a window with norm zero. With several layers a step is critical if any layer is: there is
// one loss budget a step, and the safe error is the smaller one. (Seed: Gradient tolerance varies by step.)
//
// A norm that is NaN, infinite or negative makes the steps after it critical for as long as its window is compared,
// and is counted. No clock, no input or output: what comes in decides, and the same input gives the same decisions.
class Detector {
 public:
  // `config` must pass CheckDetectorConfig.
  explicit Detector(DetectorConfig config);

  // The class of the step that begins now, from the norms observed so far: false is "not critical". Only kSteps looks
  // at the number.
  bool IsCritical(uint64_t step) const;
  // The same of one layer, from 0; kSteps has no layers.
  bool IsLayerCritical(uint32_t layer) const;

  // The norms of `step`, one a layer: what the steps after it are classified by. False, and nothing changes, if the
  // number of norms is not `layers` or the step is not above the last observed one.
  bool Observe(uint64_t step, std::span<const double> norms);

  // Observe and IsCritical in one, for loops that learn a step's norm when the next begins: `norms` are those of the
  // step of the last Begin. Not looked at on the first one, and where `step` is begun once more. False: a wrong
  // number of norms, or a step that is not above the last.
  bool Begin(uint64_t step, std::span<const double> norms, bool* critical);

  const DetectorConfig& config() const { return config_; }
  uint64_t observed_steps() const { return observed_steps_; }
  uint64_t windows() const { return windows_; }  // whole ones
  uint64_t bad_norms() const { return bad_norms_; }

  // The whole state, for a checkpoint; the configuration goes with it.
  std::string Save() const;
  // False: *error says why, and the state is as before. The configuration must be the saved one.
  bool Restore(std::string_view saved, std::string* error);

 private:
  struct Layer {
    double previous = 0;  // of the whole window before the last one; the sum of its norms, or the sampled norm
    double last = 0;      // of the last whole window
    double partial = 0;   // of the one that goes on; NaN after a bad norm, which no later norm repairs
  };
  bool IsCriticalLayer(const Layer& layer) const;
  std::string ConfigBytes() const;

  DetectorConfig config_;
  std::vector<Layer> layers_;
  uint64_t windows_ = 0;
  uint64_t in_window_ = 0;  // steps observed of the window that goes on
  uint64_t observed_steps_ = 0;
  uint64_t bad_norms_ = 0;
  bool has_observed_ = false;
  uint64_t last_observed_ = 0;
  bool has_begun_ = false;
  uint64_t last_begun_ = 0;
};

}  // namespace forgive

#endif  // FORGIVE_PLUGIN_DETECTOR_H_
