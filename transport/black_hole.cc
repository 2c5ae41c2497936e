// SPDX-License-Identifier: Apache-2.0
// Tells a path that swallows full-size packets from one that loses some, and says to which size to cut segments then.
#include "transport/black_hole.h"

#include <algorithm>

namespace forgive {

uint32_t BlackHoleDetector::SmallerThan(uint32_t length) const {
  if (!cuts_) return 0;
  for (uint32_t size : kLadderBytes) {
    if (size + kLeastGainBytes <= length) return size;
  }
  return length > kLeastBytes ? kLeastBytes : 0;
}

void BlackHoleDetector::OnAcknowledged(uint32_t longest) {
  stalled_ = false;
  stalled_rounds_ = 0;
  stalled_time_ = Nanoseconds{};
  if (longest >= suspect_bytes_) {
    suspect_bytes_ = 0;
    rounds_ = 0;
  }
  open_ = suspect_bytes_ != 0;
}

BlackHoleDetector::Verdict BlackHoleDetector::OnTimeout(uint32_t length, Nanoseconds waited, Nanoseconds patience) {
  const bool asks = open_;
  const bool heard = heard_;
  open_ = true;
  heard_ = false;
  // A small packet that is lost again and again is no matter of size.
  const bool can_be_cut = SmallerThan(length) != 0;
  if (can_be_cut) {
    if (heard && suspect_bytes_ != 0) ++rounds_;  // what was heard before the first timeout says nothing
    suspect_bytes_ = suspect_bytes_ == 0 ? length : std::min(suspect_bytes_, length);
    if (rounds_ >= kRounds) {
      *this = BlackHoleDetector(SmallerThan(suspect_bytes_));
      return Verdict::kCut;
    }
  }
  if (heard && stalled_) {
    ++stalled_rounds_;
    stalled_time_ = stalled_time_ + waited;
  }
  stalled_ = true;
  if (!can_be_cut && stalled_rounds_ >= kRounds && stalled_time_ >= patience) return Verdict::kGiveUp;
  return asks ? Verdict::kAsk : Verdict::kWait;
}

}  // namespace forgive
