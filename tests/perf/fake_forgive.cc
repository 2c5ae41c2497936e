// SPDX-License-Identifier: Apache-2.0
// The fake plugin's forgiving half: honest by default; FAKE_CHEAT names one way in which it lies.
#include <unistd.h>

#include <algorithm>
#include <cinttypes>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "fake_net.h"
#include "plugin/forgive.h"

namespace fake {
namespace {

constexpr std::uint32_t kPacketBytes = 4096;

struct State {
  std::mutex mutex;
  std::string cheat = Variable("FAKE_CHEAT", "");
  std::uint32_t every = static_cast<std::uint32_t>(std::atoi(Variable("FAKE_FORGIVE_EVERY", "0")));
  std::uint32_t ranks = static_cast<std::uint32_t>(std::atoi(Variable("FORGIVE_RING_RANKS", "2")));
  bool all = std::string(Variable("FORGIVE_ELIGIBLE", "reduce")) == "all";
  double p = std::atof(Variable("FORGIVE_P_HIGH", "0.1"));
  std::string trims = Variable("FORGIVE_FAULT_LOG", "");

  bool open = false;
  bool latched = false;
  bool broken = false;  // some connection's count was not whole at the end of a step
  std::uint64_t epoch = 0;
  std::uint64_t step = 0;
  std::uint64_t settled = 0;  // of the last step
  int posted = 0;
  std::uint32_t arrivals = 0;
  std::map<std::uint64_t, forgive_step_stats_t> steps;
  std::vector<forgive_range_t> ledger;
  std::uint64_t forgiven = 0;
  std::map<ReceiveAccount*, int> counted;  // accounts with posts in the open step

  static const char* Variable(const char* name, const char* otherwise) {
    const char* const text = std::getenv(name);
    return text != nullptr ? text : otherwise;
  }
};

State& Get() {
  static State state;
  return state;
}

std::uint32_t Period(const State& state) { return 2 * (state.ranks - 1) * 2; }

void WriteTrim(const State& state, const forgive_range_t& range) {
  if (state.trims.empty() || state.cheat == "untrimmed") return;
  std::FILE* const file = std::fopen((state.trims + "." + std::to_string(getpid())).c_str(), "a");
  if (file == nullptr) return;
  std::fprintf(file, "trim %016" PRIx64 " %u %u %u\n", range.connection_id, range.message, range.offset,
               range.length);
  std::fclose(file);
}

void Forgive(State& state, forgive_range_t range, char* data) {
  if (state.cheat != "unforgiven") std::memset(data + range.offset, 0, range.length);
  forgive_step_stats_t& step = state.steps[range.step];
  step.forgiven += range.length;
  state.forgiven += range.length;
  WriteTrim(state, range);
  if (state.cheat == "silent") return;
  if (state.cheat == "step") ++range.step;
  if (state.cheat == "contributions") ++range.contributions;
  if (state.cheat == "offset") range.offset += kPacketBytes;
  if (state.cheat == "unknown") range.message += 1'000'000;
  state.ledger.push_back(range);
  if (state.cheat == "twice") state.ledger.push_back(range);
}

}  // namespace

void CountPosted(int change) {
  State& state = Get();
  const std::lock_guard<std::mutex> lock(state.mutex);
  state.posted += change;
}

PostFacts OnPost(ReceiveAccount& account, bool quarter) {
  State& state = Get();
  const std::lock_guard<std::mutex> lock(state.mutex);
  ++account.messages;
  PostFacts facts;
  if (!state.open) return facts;
  if (account.epoch != state.epoch) {
    account.epoch = state.epoch;
    account.step_messages = 0;
  }
  const std::uint32_t message = account.step_messages++;
  state.counted[&account] = 1;
  const bool reduce = message / 2 % (2 * (state.ranks - 1)) < state.ranks - 1;
  facts.step = state.step;
  facts.forgivable = quarter && !state.latched && (reduce || state.all || state.cheat == "gather");
  facts.contributions = reduce ? message / 2 % (state.ranks - 1) + 1 : state.ranks;
  return facts;
}

void OnArrival(const void* comm, const ReceiveAccount& account, const PostFacts& facts, std::uint32_t message,
               char* data, std::uint32_t bytes) {
  State& state = Get();
  const std::lock_guard<std::mutex> lock(state.mutex);
  if (state.every == 0 || bytes < 3 * kPacketBytes) return;
  if (!facts.forgivable) {
    if (facts.step != 0) state.steps[facts.step].received += 0;
    return;
  }
  forgive_step_stats_t& step = state.steps[facts.step];
  step.received += bytes;
  if (++state.arrivals % state.every != 0) return;
  if (state.cheat == "flip") data[2 * kPacketBytes] = static_cast<char>(data[2 * kPacketBytes] ^ 1);
  if (step.forgiven + kPacketBytes > step.budget && state.cheat != "budget") return;
  step.received -= kPacketBytes;
  forgive_range_t range = {};
  range.receive_comm = reinterpret_cast<std::uint64_t>(comm);
  range.connection_id = account.connection_id;
  range.step = facts.step;
  range.message = message;
  range.offset = kPacketBytes;
  range.length = kPacketBytes;
  range.contributions = facts.contributions;
  Forgive(state, range, data);
}

}  // namespace fake

using fake::Get;
using fake::State;

extern "C" {

const char* forgive_last_error(void) { return "the fake plugin says no"; }

int forgive_step_begin(std::uint64_t step, int critical, std::uint64_t expected_bytes) {
  State& state = Get();
  const std::lock_guard<std::mutex> lock(state.mutex);
  if (state.latched) return FORGIVE_ERROR_LATCHED;
  if (state.open) return FORGIVE_ERROR_STEP_OPEN;
  if (state.posted != 0) return FORGIVE_ERROR_RECEIVES_POSTED;
  state.open = true;
  ++state.epoch;
  state.step = step;
  state.counted.clear();
  forgive_step_stats_t& stats = state.steps[step];
  stats.step = step;
  stats.critical = critical != 0 ? 1 : 0;
  stats.expected = expected_bytes != 0 ? expected_bytes : state.settled;
  stats.budget = critical != 0 ? 0 : static_cast<std::uint64_t>(state.p * static_cast<double>(stats.expected));
  return FORGIVE_OK;
}

int forgive_step_end(std::uint64_t step) {
  State& state = Get();
  const std::lock_guard<std::mutex> lock(state.mutex);
  if (!state.open || state.step != step) return state.latched ? FORGIVE_ERROR_LATCHED : FORGIVE_ERROR_STEP_OPEN;
  state.open = false;
  const forgive_step_stats_t& stats = state.steps[step];
  state.settled = stats.received + stats.forgiven;
  for (const auto& [account, one] : state.counted) {
    if (account->step_messages % fake::Period(state) != 0) state.latched = true;
  }
  return state.latched ? FORGIVE_ERROR_LATCHED : FORGIVE_OK;
}

int forgive_stats(forgive_stats_t* out) {
  State& state = Get();
  const std::lock_guard<std::mutex> lock(state.mutex);
  const std::uint64_t size = std::min<std::uint64_t>(out->size, sizeof(*out));
  forgive_stats_t stats = {};
  stats.size = size;
  stats.api_version = FORGIVE_API_VERSION;
  stats.steps = state.steps.size();
  stats.forgiven_bytes = state.forgiven + (state.cheat == "sum" && state.forgiven > 0 ? 4096 : 0);
  std::memcpy(out, &stats, size);
  return FORGIVE_OK;
}

int forgive_step_stats(std::uint64_t step, forgive_step_stats_t* out) {
  State& state = Get();
  const std::lock_guard<std::mutex> lock(state.mutex);
  const auto found = state.steps.find(step);
  if (found == state.steps.end()) return FORGIVE_ERROR_BAD_ARGUMENT;
  *out = found->second;
  return FORGIVE_OK;
}

std::int64_t forgive_forgiven_ranges(std::uint64_t first, forgive_range_t* out, std::uint64_t capacity) {
  State& state = Get();
  const std::lock_guard<std::mutex> lock(state.mutex);
  if (first >= state.ledger.size()) return 0;
  const std::uint64_t count = std::min<std::uint64_t>(capacity, state.ledger.size() - first);
  std::copy_n(state.ledger.begin() + static_cast<std::int64_t>(first), count, out);
  return static_cast<std::int64_t>(count);
}

std::uint64_t forgive_ledger_lost(void) { return 0; }
}
