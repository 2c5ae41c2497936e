// SPDX-License-Identifier: Apache-2.0
// The classification of posts, by proof or by the operator's word, and the latches.
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

size_t IndexOf(Operation operation) { return static_cast<size_t>(operation); }

}  // namespace

StepFacts::StepFacts(const Settings& settings)
    : operators_word_(settings.gradient_traffic_all),
      traffic_class_(settings.traffic_class),
      by_name_(settings.communicators.given()),
      by_operation_(settings.step_by_operation),
      by_contributions_(settings.engine.transport.budget_unit == BudgetUnit::kContributions),
      least_count_(settings.least_count),
      eligible_(settings.eligible),
      ring_ranks_(settings.ring_ranks),
      gradient_ranks_(settings.gradient_ranks),
      p_low_(settings.p_low),
      p_high_(settings.p_high),
      forgiveness_probability_(settings.engine.transport.forgiveness_probability) {}

bool StepFacts::IsMarked(int traffic_class) const {
  if (traffic_class_.has_value()) return traffic_class == *traffic_class_;
  return operators_word_ || by_name_;
}

bool StepFacts::WantsRingAndSimple(const int* traffic_class, bool named) const {
  if (eligible_ == Eligible::kNone || several_ranks()) return false;
  if (traffic_class != nullptr && by_name_ && !named) return false;
  return traffic_class != nullptr ? IsMarked(*traffic_class) : operators_word_;
}

void StepFacts::OnSeveralRanks() {
  if (several_ranks_.exchange(true)) return;
  Log(LogLevel::kWarning,
      "this process has several ranks of a communicator: they would share one budget, so nothing is eligible here; "
      "run one rank a process");
}

void StepFacts::OnSharedConnections() {
  if (shared_connections_.exchange(true)) return;
  Log(LogLevel::kWarning,
      "a split communicator shares another one's connections (splitShare): the ring's length varies, so only what "
      "the "
      "profiler says is forgivable from now on");
}

void StepFacts::Latch(ConnectionStep* connection, Refusal refusal, const Post& post) {
  if (connection->latched.exchange(true, std::memory_order_relaxed)) return;
  Log(LogLevel::kWarning,
      "a receive of %llu bytes into a registered buffer of %llu (%u registered) is not Ring and Simple (%s): this "
      "connection is reliable from now on (docs/eligibility.md)",
      static_cast<unsigned long long>(post.posted_bytes), static_cast<unsigned long long>(post.region_bytes),
      post.registrations, NameOf(refusal));
}

Proof StepFacts::BestProof(const Post& post) const {
  if (post.has_collective) return Proof::kAttributes;
  if (post.profiled.known) return Proof::kProfiler;
  return operators_word_ ? Proof::kOperatorsWord : Proof::kNone;
}

StepFacts::Verdict StepFacts::Classify(ConnectionStep* connection, const Post& post, ReceiveRequest* out) {
  Verdict verdict;
  verdict.proof = BestProof(post);
  const bool open = FindStep(connection, post, out, &verdict);
  if (eligible_ == Eligible::kNone) return verdict;
  if (!post.marked) {
    verdict.refusal = Refusal::kNotMarked;
  } else if (verdict.proof == Proof::kNone) {
    verdict.refusal = Refusal::kUnproved;
  } else if (verdict.proof == Proof::kOperatorsWord) {
    if (by_operation_) {
      verdict.refusal = Refusal::kNoStep;
    } else if (verdict.epoch != 0) {
      ClassifyByWord(connection, post, open, out, &verdict);
    }
  } else {
    ClassifyProved(connection, post, open, out, &verdict);
  }
  if (several_ranks()) {
    verdict.refusal = Refusal::kSeveralRanks;
    verdict.has_plan = false;
    out->exempt_eligible = false;
    out->forgivable = false;
  }
  return verdict;
}

// Which step the receive belongs to; true if its bytes may be eligible in it.
bool StepFacts::FindStep(ConnectionStep* connection, const Post& post, ReceiveRequest* out, Verdict* verdict) {
  if (by_operation_) {
    verdict->epoch = 1;  // there is always one
    return post.profiled.known && post.profiled.collective != 0;
  }
  const uint64_t state = state_.load(std::memory_order_seq_cst);
  const uint64_t step = step_.load(std::memory_order_acquire);
  // The step may have changed in between; then the promise is broken, and the post belongs to none.
  const bool torn = state_.load(std::memory_order_relaxed) != state;
  if ((state & kPhaseMask) != kClosed && !torn) {
    verdict->epoch = state >> 2;
    if (connection->epoch.load(std::memory_order_relaxed) != verdict->epoch) {
      connection->messages.store(0, std::memory_order_relaxed);
      connection->epoch.store(verdict->epoch, std::memory_order_release);
    }
  }
  const bool open = (state & kPhaseMask) == kOpen && !torn;
  out->has_step = open;
  out->step = open ? step : 0;
  return open;
}

// The operation is the step. Whoever receives first of it begins it, so that only gradients have one.
void StepFacts::BelongToOperation(const ProfiledPost& profiled, uint32_t ring_ranks, ReceiveRequest* out,
                                  Verdict* verdict) const {
  out->has_step = true;
  out->step = profiled.collective;
  verdict->has_plan = true;
  verdict->plan.step = profiled.collective;
  verdict->plan.critical = profiled.critical;
  verdict->plan.p = OperationP(profiled);
  verdict->plan.expected_bytes = ExpectedBytes(profiled, ring_ranks, eligible_ != Eligible::kAll);
}

void StepFacts::ClassifyByWord(ConnectionStep* connection, const Post& post, bool open, ReceiveRequest* out,
                               Verdict* verdict) {
  if (!PassesRule(post) || post.optional_completion) Latch(connection, Refusal::kNotAQuarter, post);
  verdict->refused = connection->latched.load(std::memory_order_relaxed);
  verdict->counts = !verdict->refused;
  if (verdict->refused) verdict->refusal = PassesRule(post) ? Refusal::kLatched : Refusal::kNotAQuarter;
  if (!open) return;
  const uint32_t message = connection->messages.load(std::memory_order_relaxed);
  constexpr auto kOperation = Operation::kAllReduce;
  out->exempt_eligible = budget_.load(std::memory_order_acquire) && !verdict->refused && !latched();
  out->forgivable =
      out->exempt_eligible && (eligible_ == Eligible::kAll || IsReducePhase(kOperation, message, ring_ranks_));
  out->contributions = Contributions(kOperation, message, ring_ranks_, gradient_ranks_);
}

// Whether a Ring and Simple gradient collective may lose bytes. What contradicts itself latches the connection.
Refusal StepFacts::CheckProved(ConnectionStep* connection, const Post& post, const Finding& finding,
                               uint32_t ring_ranks, uint32_t message) {
  if (post.optional_completion) return Refusal::kOptionalCompletion;
  if (!PassesRule(post)) {
    Latch(connection, Refusal::kNotAQuarter, post);
    return Refusal::kNotAQuarter;
  }
  if (ring_ranks < 2) return Refusal::kRanksUnknown;
  if (!post.has_collective) return Refusal::kNone;
  const uint32_t period = Period(finding.operation, ring_ranks);
  const uint32_t counted = connection->counted[IndexOf(finding.operation)];
  if (connection->last != finding.operation && connection->last != Operation::kOther &&
      connection->counted[IndexOf(connection->last)] % Period(connection->last, ring_ranks) != 0) {
    Latch(connection, Refusal::kCutShort, post);
    return Refusal::kCutShort;
  }
  if (!post.profiled.known) {
    return shared_connections_.load(std::memory_order_acquire) ? Refusal::kSplit : Refusal::kNone;
  }
  if (shared_connections_.load(std::memory_order_acquire) || counted % period == message % period) {
    return Refusal::kNone;
  }
  Latch(connection, Refusal::kPhasesDisagree, post);
  return Refusal::kPhasesDisagree;
}

void StepFacts::ClassifyProved(ConnectionStep* connection, const Post& post, bool open, ReceiveRequest* out,
                               Verdict* verdict) {
  const ProfiledPost& profiled = post.profiled;
  Finding finding = post.has_collective ? Examine(post.collective) : Examine(profiled, least_count_);
  if (post.has_collective && profiled.known && finding.refusal == Refusal::kNone) {
    finding.refusal = Examine(profiled, least_count_).refusal;
  }
  const bool gradient = finding.operation != Operation::kOther;
  uint32_t ring_ranks = profiled.known && profiled.ring_ranks != 0 ? profiled.ring_ranks : post.ring_ranks;
  if (ring_ranks == 0) ring_ranks = ring_ranks_;
  uint32_t message = profiled.message;
  if (gradient && finding.ring_and_simple) {
    if (!profiled.known) message = connection->counted[IndexOf(finding.operation)];
    const Refusal refusal = CheckProved(connection, post, finding, ring_ranks, message);
    if (finding.refusal == Refusal::kNone) finding.refusal = refusal;
    if (post.has_collective) verdict->operation = finding.operation;
    verdict->ring_ranks = ring_ranks;
  }
  const bool was_latched = connection->latched.load(std::memory_order_relaxed);
  if (was_latched && finding.refusal == Refusal::kNone) finding.refusal = Refusal::kLatched;
  const bool stale =
      !by_operation_ && profiled.known && profiled.stamped && (profiled.captured || profiled.epoch != verdict->epoch);
  if (by_operation_ && !open && finding.refusal == Refusal::kNone) finding.refusal = Refusal::kNoStep;
  if (stale) {
    finding.refusal = Refusal::kStaleStamp;
    out->has_step = false;
    out->step = 0;
  }
  verdict->refusal = finding.refusal;
  verdict->refused = finding.refusal == Refusal::kNotAQuarter || finding.refusal == Refusal::kLatched;
  if (!open || stale || !gradient) return;
  out->exempt_eligible = HasBudget(profiled) && !was_latched && !latched();
  if (by_operation_ && out->exempt_eligible) BelongToOperation(profiled, ring_ranks, out, verdict);
  if (finding.refusal != Refusal::kNone) return;
  out->forgivable =
      out->exempt_eligible && (eligible_ == Eligible::kAll || IsReducePhase(finding.operation, message, ring_ranks));
  out->contributions = Contributions(finding.operation, message, ring_ranks, ring_ranks);
}

void StepFacts::Commit(ConnectionStep* connection, const Verdict& verdict) {
  if (verdict.counts) {
    const uint32_t messages = connection->messages.load(std::memory_order_relaxed);
    connection->messages.store(messages + 1, std::memory_order_release);
  }
  if (verdict.operation != Operation::kOther) {
    const uint32_t counted = ++connection->counted[IndexOf(verdict.operation)];
    connection->last = verdict.operation;
    const bool whole = verdict.ring_ranks < 2 || counted % Period(verdict.operation, verdict.ring_ranks) == 0;
    connection->whole.store(whole, std::memory_order_release);
  }
  if (verdict.refused) refused_posts_.fetch_add(1, std::memory_order_relaxed);
  if (verdict.epoch == 0 || eligible_ == Eligible::kNone) return;
  if (verdict.refusal == Refusal::kNone) {
    proved_[static_cast<size_t>(verdict.proof)].fetch_add(1, std::memory_order_relaxed);
  } else {
    refused_[static_cast<size_t>(verdict.refusal)].fetch_add(1, std::memory_order_relaxed);
  }
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
  const bool by_word =
      Promised() &&
      connection->messages.load(std::memory_order_acquire) % Period(Operation::kAllReduce, ring_ranks_) != 0;
  if (in_step && (by_word || !connection->whole.load(std::memory_order_acquire))) closed_early_epoch_ = state >> 2;
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

bool StepFacts::CheckCounts(ErrorText* what) {
  if (eligible_ == Eligible::kNone) return true;
  const std::lock_guard<std::mutex> lock(connections_mutex_);
  const uint64_t epoch = state_.load(std::memory_order_acquire) >> 2;
  const uint32_t period = Period(Operation::kAllReduce, ring_ranks_);
  ErrorText expected;
  if (Promised()) {
    expected.Write("%u = 2(k-1)S with FORGIVE_RING_RANKS=%u", period, ring_ranks_);
  } else {
    expected.Write("its operations' messages");
  }
  for (const ConnectionStep* connection : connections_) {
    if (connection->epoch.load(std::memory_order_acquire) != epoch) continue;
    if (!connection->whole.load(std::memory_order_acquire)) {
      what->Write("a connection was in the middle of an operation at the end of the step");
    }
    const uint32_t messages = connection->messages.load(std::memory_order_acquire);
    if (!Promised() || messages % period == 0) continue;
    what->Write("a connection got %u messages in the step, not a multiple of %s", messages, expected.c_str());
  }
  if (closed_early_epoch_ == epoch && epoch != 0) {
    what->Write("a connection was closed in the step before it got a multiple of %s", expected.c_str());
  }
  if (what->empty()) return true;
  process_latched_.store(true, std::memory_order_release);
  return false;
}

// Which communicators carry gradients, as the settings say it.
std::string StepFacts::Marks() const {
  std::string marks;
  if (traffic_class_.has_value()) marks = " of communicators with traffic class " + std::to_string(*traffic_class_);
  if (by_name_)
    marks += traffic_class_.has_value() ? " and a name of FORGIVE_COMMUNICATOR"
                                        : " of communicators with a name of FORGIVE_COMMUNICATOR";
  return marks;
}

std::string StepFacts::Description() const {
  if (!operators_word_ && !traffic_class_.has_value() && !by_name_) {
    return "eligible: nothing (FORGIVE_GRADIENT_TRAFFIC is not all, and neither FORGIVE_TRAFFIC_CLASS nor "
           "FORGIVE_COMMUNICATOR is set)";
  }
  if (eligible_ == Eligible::kNone) return "eligible: nothing (FORGIVE_ELIGIBLE=none)";
  if (p_low_.ppm == 0 && p_high_.ppm == 0) return "eligible: nothing (FORGIVE_P_LOW and FORGIVE_P_HIGH are 0)";
  std::string phases = eligible_ == Eligible::kAll ? "all phases" : "the reduce-scatter phase";
  if (forgiveness_probability_.ppm == 0) phases = "no bytes (FORGIVE_P=0), exemption alone";
  const std::string budget = "; forgivable: " + phases + ", p " + Percent(p_low_) + " or " + Percent(p_high_) +
                             (by_contributions_ ? " of contributions" : "");
  if (by_operation_) {
    return "eligible: all-reduces and reduce-scatters that NCCL's profiler proves, each a step of its own" + Marks() +
           budget;
  }
  if (!operators_word_) return "eligible: proved all-reduces and reduce-scatters in open steps" + Marks() + budget;
  return "eligible: Ring and Simple all-reduces in open steps" + Marks() +
         ", where NCCL does not say by the operator's word (FORGIVE_GRADIENT_TRAFFIC=all, " +
         std::to_string(ring_ranks_) + " ranks)" + budget;
}

}  // namespace forgive
