// SPDX-License-Identifier: Apache-2.0
// The exact check of finished operations, done by all ranks together from all ranks' ledgers.
#ifndef FORGIVE_TESTBED_PERF_CHECKER_H_
#define FORGIVE_TESTBED_PERF_CHECKER_H_

#include <cstdint>
#include <fstream>
#include <span>
#include <string>
#include <vector>

#include "testbed/perf/ledger_check.h"
#include "testbed/perf/rank.h"
#include "testbed/perf/trim_log.h"

namespace forgive::perf {

// Sums over ranks.
struct Outcome {
  std::uint64_t wrong = 0;  // wrong elements, faults of the ledger
  std::uint64_t budget_violations = 0;
  std::uint64_t forgiven_bytes = 0;
  std::uint64_t contributions_lost = 0;
  bool ranks_identical = true;  // only looked at where all ranks end with the same vector
  // Of what is not identical (FORGIVE_ELIGIBLE=all).
  std::uint64_t diverging_elements = 0;
  double largest_difference = 0;

  Outcome& operator+=(const Outcome& other);
};

class Checker {
 public:
  Checker(Rank& rank, const Word& word);

  // Judges the operations that ran since the last call; all ranks call it alike. With --no-check only forgiven_bytes
  // is filled. Says each fault in a line on standard error.
  Outcome Judge(std::span<const Operation> operations);
  // Holds the ledger so far against the trims (waiting up to 3 s for the record to be written) and the plugin's own
  // sums; all ranks call it alike.
  Outcome CloseBooks();

  bool trims_given() const { return trims_.given(); }
  std::uint64_t ledger_lines() const { return all_lines_; }

 private:
  struct Mine {  // one rank's verdict; plain data
    std::uint64_t wrong = 0;
    std::uint64_t budget_violations = 0;
  };
  std::vector<LedgerLine> ReadLedger(std::span<const Operation> operations, Mine& mine);
  bool Place(const forgive_range_t& range, std::span<const Operation> operations, LedgerLine& line) const;
  void JudgeLines(const Operation& operation, const std::vector<LedgerLine>& lines, Mine& mine);
  void JudgeBudgets(std::span<const Operation> operations, const std::vector<LedgerLine>& lines, Mine& mine);
  std::uint64_t JudgeResult(const Operation& operation, const std::vector<LedgerLine>& lines, Mine& mine);
  void MeasureDivergences(std::span<const Operation> operations, const std::vector<LedgerLine>& lines,
                          Outcome* outcome) const;
  Outcome JudgeForgivenOnly();
  void CheckSums(Mine& mine);
  void CheckTrims(Mine& mine);
  void WriteLedger(const std::vector<LedgerLine>& lines);
  void Say(const std::string& fault);
  Outcome Sum(const Mine& mine);

  Rank& rank_;
  const Word word_;
  TrimLog trims_;
  std::uint64_t next_line_ = 0;        // of this rank's ledger
  std::uint64_t ledger_bytes_ = 0;     // of this rank's ledger
  std::uint64_t forgiven_before_ = 0;  // --no-check: the plugin's sum at the last call
  std::uint64_t all_lines_ = 0;
  std::vector<LedgerLine> unproved_;  // rank 0: all ranks' lines since CloseBooks
  std::ofstream ledger_file_;
  int said_ = 0;
};

}  // namespace forgive::perf

#endif  // FORGIVE_TESTBED_PERF_CHECKER_H_
