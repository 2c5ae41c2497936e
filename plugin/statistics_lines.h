// SPDX-License-Identifier: Apache-2.0
// The parts that lines of the statistics file have in common.
#ifndef FORGIVE_PLUGIN_STATISTICS_LINES_H_
#define FORGIVE_PLUGIN_STATISTICS_LINES_H_

#include "plugin/devices.h"
#include "plugin/forgive.h"
#include "plugin/json.h"
#include "plugin/step_facts.h"

namespace forgive {

void AddFacts(const Device& device, JsonWriter* line);
void AddTotals(const forgive_stats_t& totals, JsonWriter* line);
// What went by each rail.
void AddRails(const forgive_stats_t& totals, JsonWriter* line);
// What proved the eligibility of receives in open steps, and what refused it. Only what occurred.
void AddProofs(const StepFacts& facts, JsonWriter* line);
void AddStep(const forgive_step_stats_t& step, JsonWriter* line);

}  // namespace forgive

#endif  // FORGIVE_PLUGIN_STATISTICS_LINES_H_
