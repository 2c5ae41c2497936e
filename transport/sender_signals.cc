// SPDX-License-Identifier: Apache-2.0
// What a sender tells a window-based congestion control: trims with their bytes, and what arrived with which delay.
#include <algorithm>

#include "transport/sender.h"

namespace forgive {

void Sender::SignalTrim(TimePoint now, uint64_t number) {
  SentPacket packet;
  if (!tells_acknowledged_ || !RememberedPacket(number, &packet) ||
      IsExempt(now, ExpandNumber(peer_completed_, packet.message))) {
    Signal(now, CongestionSignal::kTrim, MessageOfPacket(number));
    return;
  }
  congestion_control_->OnTrim(now, packet.length, ranges_.bytes_in_flight());
  AfterCongestionControl(now);
}

// `rtt` is a fresh sample, `message` the newest packet's. Unmarked and marked bytes are told apart, in this order: a
// report leaves with the first packet whose mark differs from the last one's.
void Sender::TellAcknowledged(TimePoint now, const Report& report, Nanoseconds rtt, uint64_t message) {
  if (report.received_bytes <= told_bytes_) return;  // overtaken by a later report
  const uint64_t bytes = report.received_bytes - told_bytes_;
  const uint64_t marked = std::min(bytes, report.ce_bytes - std::min(report.ce_bytes, told_ce_bytes_));
  told_bytes_ = report.received_bytes;
  told_ce_bytes_ = std::max(told_ce_bytes_, report.ce_bytes);
  CongestionControl::Acknowledged what;
  const Nanoseconds base = config_.base_rtt.value != 0 ? config_.base_rtt : rtt_.least();
  what.delay = std::max(Nanoseconds{0}, rtt - base);
  what.bytes_in_flight = ranges_.bytes_in_flight();
  // To an Exempt sender a mark is no mark; ApplyMarks has counted it as ignored.
  const uint64_t obeyed = IsExempt(now, message) ? 0 : marked;
  what.bytes = bytes - obeyed;
  if (what.bytes != 0) congestion_control_->OnAcknowledged(now, what);
  what.bytes = obeyed;
  what.marked = true;
  if (what.bytes != 0) congestion_control_->OnAcknowledged(now, what);
  AfterCongestionControl(now);
}

}  // namespace forgive
