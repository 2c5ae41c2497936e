// SPDX-License-Identifier: Apache-2.0
// Every limit and parameter of the transport: nothing in it is a constant elsewhere.
#ifndef FORGIVE_TRANSPORT_CONFIG_H_
#define FORGIVE_TRANSPORT_CONFIG_H_

#include <cstdint>

#include "transport/units.h"

namespace forgive {

// The largest payload of a data packet. The seed's "one packet" is the connection's own max_payload.
inline constexpr uint32_t kMaxPayloadBytes = 4096;
// Segments begin at multiples of this; a message's end slot is one of it.
inline constexpr uint32_t kUnitBytes = 16;
inline constexpr uint32_t kMaxSackRanges = 32;
inline constexpr uint32_t kMaxRequestRanges = 8;
inline constexpr uint32_t kMaxPaths = 256;
inline constexpr uint32_t kMaxRails = 4;
// How many messages of one packet each a sender may send before their receives are posted (Config::early_messages).
inline constexpr uint32_t kEarlyMessages = 4;

// How a sender chooses each packet's path (transport/path_selection.h).
enum class PathPolicy : uint8_t { kSingle, kOblivious, kReps };
// kGoBackN: a receiver drops what is out of order, and a sender returns to rcv_nxt. For the seed's control experiment
// only: it needs one path, and forgives nothing (Connection::Post). Both sides must have it; no handshake says so.
enum class Recovery : uint8_t { kSelectiveRepeat, kGoBackN };
enum class CongestionControlKind : uint8_t { kNone, kDcqcnPaper, kDcqcnAstra, kNscc };
// kAtMessage: every message is a flow of its own, as the seed's simulator had it.
enum class CongestionRestart : uint8_t { kAtStep, kOff, kAtMessage };

// When an exempt-eligible flow ignores congestion. kByBudget is the protocol.
enum class ExemptionRule : uint8_t { kByBudget, kOff, kAlways };

// What a forgiven byte costs. kBytes: 1, as in the seed. kContributions: as many as the ranks whose contribution goes
// with it, so that p bounds the share of contributions that a rank loses.
enum class BudgetUnit : uint8_t { kBytes, kContributions };

// Departures from the protocol, for comparisons in the simulator and for tests only. The defaults are the protocol.
struct Experiments {
  ExemptionRule exemption = ExemptionRule::kByBudget;
  bool vesting = true;        // off: the whole budget may be spent at once
  Fraction forgives_from{0};  // of the expected bytes: nothing is forgiven before so many were received
  bool bounded = true;        // off: whatever is trimmed of a forgivable message is forgiven
  // A receiver gives up what is missing of a forgivable message once all but p of it is settled.
  bool gives_up_tails = false;
  // Receivers may give up what was never sent (Endpoint::GiveUp, gives_up_tails): senders then skip it.
  bool early_close = false;
  // Of every connection's packets, reports and messages, at both ends: so that tests meet the wrap of what the wire
  // carries the low 32 bits of.
  uint64_t first_number = 0;
};

struct Config {
  // Segments. Rounded down to kUnitBytes; the handshake may agree on less.
  uint32_t max_payload_bytes = kMaxPayloadBytes;
  bool payload_crc = true;
  bool tags = true;  // off only where nothing can forge: in memory

  // Limits.
  uint32_t max_connections = 4096;
  uint32_t max_listeners = 1024;
  uint32_t max_messages = 64;             // posted and not completed, per connection and direction; a power of two
  uint64_t window_bytes = 1 << 20;        // most bytes in flight of one connection
  uint64_t scoreboard_bytes = 4u << 20;   // how far data may run ahead of rcv_nxt; a power of two
  uint32_t packet_number_window = 16384;  // older packet numbers are dropped; a power of two
  uint32_t event_capacity = 8192;         // events not taken yet; a power of two, at least 2 * EventQueue::kReserve
  uint32_t max_steps = 64;                // open, or closed with messages not completed
  // Messages that are one packet need not wait for the credit: kEarlyMessages of them at a time may come before their
  // receives are posted, and wait at the receiver. The handshake agrees on it; go-back-N has none.
  bool early_messages = true;

  // The seed's parameters. p is chosen per step by whoever opens it.
  Fraction forgiveness_probability{Fraction::kOne};  // P
  BudgetUnit budget_unit = BudgetUnit::kBytes;

  Experiments experiments;

  // The fabric trims: a frame shorter than its header announces is a trim. Else it is a drop.
  bool fabric_trims = true;

  // Pacing and congestion control.
  CongestionControlKind congestion_control = CongestionControlKind::kDcqcnPaper;
  CongestionRestart congestion_restart = CongestionRestart::kAtStep;
  BitsPerSecond link_rate{};                     // 0: not known; then nothing is paced at line rate
  BitsPerSecond assumed_link_rate{25000000000};  // what the rate constants are fractions of where it is not known
  Nanoseconds base_rtt{};                        // what the timers are multiples of; 0: the least RTT measured
  uint32_t packet_overhead_bytes = 122;          // headers of a data packet on the wire, for pacing
  uint32_t pacing_burst_bytes = 16384;           // how far the pacer may run ahead of its rate, for batching

  // Reports.
  uint32_t report_every_packets = 16;
  Nanoseconds max_report_delay = Milliseconds(1);  // else a quarter of the RTT

  // Paths of a connection, at most kMaxPaths; one with kSingle. How many a driver has is its own matter
  // (dataplane/udp_driver.h: eight).
  PathPolicy path_policy = PathPolicy::kSingle;
  uint32_t paths = 1;
  // Addresses of a peer, over which the paths are dealt out: path n goes to rail n % rails. Both sides have as many.
  // Above 1 connections spray, and `paths` is a multiple of it.
  uint32_t rails = 1;
  // Those that a connection has.
  uint32_t PathCount() const { return path_policy == PathPolicy::kSingle ? 1 : paths; }

  // Loss recovery.
  Recovery recovery = Recovery::kSelectiveRepeat;
  Nanoseconds initial_rtt = Milliseconds(1);
  Nanoseconds min_rto = Milliseconds(20);
  Nanoseconds max_rto = Seconds(2);
  bool rto_backoff = true;
  // Segments are cut smaller where a path swallows long packets. Off only where none can, in memory: a sender keeps
  // records in reserve for it.
  bool segments_shrink = true;

  // Liveness and handshake.
  Nanoseconds peer_timeout = Seconds(30);
  Nanoseconds connect_retry = Milliseconds(50);
  uint32_t connect_tries_per_size = 4;
  Nanoseconds linger = Seconds(5);  // how long a closed receiver still answers
};

}  // namespace forgive

#endif  // FORGIVE_TRANSPORT_CONFIG_H_
