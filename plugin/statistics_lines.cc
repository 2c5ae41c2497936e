// SPDX-License-Identifier: Apache-2.0
// Devices, totals, proofs and steps as JSON.
#include "plugin/statistics_lines.h"

#include "plugin/device_facts.h"

namespace forgive {
namespace {

// The contributions that were lost for each million bytes that the step brought.
uint64_t LostShare(const forgive_step_stats_t& step) {
  if (step.settled == 0) return 0;
  return static_cast<uint64_t>(uint128{step.contributions_lost} * Fraction::kOne / step.settled);
}

}  // namespace

void AddFacts(const Device& device, JsonWriter* line) {
  line->Text("interface", device.interface)
      .Text("address", device.address)
      .Number("speed_mbps", device.speed_mbps)
      .Text("pci_path", device.pci_path)
      .Text("guid", GuidText(device.guid))
      .Number("port", device.port)
      .Text("facts_from", device.facts_from);
}

void AddTotals(const forgive_stats_t& totals, JsonWriter* line) {
  line->BeginObject("totals")
      .Number("steps", totals.steps)
      .Number("sent_bytes", totals.sent_bytes)
      .Number("sent_exempt_bytes", totals.sent_exempt_bytes)
      .Number("retransmitted_bytes", totals.retransmitted_bytes)
      .Number("received_bytes", totals.received_bytes)
      .Number("duplicate_bytes", totals.duplicate_bytes)
      .Number("forgiven_bytes", totals.forgiven_bytes)
      .Number("contributions_lost", totals.contributions_lost)
      .Number("late_bytes", totals.late_bytes)
      .Number("packets_sent", totals.packets_sent)
      .Number("packets_received", totals.packets_received)
      .Number("trims", totals.trims)
      .Number("marks", totals.marks)
      .Number("reports_sent", totals.reports_sent)
      .Number("reports_received", totals.reports_received);
  line->BeginObject("decisions")
      .Number("AlreadySettled", totals.decided_already_settled)
      .Number("NotForgivable", totals.decided_not_forgivable)
      .Number("NoOpenBudget", totals.decided_no_open_budget)
      .Number("NotVested", totals.decided_not_vested)
      .Number("OverBudget", totals.decided_over_budget)
      .Number("DrawRefused", totals.decided_draw_refused)
      .Number("Forgiven", totals.decided_forgiven)
      .EndObject();
  line->BeginObject("rate_cuts")
      .Number("mark", totals.rate_cuts_mark)
      .Number("trim", totals.rate_cuts_trim)
      .Number("timeout", totals.rate_cuts_timeout)
      .EndObject();
  line->Number("signals_ignored", totals.signals_ignored)
      .Number("timeouts", totals.timeouts)
      .Number("segment_cuts", totals.segment_cuts)
      .Number("paths", totals.paths)
      .Number("paths_given_up", totals.paths_given_up)
      .Number("paths_returned", totals.paths_returned)
      .Number("lost_by_request", totals.lost_by_request)
      .Number("lost_by_rack", totals.lost_by_rack)
      .Number("mode_changes", totals.mode_changes)
      .Number("bad_tag", totals.bad_tag)
      .Number("malformed", totals.malformed)
      .Number("unknown_connection", totals.unknown_connection)
      .Number("replayed", totals.replayed)
      .Number("bad_crc", totals.bad_crc)
      .Number("out_of_window", totals.out_of_window)
      .Number("socket_drops", totals.socket_drops)
      .Number("not_posted_operator_latch", totals.not_posted_operator_latch)
      .Number("budget_violations", totals.budget_violations)
      .Number("send_errors", totals.send_errors)
      .Number("truncated", totals.truncated)
      .Number("raw_packets", totals.raw_packets)
      .Number("faults_injected", totals.faults_injected)
      .Number("stale_reports", totals.stale_reports)
      .Number("events_full", totals.events_full)
      .EndObject();
}

void AddRails(const forgive_stats_t& totals, JsonWriter* line) {
  const uint64_t sent[] = {totals.rail0_sent_bytes, totals.rail1_sent_bytes, totals.rail2_sent_bytes,
                           totals.rail3_sent_bytes};
  const uint64_t received[] = {totals.rail0_received_bytes, totals.rail1_received_bytes, totals.rail2_received_bytes,
                               totals.rail3_received_bytes};
  line->BeginArray("rails");
  for (size_t rail = 0; rail < totals.rails; ++rail) {
    line->BeginObject().Number("sent_bytes", sent[rail]).Number("received_bytes", received[rail]).EndObject();
  }
  line->EndArray();
}

void AddProofs(const StepFacts& facts, JsonWriter* line) {
  line->BeginObject("proofs");
  for (size_t i = 1; i < static_cast<size_t>(Proof::kCount); ++i) {
    const auto proof = static_cast<Proof>(i);
    if (facts.proved(proof) != 0) line->Number(NameOf(proof), facts.proved(proof));
  }
  line->EndObject().BeginObject("refusals");
  for (size_t i = 1; i < static_cast<size_t>(Refusal::kCount); ++i) {
    const auto refusal = static_cast<Refusal>(i);
    if (facts.refused(refusal) != 0) line->Number(NameOf(refusal), facts.refused(refusal));
  }
  line->EndObject();
}

void AddStep(const forgive_step_stats_t& step, JsonWriter* line) {
  line->Number("step", step.step)
      .Boolean("critical", step.critical != 0)
      .Number("p_ppm", step.p_ppm)
      .Number("expected", step.expected)
      .Number("budget", step.budget)
      .Number("received", step.received)
      .Number("forgiven", step.forgiven)
      .Number("outstanding", step.outstanding)
      .Number("settled", step.settled)
      .Number("contributions_lost", step.contributions_lost)
      .Number("contributions_lost_ppm", LostShare(step))
      .Text("budget_unit", step.budget_unit == FORGIVE_BUDGET_CONTRIBUTIONS ? "contributions" : "bytes")
      .Number("trims", step.trims)
      .Number("budget_violations", step.budget_violations)
      .Number("begin_ns", step.begin_ns)
      .Number("end_ns", step.end_ns);
}

}  // namespace forgive
