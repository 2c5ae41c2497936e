// SPDX-License-Identifier: Apache-2.0
// Holds the plugin's ledger against the schedule, the trims and a budget computed here.
#ifndef FORGIVE_TESTBED_PERF_LEDGER_CHECK_H_
#define FORGIVE_TESTBED_PERF_LEDGER_CHECK_H_

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

#include "testbed/perf/options.h"
#include "testbed/perf/replay.h"
#include "testbed/perf/schedule.h"
#include "testbed/perf/trim_log.h"

namespace forgive::perf {

// One forgiven range, placed in an operation. Plain data: ranks exchange it as bytes.
struct LedgerLine {
  std::uint64_t operation = 0;  // number of the operation in this run
  std::uint64_t step = 0;
  std::uint64_t connection_id = 0;
  std::int64_t message_in_operation = 0;
  std::int32_t source = 0;
  std::int32_t destination = 0;
  std::uint32_t message = 0;  // on the communicator
  std::uint32_t offset = 0;
  std::uint32_t length = 0;
  std::uint32_t contributions = 0;
};
static_assert(std::is_trivially_copyable_v<LedgerLine>);

// "rank 2 from rank 1, message 17 (17 of its operation), bytes 4096 to 8192"
std::string Describe(const LedgerLine& line);

// What is known of an operation when its ledger lines are judged.
struct OperationFacts {
  const Schedule* schedule = nullptr;
  std::optional<std::uint64_t> step;  // the step that was open on all ranks during it
  Eligible eligible = Eligible::kReduce;
};

// What is wrong with the lines of one operation at one destination: a range outside its message, not of whole
// elements, forgiven twice, in a message that may not be forgiven, outside the operation's step, or with another
// number of contributions than the schedule says. One text a fault; empty: none.
std::vector<std::string> CheckLines(const OperationFacts& facts, std::span<const LedgerLine> lines);

// A step's forgiven bytes at one rank against floor(p x expected). Empty: within it.
std::string CheckBudget(int rank, std::uint64_t step, std::uint64_t forgiven, std::uint32_t p_ppm,
                        std::uint64_t expected);

// The lines whose bytes no trim covers.
std::vector<LedgerLine> Uncovered(const TrimLog& log, std::span<const LedgerLine> lines);

Loss LossOf(const LedgerLine& line);

}  // namespace forgive::perf

#endif  // FORGIVE_TESTBED_PERF_LEDGER_CHECK_H_
