// SPDX-License-Identifier: Apache-2.0
// Which paths of a spraying sender lose everything: they are left alone, and tried again now and then.
#ifndef FORGIVE_TRANSPORT_PATH_HEALTH_H_
#define FORGIVE_TRANSPORT_PATH_HEALTH_H_

#include <cstdint>

#include "transport/array.h"
#include "transport/units.h"

namespace forgive {

// One per sending connection. A path that has timed out kSilentTimeouts times, and by which nothing came through in
// between, is given up: a link or a switch on it is dead, and no route says so. What was acknowledged since then
// brings it back. It is believed by what the peer's reports say alone, as REPS' freezing is (Recycled Entropies for
// Packet Spraying, 2024).
//
// Invariants: at least one path is not given up; nothing is allocated after set-up; no time passes in here but that
// which the caller names.
class PathHealth {
 public:
  static constexpr uint32_t kSilentTimeouts = 3;
  // Turns of a path that was given up before one packet tries it again; doubled each time up to the most. A packet
  // that is lost so costs its message a timeout.
  static constexpr uint32_t kFirstRest = 64;
  static constexpr uint32_t kLongestRest = 1024;

  explicit PathHealth(uint32_t paths) : records_(paths) {}
  bool has_memory() const { return records_.has_memory(); }

  uint32_t given_up() const { return given_up_; }

  // A timeout of the path. last_progress: when something sent by it was last acknowledged. True: it is given up now.
  // Where the last one would have to be given up, all come back: then it is the peer that is silent, or the network.
  bool OnTimeout(uint16_t path, TimePoint now, TimePoint last_progress);
  // Whether the next packet may take the path, whose turn it is.
  bool MayTake(uint16_t path, TimePoint last_progress);

 private:
  struct Record {
    TimePoint last_timeout{INT64_MIN};
    uint32_t silent_timeouts = 0;
    uint32_t rest = 0;     // turns; 0: not given up
    uint32_t skipped = 0;  // turns since it was last tried
  };

  Array<Record> records_;
  uint32_t given_up_ = 0;
};

}  // namespace forgive

#endif  // FORGIVE_TRANSPORT_PATH_HEALTH_H_
