// SPDX-License-Identifier: Apache-2.0
// Reading plans: families of them in TOML files, each a base and the variants that change some of its keys.
#ifndef FORGIVE_TESTBED_SIMULATOR_PLAN_FILE_H_
#define FORGIVE_TESTBED_SIMULATOR_PLAN_FILE_H_

#include <string>
#include <vector>

#include "testbed/simulator/plan.h"

namespace forgive::sim {

// A family's file, read but not applied:
//
//   about = "..."                     one line
//   base = "worst-fabric"             another family of the same folder, whose sections come first
//   include = ["worst-fabric", ...]   for sweeps: the runs of these families too
//   seeds = [1, 2, 3]                 of a sweep
//   [fabric] [workload] [policy] [transport] [job2.workload] ...
//   [variants.NAME]                   about, and sections or dotted keys over the base's
struct Family {
  std::string name;
  std::string file;
  std::string about;
  std::vector<std::string> include;
  std::vector<uint64_t> seeds{1};
  struct Variant {
    std::string name;
    std::string about;
  };
  std::vector<Variant> variants;
};

// `folder` holds NAME.toml; a name that ends in .toml is a file's path. Every one throws PlanError, with file, line
// and key where there is one.
Family ReadFamily(const std::string& folder, const std::string& name);
// All families of a folder, by name.
std::vector<Family> ReadFamilies(const std::string& folder);
// "family/variant", "family" where it has no variants, "path.toml/variant" or "path.toml"; then the assignments, in
// their order; then the scale. What comes out is valid.
Plan ReadPlan(const std::string& folder, const std::string& name, const std::vector<std::string>& assignments,
              double scale);

}  // namespace forgive::sim

#endif  // FORGIVE_TESTBED_SIMULATOR_PLAN_FILE_H_
