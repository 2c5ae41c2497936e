// SPDX-License-Identifier: Apache-2.0
// The keys of a plan: one table that reads them, writes them and says what is allowed.
#ifndef FORGIVE_TESTBED_SIMULATOR_PLAN_KEYS_H_
#define FORGIVE_TESTBED_SIMULATOR_PLAN_KEYS_H_

#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <variant>
#include <vector>

#include "testbed/simulator/plan.h"

namespace forgive::sim {

// A value as a file or a command line writes it.
struct PlanValue {
  std::variant<bool, int64_t, double, std::string, std::vector<int64_t>> value;
  std::string text;  // as it was written
};

struct PlanKey {
  std::string name;     // "policy.p_high"
  std::string allowed;  // what may be said, in words
  // "" or what is wrong.
  std::function<std::string(const PlanValue&)> set;
  std::function<nlohmann::json()> get;
};

// Every key of the plan, bound to it: those of job2 only where the plan has one.
std::vector<PlanKey> KeysOf(Plan* plan);

// The key of that name, or of that last part of a name if only one has it. Throws PlanError that says which there
// are.
const PlanKey& FindKey(const std::vector<PlanKey>& keys, const std::string& name);

// Applies `--set key=value`. Throws PlanError.
void SetKey(Plan* plan, const std::string& assignment);

// All keys and values, in the order of the table.
nlohmann::ordered_json ParametersOf(const Plan& plan);

}  // namespace forgive::sim

#endif  // FORGIVE_TESTBED_SIMULATOR_PLAN_KEYS_H_
