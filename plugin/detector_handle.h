// SPDX-License-Identifier: Apache-2.0
// What a forgive_detector_t of the C interface is: a detector and its lock.
#ifndef FORGIVE_PLUGIN_DETECTOR_HANDLE_H_
#define FORGIVE_PLUGIN_DETECTOR_HANDLE_H_

#include <mutex>
#include <utility>

#include "plugin/detector.h"

// The C interface names this type outside any namespace.
struct forgive_detector {
  explicit forgive_detector(forgive::DetectorConfig config) : detector(std::move(config)) {}

  std::mutex mutex;
  forgive::Detector detector;  // guarded by mutex
};

#endif  // FORGIVE_PLUGIN_DETECTOR_HANDLE_H_
