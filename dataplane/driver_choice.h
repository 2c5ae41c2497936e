// SPDX-License-Identifier: Apache-2.0
// Which driver over kernel UDP is used where nobody named one: docs/decisions/0090.
#ifndef FORGIVE_DATAPLANE_DRIVER_CHOICE_H_
#define FORGIVE_DATAPLANE_DRIVER_CHOICE_H_

#include <compare>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "dataplane/engine.h"

namespace forgive {

struct KernelVersion {
  uint32_t major = 0;
  uint32_t minor = 0;
  friend auto operator<=>(const KernelVersion&, const KernelVersion&) = default;
};

// "6.18.44-generic" is 6.18; nothing: no such numbers stand at its front.
std::optional<KernelVersion> ParseKernelVersion(std::string_view release);

// A kernel on which uring and udp were measured in turns. Faster: of all that was measured, nothing was slower for
// certain and something faster for certain.
struct UringMeasurement {
  KernelVersion kernel;
  bool uring_faster = false;
};

// What the choice depends on.
struct DriverFacts {
  std::optional<KernelVersion> kernel;
  std::string uring_refused;  // why uring cannot work here; empty: it can
};

struct DriverChoice {
  std::string driver;
  std::string reason;  // empty: it was named
};

// Every measurement that there is, from the oldest kernel on.
std::span<const UringMeasurement> UringMeasurements();

DriverFacts ReadDriverFacts();

// uring where it can work and the newest measured kernel that is not newer than this one says faster; else udp.
// `measurements` rise by kernel.
DriverChoice ChooseDriver(const DriverFacts& facts, std::span<const UringMeasurement> measurements);

// Starts an engine on the chosen driver. Where that is uring by itself and it cannot start, on udp, and *choice says
// so. nullptr: *error says in one line what and what to do.
std::unique_ptr<Engine> StartChosen(EngineOptions options, DriverChoice* choice, std::string* error);

}  // namespace forgive

#endif  // FORGIVE_DATAPLANE_DRIVER_CHOICE_H_
