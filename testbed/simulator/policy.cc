// SPDX-License-Identifier: Apache-2.0
// The policies, each a few lines over the same transport.
#include "testbed/simulator/policy.h"

#include <algorithm>
#include <bit>

#include "transport/draw.h"
#include "transport/event.h"
#include "transport/wire.h"

namespace forgive::sim {
namespace {

constexpr uint64_t kFewMessages = 4;

Experiments ExperimentsOf(const PolicyPlan& policy) {
  Experiments experiments;
  experiments.exemption = policy.exemption;
  experiments.vesting = PromisesVesting(policy);
  experiments.forgives_from = policy.forgives_from;
  experiments.bounded = PromisesBudget(policy);
  switch (policy.rule) {
    case LossRule::kNone:
    case LossRule::kForgive:
    case LossRule::kShed:
    case LossRule::kAcceptTrims:
      break;
    case LossRule::kStopAsking:
      experiments.gives_up_tails = true;
      experiments.early_close = true;
      break;
    case LossRule::kCloseRound:
    case LossRule::kBoundRound:
      experiments.early_close = true;
      break;
  }
  return experiments;
}

// Those that close early decide by themselves what is given up; a single trim is always asked for again.
Fraction ForgivenessProbability(const PolicyPlan& policy) {
  switch (policy.rule) {
    case LossRule::kForgive:
      return policy.forgiveness_probability;
    case LossRule::kAcceptTrims:
      return {Fraction::kOne};
    case LossRule::kNone:
    case LossRule::kShed:
    case LossRule::kStopAsking:
    case LossRule::kCloseRound:
    case LossRule::kBoundRound:
      break;
  }
  return {0};
}

}  // namespace

uint64_t PathFacts::bandwidth_delay_bytes() const {
  return static_cast<uint64_t>(uint128{static_cast<uint64_t>(rtt.value)} * rate.value / 8 / 1000000000);
}

PathFacts PathWithin(const FabricPlan& fabric, bool across_leaves) {
  Picoseconds one_way = fabric.host_link_delay * 2;
  BitsPerSecond rate = fabric.host_link_rate;
  if (across_leaves) {
    one_way = one_way + fabric.spine_link_delay * 2;
    rate = std::min(rate, fabric.spine_link_rate);
  }
  return {{std::max<int64_t>(1000, 2 * one_way.value / kPicosecondsPerNanosecond)}, rate};
}

Config TransportConfig(const JobPlan& plan, TrafficKind kind, const FabricPlan& fabric, bool across_leaves,
                       uint32_t channels, uint32_t messages) {
  const TransportPlan& transport = plan.transport;
  const PathFacts path = PathWithin(fabric, across_leaves);
  Config config;
  config.max_payload_bytes = transport.max_payload_bytes / kUnitBytes * kUnitBytes;
  // Nothing in memory forges or corrupts, and no link of the fabric has a smaller MTU.
  config.payload_crc = false;
  config.tags = false;
  config.segments_shrink = false;
  // Receives are posted before their flows start, and a connection's memory is what limits how many there may be.
  config.early_messages = false;
  config.max_connections = channels;
  config.max_listeners = channels;
  config.max_messages = static_cast<uint32_t>(std::bit_ceil(std::max<uint64_t>(messages, kFewMessages)));
  const uint64_t window = transport.window_bytes != 0 ? transport.window_bytes : path.bandwidth_delay_bytes();
  config.window_bytes = std::max<uint64_t>(window, config.max_payload_bytes);
  config.scoreboard_bytes = std::bit_ceil(config.window_bytes + 2 * kMaxPayloadBytes);
  config.max_steps = 8;
  config.event_capacity = 2 * ::forgive::EventQueue::kReserve;  // the hosts take events after each datagram
  config.fabric_trims = fabric.trims;
  if (kind == TrafficKind::kGradient) {
    config.forgiveness_probability = ForgivenessProbability(plan.policy);
    config.experiments = ExperimentsOf(plan.policy);
  }
  config.congestion_control = transport.congestion_control;
  config.congestion_restart = transport.congestion_restart;
  // Not known to the pacer: at line rate the NIC paces.
  config.assumed_link_rate = fabric.host_link_rate;
  const bool own_rtt =
      transport.congestion_rtt_us == 0 || transport.congestion_control == CongestionControlKind::kNscc;
  config.base_rtt = own_rtt ? path.rtt : Microseconds(static_cast<int64_t>(transport.congestion_rtt_us));
  config.packet_overhead_bytes = kDataHeaderBytes + fabric.wire_overhead_bytes;
  config.pacing_burst_bytes = transport.pacing_burst_bytes;
  config.report_every_packets = transport.report_every_packets;
  config.max_report_delay = path.rtt / 4;
  config.recovery = transport.recovery;
  config.path_policy = transport.path_policy;
  config.paths = transport.paths;
  config.initial_rtt = path.rtt;
  config.min_rto = Microseconds(static_cast<int64_t>(transport.min_rto_us));
  config.max_rto = Microseconds(static_cast<int64_t>(transport.max_rto_us));
  config.rto_backoff = transport.rto_backoff;
  // Nobody dies here: no probes while a receive waits for its sender's compute.
  config.peer_timeout = Seconds(1000000);
  config.connect_retry = Milliseconds(100);
  return config;
}

Fraction ReceiverTolerance(const PolicyPlan& policy, bool critical) {
  if (!MarksEligible(policy)) return {0};
  return critical ? policy.p_low : policy.p_high;
}

bool MarksEligible(const PolicyPlan& policy) {
  return policy.rule != LossRule::kNone && policy.rule != LossRule::kShed;
}

bool MarksForgivable(const PolicyPlan& policy, bool reduce_phase) {
  return MarksEligible(policy) && (policy.eligible == Eligible::kAll || reduce_phase);
}

bool IsShed(const PolicyPlan& policy, uint64_t seed, bool critical, const MessageName& name) {
  if (policy.rule != LossRule::kShed) return false;
  uint64_t mixed = seed;
  for (const uint64_t part : {name.step, uint64_t{name.source} << 32 | name.destination, uint64_t{name.message}}) {
    mixed = Draw(mixed ^ part).Next();
  }
  return Draw(mixed)(critical ? policy.p_low : policy.p_high);
}

bool PromisesBudget(const PolicyPlan& policy) {
  return policy.rule == LossRule::kNone || policy.rule == LossRule::kShed || policy.rule == LossRule::kForgive ||
         policy.rule == LossRule::kStopAsking;
}

bool PromisesVesting(const PolicyPlan& policy) {
  return policy.rule == LossRule::kNone || policy.rule == LossRule::kShed ||
         (policy.rule == LossRule::kForgive && policy.vesting);
}

}  // namespace forgive::sim
