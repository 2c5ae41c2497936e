// SPDX-License-Identifier: Apache-2.0
// What the switch or the fault driver says that it trimmed: the witness against which the ledger is held.
#ifndef FORGIVE_TESTBED_PERF_TRIM_LOG_H_
#define FORGIVE_TESTBED_PERF_TRIM_LOG_H_

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

namespace forgive::perf {

// Reads lines `trim <connection_id, 16 hex digits> <message> <offset> <length>` from growing files. Other lines are
// skipped. A source is a file, a folder, a pattern of * and ?, or a name to which a writer appended .<pid>.
class TrimLog {
 public:
  explicit TrimLog(std::vector<std::string> sources) : sources_(std::move(sources)) {}

  bool given() const { return !sources_.empty(); }
  std::uint64_t lines() const { return lines_; }
  std::uint64_t files() const { return positions_.size(); }

  // Reads what was appended since the last call, also from files that appeared. Incomplete last lines wait.
  void Refresh();

  // Takes one line; false: it is not a trim.
  bool AddLine(const std::string& line);

  // True if every byte of the range of that message was trimmed at some time.
  bool Covers(std::uint64_t connection_id, std::uint32_t message, std::uint64_t offset, std::uint64_t length) const;

 private:
  using Key = std::pair<std::uint64_t, std::uint32_t>;
  void ReadFrom(const std::string& file);

  std::vector<std::string> sources_;
  std::map<std::string, std::uint64_t> positions_;                 // bytes consumed of each file
  std::map<Key, std::map<std::uint64_t, std::uint64_t>> trimmed_;  // begin -> end, disjoint
  std::uint64_t lines_ = 0;
};

}  // namespace forgive::perf

#endif  // FORGIVE_TESTBED_PERF_TRIM_LOG_H_
