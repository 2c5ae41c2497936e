// SPDX-License-Identifier: Apache-2.0
// A job small enough for a test: eight ranks on four leaves, short of uplinks, a few steps.
#ifndef FORGIVE_TESTS_SIMULATOR_SMALL_PLAN_H_
#define FORGIVE_TESTS_SIMULATOR_SMALL_PLAN_H_

#include <string>
#include <vector>

#include "testbed/simulator/plan.h"
#include "testbed/simulator/plan_keys.h"

namespace forgive::sim {

inline Plan SmallPlan(const std::vector<std::string>& assignments = {}) {
  Plan plan;
  plan.family = "small";
  const std::vector<std::string> base{"fabric.leaves=4",
                                      "fabric.hosts_per_leaf=2",
                                      "fabric.spines=1",
                                      "fabric.data_queue_bytes=65536",
                                      "fabric.ecn_min_bytes=16384",
                                      "fabric.ecn_max_bytes=49152",
                                      "workload.ranks_per_leaf=2",
                                      "workload.tp=2",
                                      "workload.dp=4",
                                      "workload.steps=4",
                                      "workload.critical_steps=[1]",
                                      "workload.compute_us=100",
                                      "workload.tp_all_reduces=2",
                                      "workload.tp_bytes=262144",
                                      "workload.tp_streams=2",
                                      "workload.dp_bytes=2000000",
                                      "workload.dp_streams=2",
                                      "workload.fan_in=3"};
  for (const std::string& assignment : base) SetKey(&plan, assignment);
  for (const std::string& assignment : assignments) SetKey(&plan, assignment);
  ValidatePlan(plan);
  return plan;
}

}  // namespace forgive::sim

#endif  // FORGIVE_TESTS_SIMULATOR_SMALL_PLAN_H_
