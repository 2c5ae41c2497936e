// SPDX-License-Identifier: Apache-2.0
// The scoreboard: for every 16-byte unit of the stream above rcv_nxt, whether it is Requested, Forgiven or Received.
#ifndef FORGIVE_TRANSPORT_SCOREBOARD_H_
#define FORGIVE_TRANSPORT_SCOREBOARD_H_

#include <cstdint>

#include "transport/array.h"
#include "transport/check.h"
#include "transport/config.h"

namespace forgive {

// Stream positions divided by kUnitBytes. Empty when begin == end.
struct UnitRange {
  uint64_t begin = 0;
  uint64_t end = 0;
  constexpr bool empty() const { return begin >= end; }
  constexpr uint64_t length() const { return end - begin; }
  friend constexpr bool operator==(const UnitRange&, const UnitRange&) = default;
};

// Bitmaps over a sliding span of the stream. Segments begin on unit boundaries and a message's last segment settles
// its padding, so a unit is settled whole or not at all and the bitmaps are exact (protocol.md, Receiver state 4).
// Every operation costs the words it touches: a 4,096-byte segment is four of them.
//
// Invariants: settled (Received or Forgiven) and Requested exclude each other, as do settled and counted; a unit
// below base is settled and not kept, except that which units were Forgiven is remembered for one span more, so that
// a late payload can be told from a duplicate.
class Scoreboard {
 public:
  // span_bytes is a power of two, at least 64 units.
  explicit Scoreboard(uint64_t span_bytes);
  // Else nothing but the destructor may be called, here as in every class that has this function.
  bool has_memory() const {
    return settled_.has_memory() && requested_.has_memory() && counted_.has_memory() && forgiven_.has_memory();
  }

  // rcv_nxt / kUnitBytes: all below is settled, and after Advance this unit is not.
  uint64_t base() const { return base_; }
  // How many units from base on are kept.
  uint64_t span() const { return span_; }
  bool Holds(UnitRange range) const { return range.end <= base_ + span_; }

  // All ranges below must satisfy Holds. Their parts below base count as settled.

  uint64_t CountMissing(UnitRange range) const;
  // The first maximal run of missing units in the range. False: there is none.
  bool NextMissing(UnitRange range, UnitRange* run) const {
    if (range.empty()) return false;
    if (range.begin < settled_end_) return NextMissingAmongSettled(range, run);
    *run = range;
    return true;
  }
  // The missing units of a range, at one look at its words.
  struct Missing {
    uint64_t units = 0;
    uint64_t uncounted = 0;     // of them, not counted in outstanding
    bool all_requested = true;  // each of them is Requested already
  };
  Missing Survey(UnitRange range) const;
  uint64_t CountCounted(UnitRange range) const;
  uint64_t CountForgiven(UnitRange range) const;
  // The maximal settled run around `known`, which is not empty, settled and not below base.
  UnitRange SettledRun(UnitRange known) const;

  bool IsSettled(uint64_t unit) const;
  bool IsForgiven(uint64_t unit) const;
  bool IsRequested(uint64_t unit) const;
  bool IsCounted(uint64_t unit) const;

  // A run of missing units arrived, or was forgiven: it is neither Requested nor counted afterwards. May move base
  // over the run.
  void MarkReceived(UnitRange run) {
    FORGIVE_CHECK(run.begin >= base_);
    FORGIVE_CHECK(Holds(run));
    // What is settled is neither Requested nor counted. Nearly always nothing is, and no word is touched.
    if ((requested_units_ | counted_units_) != 0) ClearMarks(run);
    if (run.begin == base_) {
      MoveBase(run.end);  // in order, the common case: nothing in the run was settled, so no bit changes
    } else {
      SetSettled(run);
    }
    if (settled_end_ < run.end) settled_end_ = run.end;
  }
  void MarkForgiven(UnitRange run);
  // Mark the missing units of the range; what is settled keeps its state.
  void MarkRequested(UnitRange range);
  void MarkCounted(UnitRange range);

  // Moves base over what is settled and returns it. Seed: Advance.
  uint64_t Advance() { return settled_end_ == base_ ? base_ : AdvanceOverSettled(); }

  // Recounts everything and compares with the invariants; costs the whole span. For tests.
  bool CheckAll() const;

 private:
  using Words = Array<uint64_t>;

  bool NextMissingAmongSettled(UnitRange range, UnitRange* run) const;
  uint64_t FirstUnsettled(uint64_t from, uint64_t limit) const;
  uint64_t FirstSettled(uint64_t from, uint64_t limit) const;
  uint64_t SettledSince(uint64_t from) const;
  // Moves base to `next`, below which no settled bit is left.
  void MoveBase(uint64_t next) {
    if (forgiven_units_ != 0) ForgetForgiven(next);
    base_ = next;
  }
  void ForgetForgiven(uint64_t next);
  void SetSettled(UnitRange run);
  void ClearMarks(UnitRange run);
  uint64_t AdvanceOverSettled();
  UnitRange Above(UnitRange range) const { return {range.begin < base_ ? base_ : range.begin, range.end}; }

  uint64_t span_;
  uint64_t word_mask_;
  uint64_t base_ = 0;
  uint64_t settled_end_ = 0;  // one past the highest unit ever settled; at least base
  uint64_t requested_units_ = 0;
  uint64_t counted_units_ = 0;
  uint64_t forgiven_units_ = 0;  // those remembered
  Words settled_;
  Words requested_;
  Words counted_;
  Words forgiven_;  // twice the span: half of it below base
};

}  // namespace forgive

#endif  // FORGIVE_TRANSPORT_SCOREBOARD_H_
