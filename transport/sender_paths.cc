// SPDX-License-Identifier: Apache-2.0
// A sender's timeouts over many paths, what a sprayed packet's echo says, dead paths, go-back-N's return, and black
// holes.
#include <algorithm>

#include "transport/sender.h"

namespace forgive {

// The earliest moment from which a path's timeout runs. With one path it is exact. With many it may be too early,
// never too late, as every path's moment only moves on: whoever finds the timeout due asks for the exact one.
TimePoint Sender::TimeoutBase() const { return paths_ == 1 ? TimeoutBaseOf(0) : timeout_base_; }

TimePoint Sender::TimeoutBaseOf(uint16_t path) const {
  const TimePoint oldest = ranges_.OldestSent(path);
  if (oldest == kNever) return kNever;
  return std::max({oldest, ranges_.LastProgress(path), last_timeout_});
}

void Sender::UpdateTimeoutBase() {
  timeout_base_ = kNever;
  for (uint16_t path = 0; path < paths_; ++path) timeout_base_ = Earlier(timeout_base_, TimeoutBaseOf(path));
}

TimePoint Sender::NextTimeout() const {
  const TimePoint base = ranges_.nothing_outstanding() ? kNever : TimeoutBase();
  return base == kNever ? kNever : base + rto();
}

// The next packet's, with several: those that lose everything are left out.
uint16_t Sender::NextPath() {
  uint16_t path = path_selector_.Next();
  const uint32_t given_up = path_health_.given_up();
  if (given_up == 0) return path;
  // Those that wait, and then one turn of all: one of them is not given up.
  for (uint32_t tries = PathSelector::kWaiting + paths_; tries != 0; --tries) {
    if (path_health_.MayTake(path, ranges_.LastProgress(path))) break;
    path = path_selector_.Next();
  }
  counters_->paths_returned += given_up - path_health_.given_up();
  return path;
}

// Whether the path, which has timed out, loses everything.
void Sender::JudgeSilence(uint16_t path, TimePoint now) {
  const uint32_t before = path_health_.given_up();
  if (path_health_.OnTimeout(path, now, ranges_.LastProgress(path))) {
    ++counters_->paths_given_up;
  } else {
    counters_->paths_returned += before - path_health_.given_up();
  }
}

// Whether the path loses packets, or swallows those of a size.
void Sender::JudgePath(uint32_t length, Nanoseconds waited) {
  if (!black_hole_.suspects()) ranges_.TakeLongestAcknowledged();  // what was acknowledged before says nothing
  switch (black_hole_.OnTimeout(length, waited, config_.peer_timeout)) {
    case BlackHoleDetector::Verdict::kWait:
      return;
    case BlackHoleDetector::Verdict::kAsk:
      path_probe_due_ = true;
      return;
    case BlackHoleDetector::Verdict::kCut:
      CutSegments();
      return;
    case BlackHoleDetector::Verdict::kGiveUp:
      data_swallowed_ = true;
      return;
  }
}

void Sender::CutSegments() {
  ranges_.CutTo(black_hole_.payload());
  if (paths_ != 1) UpdateTimeoutBase();
  backoff_ = 0;  // the timeouts said nothing of the path's load
  ++counters_->segment_cuts;
  Event event;
  event.kind = Event::Kind::kSegmentsCut;
  event.connection = handle_;
  event.size = black_hole_.payload();
  events_->Push(event);
}

// True if the echo of the packet is news. Reports repeat the last one until another packet arrives; with one path
// only a newer packet is news, with many each packet once.
bool Sender::TakeEcho(uint64_t number) {
  if (number >= next_packet_number_) return false;
  if (paths_ == 1) {
    if (any_newest_ && number <= newest_packet_) return false;
    any_newest_ = true;
    newest_packet_ = number;
    return true;
  }
  if (next_packet_number_ - number > packets_.size()) return false;
  SentPacket& packet = packets_[number & (packets_.size() - 1)];
  if (packet.echoed != 0) return false;
  packet.echoed = 1;
  return true;
}

// Go-back-N: everything from rcv_nxt on is sent again, in order. What was sent before the last return is not there
// to prove another loss: its packets arrive out of order as a matter of course. Returns how many segments are lost.
uint64_t Sender::GoBack(uint64_t packet_number) {
  if (packet_number < returned_at_) return 0;
  returned_at_ = next_packet_number_;
  return ranges_.LoseRequested({rcv_nxt_, ranges_.unsent_position()}, UINT64_MAX);
}

}  // namespace forgive
