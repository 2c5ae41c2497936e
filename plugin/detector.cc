// SPDX-License-Identifier: Apache-2.0
// The detector of critical steps: windows of gradient norms, their comparison, and the saved state.
#include "plugin/detector.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <string_view>

#include "transport/check.h"
#include "transport/crc32c.h"

namespace forgive {
namespace {

constexpr std::string_view kMagic = "FORGIVE detector state 1\n";
constexpr double kBad = std::numeric_limits<double>::quiet_NaN();

// Little-endian, so that a checkpoint can move between machines.
void Append(std::string* bytes, uint64_t value) {
  for (int shift = 0; shift < 64; shift += 8) bytes->push_back(static_cast<char>(value >> shift & 0xff));
}

void Append(std::string* bytes, double value) { Append(bytes, std::bit_cast<uint64_t>(value)); }

// Reads what Append wrote; the caller has checked the length.
class Reader {
 public:
  explicit Reader(std::string_view bytes) : bytes_(bytes) {}
  uint64_t Integer() {
    FORGIVE_CHECK(at_ + 8 <= bytes_.size());
    uint64_t value = 0;
    for (int i = 7; i >= 0; --i) value = value << 8 | static_cast<uint8_t>(bytes_[at_ + static_cast<size_t>(i)]);
    at_ += 8;
    return value;
  }
  double Double() { return std::bit_cast<double>(Integer()); }

 private:
  std::string_view bytes_;
  size_t at_ = 0;
};

bool IsGood(double norm) { return std::isfinite(norm) && norm >= 0; }

}  // namespace

bool CheckDetectorConfig(const DetectorConfig& config, std::string* error) {
  if (config.layers < 1 || config.layers > kMaxDetectorLayers) {
    *error = "detector: layers=" + std::to_string(config.layers) + ": accepted are 1 to 1048576";
  } else if (config.kind == DetectorKind::kDblp && config.layers != 1) {
    *error = "detector: dblp compares the whole model's norm: layers must be 1, not " + std::to_string(config.layers);
  } else if (config.window < 1 || config.window > kMaxDetectorWindow) {
    *error = "detector: window=" + std::to_string(config.window) + ": accepted are 1 to 1073741824 steps";
  } else if (!(config.threshold > 0 && config.threshold <= kMaxDetectorThreshold)) {
    *error = "detector: threshold=" + std::to_string(config.threshold) + ": accepted is above 0 and up to 1000";
  } else if (config.kind == DetectorKind::kSteps && (config.steps.empty() || config.steps.size() > kMaxDetectorSteps)) {
    *error = "detector: a list of " + std::to_string(config.steps.size()) + " steps: accepted are 1 to 1048576";
  } else {
    return true;
  }
  return false;
}

Detector::Detector(DetectorConfig config) : config_(std::move(config)), layers_(config_.layers) {
  std::string error;
  FORGIVE_CHECK(CheckDetectorConfig(config_, &error));
  std::ranges::sort(config_.steps);
}

bool Detector::IsCriticalLayer(const Layer& layer) const {
  if (!std::isfinite(layer.partial)) return true;
  if (!std::isfinite(layer.previous) || !std::isfinite(layer.last)) return true;
  if (layer.previous == 0) return true;  // also while there are not two whole windows
  return std::abs(layer.previous - layer.last) / layer.previous >= config_.threshold;
}

bool Detector::IsCritical(uint64_t step) const {
  if (config_.kind == DetectorKind::kSteps) return std::ranges::binary_search(config_.steps, step);
  return std::ranges::any_of(layers_, [this](const Layer& layer) { return IsCriticalLayer(layer); });
}

bool Detector::IsLayerCritical(uint32_t layer) const {
  FORGIVE_CHECK(layer < layers_.size());
  FORGIVE_CHECK(config_.kind != DetectorKind::kSteps);
  return IsCriticalLayer(layers_[layer]);
}

bool Detector::Observe(uint64_t step, std::span<const double> norms) {
  if (norms.size() != layers_.size()) return false;
  if (has_observed_ && step <= last_observed_) return false;
  has_observed_ = true;
  last_observed_ = step;
  ++observed_steps_;
  for (size_t i = 0; i < norms.size(); ++i) {
    Layer& layer = layers_[i];
    if (!IsGood(norms[i])) {
      ++bad_norms_;
      layer.partial = kBad;
    } else if (config_.kind == DetectorKind::kAccordion) {
      // Windows are equally long, so sums compare as means do, without a division's rounding.
      layer.partial += norms[i];
    } else if (std::isfinite(layer.partial)) {
      layer.partial = norms[i];
    }
  }
  if (++in_window_ < config_.window) return true;
  in_window_ = 0;
  ++windows_;
  for (Layer& layer : layers_) layer = {layer.last, layer.partial, 0};
  return true;
}

bool Detector::Begin(uint64_t step, std::span<const double> norms, bool* critical) {
  if (norms.size() != layers_.size()) return false;
  if (has_begun_ && step < last_begun_) return false;
  if (has_begun_ && step > last_begun_) {
    // Observed already where the caller mixes the two ways: the first word counts.
    Observe(last_begun_, norms);
  }
  has_begun_ = true;
  last_begun_ = step;
  *critical = IsCritical(step);
  return true;
}

std::string Detector::ConfigBytes() const {
  std::string bytes;
  Append(&bytes, static_cast<uint64_t>(config_.kind));
  Append(&bytes, uint64_t{config_.layers});
  Append(&bytes, config_.window);
  Append(&bytes, config_.threshold);
  // Only the list's own kind is bound to it.
  const size_t count = config_.kind == DetectorKind::kSteps ? config_.steps.size() : 0;
  Append(&bytes, uint64_t{count});
  for (size_t i = 0; i < count; ++i) Append(&bytes, config_.steps[i]);
  return bytes;
}

std::string Detector::Save() const {
  std::string bytes = std::string(kMagic) + ConfigBytes();
  for (const uint64_t value : {windows_, in_window_, observed_steps_, bad_norms_, uint64_t{has_observed_},
                               last_observed_, uint64_t{has_begun_}, last_begun_}) {
    Append(&bytes, value);
  }
  for (const Layer& layer : layers_) {
    for (const double value : {layer.previous, layer.last, layer.partial}) Append(&bytes, value);
  }
  Append(&bytes, uint64_t{Crc32c(bytes.data(), bytes.size())});
  return bytes;
}

bool Detector::Restore(std::string_view saved, std::string* error) {
  if (!saved.starts_with(kMagic)) {
    *error = "detector: this is not a saved state of this version of the detector";
    return false;
  }
  const size_t checked = saved.size() < kMagic.size() + 8 ? kMagic.size() : saved.size() - 8;
  if (checked + 8 != saved.size() || Reader(saved.substr(checked)).Integer() != Crc32c(saved.data(), checked)) {
    *error = "detector: the saved state is damaged (its checksum differs)";
    return false;
  }
  const std::string config = ConfigBytes();
  if (saved.substr(kMagic.size(), config.size()) != config) {
    *error = "detector: the state was saved with another kind, window, threshold, list or number of layers";
    return false;
  }
  const std::string_view rest = saved.substr(kMagic.size() + config.size(), checked - kMagic.size() - config.size());
  if (rest.size() != (8 + 3 * layers_.size()) * 8) {
    *error = "detector: the saved state has " + std::to_string(rest.size()) + " bytes, which is not its length";
    return false;
  }
  Reader reader(rest);
  windows_ = reader.Integer();
  in_window_ = reader.Integer();
  observed_steps_ = reader.Integer();
  bad_norms_ = reader.Integer();
  has_observed_ = reader.Integer() != 0;
  last_observed_ = reader.Integer();
  has_begun_ = reader.Integer() != 0;
  last_begun_ = reader.Integer();
  for (Layer& layer : layers_) {
    layer.previous = reader.Double();
    layer.last = reader.Double();
    layer.partial = reader.Double();
  }
  return true;
}

}  // namespace forgive
