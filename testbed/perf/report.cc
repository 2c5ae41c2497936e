// SPDX-License-Identifier: Apache-2.0
// Tables and JSON.
#include "testbed/perf/report.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "testbed/entry_lib/whole_file.h"
#include "testbed/perf/error.h"

namespace forgive::perf {
namespace {

using Json = nlohmann::ordered_json;

constexpr const char* kType = "float";

const char* OperationName(Collective collective) {
  return collective == Collective::kAllReduce || collective == Collective::kReduceScatter ? "sum" : "none";
}

const char* NameOf(Eligible eligible) {
  switch (eligible) {
    case Eligible::kReduce:
      return "reduce";
    case Eligible::kAll:
      return "all";
    case Eligible::kNone:
      break;
  }
  return "none";
}

std::string WrongText(std::uint64_t wrong, bool checked) { return checked ? std::to_string(wrong) : "N/A"; }

Json WrongJson(std::uint64_t wrong, bool checked) { return checked ? Json(wrong) : Json(nullptr); }

void AddStats(Json& json, const std::vector<forgive_stats_t>& all) {
  forgive_stats_t sum = {};
  for (const forgive_stats_t& stats : all) {
    sum.retransmitted_bytes += stats.retransmitted_bytes;
    sum.sent_bytes += stats.sent_bytes;
    sum.sent_exempt_bytes += stats.sent_exempt_bytes;
    sum.trims += stats.trims;
    sum.marks += stats.marks;
    sum.rate_cuts_mark += stats.rate_cuts_mark;
    sum.rate_cuts_trim += stats.rate_cuts_trim;
    sum.rate_cuts_timeout += stats.rate_cuts_timeout;
    sum.timeouts += stats.timeouts;
  }
  json["retransmitted_bytes"] = sum.retransmitted_bytes;
  json["sent_bytes"] = sum.sent_bytes;
  json["sent_exempt_bytes"] = sum.sent_exempt_bytes;
  json["trims"] = sum.trims;
  json["marks"] = sum.marks;
  json["rate_cuts"] = {
      {"mark", sum.rate_cuts_mark}, {"trim", sum.rate_cuts_trim}, {"timeout", sum.rate_cuts_timeout}};
  json["timeouts"] = sum.timeouts;
  json["exempt_share"] =
      sum.sent_bytes == 0 ? 0.0 : static_cast<double>(sum.sent_exempt_bytes) / static_cast<double>(sum.sent_bytes);
}

void AddNoStats(Json& json) {
  for (const char* name : {"retransmitted_bytes", "sent_bytes", "sent_exempt_bytes", "trims", "marks"}) {
    json[name] = nullptr;
  }
  json["rate_cuts"] = {{"mark", nullptr}, {"trim", nullptr}, {"timeout", nullptr}};
  json["timeouts"] = nullptr;
  json["exempt_share"] = nullptr;
}

Json StepJson(const StepResult& step) {
  return {{"step", step.step},
          {"critical", step.critical},
          {"allreduce_ms", step.allreduce_ms},
          {"expected", step.expected},
          {"received", step.received},
          {"forgiven", step.outcome.forgiven_bytes},
          {"contributions_lost", step.outcome.contributions_lost}};
}

}  // namespace

double AlgorithmBandwidth(const SizeResult& result) {
  return result.time_us <= 0 ? 0 : static_cast<double>(result.bytes) / result.time_us / 1e3;
}

double BusBandwidth(const SizeResult& result, Collective collective, int ranks) {
  const double share = static_cast<double>(ranks - 1) / ranks;
  double factor = 1;
  if (collective == Collective::kAllReduce) factor = 2 * share;
  if (collective == Collective::kReduceScatter || collective == Collective::kAllGather) factor = share;
  return AlgorithmBandwidth(result) * factor;
}

void PrintHeader(const Rank& rank, const Word& word) {
  const Options& options = rank.options();
  const char* const algorithm = options.collective == Collective::kSendRecv ? "pairs" : NameOf(options.algorithm);
  fmt::print("# forgive_perf: {} {}, {} ranks, network: {}\n", perf::NameOf(options.collective), algorithm,
             rank.ranks(), rank.net().Description());
  for (const std::string& line : rank.net().InfoLines()) fmt::print("# INFO {}\n", line);
  if (rank.api().has_steps() && word.gradient_traffic) {
    fmt::print("# gradient traffic: all; forgivable: {}; P_low {} ppm, P_high {} ppm\n", NameOf(word.eligible),
               word.p_low_ppm, word.p_high_ppm);
  }
  if (!options.check) {
    fmt::print("# check: off\n");
  } else if (rank.api().has_ledger() && options.trims.empty()) {
    fmt::print(
        "# check: exact, by replay of the ledger; no --trims given: whether a trim stands behind each forgiven "
        "range is not checked\n");
  } else {
    fmt::print("# check: exact, by replay{}\n", rank.api().has_ledger() ? " of the ledger, trims included" : "");
  }
}

void PrintTableHead() {
  fmt::print("# time: mean over iterations, of the slowest rank\n");
  fmt::print("#{:>12}{:>14}{:>10}{:>8}{:>8}{:>11}{:>9}{:>9}{:>9}{:>12}\n", "size", "count", "type", "redop", "root",
             "time", "algbw", "busbw", "#wrong", "forgiven");
  fmt::print("#{:>12}{:>14}{:>10}{:>8}{:>8}{:>11}{:>9}{:>9}{:>9}{:>12}\n", "(B)", "(elements)", "", "", "", "(us)",
             "(GB/s)", "(GB/s)", "", "(B)");
  std::fflush(stdout);
}

void PrintSize(const SizeResult& result, const Options& options) {
  fmt::print(" {:>12}{:>14}{:>10}{:>8}{:>8}{:>11.1f}{:>9.3f}{:>9.3f}{:>9}{:>12}\n", result.bytes, result.count, kType,
             OperationName(options.collective), result.root, result.time_us, AlgorithmBandwidth(result),
             BusBandwidth(result, options.collective, options.ranks), WrongText(result.outcome.wrong, options.check),
             result.outcome.forgiven_bytes);
  std::fflush(stdout);
}

std::string SweepJson(const std::vector<SizeResult>& results, const Options& options) {
  Json json = Json::array();
  for (const SizeResult& result : results) {
    json.push_back({{"size", result.bytes},
                    {"count", result.count},
                    {"type", kType},
                    {"time_us", result.time_us},
                    {"algbw_gbs", AlgorithmBandwidth(result)},
                    {"busbw_gbs", BusBandwidth(result, options.collective, options.ranks)},
                    {"wrong", WrongJson(result.outcome.wrong, options.check)},
                    {"forgiven_bytes", result.outcome.forgiven_bytes},
                    {"contributions_lost", result.outcome.contributions_lost}});
  }
  return json.dump(1) + "\n";
}

void PrintStepHead() {
  fmt::print("#{:>6}{:>10}{:>14}{:>14}{:>14}{:>12}{:>14}{:>9}\n", "step", "critical", "all-reduce", "expected",
             "received", "forgiven", "contributions", "#wrong");
  fmt::print("#{:>6}{:>10}{:>14}{:>14}{:>14}{:>12}{:>14}{:>9}\n", "", "", "(ms)", "(B)", "(B)", "(B)", "lost (B)",
             "");
  std::fflush(stdout);
}

void PrintStep(const StepResult& result, bool checked) {
  fmt::print(" {:>6}{:>10}{:>14.2f}{:>14}{:>14}{:>12}{:>14}{:>9}\n", result.step, result.critical ? "yes" : "no",
             result.allreduce_ms, result.expected, result.received, result.outcome.forgiven_bytes,
             result.outcome.contributions_lost, WrongText(result.outcome.wrong, checked));
  std::fflush(stdout);
}

std::string StepsJson(const StepsResult& result, bool checked) {
  Json json;
  json["steps"] = Json::array();
  for (const StepResult& step : result.steps) json["steps"].push_back(StepJson(step));
  json["total_s"] = result.total_s;
  json["gradient_bytes"] = result.gradient_bytes;
  json["forgiven_bytes"] = result.outcome.forgiven_bytes;
  if (result.per_rank) {
    AddStats(json, *result.per_rank);
  } else {
    AddNoStats(json);
  }
  json["wrong"] = WrongJson(result.outcome.wrong, checked);
  json["budget_violations"] = result.outcome.budget_violations;
  json["ranks_identical"] = checked ? Json(result.outcome.ranks_identical) : Json(nullptr);
  const auto diverging = std::count_if(result.steps.begin(), result.steps.end(),
                                       [](const StepResult& step) { return !step.outcome.ranks_identical; });
  json["diverging_steps"] = checked ? Json(diverging) : Json(nullptr);
  json["diverging_elements"] = checked ? Json(result.outcome.diverging_elements) : Json(nullptr);
  json["largest_difference"] = checked ? Json(result.outcome.largest_difference) : Json(nullptr);
  json["per_rank"] = Json::array();
  if (result.per_rank) {
    for (const forgive_stats_t& stats : *result.per_rank) {
      Json fields;
      for (const auto& [name, value] : Fields(stats)) fields[name] = value;
      json["per_rank"].push_back(fields);
    }
  }
  return json.dump(1) + "\n";
}

void PrintStepsSummary(const StepsResult& result, bool checked) {
  fmt::print("# total {:.3f} s, gradient {} B, forgiven {} B, wrong {}, budget violations {}, ranks identical: {}\n",
             result.total_s, result.gradient_bytes, result.outcome.forgiven_bytes,
             WrongText(result.outcome.wrong, checked), result.outcome.budget_violations,
             !checked ? "not checked" : (result.outcome.ranks_identical ? "yes" : "no"));
  if (checked) PrintDivergence(result.outcome);
}

void PrintDivergence(const Outcome& outcome) {
  if (outcome.ranks_identical) return;
  fmt::print("# divergence: {} elements are not the same on all ranks, the largest difference is {:g}\n",
             outcome.diverging_elements, outcome.largest_difference);
}

void WriteFile(const std::string& file, const std::string& text) {
  const std::string error = WriteWholeFile(file, text);
  if (!error.empty()) throw RunError(fmt::format("cannot write {}: {}", file, error));
}

}  // namespace forgive::perf
