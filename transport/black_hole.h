// SPDX-License-Identifier: Apache-2.0
// Tells a path that swallows full-size packets from one that loses some, and says to which size to cut segments then.
#ifndef FORGIVE_TRANSPORT_BLACK_HOLE_H_
#define FORGIVE_TRANSPORT_BLACK_HOLE_H_

#include <cstdint>

#include "transport/units.h"

namespace forgive {

// The black-hole detector of a sender (RFC 8899, 4.3; RFC 4821, 7.7): packets of a size that the path took before
// vanish, while the peer answers. It believes what the peer's tagged reports say and no ICMP message, which anybody
// could forge (docs/decisions/0070-segments-shrink-where-a-path-swallows-them.md).
//
// A round is the time from one timeout to the next. It is evidence if the peer was heard in it, that is a report of
// its came: full-size packets were lost in it once more, and the path was not down. From the second timeout on the
// sender asks with a probe, so that there is something to hear. An acknowledged segment that is at least as long as
// those under suspicion proves that such packets pass.
//
// Under go-back-N it may find nothing: there a short segment that arrives behind the hole makes the receiver ask
// again and again, so that nothing times out.
//
// Invariants: payload() only falls; nothing is allocated; no time passes in here but that which the caller names.
class BlackHoleDetector {
 public:
  enum class Verdict : uint8_t {
    kWait,    // nothing to do
    kAsk,     // send a probe, besides what is sent again
    kCut,     // payload() is smaller now: cut what is not acknowledged and what is not sent to it
    kGiveUp,  // packets that no cut would make smaller have vanished for as long as the caller's patience
  };

  // Rounds of evidence before a cut. Where 30 % of all packets are lost at random, one segment alone is lost in a
  // heard round in one case of seven at most: six such rounds before a success are one case in ten thousand, of
  // those segments that timed out twice before. With the default timeouts (20 ms, doubled up to 2 s) six rounds
  // take 4.5 s, so that both cuts come well within the 30 s of the peer timeout.
  static constexpr uint32_t kRounds = 6;
  // What segments are cut to: 1,500 and 1,280 bytes (Ethernet's MTU, IPv6's least, which tunnels must pass) without
  // 40 bytes of IPv6, 8 of UDP and 56 of the data header, rounded down to kUnitBytes.
  static constexpr uint32_t kLadderBytes[] = {1392, 1168};
  // A step down that gains less is left out, unless it is the last: few tunnels' headers are smaller. (IPv4's 1,408
  // bytes skip the 1,392.)
  static constexpr uint32_t kLeastGainBytes = 64;
  static constexpr uint32_t kLeastBytes = kLadderBytes[1];

  // cuts: false where no path swallows packets for their size; then nothing is ever cut.
  explicit BlackHoleDetector(uint32_t max_payload, bool cuts = true) : payload_(max_payload), cuts_(cuts) {}

  // Most payload bytes of a segment, now.
  uint32_t payload() const { return payload_; }
  bool suspects() const { return open_; }

  // A report that was new came.
  void OnHeard() { heard_ = true; }
  // Segments were acknowledged, the longest of them with so many bytes.
  void OnAcknowledged(uint32_t longest);
  // A segment of `length` bytes timed out, after `waited`. patience: how long the peer may answer and no segment at
  // all be acknowledged.
  Verdict OnTimeout(uint32_t length, Nanoseconds waited, Nanoseconds patience);

 private:
  // What segments are cut to where such a length vanishes, or 0.
  uint32_t SmallerThan(uint32_t length) const;

  uint32_t payload_;
  bool cuts_;
  bool heard_ = false;  // since the last timeout
  bool open_ = false;   // there is a suspicion of either kind
  // Of segments that a cut would make smaller.
  uint32_t suspect_bytes_ = 0;  // the shortest of them that timed out; 0: none
  uint32_t rounds_ = 0;         // of evidence
  // Of all segments: since the last one was acknowledged.
  bool stalled_ = false;
  uint32_t stalled_rounds_ = 0;  // of evidence
  Nanoseconds stalled_time_{};   // the sum of these rounds
};

}  // namespace forgive

#endif  // FORGIVE_TRANSPORT_BLACK_HOLE_H_
