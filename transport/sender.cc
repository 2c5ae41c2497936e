// SPDX-License-Identifier: Apache-2.0
// The sending half of a connection: segments, modes, pacing, congestion control and selective repeat.
#include "transport/sender.h"

#include <algorithm>
#include <bit>
#include <new>

#include "transport/check.h"
#include "transport/crc32c.h"
#include "transport/dcqcn.h"
#include "transport/early_messages.h"
#include "transport/fixed_window.h"
#include "transport/inline.h"
#include "transport/nscc.h"
#include "transport/wire_layout.h"

namespace forgive {
namespace {

// RFC 8985: reordering of up to a quarter of the least RTT is no sign of loss.
constexpr int64_t kReorderWindowShare = 4;

constexpr TimePoint kLongAgo{INT64_MIN};

// nullptr: no memory.
std::unique_ptr<CongestionControl> MakeCongestionControl(Config config, uint32_t max_payload) {
  config.max_payload_bytes = max_payload;
  switch (config.congestion_control) {
    case CongestionControlKind::kNone:
      return std::unique_ptr<CongestionControl>(new (std::nothrow) FixedWindow(config));
    case CongestionControlKind::kDcqcnPaper:
      return std::unique_ptr<CongestionControl>(new (std::nothrow) DcqcnPaper(config));
    case CongestionControlKind::kDcqcnAstra:
      return std::unique_ptr<CongestionControl>(new (std::nothrow) DcqcnAstra(config));
    case CongestionControlKind::kNscc:
      return std::unique_ptr<CongestionControl>(new (std::nothrow) Nscc(config));
  }
  FORGIVE_CHECK(false);
}

// Records for segments that are cut anew, of the most bytes that may be sent and not acknowledged: the window, or one
// segment. What is lost is sent before anything new.
uint64_t RecutReserve(const Config& config, uint32_t max_payload, uint64_t scoreboard_bytes) {
  if (!config.segments_shrink) return 0;
  const uint64_t early = KeepsEarlyMessages(config) ? uint64_t{kEarlyMessages} * max_payload : 0;
  const uint64_t outstanding = std::max<uint64_t>(max_payload, std::min(config.window_bytes, scoreboard_bytes));
  return SentRanges::RecutReserve(outstanding + early, BlackHoleDetector::kLeastBytes);
}

// The moment that a wire timestamp, rounded down, speaks of; never later than the true one.
TimePoint MomentOf(TimePoint now, uint32_t timestamp) {
  const TimePoint rounded{now.ns - now.ns % FORGIVE_TIMESTAMP_UNIT_NS};
  return rounded - SinceTimestamp(now, timestamp);
}

}  // namespace

bool ReportWindow::Accept(uint64_t number) {
  if (!any_) {
    any_ = true;
    newest_ = number;
  } else if (number > newest_) {
    if (number - newest_ >= kReports) {
      seen_.fill(0);
    } else {
      for (uint64_t n = newest_ + 1; n < number; ++n) seen_[n % kReports / 64] &= ~(uint64_t{1} << (n % 64));
    }
    newest_ = number;
  } else {
    if (newest_ - number >= kReports) return false;
    if ((seen_[number % kReports / 64] >> (number % 64) & 1) != 0) return false;
  }
  seen_[number % kReports / 64] |= uint64_t{1} << (number % 64);
  return true;
}

Sender::Sender(const Config& config, uint32_t max_payload, uint64_t scoreboard_bytes, ConnectionHandle handle,
               uint64_t connection_id, Counters* counters, EventQueue* events)
    : config_(config),
      handle_(handle),
      connection_id_(connection_id),
      scoreboard_bytes_(scoreboard_bytes),
      counters_(counters),
      events_(events),
      paths_(static_cast<uint16_t>(config.PathCount())),
      path_selector_(config.path_policy, paths_, connection_id),
      path_health_(paths_),
      black_hole_(max_payload, config.segments_shrink),
      ranges_(max_payload, scoreboard_bytes, config.max_messages, paths_,
              RecutReserve(config, max_payload, scoreboard_bytes), config.experiments.first_number),
      pacer_(config.pacing_burst_bytes, max_payload + config.packet_overhead_bytes),
      rtt_(config.initial_rtt, config.min_rto, config.max_rto),
      congestion_control_(MakeCongestionControl(config, max_payload)),
      tells_acknowledged_(config.congestion_control == CongestionControlKind::kNscc),
      reports_(config.experiments.first_number),
      packets_(2 * ranges_.capacity()),
      step_starts_(config.max_messages),
      next_packet_number_(config.experiments.first_number),
      credit_(config.experiments.first_number),
      peer_completed_(config.experiments.first_number),
      last_timeout_(kLongAgo) {
  // The first segment alone must fit, or nothing would ever be sent.
  FORGIVE_CHECK(scoreboard_bytes >= max_payload + 2 * kUnitBytes);
  FORGIVE_CHECK(config.recovery == Recovery::kSelectiveRepeat || paths_ == 1);
}

Sender::~Sender() = default;

bool Sender::Post(const SendRequest& request) {
  if (!ranges_.HasRoom()) return false;
  ranges_.AddMessage(request.cookie, request.buffer, request.length);
  return true;
}

// ---- Sending ----

bool Sender::FitsWindow(uint32_t length) const {
  const uint64_t in_flight = ranges_.bytes_in_flight();
  return in_flight + length <= window_bytes() || in_flight == 0;
}

// Whether the next segment that was never sent has the credit that it needs.
bool Sender::MaySendNext() const {
  if (!ranges_.HasUnsent()) return false;
  const uint64_t message = ranges_.unsent_message();
  if (message < credit_) return true;
  return KeepsEarlyMessages(config_) && message < credit_ + kEarlyMessages &&
         ranges_.UnsentPlace().length == ranges_.message(message).length;
}

bool Sender::FindCandidate(Candidate* out) const {
  if (peer_closed_) return false;
  // Lost without credit is what was parked when segments became smaller.
  if (ranges_.HasLost() && ranges_.Place(ranges_.FirstLost()).message < credit_) {
    out->lost = true;
    out->index = ranges_.FirstLost();
    out->place = ranges_.Place(out->index);
  } else {
    if (!MaySendNext()) return false;
    if (ranges_.UnsentEnd() > rcv_nxt_ + scoreboard_bytes_ || !ranges_.HasRecordRoom()) return false;
    out->lost = false;
    out->place = ranges_.UnsentPlace();
  }
  out->wire_bytes = out->place.length + config_.packet_overhead_bytes;
  return FitsWindow(out->place.length);
}

// The first message of a step begins at line rate, as the seed's fresh flows do; by configuration every message.
void Sender::RestartAtStep(TimePoint now) {
  if (!ranges_.UnsentBeginsMessage() || config_.congestion_restart == CongestionRestart::kOff) return;
  if (ranges_.HasLost() || !MaySendNext()) return;
  const uint64_t message = ranges_.unsent_message();
  const bool at_step = config_.congestion_restart == CongestionRestart::kAtStep;
  if (at_step && step_starts_[message & (step_starts_.size() - 1)] != message + 1) return;
  Restart(now, message);
}

// Once for a message, though the window or the pacer may hold it back, and reports name it until the next step.
void Sender::Restart(TimePoint now, uint64_t message) {
  if (restarted_messages_ == message + 1) return;
  restarted_messages_ = message + 1;
  congestion_control_->Restart(now);
  AfterCongestionControl(now);
}

FORGIVE_FLATTEN bool Sender::NextPacket(TimePoint now, DataHeader* header, const uint8_t** payload) {
  last_now_ = now;
  RunCongestionTimers(now);
  RestartAtStep(now);
  Candidate candidate;
  if (!FindCandidate(&candidate)) {
    UpdateProbe(now);
    return false;
  }
  pacer_.SetRate(now, PacingRate());  // a byte counter may have changed it
  if (!pacer_.MaySend(now, candidate.wire_bytes)) return false;
  pacer_.OnSent(candidate.wire_bytes);

  const uint16_t path = paths_ == 1 ? uint16_t{0} : NextPath();
  const uint64_t number = next_packet_number_++;
  const SegmentPlace& place = candidate.place;
  const SentMessage& message = ranges_.message(place.message);
  packets_[number & (packets_.size() - 1)] = {static_cast<uint32_t>(place.message), path,
                                              static_cast<uint16_t>(place.length & 0x7fff), 0};
  header->payload_length = static_cast<uint16_t>(place.length);
  header->path = path;
  header->connection_id = connection_id_;
  header->stream_offset = message.stream_begin + place.offset;
  header->message_number = static_cast<uint32_t>(place.message);
  header->offset_in_message = place.offset;
  header->message_length = message.length;
  header->packet_number = number;
  header->send_timestamp = WireTimestamp(now);
  *payload = message.buffer + place.offset;
  header->payload_crc32c = config_.payload_crc ? Crc32c(*payload, place.length) : 0;

  // What was outstanding before has ended, and its moment with it.
  timeout_base_ = ranges_.nothing_outstanding() ? now : Earlier(timeout_base_, now);
  if (candidate.lost) {
    ranges_.SendAgain(candidate.index, number, now, path);
    counters_->retransmitted_bytes += place.length;
  } else {
    ranges_.SendUnsent(number, now, path, place.message >= credit_);
  }
  ++counters_->packets_sent;
  counters_->sent_bytes += place.length;
  if (IsExempt(now, place.message)) counters_->sent_exempt_bytes += place.length;
  CountModeChange(now);
  congestion_control_->OnSent(now, candidate.wire_bytes);
  return true;
}

// ---- Congestion ----

void Sender::RunCongestionTimers(TimePoint now) {
  if (now < congestion_deadline_) return;
  congestion_control_->OnDeadline(now);
  AfterCongestionControl(now);
}

void Sender::AfterCongestionControl(TimePoint now) {
  congestion_deadline_ = congestion_control_->next_deadline();
  pacer_.SetRate(now, PacingRate());
  const CongestionControl::Cuts& cuts = congestion_control_->cuts();
  counters_->rate_cuts_mark += cuts.mark - cuts_seen_.mark;
  counters_->rate_cuts_trim += cuts.trim - cuts_seen_.trim;
  counters_->rate_cuts_timeout += cuts.timeout - cuts_seen_.timeout;
  cuts_seen_ = cuts;
}

// Seed: OnCongestionNotification, and the first half of OnRetransmissionRequest.
void Sender::Signal(TimePoint now, CongestionSignal signal, uint64_t message) {
  if (signal != CongestionSignal::kTimeout && IsExempt(now, message)) {
    ++counters_->signals_ignored;
    return;
  }
  congestion_control_->OnSignal(now, signal);
  AfterCongestionControl(now);
}

BitsPerSecond Sender::PacingRate() const {
  const BitsPerSecond rate = congestion_control_->rate();
  if (rate.value == 0) return config_.link_rate;
  return config_.link_rate.value == 0 ? rate : std::min(rate, config_.link_rate);
}

bool Sender::IsExempt(TimePoint now, uint64_t message) const {
  if (config_.experiments.exemption == ExemptionRule::kOff) return false;
  return message >= exempt_begin_ && message < exempt_end_ && now < newest_report_time_ + rtt_.rto();
}

uint64_t Sender::NewestMessage() const { return ranges_.begun() == 0 ? 0 : ranges_.begun() - 1; }

Mode Sender::mode(TimePoint now) const {
  return ranges_.begun() != 0 && IsExempt(now, NewestMessage()) ? Mode::kExempt : Mode::kObeying;
}

void Sender::CountModeChange(TimePoint now) {
  const Mode current = mode(now);
  if (current == last_mode_) return;
  last_mode_ = current;
  ++counters_->mode_changes;
}

// ---- Reports ----

uint64_t Sender::ExpandReportNumber(uint32_t low) const { return ExpandNumber(reports_.newest(), low); }

FORGIVE_FLATTEN bool Sender::OnReport(TimePoint now, const Report& report) {
  last_now_ = now;
  const bool newest = !any_report_ || report.report_number > reports_.newest();
  if (!reports_.Accept(report.report_number)) {
    ++counters_->stale_reports;
    return false;
  }
  if (config_.experiments.early_close) SkipGivenUp(now, report);
  const uint64_t completed = ExpandNumber(peer_completed_, report.completed_messages);
  if (!IsConsistent(report, completed)) {
    ++counters_->malformed;
    return true;
  }
  any_report_ = true;
  black_hole_.OnHeard();
  RunCongestionTimers(now);
  if (newest) ApplyFlags(now, report, completed);
  ApplyCredit(now, report, completed);
  ApplyMarks(now, report);
  ApplyAcknowledgements(now, report, completed);
  ApplyNewest(now, report);
  ApplyRequests(now, report);
  CompleteMessages();
  CountModeChange(now);
  UpdateProbe(now);
  return true;
}

// Experiments::early_close: what the receiver settled although it was never sent counts as sent.
void Sender::SkipGivenUp(TimePoint now, const Report& report) {
  const uint64_t completed = ExpandNumber(peer_completed_, report.completed_messages);
  uint64_t settled = report.rcv_nxt;
  for (uint32_t i = 0; i < report.sack_count; ++i) settled = std::max(settled, report.sacks[i].end);
  while (ranges_.HasUnsent() && (ranges_.unsent_position() < settled || ranges_.unsent_message() < completed)) {
    const SegmentPlace place = ranges_.UnsentPlace();
    const uint64_t number = next_packet_number_++;
    packets_[number & (packets_.size() - 1)] = {static_cast<uint32_t>(place.message), 0, 0, 0};
    ranges_.SendUnsent(number, now, 0, place.message >= credit_);
    counters_->skipped_bytes += place.length;
  }
}

// A peer that keeps the protocol settles only what was sent.
bool Sender::IsConsistent(const Report& report, uint64_t completed) const {
  if (report.rcv_nxt > ranges_.unsent_position()) return false;
  if (completed > ranges_.fully_sent()) return false;
  for (uint32_t i = 0; i < report.sack_count; ++i) {
    if (report.sacks[i].begin > report.sacks[i].end || report.sacks[i].end > ranges_.unsent_position()) return false;
  }
  for (uint32_t i = 0; i < report.request_count; ++i) {
    const Range& range = report.requests[i];
    if (range.begin > range.end || range.end > ranges_.unsent_position()) return false;
  }
  return true;
}

// Seed: Sender::OnReport.
void Sender::ApplyFlags(TimePoint now, const Report& report, uint64_t completed) {
  newest_report_time_ = now;
  const uint64_t begin = completed;
  const uint64_t end = ExpandNumber(begin, report.same_step_end);
  const bool speaks = report.exempt_eligible && end > begin;
  if (!speaks) {
    // Of another step or class, or of nothing: the messages that were completed keep the last word on them.
    exempt_end_ = std::min(exempt_end_, begin);
  } else if (report.budget_exhausted && config_.experiments.exemption != ExemptionRule::kAlways) {
    exempt_end_ = exempt_begin_;
  } else {
    if (exempt_begin_ >= exempt_end_ || exempt_end_ < begin) exempt_begin_ = begin;
    exempt_end_ = end;
  }
  if (exempt_begin_ > exempt_end_) exempt_begin_ = exempt_end_;
}

void Sender::ApplyCredit(TimePoint now, const Report& report, uint64_t completed) {
  peer_completed_ = std::max(peer_completed_, completed);
  const uint64_t credit = ExpandNumber(credit_, report.posted_messages);
  const uint64_t credit_before = credit_;
  if (credit > credit_) {
    credit_ = credit;
    if (ranges_.Unpark(credit_, now) != 0) timeout_base_ = Earlier(timeout_base_, now);
    probe_at_ = kNever;
    probe_backoff_ = 0;
  }
  if (report.has_step_start) {
    const uint64_t start = ExpandNumber(peer_completed_, report.step_start_message);
    if (start >= ranges_.begun()) {
      step_starts_[start & (step_starts_.size() - 1)] = start + 1;
    } else if (start >= credit_before && config_.congestion_restart == CongestionRestart::kAtStep) {
      Restart(now, start);  // what was sent early turns out to begin a step
    }
  }
  if (report.closing) peer_closed_ = true;
}

void Sender::ApplyMarks(TimePoint now, const Report& report) {
  newly_marked_ = report.ce_bytes > ce_bytes_;
  if (!newly_marked_) return;
  ce_bytes_ = report.ce_bytes;
  ++counters_->notifications;
  const uint64_t message = report.has_newest
                               ? MessageOfPacket(ExpandNumber(next_packet_number_, report.newest_packet_number))
                               : peer_completed_;
  Signal(now, CongestionSignal::kMark, message);
}

void Sender::ApplyAcknowledgements(TimePoint now, const Report& report, uint64_t completed) {
  rcv_nxt_ = std::max(rcv_nxt_, report.rcv_nxt);
  uint64_t settled = report.rcv_nxt;
  if (completed > ranges_.completed()) {
    // The end of the last completed message, which is where the next one begins.
    settled = std::max(settled, ranges_.message(completed - 1).stream_end);
  }
  uint64_t fresh = ranges_.Acknowledge(now, {0, settled});
  for (uint32_t i = 0; i < report.sack_count; ++i) fresh += ranges_.Acknowledge(now, report.sacks[i]);
  if (fresh == 0) return;
  backoff_ = 0;
  if (black_hole_.suspects()) black_hole_.OnAcknowledged(ranges_.TakeLongestAcknowledged());
}

// The newest packet that arrived whole: a sample of the RTT, and what was sent well before it on its path is lost.
void Sender::ApplyNewest(TimePoint now, const Report& report) {
  if (!report.has_newest || report.trimmed) return;
  const uint64_t number = ExpandNumber(next_packet_number_, report.newest_packet_number);
  if (!TakeEcho(number)) return;
  const Nanoseconds least_before = rtt_.least();
  const bool first = !rtt_.has_sample();
  const Nanoseconds sample = SinceTimestamp(now, report.newest_timestamp);
  rtt_.OnSample(sample);
  if (config_.base_rtt.value == 0 && (first || rtt_.least() != least_before)) {
    congestion_control_->set_base_rtt(rtt_.least());
    AfterCongestionControl(now);
  }
  SentPacket packet;
  if (!RememberedPacket(number, &packet)) return;
  if (tells_acknowledged_) TellAcknowledged(now, report, sample, ExpandNumber(peer_completed_, packet.message));
  if (paths_ != 1) path_selector_.OnArrived(packet.path, newly_marked_);
  if (config_.recovery == Recovery::kGoBackN) return;  // only rcv_nxt says what is missing
  const Nanoseconds reorder_window = std::min(rtt_.least() / kReorderWindowShare, rtt_.smoothed());
  const TimePoint limit = MomentOf(now, report.newest_timestamp) - reorder_window;
  counters_->lost_by_rack += ranges_.LoseSentBefore(packet.path, limit);
}

// Seed: OnRetransmissionRequest. A trim that was forgiven is a congestion signal too, and comes without ranges.
void Sender::ApplyRequests(TimePoint now, const Report& report) {
  if (!report.trimmed && report.request_count == 0) return;
  const uint64_t number = ExpandNumber(next_packet_number_, report.trimmed_packet_number);
  if (number >= next_packet_number_) return;
  if (report.trimmed && !report.ignore_trim_signal) SignalTrim(now, number);
  if (config_.recovery == Recovery::kGoBackN) {
    if (report.request_count != 0) counters_->lost_by_request += GoBack(number);
    return;
  }
  for (uint32_t i = 0; i < report.request_count; ++i) {
    counters_->lost_by_request += ranges_.LoseRequested(report.requests[i], number);
  }
}

void Sender::CompleteMessages() {
  uint64_t cookie = 0;
  while (ranges_.PopCompleted(&cookie)) {
    Event event;
    event.kind = Event::Kind::kSent;
    event.connection = handle_;
    event.cookie = cookie;
    events_->Push(event);
  }
}

bool Sender::RememberedPacket(uint64_t number, SentPacket* out) const {
  if (number >= next_packet_number_ || next_packet_number_ - number > packets_.size()) return false;
  *out = packets_[number & (packets_.size() - 1)];
  return true;
}

uint64_t Sender::MessageOfPacket(uint64_t number) const {
  SentPacket packet;
  if (!RememberedPacket(number, &packet)) return peer_completed_;  // the first that is not completed
  return ExpandNumber(peer_completed_, packet.message);
}

// ---- Timers ----

void Sender::OnTimeout(TimePoint now) {
  const Nanoseconds waited = rto();
  uint32_t length = 0;  // of the longest segment that timed out as its path's oldest
  for (uint16_t path = 0; path < paths_; ++path) {
    const TimePoint base = TimeoutBaseOf(path);
    if (base == kNever || base + waited > now) continue;
    length = std::max(length, ranges_.OldestLength(path));
    if (paths_ != 1) JudgeSilence(path, now);
    // What went out with the oldest, and what has waited as long itself: of a window that was sent over many RTTs
    // each would else take a timeout of its own, and nothing could be sent again before the window has room.
    const TimePoint with_oldest = ranges_.OldestSent(path) + rtt_.smoothed();
    ranges_.LoseSentBefore(path, std::max(with_oldest, now - waited) + Nanoseconds{1});
  }
  if (config_.recovery == Recovery::kGoBackN) GoBack(next_packet_number_);
  last_timeout_ = now;
  if (paths_ != 1) UpdateTimeoutBase();  // or the same timeout would wake somebody once more
  ++counters_->timeouts;
  if (config_.rto_backoff) ++backoff_;
  Signal(now, CongestionSignal::kTimeout, NewestMessage());
  JudgePath(length, waited);
}

void Sender::OnDeadline(TimePoint now) {
  last_now_ = now;
  if (peer_closed_) return;
  RunCongestionTimers(now);
  if (paths_ != 1 && NextTimeout() <= now) UpdateTimeoutBase();
  if (NextTimeout() <= now) OnTimeout(now);
  CountModeChange(now);
  UpdateProbe(now);
}

TimePoint Sender::next_deadline() const {
  if (peer_closed_) return kNever;
  TimePoint next = probe_at_;
  // The rate's timers are evaluated late without harm: they wake nobody who has nothing to send.
  const bool sendable = ranges_.HasLost() || MaySendNext();
  if (sendable) next = Earlier(next, congestion_deadline_);
  next = Earlier(next, NextTimeout());
  Candidate candidate;
  if (!FindCandidate(&candidate)) return next;
  const bool unpaced = PacingRate().value == 0;
  return Earlier(next, unpaced ? last_now_ : pacer_.NextTime(candidate.wire_bytes));
}

// Whether nothing can be acknowledged before another receive is posted.
bool Sender::WaitsForCredit() const {
  if (peer_closed_) return false;
  if (ranges_.nothing_outstanding()) return ranges_.HasUnsent() && ranges_.unsent_message() >= credit_;
  return ranges_.Place(ranges_.front()).message >= credit_;
}

void Sender::UpdateProbe(TimePoint now) {
  if (!WaitsForCredit()) {
    probe_at_ = kNever;
  } else if (probe_at_ == kNever) {
    probe_at_ = now + rtt_.rto(probe_backoff_);
  }
}

bool Sender::TakeProbeDue(TimePoint now) {
  last_now_ = now;
  if (path_probe_due_) {
    path_probe_due_ = false;
    return true;
  }
  UpdateProbe(now);
  if (probe_at_ > now || !WaitsForCredit()) return false;
  ++probe_backoff_;
  probe_at_ = now + rtt_.rto(probe_backoff_);
  return true;
}

// ---- Facts ----

bool Sender::HasUnfinished() const { return ranges_.posted() != ranges_.completed(); }
bool Sender::failed() const { return (peer_closed_ || data_swallowed_) && HasUnfinished(); }
FailReason Sender::fail_reason() const {
  if (!failed()) return FailReason::kNone;
  return peer_closed_ ? FailReason::kReset : FailReason::kDataSwallowed;
}
Nanoseconds Sender::smoothed_rtt() const { return rtt_.smoothed(); }
Nanoseconds Sender::rto() const { return rtt_.rto(backoff_); }
BitsPerSecond Sender::rate() const { return PacingRate(); }
uint64_t Sender::window_bytes() const { return std::min(congestion_control_->window_bytes(), config_.window_bytes); }
uint64_t Sender::bytes_in_flight() const { return ranges_.bytes_in_flight(); }

}  // namespace forgive
