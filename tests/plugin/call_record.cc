// SPDX-License-Identifier: Apache-2.0
// Counters in memory that a test program shares with the processes it starts.
#include "call_record.h"

#include <sys/mman.h>

#include <array>
#include <atomic>
#include <cstdio>
#include <cstring>
#include <new>

#include "call_clock.h"
#include "fake_nccl.h"

namespace forgive::testing {
namespace {

struct Cell {
  std::atomic<uint64_t> calls{0};
  std::atomic<uint64_t> over{0};
  std::atomic<uint64_t> longest_ns{0};
};
using Row = std::array<Cell, std::size(kVersions)>;
using Record = std::array<Row, std::size(kCallKinds)>;

Record* Shared() {
  static Record* const record = [] {
    void* memory = mmap(nullptr, sizeof(Record), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    return memory == MAP_FAILED ? new Record : new (memory) Record;
  }();
  return record;
}

}  // namespace

void RecordCall(int version, const char* kind, uint64_t own_ns) {
  if (version < kVersions[0] || version > kVersions[std::size(kVersions) - 1]) return;
  for (size_t i = 0; i < std::size(kCallKinds); ++i) {
    if (std::strcmp(kCallKinds[i], kind) != 0) continue;
    Cell& cell = (*Shared())[i][static_cast<size_t>(version - kVersions[0])];
    ++cell.calls;
    if (own_ns > CallClock::kBoundNs) ++cell.over;
    uint64_t longest = cell.longest_ns.load();
    while (own_ns > longest && !cell.longest_ns.compare_exchange_weak(longest, own_ns)) {
    }
  }
}

std::string DescribeCalls() {
  std::string text = "longest call in us ";
  char part[64];
  for (const int version : kVersions) {
    std::snprintf(part, sizeof(part), "%7s%d", version < 10 ? " v" : "v", version);
    text += part;
  }
  text += "   over " + std::to_string(CallClock::kBoundNs / 1000) + " us\n";
  for (size_t kind = 0; kind < std::size(kCallKinds); ++kind) {
    std::snprintf(part, sizeof(part), "%-19s", kCallKinds[kind]);
    text += part;
    uint64_t calls = 0;
    uint64_t over = 0;
    for (const Cell& cell : (*Shared())[kind]) {
      calls += cell.calls;
      over += cell.over;
      const std::string longest = cell.calls == 0 ? "-" : std::to_string((cell.longest_ns + 999) / 1000);
      std::snprintf(part, sizeof(part), "%9s", longest.c_str());
      text += part;
    }
    text += "   " + std::to_string(over) + " of " + std::to_string(calls) + "\n";
  }
  return text;
}

ShowsCalls::ShowsCalls() { Shared(); }

void ShowsCalls::TearDown() {
  if (!GTEST_FLAG_GET(brief)) std::fputs(DescribeCalls().c_str(), stdout);
}

}  // namespace forgive::testing
