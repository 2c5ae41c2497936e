// SPDX-License-Identifier: Apache-2.0
// The runs that forgive_perf offers. All ranks call the same one; each returns the exit status.
#ifndef FORGIVE_TESTBED_PERF_MODES_H_
#define FORGIVE_TESTBED_PERF_MODES_H_

#include "testbed/perf/options.h"
#include "testbed/perf/rank.h"

namespace forgive::perf {

// nccl-tests' sweep over sizes.
int RunSweep(Rank& rank, const Word& word);
// Training-like steps: a pause, then one all-reduce inside forgive_step_begin and forgive_step_end.
int RunSteps(Rank& rank, const Word& word);
// All kinds of traffic on one set of connections, inside and outside of steps, and the misuse that must be refused.
int RunMixed(Rank& rank, const Word& word);

// The shape of a collective whose size is about `bytes` as nccl-tests counts it. Throws UsageError if that is less
// than an element a rank.
Shape ShapeFor(Collective collective, Algorithm algorithm, int ranks, std::int64_t bytes);

// True if this run's all-reduces are steps that it opens itself: a plugin with forgive.h, and a communicator that
// carries gradients.
bool UsesSteps(const Rank& rank, const Word& word);

// FORGIVE_STEP=operation: gives the step that the plugin makes of the operation, where it can make one.
void AddOwnStep(const Rank& rank, const Word& word, Operation* operation);

// The plan of a step around one collective.
StepPlan PlanFor(const Rank& rank, const Word& word, const Schedule& schedule, std::uint64_t step, bool critical);

}  // namespace forgive::perf

#endif  // FORGIVE_TESTBED_PERF_MODES_H_
