// SPDX-License-Identifier: Apache-2.0
// Any bytes as a plan of the simulator: read to a valid plan, or refused in one line that names the file or the key.
#include <cstdint>
#include <cstring>
#include <nlohmann/json.hpp>
#include <string>

#include "input_file.h"
#include "testbed/simulator/plan_file.h"
#include "testbed/simulator/plan_keys.h"
#include "transport/check.h"

namespace {

using forgive::sim::PlanError;

// The family, and of it the plan without a variant and the first one with one.
void ReadAll(const std::string& path) {
  const forgive::sim::Family family = forgive::sim::ReadFamily("/nonexistent", path);
  FORGIVE_CHECK(!family.seeds.empty());
  std::string name = path;
  if (!family.variants.empty()) name += "/" + family.variants[0].name;
  forgive::sim::Plan plan = forgive::sim::ReadPlan("/nonexistent", name, {}, 1);
  // What comes out is valid, and stays so when it is written out key by key.
  forgive::sim::ValidatePlan(plan);
  FORGIVE_CHECK(plan.fabric.Validate().empty());
  FORGIVE_CHECK(!forgive::sim::ParametersOf(plan).empty());
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static forgive::InputFile file(".toml");
  file.Write(data, size);
  try {
    ReadAll(file.path());
  } catch (const PlanError& error) {
    FORGIVE_CHECK(*error.what() != '\0');
  }
  return 0;
}
