// SPDX-License-Identifier: Apache-2.0
// What a schedule is, before anything runs: hosts, parameters, messages and faults, all of it from one seed.
#ifndef FORGIVE_TESTS_DST_PLAN_H_
#define FORGIVE_TESTS_DST_PLAN_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "transport/config.h"
#include "transport/units.h"

namespace forgive::dst {

// Of every packet, while the faults last.
struct Rates {
  Fraction trim, drop, duplicate, reorder, corrupt, mark, forge, replay;
  Nanoseconds delay;
  Nanoseconds reorder_delay;
  Nanoseconds path_skew;  // each path is slower than the one before it by this
};

// Something that lasts a while, at one host.
struct Spell {
  enum class Kind : uint8_t {
    kDelay,     // what leaves the host takes longer by `amount` ns
    kMarks,     // all of its data are marked
    kTrims,     // nearly all of its data are trimmed
    kBlackout,  // nothing leaves it
    kPathLoss,  // nothing leaves it on the paths of one residue: amount
    kStall,     // it is not polled
    kJump,      // its clock jumps by `amount` ns
    kHold,      // its events are not taken
    kDeath,     // it is gone, and comes back at the end
    kClose,     // it closes one of its connections
    kStill,     // its clock stands still; backwards it never goes, as CLOCK_MONOTONIC does not
    kRailLoss,  // nothing at all leaves it by one rail: amount
  };
  Kind kind = Kind::kDelay;
  int host = 0;
  TimePoint begin;
  TimePoint end;
  uint64_t amount = 0;
};

struct MessagePlan {
  uint32_t length = 0;
  uint32_t capacity = 0;  // less than length: the peer breaks the contract
};

struct StreamPlan {
  int from = 0;
  int to = 0;
  bool resegments = false;       // its segments are cut anew on their way, as another sender might cut them
  uint32_t max_payload = 0;      // what its connector's MTU allows
  TimePoint receives_from;       // no receive is posted before
  uint64_t post_chance = 0;      // of 16, when it is its turn
  bool posts_ahead = false;      // receives first, else sends
  uint32_t window_of_posts = 0;  // how many receives may be posted ahead of what has arrived
  std::vector<MessagePlan> messages;
};

struct Plan {
  uint64_t seed = 0;
  bool large = false;
  std::vector<Config> configs;  // a host each
  std::vector<Nanoseconds> clock_offsets;
  uint64_t first_number = 0;  // of packets, reports and messages of every connection: Config::experiments
  std::vector<StreamPlan> streams;
  Rates rates;
  std::vector<Spell> spells;  // by their begin
  TimePoint faults_end;       // from the world's beginning
  Nanoseconds turn;           // between two turns of the applications
  uint32_t burst_packets = 1;
  size_t largest_datagram_bytes = SIZE_MAX;             // the paths lose larger ones, always
  TimePoint shrinks_at = kNever;                        // from then on and for good they lose those larger than
  size_t shrinks_to_bytes = SIZE_MAX;                   // this, as behind a port whose MTU was lowered
  uint64_t step_begin_chance = 0, step_end_chance = 0;  // of 256, a host and turn
  bool steps_overlap = false;
  uint32_t largest_p_ppm = 0;
  uint64_t eligible_chance = 0, forgivable_chance = 0;  // of 16, a message
  uint32_t largest_contributions = 1;
  bool can_fail = false;  // peers die, close or break the contract
};

inline constexpr TimePoint kWorldBegin{1000000000};

Plan MakePlan(uint64_t seed, bool large);

}  // namespace forgive::dst

#endif  // FORGIVE_TESTS_DST_PLAN_H_
