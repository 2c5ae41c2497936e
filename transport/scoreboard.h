// SPDX-License-Identifier: Apache-2.0
// The scoreboard: for every 16-byte unit of the stream above rcv_nxt, whether it is Requested, Forgiven or Received.
#ifndef FORGIVE_TRANSPORT_SCOREBOARD_H_
#define FORGIVE_TRANSPORT_SCOREBOARD_H_

#include <cstdint>
#include <vector>

#include "transport/config.h"
#include "transport/wire.h"

namespace forgive {

// Bitmaps over a sliding span of the stream. Segments begin on unit boundaries and a message's last segment settles
// its padding, so a unit is settled whole or not at all and the bitmaps are exact (protocol.md, Receiver state 4).
// Every operation costs the words it touches: a 4,096-byte segment is four of them.
//
// Invariants: settled (Received or Forgiven) and Requested exclude each other, as do settled and counted; a unit
// below base is settled and not kept.
class Scoreboard {
 public:
  // span_bytes is a power of two, at least 64 units.
  explicit Scoreboard(uint64_t span_bytes);
};

}  // namespace forgive

#endif  // FORGIVE_TRANSPORT_SCOREBOARD_H_
