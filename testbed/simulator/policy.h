// SPDX-License-Identifier: Apache-2.0
// What each policy means: the transport's configuration, a step's budget, and which messages a sender sheds.
#ifndef FORGIVE_TESTBED_SIMULATOR_POLICY_H_
#define FORGIVE_TESTBED_SIMULATOR_POLICY_H_

#include <cstdint>

#include "testbed/simulator/metrics.h"
#include "testbed/simulator/plan.h"
#include "transport/config.h"

namespace forgive::sim {

// Of a pair of hosts, without anything queued and without serialization.
struct PathFacts {
  Nanoseconds rtt;
  BitsPerSecond rate;
  uint64_t bandwidth_delay_bytes() const;
};
PathFacts PathWithin(const FabricPlan& fabric, bool across_leaves);

// The configuration of endpoints for one kind of traffic. `channels`: connections of the endpoint; `messages`: most
// that are posted on one at a time.
Config TransportConfig(const JobPlan& plan, TrafficKind kind, const FabricPlan& fabric, bool across_leaves,
                       uint32_t channels, uint32_t messages);

// The step's tolerance as its receivers see it: 0 where senders shed, or nobody does.
Fraction ReceiverTolerance(const PolicyPlan& policy, bool critical);
// True if messages of gradients are posted as exempt-eligible, and as forgivable: the latter by phase.
bool MarksEligible(const PolicyPlan& policy);
bool MarksForgivable(const PolicyPlan& policy, bool reduce_phase);

// One stream of chance for all policies: what a seed sheds here is drawn from the same seed as what it forgives
// elsewhere. A message is shed whole, and equally on every run with the seed.
struct MessageName {
  uint64_t step = 0;
  uint32_t source = 0;  // ranks
  uint32_t destination = 0;
  uint32_t message = 0;  // of this pair in this step
};
bool IsShed(const PolicyPlan& policy, uint64_t seed, bool critical, const MessageName& name);

// Whether the policy promises forgiven <= p x expected, and the vesting bound.
bool PromisesBudget(const PolicyPlan& policy);
bool PromisesVesting(const PolicyPlan& policy);

}  // namespace forgive::sim

#endif  // FORGIVE_TESTBED_SIMULATOR_POLICY_H_
