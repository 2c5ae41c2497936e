// SPDX-License-Identifier: Apache-2.0
// The detector's part of the public C interface: argument checks around the one class.
#include <cstring>
#include <mutex>
#include <string>

#include "plugin/detector.h"
#include "plugin/detector_handle.h"
#include "plugin/forgive.h"
#include "plugin/last_error.h"

namespace {

using forgive::Detector;
using forgive::DetectorConfig;
using forgive::DetectorKind;

int Bad(std::string what) {
  forgive::LastError() = std::move(what);
  return FORGIVE_ERROR_BAD_ARGUMENT;
}

bool ReadConfig(const forgive_detector_config_t* given, DetectorConfig* out) {
  if (given == nullptr || given->size < sizeof(*given)) {
    Bad("forgive_detector_create: set config->size to sizeof(forgive_detector_config_t)");
    return false;
  }
  if (given->kind > FORGIVE_DETECTOR_STEPS) {
    Bad("forgive_detector_create: kind " + std::to_string(given->kind) +
        ": accepted are FORGIVE_DETECTOR_ACCORDION, "
        "FORGIVE_DETECTOR_DBLP and FORGIVE_DETECTOR_STEPS");
    return false;
  }
  if (given->step_count > 0 && given->steps == nullptr) {
    Bad("forgive_detector_create: steps is null");
    return false;
  }
  out->kind = static_cast<DetectorKind>(given->kind);
  out->layers = given->layers;
  out->window = given->window;
  out->threshold = given->threshold;
  out->steps.assign(given->steps, given->steps + given->step_count);
  std::string error;
  if (CheckDetectorConfig(*out, &error)) return true;
  Bad(error);
  return false;
}

}  // namespace

extern "C" {

forgive_detector_t* forgive_detector_create(const forgive_detector_config_t* config) {
  DetectorConfig read;
  if (!ReadConfig(config, &read)) return nullptr;
  return new forgive_detector(std::move(read));
}

void forgive_detector_destroy(forgive_detector_t* detector) { delete detector; }

int forgive_detector_is_critical(forgive_detector_t* detector, uint64_t step) {
  if (detector == nullptr) return Bad("forgive_detector_is_critical: detector is null");
  const std::lock_guard<std::mutex> lock(detector->mutex);
  return detector->detector.IsCritical(step) ? 1 : 0;
}

int forgive_detector_is_layer_critical(forgive_detector_t* detector, uint32_t layer) {
  if (detector == nullptr) return Bad("forgive_detector_is_layer_critical: detector is null");
  const std::lock_guard<std::mutex> lock(detector->mutex);
  const DetectorConfig& config = detector->detector.config();
  if (layer >= config.layers || config.kind == DetectorKind::kSteps) {
    return Bad("forgive_detector_is_layer_critical: layer " + std::to_string(layer) + ": this detector has " +
               (config.kind == DetectorKind::kSteps ? "none" : std::to_string(config.layers)));
  }
  return detector->detector.IsLayerCritical(layer) ? 1 : 0;
}

int forgive_detector_observe(forgive_detector_t* detector, uint64_t step, const double* norms, uint64_t count) {
  if (detector == nullptr || norms == nullptr) return Bad("forgive_detector_observe: detector or norms is null");
  const std::lock_guard<std::mutex> lock(detector->mutex);
  const uint32_t layers = detector->detector.config().layers;
  if (count != layers) {
    return Bad("forgive_detector_observe: " + std::to_string(count) + " norms given, the detector has " +
               std::to_string(layers) + (layers == 1 ? " layer" : " layers"));
  }
  if (detector->detector.Observe(step, {norms, static_cast<size_t>(count)})) return FORGIVE_OK;
  return Bad("forgive_detector_observe: step " + std::to_string(step) +
             ": not above the last observed step; numbers must rise");
}

int forgive_detector_stats(forgive_detector_t* detector, forgive_detector_stats_t* out) {
  if (detector == nullptr || out == nullptr || out->size < sizeof(out->size)) {
    return Bad("forgive_detector_stats: set out->size to sizeof(forgive_detector_stats_t) first");
  }
  const std::lock_guard<std::mutex> lock(detector->mutex);
  forgive_detector_stats_t stats{};
  stats.size = out->size < sizeof(stats) ? out->size : sizeof(stats);
  stats.observed_steps = detector->detector.observed_steps();
  stats.windows = detector->detector.windows();
  stats.bad_norms = detector->detector.bad_norms();
  std::memcpy(out, &stats, static_cast<size_t>(stats.size));
  return FORGIVE_OK;
}

int64_t forgive_detector_save(forgive_detector_t* detector, void* out, uint64_t capacity) {
  if (detector == nullptr) return Bad("forgive_detector_save: detector is null");
  const std::lock_guard<std::mutex> lock(detector->mutex);
  const std::string saved = detector->detector.Save();
  if (out != nullptr && capacity >= saved.size()) std::memcpy(out, saved.data(), saved.size());
  return static_cast<int64_t>(saved.size());
}

int forgive_detector_restore(forgive_detector_t* detector, const void* saved, uint64_t size) {
  if (detector == nullptr || saved == nullptr) return Bad("forgive_detector_restore: detector or saved is null");
  const std::lock_guard<std::mutex> lock(detector->mutex);
  std::string error;
  const std::string_view bytes(static_cast<const char*>(saved), static_cast<size_t>(size));
  return detector->detector.Restore(bytes, &error) ? FORGIVE_OK : Bad(error);
}

}  // extern "C"
