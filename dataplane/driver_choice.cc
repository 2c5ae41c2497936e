// SPDX-License-Identifier: Apache-2.0
// Chooses between udp and uring by what was measured.
#include "dataplane/driver_choice.h"

#include <sys/utsname.h>

#include <charconv>
#include <system_error>

#include "dataplane/uring_driver.h"

namespace forgive {
namespace {

// A row here is a page of figures: docs/decisions/0090 says how they are taken and when uring counts as faster.
constexpr UringMeasurement kMeasurements[] = {
    {.kernel = {6, 18}, .uring_faster = false},
};

std::string Linux(const KernelVersion& kernel) {
  return "Linux " + std::to_string(kernel.major) + "." + std::to_string(kernel.minor);
}

// "What is wrong: the way out", whose second half is for who has asked for uring.
std::string WithoutWayOut(const std::string& line) { return line.substr(0, line.rfind(": ")); }

}  // namespace

std::optional<KernelVersion> ParseKernelVersion(std::string_view release) {
  KernelVersion version;
  const char* const end = release.data() + release.size();
  const auto [dot, no_major] = std::from_chars(release.data(), end, version.major);
  if (no_major != std::errc() || dot == end || *dot != '.') return std::nullopt;
  if (std::from_chars(dot + 1, end, version.minor).ec != std::errc()) return std::nullopt;
  return version;
}

std::span<const UringMeasurement> UringMeasurements() { return kMeasurements; }

DriverFacts ReadDriverFacts() {
  DriverFacts facts;
  utsname host{};
  if (uname(&host) == 0) facts.kernel = ParseKernelVersion(host.release);
  std::string why;
  if (!UringOffered(&why)) facts.uring_refused = WithoutWayOut(why);
  return facts;
}

DriverChoice ChooseDriver(const DriverFacts& facts, std::span<const UringMeasurement> measurements) {
  if (!facts.uring_refused.empty()) return {"udp", facts.uring_refused};
  if (!facts.kernel.has_value()) return {"udp", "the kernel's version is not known"};
  const UringMeasurement* last = nullptr;
  for (const UringMeasurement& measurement : measurements) {
    if (measurement.kernel <= *facts.kernel) last = &measurement;
  }
  if (last == nullptr) return {"udp", "uring has not been measured on " + Linux(*facts.kernel)};
  if (!last->uring_faster) return {"udp", "uring was not faster when measured on " + Linux(last->kernel)};
  return {"uring", "it was faster when measured on " + Linux(last->kernel)};
}

std::unique_ptr<Engine> StartChosen(EngineOptions options, DriverChoice* choice, std::string* error) {
  options.driver = choice->driver;
  std::unique_ptr<Engine> engine = Engine::Start(options, error);
  if (engine != nullptr || choice->reason.empty() || choice->driver == "udp") return engine;
  const std::string uring_error = *error;
  options.driver = "udp";
  engine = Engine::Start(options, error);
  if (engine != nullptr) *choice = {"udp", "uring could not start: " + WithoutWayOut(uring_error)};
  return engine;
}

}  // namespace forgive
