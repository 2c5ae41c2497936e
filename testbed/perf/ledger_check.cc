// SPDX-License-Identifier: Apache-2.0
// Judges ledger lines: place, phase, step, contributions, budget, and the trim behind each.
#include "testbed/perf/ledger_check.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <tuple>

namespace forgive::perf {
namespace {

const char* PhaseText(Phase phase) {
  switch (phase) {
    case Phase::kReduce:
      return "'s reduce-scatter phase";
    case Phase::kGather:
      return "'s all-gather phase";
    case Phase::kMove:
      break;
  }
  return "";
}

// What is wrong with one line by itself; empty: nothing.
std::string CheckLine(const OperationFacts& facts, const LedgerLine& line) {
  const Schedule& schedule = *facts.schedule;
  const Shape& shape = schedule.shape();
  if (line.message_in_operation < 0 ||
      line.message_in_operation >= schedule.MessagesOn(line.source, line.destination)) {
    return "the operation has no such message";
  }
  const MessageFacts message = schedule.MessageAt(line.source, line.destination, line.message_in_operation);
  const std::int64_t bytes = message.interval.count * kElementBytes;
  if (line.length == 0) return "the range is empty";
  if (std::int64_t{line.offset} + line.length > bytes) {
    return fmt::format("the range ends outside its message of {} bytes", bytes);
  }
  if (line.offset % kElementBytes != 0 || line.length % kElementBytes != 0) return "the range cuts an element";
  if (!facts.step) return "it was forgiven outside every open step";
  if (line.step != *facts.step) {
    return fmt::format("it is charged to step {} but belongs to step {}", line.step, *facts.step);
  }
  if (shape.protocol != Protocol::kSimple || !IsForgivable(facts.eligible, shape.collective, message.phase)) {
    return fmt::format("a message of {}{} may not be forgiven", NameOf(shape.collective), PhaseText(message.phase));
  }
  if (message.phase == Phase::kReduce && line.contributions != static_cast<std::uint32_t>(message.contributions)) {
    return fmt::format("its ledger line counts {} lost contributions, the schedule {}", line.contributions,
                       message.contributions);
  }
  return "";
}

}  // namespace

std::string Describe(const LedgerLine& line) {
  return fmt::format("rank {} from rank {}, message {} ({} of its operation), bytes {} to {}", line.destination,
                     line.source, line.message, line.message_in_operation, line.offset,
                     std::uint64_t{line.offset} + line.length);
}

std::vector<std::string> CheckLines(const OperationFacts& facts, std::span<const LedgerLine> lines) {
  std::vector<std::string> faults;
  std::map<std::tuple<int, int, std::int64_t>, std::vector<const LedgerLine*>> by_message;
  for (const LedgerLine& line : lines) {
    const std::string fault = CheckLine(facts, line);
    if (!fault.empty()) faults.push_back(Describe(line) + ": " + fault);
    by_message[{line.source, line.destination, line.message_in_operation}].push_back(&line);
  }
  for (auto& [key, ranges] : by_message) {
    std::sort(ranges.begin(), ranges.end(),
              [](const LedgerLine* a, const LedgerLine* b) { return a->offset < b->offset; });
    for (std::size_t i = 1; i < ranges.size(); ++i) {
      if (std::uint64_t{ranges[i - 1]->offset} + ranges[i - 1]->length > ranges[i]->offset) {
        faults.push_back(Describe(*ranges[i]) + ": some of these bytes were forgiven before");
      }
    }
  }
  return faults;
}

std::string CheckBudget(int rank, std::uint64_t step, std::uint64_t forgiven, std::uint32_t p_ppm,
                        std::uint64_t expected) {
  const std::uint64_t budget = BudgetBytes(p_ppm, expected);
  if (forgiven <= budget) return "";
  return fmt::format("rank {}, step {}: {} bytes forgiven, the budget is {} ({} ppm of {} expected bytes)", rank,
                     step, forgiven, budget, p_ppm, expected);
}

std::vector<LedgerLine> Uncovered(const TrimLog& log, std::span<const LedgerLine> lines) {
  std::vector<LedgerLine> uncovered;
  for (const LedgerLine& line : lines) {
    if (!log.Covers(line.connection_id, line.message, line.offset, line.length)) uncovered.push_back(line);
  }
  return uncovered;
}

Loss LossOf(const LedgerLine& line) {
  return {line.source, line.destination, line.message_in_operation, line.offset, line.length};
}

}  // namespace forgive::perf
