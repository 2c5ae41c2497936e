// SPDX-License-Identifier: Apache-2.0
// Makes the driver of a device as the engine's options name it: the base driver and what wraps it.
#ifndef FORGIVE_DATAPLANE_DRIVERS_H_
#define FORGIVE_DATAPLANE_DRIVERS_H_

#include <memory>
#include <string>

#include "dataplane/engine.h"
#include "dataplane/fault_log.h"

namespace forgive {

// nullptr: *error says in one line what is wrong and what to do. `log` is where injected trims are recorded, or
// nullptr; `device_index` keeps the faults of several devices apart.
std::unique_ptr<Driver> MakeDriver(const EngineOptions& options, uint32_t device_index,
                                   const std::shared_ptr<FaultLog>& log, std::string* error);

}  // namespace forgive

#endif  // FORGIVE_DATAPLANE_DRIVERS_H_
