// SPDX-License-Identifier: Apache-2.0
// The detector's part of the public C interface: argument checks around the one class.
#include <cinttypes>
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
using forgive::LastError;
using forgive::WithMemoryOr;

int Bad(const char* what) {
  LastError().Write("%s", what);
  return FORGIVE_ERROR_BAD_ARGUMENT;
}

bool ReadConfig(const forgive_detector_config_t* given, DetectorConfig* out) {
  if (given == nullptr || given->size < sizeof(*given)) {
    Bad("forgive_detector_create: set config->size to sizeof(forgive_detector_config_t)");
    return false;
  }
  if (given->kind > FORGIVE_DETECTOR_STEPS) {
    LastError().Write(
        "forgive_detector_create: kind %u: accepted are FORGIVE_DETECTOR_ACCORDION, "
        "FORGIVE_DETECTOR_DBLP and FORGIVE_DETECTOR_STEPS",
        given->kind);
    return false;
  }
  if (given->step_count > 0 && given->steps == nullptr) {
    Bad("forgive_detector_create: steps is null");
    return false;
  }
  if (given->step_count > forgive::kMaxDetectorSteps) {  // before they are copied
    LastError().Write("forgive_detector_create: %" PRIu64 " steps: at most %" PRIu64 " are accepted",
                      given->step_count, forgive::kMaxDetectorSteps);
    return false;
  }
  out->kind = static_cast<DetectorKind>(given->kind);
  out->layers = given->layers;
  out->window = given->window;
  out->threshold = given->threshold;
  out->steps.assign(given->steps, given->steps + given->step_count);
  std::string error;
  if (CheckDetectorConfig(*out, &error)) return true;
  Bad(error.c_str());
  return false;
}

}  // namespace

extern "C" {

forgive_detector_t* forgive_detector_create(const forgive_detector_config_t* config) {
  return WithMemoryOr<forgive_detector_t*>(nullptr, [&]() -> forgive_detector_t* {
    DetectorConfig read;
    if (!ReadConfig(config, &read)) return nullptr;
    return new forgive_detector(std::move(read));
  });
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
    LastError().Write("forgive_detector_is_layer_critical: layer %u: this detector has %u", layer,
                      config.kind == DetectorKind::kSteps ? 0 : config.layers);
    return FORGIVE_ERROR_BAD_ARGUMENT;
  }
  return detector->detector.IsLayerCritical(layer) ? 1 : 0;
}

int forgive_detector_observe(forgive_detector_t* detector, uint64_t step, const double* norms, uint64_t count) {
  if (detector == nullptr || norms == nullptr) return Bad("forgive_detector_observe: detector or norms is null");
  const std::lock_guard<std::mutex> lock(detector->mutex);
  const uint32_t layers = detector->detector.config().layers;
  if (count != layers) {
    LastError().Write("forgive_detector_observe: %" PRIu64 " norms given, the detector has %u layer%s", count, layers,
                      layers == 1 ? "" : "s");
    return FORGIVE_ERROR_BAD_ARGUMENT;
  }
  if (detector->detector.Observe(step, {norms, static_cast<size_t>(count)})) return FORGIVE_OK;
  LastError().Write("forgive_detector_observe: step %" PRIu64 ": not above the last observed step; numbers must rise",
                    step);
  return FORGIVE_ERROR_BAD_ARGUMENT;
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
  return WithMemoryOr<int64_t>(FORGIVE_ERROR_NO_MEMORY, [&] {
    const std::string saved = detector->detector.Save();
    if (out != nullptr && capacity >= saved.size()) std::memcpy(out, saved.data(), saved.size());
    return static_cast<int64_t>(saved.size());
  });
}

int forgive_detector_restore(forgive_detector_t* detector, const void* saved, uint64_t size) {
  if (detector == nullptr || saved == nullptr) return Bad("forgive_detector_restore: detector or saved is null");
  const std::lock_guard<std::mutex> lock(detector->mutex);
  const std::string_view bytes(static_cast<const char*>(saved), static_cast<size_t>(size));
  return WithMemoryOr<int>(FORGIVE_ERROR_NO_MEMORY, [&] {
    std::string error;
    return detector->detector.Restore(bytes, &error) ? FORGIVE_OK : Bad(error.c_str());
  });
}

}  // extern "C"
