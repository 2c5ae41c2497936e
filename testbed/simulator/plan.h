// SPDX-License-Identifier: Apache-2.0
// What a run is: fabric, workload, policy and transport, as a plan file says; data, not code.
#ifndef FORGIVE_TESTBED_SIMULATOR_PLAN_H_
#define FORGIVE_TESTBED_SIMULATOR_PLAN_H_

#include <cstdint>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "testbed/simulator/fabric_plan.h"
#include "transport/config.h"
#include "transport/units.h"

namespace forgive::sim {

// A plan, key, value or path that cannot be: one line that names it and the way out.
class PlanError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

enum class Pattern : uint8_t { kTraining, kPermutation, kIncast };
enum class Algorithm : uint8_t { kDirect, kRing };

// A training job's traffic, or a plain pattern of flows. The defaults are the seed's. Rank r is number r % tp of the
// tensor-parallel group r / tp; a data-parallel group is the ranks of equal number. Rank r stands on leaf
// r / ranks_per_leaf, at host first_host + r % ranks_per_leaf of it.
struct WorkloadPlan {
  Pattern pattern = Pattern::kTraining;
  uint32_t ranks_per_leaf = 8;
  uint32_t first_host = 0;  // of each leaf
  uint32_t tp = 8;
  uint32_t dp = 8;

  uint32_t steps = 20;
  std::vector<uint64_t> critical_steps{1, 2, 3, 20};
  uint64_t compute_us = 5376;   // before each tensor-parallel all-reduce, and after the gradient all-reduce
  uint32_t tp_all_reduces = 4;  // a step
  uint32_t streams_at_once = 0;  // of one all-reduce; 0: all
  uint64_t tp_bytes = 64u << 20;
  uint32_t tp_streams = 4;
  bool tp_on_fabric = true;  // false: on NVLink, tp_us each
  uint64_t tp_us = 0;

  uint64_t dp_bytes = 68'359'375;
  uint32_t dp_streams = 4;
  bool seed_exact = false;  // a remainder of dp_bytes / dp_streams is a stream as large as the others
  Algorithm dp_algorithm = Algorithm::kDirect;
  uint32_t fan_in = 7;  // direct: peers that send to a rank at once
  // A rank begins its gradient all-reduce up to so much later than it could, uniformly by chance.
  uint64_t gradient_skew_us = 0;

  // Flows from the burst_flows data-parallel peers of burst_rank, when its gradient all-reduce of burst_step begins.
  uint32_t burst_flows = 0;
  uint64_t burst_bytes = 128u << 20;
  uint32_t burst_rank = 8;
  uint32_t burst_step = 18;

  // Patterns of flows: fan_in of them into host 0, or one from each host to another leaf's.
  uint64_t flow_bytes = 32u << 20;

  uint32_t ranks() const { return tp * dp; }
  // Message sizes of the gradient all-reduce.
  uint32_t dp_stream_count() const { return dp_streams + (seed_exact && dp_bytes % dp_streams != 0 ? 1 : 0); }
  uint64_t dp_chunk_bytes() const { return dp_bytes / dp_streams / dp; }
  uint64_t tp_chunk_bytes() const { return tp_bytes / tp_streams / tp; }
  // What the gradient all-reduce of one step brings a rank.
  uint64_t gradient_bytes() const { return 2 * uint64_t{dp - 1} * dp_stream_count() * dp_chunk_bytes(); }
  bool IsCritical(uint64_t step) const;
};

// Who gives up gradient bytes, and which.
enum class LossRule : uint8_t {
  kNone,
  kForgive,      // the receiver, of what was trimmed (the protocol)
  kShed,         // the sender, whole messages, by a hash
  kStopAsking,   // MLT-like: the receiver closes a message once all but p of it is there
  kCloseRound,   // LTP-like: the receiver closes the round after a time, once all but p is there
  kBoundRound,   // OptiReduce-like: the receiver closes the round after a time learnt in warm-up steps
  kAcceptTrims,  // trimmable gradients: whatever is trimmed
};
enum class Eligible : uint8_t { kAll, kReduce };

struct PolicyPlan {
  LossRule rule = LossRule::kNone;
  Fraction p_low{5000};
  Fraction p_high{100000};
  Fraction forgiveness_probability{Fraction::kOne};
  bool vesting = true;
  Fraction forgives_from{0};  // of a step's expected bytes
  ExemptionRule exemption = ExemptionRule::kByBudget;
  Eligible eligible = Eligible::kAll;
  uint32_t shed_marker_bytes = 64;
  // kCloseRound: the round's time at line rate, times this. kBoundRound: the longest warm-up round, times this.
  double close_factor = 1.5;
  uint32_t warm_up_steps = 3;
};

enum class EcmpUnit : uint8_t { kConnection, kMessage };

struct TransportPlan {
  CongestionControlKind congestion_control = CongestionControlKind::kDcqcnAstra;
  CongestionRestart congestion_restart = CongestionRestart::kAtMessage;
  uint64_t congestion_rtt_us = 70;  // what DCQCN's timers are multiples of; 0: each pair's own
  uint64_t window_bytes = 0;        // 0: one bandwidth-delay product of the pair
  uint32_t max_payload_bytes = kMaxPayloadBytes;
  uint32_t report_every_packets = 1;
  Recovery recovery = Recovery::kSelectiveRepeat;
  PathPolicy path_policy = PathPolicy::kSingle;
  uint32_t paths = 1;
  uint64_t min_rto_us = 1000;
  uint64_t max_rto_us = 1000;
  bool rto_backoff = false;
  uint32_t pacing_burst_bytes = 8448;
  bool last_hop_trims_count = false;  // as congestion
  EcmpUnit ecmp_unit = EcmpUnit::kMessage;
};

struct JobPlan {
  WorkloadPlan workload;
  PolicyPlan policy;
  TransportPlan transport;
};

struct Plan {
  std::string family;
  std::string variant;
  std::string about;
  FabricPlan fabric;
  JobPlan job;
  std::optional<JobPlan> job2;  // on other hosts of the same leaves
  double scale = 1;             // of all bytes that a workload moves

  std::string name() const { return variant.empty() ? family : family + "/" + variant; }
};

// Throws PlanError for what no fabric or workload can be.
void ValidatePlan(const Plan& plan);
// Shrinks (or grows) the bytes of every message. Throws PlanError if nothing would be left.
void ScalePlan(Plan* plan, double scale);

}  // namespace forgive::sim

#endif  // FORGIVE_TESTBED_SIMULATOR_PLAN_H_
