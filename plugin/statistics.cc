// SPDX-License-Identifier: Apache-2.0
// Statistics: history of steps, totals, and the thread that writes JSON lines.
#include "plugin/statistics.h"

#include <fcntl.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <new>

#include "dataplane/thread_signals.h"
#include "plugin/json.h"
#include "plugin/log.h"
#include "plugin/statistics_lines.h"

namespace forgive {
namespace {

// How often the ledger is drained while a step is open: well before the engine's ring of lines can be full.
constexpr uint64_t kDrainIntervalNs = 2000000;
// How often a thread that no call wakes looks whether operations have begun.
constexpr uint64_t kIdleIntervalNs = 100000000;
// The engine publishes its counters more often than this.
constexpr auto kSnapshotAge = std::chrono::milliseconds(2);

uint64_t NowNs() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<uint64_t>(now.tv_sec) * 1000000000 + static_cast<uint64_t>(now.tv_nsec);
}

// The file is opened without waiting: a pipe that nobody reads must not hold up a job.
int OpenStatisticsFile(const std::string& name) {
  if (name.empty()) return -1;
  const int file = open(name.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_APPEND | O_CLOEXEC | O_NONBLOCK, 0644);
  if (file < 0) {
    Log(LogLevel::kWarning, "FORGIVE_STATS=%s: cannot be written (%s); there will be no statistics file",
        name.c_str(), std::strerror(errno));
  }
  return file;
}

// Both bounds of the seed, for what is reported, in the budget's unit: charged <= budget, and charged <= p (received
// + forgiven).
bool WithinBounds(const forgive_step_stats_t& step) {
  const bool contributions = step.budget_unit == FORGIVE_BUDGET_CONTRIBUTIONS;
  const uint64_t charged = contributions ? step.contributions_lost : step.forgiven;
  const uint128 arrived = uint128{step.received} + step.forgiven;
  return charged <= step.budget && uint128{charged} * Fraction::kOne <= arrived * step.p_ppm;
}

// Every counter of the drivers: one that is added to the structure must be published here too.
static_assert(sizeof(DriverCounters) == (5 + 2 * kMaxRails) * sizeof(uint64_t));

void FillDriver(const DriverCounters& driver, forgive_stats_t* out) {
  out->socket_drops = driver.socket_drops;
  out->send_errors = driver.send_errors;
  out->truncated = driver.truncated;
  out->raw_packets = driver.raw_packets;
  out->faults_injected = driver.faults_injected;
  static_assert(kMaxRails == 4);
  out->rail0_sent_bytes = driver.rails[0].sent;
  out->rail1_sent_bytes = driver.rails[1].sent;
  out->rail2_sent_bytes = driver.rails[2].sent;
  out->rail3_sent_bytes = driver.rails[3].sent;
  out->rail0_received_bytes = driver.rails[0].received;
  out->rail1_received_bytes = driver.rails[1].received;
  out->rail2_received_bytes = driver.rails[2].received;
  out->rail3_received_bytes = driver.rails[3].received;
}

}  // namespace

Statistics::Statistics(const Settings& settings, const std::vector<Device>& devices, const DriverChoice& driver,
                       Engine* engine, Ledger* ledger, StepFacts* facts, int api_version)
    : engine_(engine),
      ledger_(ledger),
      facts_(facts),
      process_id_(getpid()),
      file_name_(settings.statistics_file),
      trace_interval_ns_(settings.trace_interval_us * 1000),
      budget_unit_(settings.engine.transport.budget_unit == BudgetUnit::kContributions ? FORGIVE_BUDGET_CONTRIBUTIONS
                                                                                       : FORGIVE_BUDGET_BYTES),
      by_operation_(settings.step_by_operation),
      paths_(settings.engine.transport.paths),
      rails_(settings.engine.transport.rails),
      file_(OpenStatisticsFile(settings.statistics_file)) {
  WriteInit(settings, devices, driver, api_version);
  const BlockedSignals blocked;  // the host's signals are for the host's threads
  thread_ = std::thread(&Statistics::Run, this);
}

void Statistics::WriteInit(const Settings& settings, const std::vector<Device>& devices, const DriverChoice& driver,
                           int api_version) {
  if (file_ < 0) return;
  char host[256] = {};
  gethostname(host, sizeof(host) - 1);
  JsonWriter line;
  line.BeginObject()
      .Text("type", "init")
      .Number("time_ns", NowNs())
      .Text("version", FORGIVE_VERSION)
      .Number("api", static_cast<uint64_t>(api_version))
      .Text("host", host)
      .Number("pid", static_cast<uint64_t>(process_id_))
      .Text("driver", driver.driver)
      .Text("driver_reason", driver.reason.empty() ? "FORGIVE_DRIVER" : driver.reason)
      .Number("paths", settings.engine.transport.paths)
      .Number("rails", settings.engine.transport.rails)
      .Text("eligible", facts_->Description())
      .Text("step_stamp", by_operation_ ? "each operation, as the profiler says it"
                                        : "at enqueue where the profiler says it, else at the post");
  line.BeginArray("devices");
  for (size_t i = 0; i < devices.size(); ++i) {
    line.BeginObject();
    AddFacts(devices[i], &line);
    line.Text("driver", engine_->driver_description(static_cast<uint32_t>(i)));
    if (!devices[i].rails.empty()) {
      line.BeginArray("rails");
      for (const Device& rail : devices[i].rails) {
        line.BeginObject();
        AddFacts(rail, &line);
        line.EndObject();
      }
      line.EndArray();
    }
    line.EndObject();
  }
  line.EndArray().BeginObject("settings");
  for (const auto& [name, value] : settings.given) line.Text(name, value);
  line.EndObject().EndObject();
  WriteLine(line.text());
}

template <typename Work>
void Statistics::WithMemory(const Work& work) {
  try {
    work();
  } catch (const std::bad_alloc&) {
    if (lines_left_out_.fetch_add(1, std::memory_order_relaxed) != 0) return;
    Log(LogLevel::kWarning, "FORGIVE_STATS=%s: no memory is left in this process; lines are left out",
        file_name_.c_str());
  }
}

void Statistics::WriteLine(const std::string& line) {
  if (file_ < 0) return;
  std::string bytes = line + "\n";
  size_t written = 0;
  while (written < bytes.size()) {
    const ssize_t count = write(file_, bytes.data() + written, bytes.size() - written);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) {
      Log(LogLevel::kWarning, "FORGIVE_STATS=%s: writing failed (%s); the statistics file ends here",
          file_name_.c_str(), std::strerror(errno));
      close(file_);
      file_ = -1;
      return;
    }
    written += static_cast<size_t>(count);
  }
}

void Statistics::Update(forgive_step_stats_t* kept, const StepAccount& account) {
  kept->budget_unit = budget_unit_;
  kept->step = account.step;
  kept->critical = account.critical ? 1 : 0;
  kept->open = account.open ? 1 : 0;
  kept->p_ppm = account.p.ppm;
  kept->expected = account.expected;
  kept->budget = account.budget;
  kept->received = account.received;
  kept->forgiven = account.forgiven;
  kept->outstanding = account.outstanding;
  kept->contributions_lost = account.contributions_lost;
  kept->trims = account.trims;
  kept->settled = account.settled;
  if (WithinBounds(*kept)) return;
  ++kept->budget_violations;
  ++budget_violations_;
}

void Statistics::OnStepBegin(const StepAccount& opened) {
  const std::lock_guard<std::mutex> lock(mutex_);
  forgive_step_stats_t& kept = steps_[steps_begun_++ % kStepHistory];
  kept = {};
  Update(&kept, opened);
  kept.begin_ns = NowNs();
  wake_.notify_one();
}

void Statistics::OnStepEnd(const StepAccount& closed, bool latched) {
  forgive_stats_t totals{};
  FillTotals(&totals);
  const std::lock_guard<std::mutex> lock(mutex_);
  forgive_step_stats_t& kept = steps_[(steps_begun_ - 1) % kStepHistory];
  Update(&kept, closed);
  kept.end_ns = NowNs();
  QueueStep(kept, latched, totals);
}

// Needs mutex_.
void Statistics::QueueStep(const forgive_step_stats_t& step, bool latched, const forgive_stats_t& totals) {
  if (file_name_.empty()) return;
  WithMemory([&] {
    JsonWriter line;
    line.BeginObject().Text("type", "step").Number("time_ns", step.end_ns);
    AddStep(step, &line);
    line.Boolean("latched", latched);
    AddTotals(totals, &line);
    AddRails(totals, &line);
    AddProofs(*facts_, &line);
    line.EndObject();
    queued_.push_back(line.text());
  });
  wake_.notify_one();
}

void Statistics::DrainOperations() {
  if (!by_operation_) return;
  const std::lock_guard<std::mutex> one(operations_mutex_);
  OperationAccount operation;
  if (!engine_->NextOperation(&operation)) return;
  forgive_stats_t totals{};
  FillTotals(&totals);
  const std::lock_guard<std::mutex> lock(mutex_);
  do {
    forgive_step_stats_t& kept = steps_[steps_begun_++ % kStepHistory];
    kept = {};
    Update(&kept, operation.account);
    kept.begin_ns = static_cast<uint64_t>(operation.begin.ns);
    kept.end_ns = static_cast<uint64_t>(operation.end.ns);
    totals.steps = steps_begun_;
    QueueStep(kept, false, totals);
  } while (engine_->NextOperation(&operation));
}

void Statistics::FillTotals(forgive_stats_t* out) {
  const EngineSnapshot snapshot = engine_->Snapshot();
  const Counters& c = snapshot.counters;
  out->api_version = FORGIVE_API_VERSION;
  out->sent_bytes = c.sent_bytes;
  out->sent_exempt_bytes = c.sent_exempt_bytes;
  out->retransmitted_bytes = c.retransmitted_bytes;
  out->received_bytes = c.received_bytes;
  out->duplicate_bytes = c.duplicate_bytes;
  out->forgiven_bytes = c.forgiven_bytes;
  out->contributions_lost = c.contributions_lost;
  out->late_bytes = c.late_bytes;
  out->packets_sent = c.packets_sent;
  out->packets_received = c.packets_received;
  out->trims = c.trims;
  out->marks = c.marks;
  out->reports_sent = c.reports_sent;
  out->reports_received = c.reports_received;
  const auto decided = [&c](Decision decision) { return c.decisions[static_cast<size_t>(decision)]; };
  out->decided_already_settled = decided(Decision::kAlreadySettled);
  out->decided_not_forgivable = decided(Decision::kNotForgivable);
  out->decided_no_open_budget = decided(Decision::kNoOpenBudget);
  out->decided_not_vested = decided(Decision::kNotVested);
  out->decided_over_budget = decided(Decision::kOverBudget);
  out->decided_draw_refused = decided(Decision::kDrawRefused);
  out->decided_forgiven = decided(Decision::kForgiven);
  out->rate_cuts_mark = c.rate_cuts_mark;
  out->rate_cuts_trim = c.rate_cuts_trim;
  out->rate_cuts_timeout = c.rate_cuts_timeout;
  out->signals_ignored = c.signals_ignored;
  out->timeouts = c.timeouts;
  out->lost_by_request = c.lost_by_request;
  out->lost_by_rack = c.lost_by_rack;
  out->mode_changes = c.mode_changes;
  out->bad_tag = c.bad_tag;
  out->malformed = c.malformed + c.foreign_version;
  out->unknown_connection = c.unknown_connection;
  out->replayed = c.replayed;
  out->bad_crc = c.bad_crc;
  out->out_of_window = c.out_of_window;
  FillDriver(snapshot.driver, out);
  out->stale_reports = c.stale_reports;
  out->events_full = c.events_full;
  out->segment_cuts = c.segment_cuts;
  out->paths = paths_;
  out->rails = rails_;
  out->paths_given_up = c.paths_given_up;
  out->paths_returned = c.paths_returned;
  out->not_posted_operator_latch = facts_->refused_posts();
  out->proved_by_attributes = facts_->proved(Proof::kAttributes);
  out->proved_by_profiler = facts_->proved(Proof::kProfiler);
  out->proved_by_operators_word = facts_->proved(Proof::kOperatorsWord);
  for (size_t refusal = 1; refusal < static_cast<size_t>(Refusal::kCount); ++refusal) {
    out->refused += facts_->refused(static_cast<Refusal>(refusal));
  }
  const std::lock_guard<std::mutex> lock(mutex_);
  out->steps = steps_begun_;
  out->budget_violations = budget_violations_;
}

bool Statistics::FindStep(uint64_t step, forgive_step_stats_t* out) {
  DrainOperations();
  StepAccount account;
  const bool in_table = engine_->FindStep(step, &account);
  const std::lock_guard<std::mutex> lock(mutex_);
  const uint64_t kept = std::min<uint64_t>(steps_begun_, kStepHistory);
  for (uint64_t i = 0; i < kept; ++i) {
    if (steps_[i].step != step) continue;
    // Messages of a closed step may still settle bytes.
    if (in_table) Update(&steps_[i], account);
    *out = steps_[i];
    return true;
  }
  if (!by_operation_ || !in_table) return false;
  *out = {};  // an operation that has not ended
  Update(out, account);
  return true;
}

void Statistics::WriteSample(uint64_t now_ns) {
  const uint64_t step = facts_->open_step();
  StepAccount account;
  if (facts_->step_open()) engine_->FindStep(step, &account);
  JsonWriter line;
  line.BeginObject().Text("type", "sample").Number("time_ns", now_ns);
  const std::vector<ConnectionSample> samples = engine_->SampleConnections();
  uint64_t packet_bytes = 0;
  for (const ConnectionSample& sample : samples) {
    packet_bytes = std::max<uint64_t>(packet_bytes, sample.facts.max_payload);
  }
  line.Number("step", account.step)
      .Boolean("open", account.open)
      .Number("received", account.received)
      .Number("forgiven", account.forgiven)
      .Number("outstanding", account.outstanding)
      .Number("budget", account.budget)
      .Boolean("exhausted", account.open && Exhausted(account, packet_bytes));
  line.BeginArray("connections");
  for (const ConnectionSample& sample : samples) {
    char id[24];
    std::snprintf(id, sizeof(id), "%016llx", static_cast<unsigned long long>(sample.facts.connection_id));
    line.BeginObject()
        .Text("id", id)
        .Boolean("sends", sample.facts.sends)
        .Number("rate_bps", sample.facts.rate.value)
        .Boolean("exempt", sample.facts.exempt)
        .Number("in_flight", sample.facts.bytes_in_flight)
        .EndObject();
  }
  line.EndArray().EndObject();
  WriteLine(line.text());
}

void Statistics::Run() {
  uint64_t next_sample_ns = NowNs();
  for (;;) {
    std::vector<std::string> lines;
    bool stop = false;
    {
      std::unique_lock<std::mutex> lock(mutex_);
      if (queued_.empty() && !stop_) {
        const bool busy = by_operation_ ? facts_->HasPosted() : facts_->step_open();
        uint64_t wait_ns = busy ? kDrainIntervalNs : (by_operation_ ? kIdleIntervalNs : 0);
        if (tracing()) wait_ns = wait_ns == 0 ? trace_interval_ns_ : std::min(wait_ns, trace_interval_ns_);
        if (wait_ns == 0) {
          wake_.wait(lock);  // nothing is forgiven and nothing is sampled: until a step begins or a line comes
        } else {
          wake_.wait_for(lock, std::chrono::nanoseconds(wait_ns));
        }
      }
      lines.swap(queued_);
      stop = stop_;
    }
    ledger_->Drain(engine_);
    DrainOperations();
    for (const std::string& line : lines) {
      WithMemory([&] { WriteLine(line); });
    }
    if (stop) return;
    const uint64_t now_ns = NowNs();
    if (!tracing() || now_ns < next_sample_ns) continue;
    WithMemory([&] { WriteSample(now_ns); });
    // A late thread skips samples instead of writing a burst of them.
    next_sample_ns = std::max(next_sample_ns + trace_interval_ns_, now_ns);
  }
}

void Statistics::Stop() {
  if (getpid() != process_id_) return;
  if (by_operation_ && !stopping_.exchange(true)) {
    engine_->EndOperations();
    DrainOperations();
  }
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (stop_) return;
    stop_ = true;
    wake_.notify_one();
  }
  thread_.join();
  if (file_ < 0) return;
  std::this_thread::sleep_for(kSnapshotAge);
  forgive_stats_t totals{};
  FillTotals(&totals);
  WithMemory([&] {
    JsonWriter line;
    line.BeginObject()
        .Text("type", "final")
        .Number("time_ns", NowNs())
        .Number("ledger_lines", ledger_->lines())
        .Number("ledger_lost", ledger_->lost())
        .Number("lines_left_out", lines_left_out_.load(std::memory_order_relaxed));
    AddTotals(totals, &line);
    AddRails(totals, &line);
    AddProofs(*facts_, &line);
    line.EndObject();
    WriteLine(line.text());
  });
  if (file_ >= 0) close(file_);
  file_ = -1;
}

}  // namespace forgive
