// SPDX-License-Identifier: Apache-2.0
// What forgive_replay says, as text, CSV and JSON.
#include "testbed/replay/report.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <nlohmann/json.hpp>

namespace forgive::replay {
namespace {

using nlohmann::ordered_json;

constexpr uint64_t kMillion = 1000000;

uint64_t MillionthsOf(double p) { return static_cast<uint64_t>(std::llround(p * static_cast<double>(kMillion))); }

double PercentOf(uint64_t part, uint64_t whole) {
  return whole == 0 ? 0 : 100.0 * static_cast<double>(part) / static_cast<double>(whole);
}

std::vector<uint64_t> CriticalSteps(const Findings& findings) {
  std::vector<uint64_t> steps;
  for (size_t i = 0; i < findings.rows.size(); ++i) {
    if (findings.classes.critical[i]) steps.push_back(findings.rows[i].step);
  }
  return steps;
}

// Budgets in bytes where a step's bytes are known, else as a multiple of them.
std::string Amount(const Options& options, double steps) {
  if (options.expected_bytes == 0) return fmt::format("{:.4g} of a step's bytes", steps);
  return fmt::format("{:.0f} bytes", steps * static_cast<double>(options.expected_bytes));
}

std::string TruthText(const Options& options, const Findings& findings) {
  const Comparison& c = findings.comparison;
  const double gap = options.p_high - options.p_low;
  std::string text =
      fmt::format("labels: {} of {} steps, {} critical\n", c.labelled, findings.rows.size(), c.critical);
  text += fmt::format("missed critical steps: {} ({:.1f} %); budget that they got beyond P_low: {}\n", c.missed,
                      PercentOf(c.missed, c.critical), Amount(options, gap * static_cast<double>(c.missed)));
  text += fmt::format("false alarms: {} ({:.1f} %); budget that they went without: {}\n", c.false_alarms,
                      PercentOf(c.false_alarms, c.labelled - c.critical),
                      Amount(options, gap * static_cast<double>(c.false_alarms)));
  return text;
}

std::string SweepText(const Findings& findings) {
  const bool truth = !findings.labels.empty();
  std::string text = fmt::format("\n{:>8} {:>10} {:>9} {:>7}", "window", "threshold", "critical", "share");
  text += truth ? fmt::format(" {:>8} {:>13}\n", "missed", "false alarms") : "\n";
  for (const SweepPoint& point : findings.sweep) {
    text += fmt::format("{:>8} {:>10g} {:>9} {:>5.1f} %", point.window, point.threshold, point.critical,
                        PercentOf(point.critical, findings.rows.size()));
    text += truth ? fmt::format(" {:>8} {:>13}\n", point.comparison.missed, point.comparison.false_alarms) : "\n";
  }
  return text;
}

ordered_json NormJson(double norm) {
  if (std::isfinite(norm)) return norm;
  return std::isnan(norm) ? "nan" : norm > 0 ? "inf" : "-inf";
}

ordered_json ComparisonJson(const Comparison& comparison) {
  return {{"labelled", comparison.labelled},
          {"critical", comparison.critical},
          {"missed", comparison.missed},
          {"false_alarms", comparison.false_alarms}};
}

ordered_json StepJson(const Options& options, const Findings& findings, size_t row) {
  const NormRow& recorded = findings.rows[row];
  const bool critical = findings.classes.critical[row];
  const double p = critical ? options.p_low : options.p_high;
  ordered_json step = {{"step", recorded.step}};
  step["norms"] = ordered_json::array();
  for (const double norm : recorded.norms) step["norms"].push_back(NormJson(norm));
  step["critical"] = critical;
  step["p"] = p;
  if (options.expected_bytes > 0) step["budget"] = BudgetOf(p, options.expected_bytes);
  if (const auto label = findings.labels.find(recorded.step); label != findings.labels.end()) {
    step["truth"] = label->second;
  }
  return step;
}

}  // namespace

uint64_t BudgetOf(double p, uint64_t expected_bytes) {
  const uint64_t millionths = MillionthsOf(p);
  return expected_bytes / kMillion * millionths + expected_bytes % kMillion * millionths / kMillion;
}

std::string Ranges(const std::vector<uint64_t>& steps) {
  std::string text;
  for (size_t i = 0; i < steps.size();) {
    size_t last = i;
    while (last + 1 < steps.size() && steps[last + 1] == steps[last] + 1) ++last;
    text += (text.empty() ? "" : ", ") + std::to_string(steps[i]);
    if (last > i) text += "-" + std::to_string(steps[last]);
    i = last + 1;
  }
  return text.empty() ? "none" : text;
}

std::string ToText(const Options& options, const Findings& findings) {
  const std::vector<uint64_t> critical = CriticalSteps(findings);
  const uint64_t all = findings.rows.size();
  std::string text =
      fmt::format("{}: {} steps, {} norm{} each", options.norms_file, all, findings.rows.front().norms.size(),
                  findings.rows.front().norms.size() == 1 ? "" : "s");
  text += fmt::format("; bad norms (NaN, infinite, negative): {}\n", findings.classes.bad_norms);
  text += options.detector == "steps" ? fmt::format("detector steps: {}\n", Ranges(critical))
                                      : fmt::format("detector {}, window {}, threshold {:g}\n", options.detector,
                                                    options.window, options.threshold);
  text += fmt::format("critical: {} ({:.1f} %): {}\n", critical.size(), PercentOf(critical.size(), all),
                      Ranges(critical));
  const double low = options.p_low * static_cast<double>(critical.size());
  const double high = options.p_high * static_cast<double>(all - critical.size());
  text += fmt::format("budget: p {:g} on critical steps, {:g} on the others; all steps together: {}\n", options.p_low,
                      options.p_high, Amount(options, low + high));
  if (options.expected_bytes > 0) {
    text +=
        fmt::format("a step's budget: {} bytes or {} bytes of {}\n", BudgetOf(options.p_low, options.expected_bytes),
                    BudgetOf(options.p_high, options.expected_bytes), options.expected_bytes);
  }
  if (!findings.labels.empty()) text += TruthText(options, findings);
  if (!findings.sweep.empty()) text += SweepText(findings);
  return text;
}

std::string ToCsv(const Options& options, const Findings& findings) {
  const bool truth = !findings.labels.empty();
  std::string text = "step";
  const size_t layers = findings.rows.front().norms.size();
  for (size_t i = 0; i < layers; ++i) text += layers == 1 ? ",norm" : fmt::format(",norm_{}", i);
  text += std::string(",critical,p") + (options.expected_bytes > 0 ? ",budget" : "") + (truth ? ",truth\n" : "\n");
  for (size_t row = 0; row < findings.rows.size(); ++row) {
    const ordered_json step = StepJson(options, findings, row);
    text += step["step"].dump();
    for (const double norm : findings.rows[row].norms) text += fmt::format(",{}", norm);
    text += fmt::format(",{},{}", step["critical"].get<bool>() ? 1 : 0, step["p"].dump());
    if (step.contains("budget")) text += "," + step["budget"].dump();
    if (truth) text += !step.contains("truth") ? "," : step["truth"].get<bool>() ? ",1" : ",0";
    text += "\n";
  }
  return text;
}

std::string ToJson(const Options& options, const Findings& findings) {
  ordered_json root = {{"norms", options.norms_file},
                       {"detector", options.detector},
                       {"window", options.window},
                       {"threshold", options.threshold},
                       {"p_low", options.p_low},
                       {"p_high", options.p_high},
                       {"expected_bytes", options.expected_bytes},
                       {"bad_norms", findings.classes.bad_norms}};
  root["critical"] = CriticalSteps(findings).size();
  if (!findings.labels.empty()) {
    root["comparison"] = ComparisonJson(findings.comparison);
    const double gap = options.p_high - options.p_low;
    root["comparison"]["missed_budget_steps"] = gap * static_cast<double>(findings.comparison.missed);
    root["comparison"]["false_alarm_budget_steps"] = gap * static_cast<double>(findings.comparison.false_alarms);
  }
  root["steps"] = ordered_json::array();
  for (size_t row = 0; row < findings.rows.size(); ++row) root["steps"].push_back(StepJson(options, findings, row));
  if (!findings.sweep.empty()) root["sweep"] = ordered_json::array();
  for (const SweepPoint& point : findings.sweep) {
    ordered_json entry = {{"window", point.window}, {"threshold", point.threshold}, {"critical", point.critical}};
    if (!findings.labels.empty()) entry["comparison"] = ComparisonJson(point.comparison);
    root["sweep"].push_back(std::move(entry));
  }
  return root.dump(1) + "\n";
}

}  // namespace forgive::replay
