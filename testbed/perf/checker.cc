// SPDX-License-Identifier: Apache-2.0
// Gathers the ledgers, replays, compares, and keeps the books.
#include "testbed/perf/checker.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <map>
#include <thread>

#include "testbed/perf/divergence.h"
#include "testbed/perf/error.h"

namespace forgive::perf {
namespace {

constexpr int kFaultsSaid = 10;
constexpr std::chrono::milliseconds kTrimsWait(3000);
constexpr std::chrono::milliseconds kTrimsPoll(50);

bool AllRanksEndAlike(const Shape& shape) {
  return shape.collective == Collective::kAllReduce || shape.collective == Collective::kAllGather ||
         shape.collective == Collective::kBroadcast;
}

std::vector<LedgerLine> LinesOf(const std::vector<LedgerLine>& lines, std::uint64_t operation) {
  std::vector<LedgerLine> selected;
  std::copy_if(lines.begin(), lines.end(), std::back_inserter(selected),
               [&](const LedgerLine& line) { return line.operation == operation; });
  return selected;
}

}  // namespace

Outcome& Outcome::operator+=(const Outcome& other) {
  wrong += other.wrong;
  budget_violations += other.budget_violations;
  forgiven_bytes += other.forgiven_bytes;
  contributions_lost += other.contributions_lost;
  ranks_identical = ranks_identical && other.ranks_identical;
  diverging_elements += other.diverging_elements;
  largest_difference = std::max(largest_difference, other.largest_difference);
  return *this;
}

Checker::Checker(Rank& rank, const Word& word) : rank_(rank), word_(word), trims_(rank.options().trims) {
  const std::string& file = rank.options().ledger_file;
  if (file.empty() || rank.rank() != 0) return;
  ledger_file_.open(file, std::ios::trunc);
  if (!ledger_file_) throw UsageError(fmt::format("--ledger {}: cannot write there; name another file", file));
  ledger_file_ << "# operation step source destination connection_id message message_in_operation offset length "
                  "contributions\n";
}

void Checker::Say(const std::string& fault) {
  if (said_++ < kFaultsSaid) std::fprintf(stderr, "forgive_perf: wrong: %s\n", fault.c_str());
}

Outcome Checker::Judge(std::span<const Operation> operations) {
  if (!rank_.options().check) return JudgeForgivenOnly();
  Mine mine;
  const std::vector<LedgerLine> own = ReadLedger(operations, mine);
  JudgeBudgets(operations, own, mine);
  std::vector<LedgerLine> lines;
  for (const std::vector<LedgerLine>& part : rank_.rendezvous().AllGatherItems(own)) {
    lines.insert(lines.end(), part.begin(), part.end());
  }
  WriteLedger(lines);
  Outcome outcome;
  std::vector<std::uint64_t> hashes;
  for (const Operation& operation : operations) {
    const std::vector<LedgerLine> of_operation =
        lines.empty() ? std::vector<LedgerLine>() : LinesOf(lines, operation.number);
    JudgeLines(operation, of_operation, mine);
    outcome.contributions_lost += JudgeResult(operation, of_operation, mine);
    const bool compared = operation.result != nullptr && AllRanksEndAlike(operation.schedule->shape());
    hashes.push_back(compared ? HashOf(operation.result, operation.schedule->ResultOf(rank_.rank()).count) : 0);
  }
  const auto all_hashes = rank_.rendezvous().AllGatherItems(hashes);
  outcome.ranks_identical =
      std::all_of(all_hashes.begin(), all_hashes.end(), [&](const auto& part) { return part == hashes; });
  if (!outcome.ranks_identical) MeasureDivergences(operations, lines, &outcome);
  for (const LedgerLine& line : lines) outcome.forgiven_bytes += line.length;
  outcome += Sum(mine);
  return outcome;
}

// Every rank computes the same.
void Checker::MeasureDivergences(std::span<const Operation> operations, const std::vector<LedgerLine>& lines,
                                 Outcome* outcome) const {
  for (const Operation& operation : operations) {
    if (operation.result == nullptr || !AllRanksEndAlike(operation.schedule->shape())) continue;
    std::vector<Loss> losses;
    for (const LedgerLine& line : LinesOf(lines, operation.number)) {
      if (line.message_in_operation < operation.schedule->MessagesOn(line.source, line.destination)) {
        losses.push_back(LossOf(line));
      }
    }
    const Divergence divergence = MeasureDivergence(*operation.schedule, rank_.inputs(), operation.rotation, losses);
    outcome->diverging_elements += divergence.elements;
    outcome->largest_difference = std::max(outcome->largest_difference, divergence.largest_difference);
  }
}

Outcome Checker::JudgeForgivenOnly() {
  std::vector<std::uint64_t> mine(1, 0);
  if (rank_.api().has_ledger()) {
    const std::uint64_t total = rank_.api().Stats().forgiven_bytes;
    mine[0] = total - forgiven_before_;
    forgiven_before_ = total;
  }
  Outcome outcome;
  for (const auto& part : rank_.rendezvous().AllGatherItems(mine)) outcome.forgiven_bytes += part.at(0);
  return outcome;
}

bool Checker::Place(const forgive_range_t& range, std::span<const Operation> operations, LedgerLine& line) const {
  line.step = range.step;
  line.connection_id = range.connection_id;
  line.destination = rank_.rank();
  line.source = -1;
  line.message = range.message;
  line.offset = range.offset;
  line.length = range.length;
  line.contributions = range.contributions;
  for (const Operation& operation : operations) {
    for (const MessageSpan& span : operation.spans) {
      if (reinterpret_cast<std::uint64_t>(span.receive_comm) != range.receive_comm) continue;
      // Message numbers are 32 bits on the wire and go around.
      const std::uint32_t within = range.message - static_cast<std::uint32_t>(span.first);
      if (within >= span.count) continue;
      line.operation = operation.number;
      line.source = span.source;
      line.message_in_operation = within;
      return true;
    }
  }
  return false;
}

std::vector<LedgerLine> Checker::ReadLedger(std::span<const Operation> operations, Mine& mine) {
  std::vector<LedgerLine> lines;
  if (!rank_.api().has_ledger()) return lines;
  const std::vector<forgive_range_t> ranges = rank_.api().RangesFrom(next_line_);
  next_line_ += ranges.size();
  for (const forgive_range_t& range : ranges) {
    ledger_bytes_ += range.length;
    LedgerLine line;
    if (Place(range, operations, line)) {
      lines.push_back(line);
    } else {
      ++mine.wrong;
      Say(Describe(line) + ": the ledger line is of no operation that ran");
    }
  }
  return lines;
}

void Checker::JudgeLines(const Operation& operation, const std::vector<LedgerLine>& lines, Mine& mine) {
  std::vector<LedgerLine> own;
  for (const LedgerLine& line : lines) {
    if (line.destination == rank_.rank()) own.push_back(line);
  }
  OperationFacts facts;
  facts.schedule = operation.schedule.get();
  facts.eligible = word_.eligible;
  if (operation.step) facts.step = operation.step->step;
  for (const std::string& fault : CheckLines(facts, own)) {
    ++mine.wrong;
    Say(fault);
  }
}

void Checker::JudgeBudgets(std::span<const Operation> operations, const std::vector<LedgerLine>& lines, Mine& mine) {
  std::map<std::uint64_t, std::uint64_t> forgiven;
  std::map<std::uint64_t, std::uint64_t> charged;
  for (const LedgerLine& line : lines) {
    forgiven[line.step] += line.length;
    charged[line.step] += std::uint64_t{line.length} * (word_.contributions ? line.contributions : 1);
  }
  for (const Operation& operation : operations) {
    if (!operation.step) continue;
    const StepPlan& plan = *operation.step;
    const std::uint32_t p_ppm = plan.critical ? word_.p_low_ppm : word_.p_high_ppm;
    const std::string fault = CheckBudget(rank_.rank(), plan.step, charged[plan.step], p_ppm, plan.expected);
    if (!fault.empty()) {
      ++mine.budget_violations;
      Say(fault);
    }
    const forgive_step_stats_t stats = rank_.api().StepStats(plan.step);
    if (stats.forgiven != forgiven[plan.step]) {
      ++mine.wrong;
      Say(fmt::format("rank {}, step {}: the ledger's lines sum up to {} bytes, forgive_step_stats says {}",
                      rank_.rank(), plan.step, forgiven[plan.step], stats.forgiven));
    }
    if (stats.budget_violations != 0) {
      ++mine.budget_violations;
      Say(fmt::format("rank {}, step {}: the plugin counted {} budget violations", rank_.rank(), plan.step,
                      stats.budget_violations));
    }
  }
}

// Returns the contributions lost, which every rank computes alike.
std::uint64_t Checker::JudgeResult(const Operation& operation, const std::vector<LedgerLine>& lines, Mine& mine) {
  const Schedule& schedule = *operation.schedule;
  std::vector<Loss> losses;
  for (const LedgerLine& line : lines) {
    if (line.message_in_operation < schedule.MessagesOn(line.source, line.destination))
      losses.push_back(LossOf(line));
  }
  const Replayed replayed = Replay(schedule, rank_.inputs(), operation.rotation, losses, rank_.rank());
  if (operation.result == nullptr) return replayed.contributions_lost;
  const Verdict verdict =
      Verify(schedule, rank_.inputs(), operation.rotation, rank_.rank(), operation.result, replayed.patches);
  if (verdict.wrong > 0) {
    mine.wrong += verdict.wrong;
    const bool replaced = std::any_of(replayed.patches.begin(), replayed.patches.end(), [&](const Patch& patch) {
      return verdict.first_element >= patch.first &&
             verdict.first_element < patch.first + static_cast<std::int64_t>(patch.values.size());
    });
    Say(fmt::format(
        "rank {}, {} number {} of {} elements: {} elements differ from the replay; the first is {}: it is "
        "{}, the replay says {} ({})",
        rank_.rank(), NameOf(schedule.shape().collective), operation.number, schedule.shape().elements, verdict.wrong,
        verdict.first_element, verdict.value, verdict.replayed,
        replaced ? "near forgiven ranges" : "far from every range of the ledger"));
  }
  return replayed.contributions_lost;
}

Outcome Checker::CloseBooks() {
  if (!rank_.options().check) return {};
  Mine mine;
  CheckSums(mine);
  CheckTrims(mine);
  return Sum(mine);
}

void Checker::CheckSums(Mine& mine) {
  if (!rank_.api().has_ledger()) return;
  forgive_stats_t stats = rank_.api().Stats();
  // Totals are published a moment after the ledger's lines, and later on a machine that is busy.
  for (int look = 0; stats.forgiven_bytes < ledger_bytes_ && look < 1000; ++look) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    stats = rank_.api().Stats();
  }
  if (rank_.api().LedgerLost() != 0) {
    ++mine.wrong;
    Say(fmt::format("rank {}: the plugin did not keep {} ledger lines; raise FORGIVE_LEDGER_LINES", rank_.rank(),
                    rank_.api().LedgerLost()));
  } else if (stats.forgiven_bytes != ledger_bytes_) {
    ++mine.wrong;
    Say(fmt::format("rank {}: the ledger's lines sum up to {} bytes, forgive_stats says {}", rank_.rank(),
                    ledger_bytes_, stats.forgiven_bytes));
  }
  if (stats.budget_violations != 0) {
    ++mine.budget_violations;
    Say(fmt::format("rank {}: the plugin counted {} budget violations", rank_.rank(), stats.budget_violations));
  }
}

void Checker::CheckTrims(Mine& mine) {
  if (rank_.rank() != 0 || !trims_.given()) return;
  const auto deadline = std::chrono::steady_clock::now() + kTrimsWait;
  for (;;) {
    trims_.Refresh();
    unproved_ = Uncovered(trims_, unproved_);
    if (unproved_.empty() || std::chrono::steady_clock::now() > deadline) break;
    std::this_thread::sleep_for(kTrimsPoll);
  }
  for (const LedgerLine& line : unproved_) {
    ++mine.wrong;
    Say(fmt::format("{}: forgiven, but no record shows a trim of it ({} trims read from {} files)", Describe(line),
                    trims_.lines(), trims_.files()));
  }
  unproved_.clear();
}

void Checker::WriteLedger(const std::vector<LedgerLine>& lines) {
  all_lines_ += lines.size();
  if (rank_.rank() != 0) return;
  if (trims_.given()) unproved_.insert(unproved_.end(), lines.begin(), lines.end());
  if (!ledger_file_.is_open()) return;
  for (const LedgerLine& line : lines) {
    ledger_file_ << fmt::format("{} {} {} {} {:016x} {} {} {} {} {}\n", line.operation, line.step, line.source,
                                line.destination, line.connection_id, line.message, line.message_in_operation,
                                line.offset, line.length, line.contributions);
  }
  ledger_file_.flush();
  if (!ledger_file_) throw RunError(fmt::format("cannot write {}", rank_.options().ledger_file));
}

Outcome Checker::Sum(const Mine& mine) {
  Outcome outcome;
  for (const std::vector<Mine>& part : rank_.rendezvous().AllGatherItems(std::vector<Mine>{mine})) {
    outcome.wrong += part.at(0).wrong;
    outcome.budget_violations += part.at(0).budget_violations;
  }
  return outcome;
}

}  // namespace forgive::perf
