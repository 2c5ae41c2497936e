// SPDX-License-Identifier: Apache-2.0
// The operator's word: its classification of posts, and its latches.
#include "plugin/step_facts.h"

#include <algorithm>
#include <cstdio>

#include "plugin/log.h"

namespace forgive {
namespace {

std::string Percent(Fraction fraction) {
  char text[32];
  std::snprintf(text, sizeof(text), "%g", fraction.ppm / 1e6);
  return text;
}

// Messages of one loop of an all-reduce on one connection: both phases.
uint32_t Period(uint32_t ring_ranks) { return 2 * (ring_ranks - 1) * kSlicesPerChunk; }

}  // namespace

StepFacts::StepFacts(const Settings& settings)
    : operators_word_(settings.gradient_traffic_all),
      eligible_(settings.eligible),
      ring_ranks_(settings.ring_ranks),
      gradient_ranks_(settings.gradient_ranks),
      p_low_(settings.p_low),
      p_high_(settings.p_high),
      forgiveness_probability_(settings.engine.transport.forgiveness_probability) {}

bool StepFacts::IsReducePhase(uint32_t message, uint32_t ring_ranks) {
  return message / kSlicesPerChunk % (2 * (ring_ranks - 1)) < ring_ranks - 1;
}

uint32_t StepFacts::Contributions(uint32_t message, uint32_t ring_ranks, uint32_t gradient_ranks) {
  // What arrives at reduce-scatter hop j (from 1) is the sum of j ranks. A final value holds every rank's.
  if (!IsReducePhase(message, ring_ranks)) return gradient_ranks;
  return message / kSlicesPerChunk % (ring_ranks - 1) + 1;
}

StepFacts::Verdict StepFacts::Classify(ConnectionStep* connection, uint64_t posted_bytes, uint64_t region_bytes,
                                       uint32_t registrations, ReceiveRequest* out) {
  Verdict verdict;
  const uint64_t state = state_.load(std::memory_order_seq_cst);
  if ((state & kPhaseMask) == kClosed) return verdict;
  const uint64_t step = step_.load(std::memory_order_acquire);
  const bool budget = budget_.load(std::memory_order_acquire);
  // The step may have changed in between; then the promise is broken, and the post belongs to none.
  if (state_.load(std::memory_order_relaxed) != state) return verdict;

  verdict.epoch = state >> 2;
  if (connection->epoch.load(std::memory_order_relaxed) != verdict.epoch) {
    connection->messages.store(0, std::memory_order_relaxed);
    connection->epoch.store(verdict.epoch, std::memory_order_release);
  }
  if (!Promised()) {
    out->has_step = (state & kPhaseMask) == kOpen;
    out->step = step;
    return verdict;
  }
  const bool passes = registrations == kRingRegistrations && kPostsPerBuffer * posted_bytes == region_bytes;
  if (!passes && !connection->latched.exchange(true, std::memory_order_relaxed)) {
    Log(LogLevel::kWarning,
        "a receive of %llu bytes into a registered buffer of %llu (%u registered) is not Ring and Simple: this "
        "connection is reliable from now on (FORGIVE_GRADIENT_TRAFFIC=all promises Ring and Simple all-reduces only)",
        static_cast<unsigned long long>(posted_bytes), static_cast<unsigned long long>(region_bytes), registrations);
  }
  verdict.refused = connection->latched.load(std::memory_order_relaxed);
  verdict.counts = !verdict.refused;
  if ((state & kPhaseMask) != kOpen) return verdict;
  out->has_step = true;
  out->step = step;
  const uint32_t message = connection->messages.load(std::memory_order_relaxed);
  out->exempt_eligible = budget && !verdict.refused && !latched();
  out->forgivable = out->exempt_eligible && (eligible_ == Eligible::kAll || IsReducePhase(message, ring_ranks_));
  out->contributions = Contributions(message, ring_ranks_, gradient_ranks_);
  return verdict;
}

void StepFacts::Commit(ConnectionStep* connection, const Verdict& verdict) {
  if (verdict.counts) {
    const uint32_t messages = connection->messages.load(std::memory_order_relaxed);
    connection->messages.store(messages + 1, std::memory_order_release);
  }
  if (verdict.refused) refused_posts_.fetch_add(1, std::memory_order_relaxed);
}

void StepFacts::Register(ConnectionStep* connection) {
  const std::lock_guard<std::mutex> lock(connections_mutex_);
  connections_.push_back(connection);
}

void StepFacts::Unregister(ConnectionStep* connection) {
  const std::lock_guard<std::mutex> lock(connections_mutex_);
  std::erase(connections_, connection);
  const uint64_t state = state_.load(std::memory_order_acquire);
  const bool in_step =
      (state & kPhaseMask) != kClosed && connection->epoch.load(std::memory_order_acquire) == state >> 2;
  if (in_step && Promised() && connection->messages.load(std::memory_order_acquire) % Period(ring_ranks_) != 0) {
    closed_early_epoch_ = state >> 2;
  }
}

StepFacts::BeginResult StepFacts::Prepare() {
  if (latched()) return BeginResult::kLatched;
  const uint64_t state = state_.load(std::memory_order_acquire);
  if ((state & kPhaseMask) != kClosed) return BeginResult::kStepOpen;
  const uint64_t epoch = (state >> 2) + 1;
  state_.store(epoch << 2 | kOpening, std::memory_order_seq_cst);
  if (posted_.load(std::memory_order_seq_cst) != 0) {
    Abandon();
    return BeginResult::kReceivesPosted;
  }
  return BeginResult::kOk;
}

void StepFacts::Open(uint64_t step, Fraction p) {
  step_.store(step, std::memory_order_release);
  budget_.store(p.ppm > 0, std::memory_order_release);
  state_.store((state_.load(std::memory_order_relaxed) & ~kPhaseMask) | kOpen, std::memory_order_seq_cst);
}

void StepFacts::Abandon() { Close(); }

void StepFacts::Close() {
  state_.store((state_.load(std::memory_order_relaxed) & ~kPhaseMask) | kClosed, std::memory_order_seq_cst);
}

bool StepFacts::CheckCounts(std::string* what) {
  if (!Promised()) return true;
  const std::lock_guard<std::mutex> lock(connections_mutex_);
  const uint64_t epoch = state_.load(std::memory_order_acquire) >> 2;
  const uint32_t period = Period(ring_ranks_);
  const std::string expected =
      std::to_string(period) + " = 2(k-1)S with FORGIVE_RING_RANKS=" + std::to_string(ring_ranks_);
  for (const ConnectionStep* connection : connections_) {
    if (connection->epoch.load(std::memory_order_acquire) != epoch) continue;
    const uint32_t messages = connection->messages.load(std::memory_order_acquire);
    if (messages % period == 0) continue;
    *what = "a connection got " + std::to_string(messages) + " messages in the step, not a multiple of " + expected;
  }
  if (closed_early_epoch_ == epoch)
    *what = "a connection was closed in the step before it got a multiple of " + expected;
  if (what->empty()) return true;
  process_latched_.store(true, std::memory_order_release);
  return false;
}

std::string StepFacts::Description() const {
  if (!operators_word_) return "eligible: nothing (FORGIVE_GRADIENT_TRAFFIC is not all)";
  if (eligible_ == Eligible::kNone) return "eligible: nothing (FORGIVE_ELIGIBLE=none)";
  if (p_low_.ppm == 0 && p_high_.ppm == 0) return "eligible: nothing (FORGIVE_P_LOW and FORGIVE_P_HIGH are 0)";
  std::string phases = eligible_ == Eligible::kAll ? "all phases" : "the reduce-scatter phase";
  if (forgiveness_probability_.ppm == 0) phases = "no bytes (FORGIVE_P=0), exemption alone";
  return "eligible: Ring and Simple all-reduces in open steps, by the operator's word "
         "(FORGIVE_GRADIENT_TRAFFIC=all, " +
         std::to_string(ring_ranks_) + " ranks); forgivable: " + phases + ", p " + Percent(p_low_) + " or " +
         Percent(p_high_);
}

}  // namespace forgive
