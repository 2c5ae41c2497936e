// SPDX-License-Identifier: Apache-2.0
// What a schedule leaves behind: the first broken rule, the last events, and how often each thing happened.
#ifndef FORGIVE_TESTS_DST_JOURNAL_H_
#define FORGIVE_TESTS_DST_JOURNAL_H_

#include <array>
#include <cstdarg>
#include <cstdint>
#include <cstdio>

#include "transport/units.h"

namespace forgive::dst {

// Plain memory, shared with the process that started this one: it outlives a crash.
class Journal {
 public:
  static constexpr size_t kLines = 400;
  static constexpr size_t kLineBytes = 200;

  void Begin(uint64_t seed, bool traces) {
    seed_ = seed;
    traces_ = traces;
    failure_[0] = '\0';
    lines_ = 0;
  }

  uint64_t seed() const { return seed_; }
  bool traces() const { return traces_; }
  void set_now(TimePoint now) { now_ = now; }

  // The first failure stays.
  [[gnu::format(printf, 2, 3)]] void Fail(const char* format, ...) {
    if (failed()) return;
    va_list arguments;
    va_start(arguments, format);
    std::vsnprintf(failure_.data(), failure_.size(), format, arguments);
    va_end(arguments);
    Note("FAILED: %s", failure_.data());
  }
  bool failed() const { return failure_[0] != '\0'; }
  const char* failure() const { return failure_.data(); }

  // A line of the trace; only the last kLines are kept.
  [[gnu::format(printf, 2, 3)]] void Note(const char* format, ...) {
    if (!traces_) return;
    std::array<char, kLineBytes>& line = text_[lines_++ % kLines];
    const int begin = std::snprintf(line.data(), line.size(), "%12.3f us  ", static_cast<double>(now_.ns) / 1e3);
    va_list arguments;
    va_start(arguments, format);
    std::vsnprintf(line.data() + begin, line.size() - static_cast<size_t>(begin), format, arguments);
    va_end(arguments);
  }
  void Print(std::FILE* out) const {
    const uint64_t first = lines_ > kLines ? lines_ - kLines : 0;
    if (first != 0) std::fprintf(out, "(%llu lines before)\n", static_cast<unsigned long long>(first));
    for (uint64_t n = first; n < lines_; ++n) std::fprintf(out, "%s\n", text_[n % kLines].data());
  }

 private:
  uint64_t seed_ = 0;
  TimePoint now_;
  uint64_t lines_ = 0;
  bool traces_ = false;
  std::array<char, 400> failure_{};
  std::array<std::array<char, kLineBytes>, kLines> text_{};
};

// What happened in all schedules; a sum is the same in whichever order they ran.
enum class Count : uint8_t {
  kSchedules,
  kPackets,
  kDatagrams,
  kConnections,
  kMessages,
  kBytes,
  kForgivenBytes,
  kTrims,
  kTrimsOfRetransmissions,
  kTrimsAgain,
  kDrops,
  kDuplicates,
  kReordered,
  kMarks,
  kCorruptHeaders,
  kCorruptPayloads,
  kForgeries,
  kReplays,
  kReplayedTrims,
  kResegmented,
  kTooLargeForPath,
  kPathLosses,
  kRailLosses,
  kBlackouts,
  kDelaySpikes,
  kMarkStorms,
  kStalls,
  kClockJumps,
  kClockStops,
  kPacketNumberWraps,
  kReportNumberWraps,
  kMessageNumberWraps,
  kTimestampWraps,
  kEventHolds,
  kEventsFull,
  kDeaths,
  kRestarts,
  kCloses,
  kTooLong,
  kStepsBegun,
  kStepsEnded,
  kPredictedBudgets,
  kAlreadySettled,
  kNotForgivable,
  kNoOpenBudget,
  kNotVested,
  kOverBudget,
  kDrawRefused,
  kForgiven,
  kLateBytes,
  kDuplicateBytes,
  kLostByRequest,
  kLostByRack,
  kTimeouts,
  kSegmentCuts,
  kPathsGivenUp,
  kPathsReturned,
  kGoBackNDrops,
  kEarlyMessages,
  kSignalsIgnored,
  kRateCutsByMark,
  kRateCutsByTrim,
  kModeChanges,
  kExhaustedReports,
  kProbedForCredit,
  kSilentPeers,
  kDigest,  // of everything that was sent and everything that was told
  kEnd,
};
inline constexpr size_t kCounts = static_cast<size_t>(Count::kEnd);

struct Tally {
  std::array<uint64_t, kCounts> counts{};
  uint64_t& operator[](Count count) { return counts[static_cast<size_t>(count)]; }
  uint64_t operator[](Count count) const { return counts[static_cast<size_t>(count)]; }
  void Add(const Tally& other) {
    for (size_t i = 0; i < kCounts; ++i) counts[i] += other.counts[i];
  }
};
// As it is printed.
const char* NameOf(Count count);

}  // namespace forgive::dst

#endif  // FORGIVE_TESTS_DST_JOURNAL_H_
