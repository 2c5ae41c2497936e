// SPDX-License-Identifier: Apache-2.0
// Bit operations of the scoreboard on rings of 64-bit words.
#include "transport/scoreboard.h"

#include <algorithm>
#include <bit>

namespace forgive {
namespace {

constexpr uint64_t kWordBits = 64;

// std::popcount would be a call: the processors that this is built for need not have the instruction. A word is
// nearly always empty or full.
constexpr uint64_t Popcount(uint64_t word) {
  if (word == 0 || word == ~uint64_t{0}) return word & kWordBits;
  word -= word >> 1 & 0x5555555555555555u;
  word = (word & 0x3333333333333333u) + (word >> 2 & 0x3333333333333333u);
  word = (word + (word >> 4)) & 0x0f0f0f0f0f0f0f0fu;
  return word * 0x0101010101010101u >> 56;
}

// Calls visit(index, mask) for every word of a ring of word_mask + 1 words that holds units of the range.
template <typename Visit>
void ForEachWord(UnitRange range, uint64_t word_mask, Visit visit) {
  if (range.empty()) return;
  constexpr uint64_t kAll = ~uint64_t{0};
  const uint64_t last_unit = range.end - 1;
  const uint64_t last = last_unit / kWordBits;
  uint64_t mask = kAll << (range.begin % kWordBits);
  for (uint64_t word = range.begin / kWordBits; word != last; ++word, mask = kAll) visit(word & word_mask, mask);
  visit(last & word_mask, mask & kAll >> (kWordBits - 1 - last_unit % kWordBits));
}

bool TestBit(const Array<uint64_t>& words, uint64_t word_mask, uint64_t unit) {
  return (words[(unit / kWordBits) & word_mask] >> (unit % kWordBits)) & 1;
}

}  // namespace

Scoreboard::Scoreboard(uint64_t span_bytes)
    : span_(span_bytes / kUnitBytes),
      word_mask_(span_ / kWordBits - 1),
      settled_(span_ / kWordBits),
      requested_(span_ / kWordBits),
      counted_(span_ / kWordBits),
      forgiven_(2 * span_ / kWordBits) {
  FORGIVE_CHECK(std::has_single_bit(span_bytes));
  FORGIVE_CHECK(span_ >= kWordBits);
}

uint64_t Scoreboard::CountMissing(UnitRange range) const {
  uint64_t missing = 0;
  ForEachWord(Above(range), word_mask_,
              [&](uint64_t index, uint64_t mask) { missing += Popcount(mask & ~settled_[index]); });
  return missing;
}

bool Scoreboard::NextMissingAmongSettled(UnitRange range, UnitRange* run) const {
  range = Above(range);
  if (range.empty()) return false;
  run->begin = FirstUnsettled(range.begin, range.end);
  if (run->begin == range.end) return false;
  run->end = FirstSettled(run->begin, range.end);
  return true;
}

Scoreboard::Missing Scoreboard::Survey(UnitRange range) const {
  range = Above(range);
  // Nearly always a trim's units are all missing, and all of them counted or none: then no bit need be counted.
  uint64_t settled = 0;
  uint64_t counted = 0;
  uint64_t uncounted = 0;
  uint64_t unrequested = 0;
  ForEachWord(range, word_mask_, [&](uint64_t index, uint64_t mask) {
    const uint64_t missing = mask & ~settled_[index];
    settled |= mask & settled_[index];
    counted |= missing & counted_[index];
    uncounted |= missing & ~counted_[index];
    unrequested |= missing & ~requested_[index];
  });
  Missing found;
  found.all_requested = unrequested == 0;
  if (settled == 0 && (counted == 0 || uncounted == 0)) {
    found.units = range.empty() ? 0 : range.length();
    found.uncounted = uncounted == 0 ? 0 : found.units;
    return found;
  }
  ForEachWord(range, word_mask_, [&](uint64_t index, uint64_t mask) {
    const uint64_t missing = mask & ~settled_[index];
    found.units += Popcount(missing);
    found.uncounted += Popcount(missing & ~counted_[index]);
  });
  return found;
}

uint64_t Scoreboard::CountCounted(UnitRange range) const {
  if (counted_units_ == 0) return 0;
  uint64_t counted = 0;
  ForEachWord(Above(range), word_mask_,
              [&](uint64_t index, uint64_t mask) { counted += Popcount(mask & counted_[index]); });
  return counted;
}

uint64_t Scoreboard::CountForgiven(UnitRange range) const {
  if (forgiven_units_ == 0) return 0;
  const uint64_t remembered = base_ < span_ ? 0 : base_ - span_;
  range.begin = std::max(range.begin, remembered);
  uint64_t forgiven = 0;
  ForEachWord(range, 2 * word_mask_ + 1,
              [&](uint64_t index, uint64_t mask) { forgiven += Popcount(mask & forgiven_[index]); });
  return forgiven;
}

UnitRange Scoreboard::SettledRun(UnitRange known) const {
  return {SettledSince(known.begin), FirstUnsettled(known.end, std::max(known.end, settled_end_))};
}

bool Scoreboard::IsSettled(uint64_t unit) const {
  return unit < base_ || (unit < base_ + span_ && TestBit(settled_, word_mask_, unit));
}

bool Scoreboard::IsForgiven(uint64_t unit) const { return CountForgiven({unit, unit + 1}) == 1; }

bool Scoreboard::IsRequested(uint64_t unit) const {
  return unit >= base_ && unit < base_ + span_ && TestBit(requested_, word_mask_, unit);
}

bool Scoreboard::IsCounted(uint64_t unit) const {
  return unit >= base_ && unit < base_ + span_ && TestBit(counted_, word_mask_, unit);
}

void Scoreboard::SetSettled(UnitRange run) {
  ForEachWord(run, word_mask_, [&](uint64_t index, uint64_t mask) { settled_[index] |= mask; });
}

void Scoreboard::MarkForgiven(UnitRange run) {
  MarkReceived(run);
  ForEachWord(run, 2 * word_mask_ + 1, [&](uint64_t index, uint64_t mask) { forgiven_[index] |= mask; });
  forgiven_units_ += run.length();
}

void Scoreboard::MarkRequested(UnitRange range) {
  ForEachWord(Above(range), word_mask_, [&](uint64_t index, uint64_t mask) {
    const uint64_t fresh = mask & ~settled_[index] & ~requested_[index];
    requested_[index] |= fresh;
    requested_units_ += Popcount(fresh);
  });
}

void Scoreboard::MarkCounted(UnitRange range) {
  ForEachWord(Above(range), word_mask_, [&](uint64_t index, uint64_t mask) {
    const uint64_t fresh = mask & ~settled_[index] & ~counted_[index];
    counted_[index] |= fresh;
    counted_units_ += Popcount(fresh);
  });
}

void Scoreboard::ClearMarks(UnitRange run) {
  ForEachWord(run, word_mask_, [&](uint64_t index, uint64_t mask) {
    requested_units_ -= Popcount(requested_[index] & mask);
    counted_units_ -= Popcount(counted_[index] & mask);
    requested_[index] &= ~mask;
    counted_[index] &= ~mask;
  });
}

uint64_t Scoreboard::AdvanceOverSettled() {
  const uint64_t next = FirstUnsettled(base_, settled_end_);
  if (next == base_) return base_;
  // The positions below base serve the units one span above from now on.
  ForEachWord({base_, next}, word_mask_, [&](uint64_t index, uint64_t mask) { settled_[index] &= ~mask; });
  MoveBase(next);
  return base_;
}

// The places of what lies a span below the new base serve what lies a span above it.
void Scoreboard::ForgetForgiven(uint64_t next) {
  ForEachWord({base_ + span_, next + span_}, 2 * word_mask_ + 1, [&](uint64_t index, uint64_t mask) {
    forgiven_units_ -= Popcount(forgiven_[index] & mask);
    forgiven_[index] &= ~mask;
  });
}

// The first unit at or above `from` that is not settled; at most limit.
uint64_t Scoreboard::FirstUnsettled(uint64_t from, uint64_t limit) const {
  if (from >= settled_end_) return std::min(from, limit);
  while (from < limit) {
    const uint64_t shift = from % kWordBits;
    const uint64_t word = ~settled_[(from / kWordBits) & word_mask_] >> shift;
    if (word != 0) return std::min(limit, from + static_cast<uint64_t>(std::countr_zero(word)));
    from += kWordBits - shift;
  }
  return limit;
}

// The first unit at or above `from` that is settled; at most limit.
uint64_t Scoreboard::FirstSettled(uint64_t from, uint64_t limit) const {
  if (from >= settled_end_) return limit;
  while (from < limit) {
    const uint64_t shift = from % kWordBits;
    const uint64_t word = settled_[(from / kWordBits) & word_mask_] >> shift;
    if (word != 0) return std::min(limit, from + static_cast<uint64_t>(std::countr_zero(word)));
    from += kWordBits - shift;
  }
  return limit;
}

// The least unit from which on everything below `from` is settled; at least base.
uint64_t Scoreboard::SettledSince(uint64_t from) const {
  while (from > base_) {
    const uint64_t last = from - 1;
    const uint64_t above = kWordBits - 1 - last % kWordBits;
    const uint64_t word = ~settled_[(last / kWordBits) & word_mask_] << above;
    if (word != 0) return std::max(base_, from - static_cast<uint64_t>(std::countl_zero(word)));
    from = last - last % kWordBits;
  }
  return base_;
}

bool Scoreboard::CheckAll() const {
  uint64_t requested = 0;
  uint64_t counted = 0;
  uint64_t forgiven = 0;
  for (size_t i = 0; i < settled_.size(); ++i) {
    if ((settled_[i] & (requested_[i] | counted_[i])) != 0) return false;
    requested += Popcount(requested_[i]);
    counted += Popcount(counted_[i]);
  }
  for (const uint64_t word : forgiven_) forgiven += Popcount(word);
  if (base_ < base_ + span_ && IsSettled(base_)) return false;
  for (uint64_t unit = base_; unit < base_ + span_; ++unit) {
    if (IsForgiven(unit) && !IsSettled(unit)) return false;
    if (unit >= settled_end_ && IsSettled(unit)) return false;
  }
  return requested == requested_units_ && counted == counted_units_ && forgiven == forgiven_units_;
}

}  // namespace forgive
