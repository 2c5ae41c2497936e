# SPDX-License-Identifier: Apache-2.0
# Merging turns, and the checks that decide the demo's exit status.
import checks
import results


def test_times_of_merged_turns_are_medians_and_counters_are_sums(a_result):
    row = results.merge([a_result(turn=1, total_s=10.0, timeouts=2), a_result(turn=2, total_s=12.0, timeouts=3)])
    assert row["total_s"] == 11.0
    assert row["turn_total_s"] == [10.0, 12.0]
    assert row["timeouts"] == 5
    assert row["steps"][1]["allreduce_ms"] == 22 - 0.5
    assert row["steps"][1]["forgiven"] == 800


def test_the_exempt_share_is_of_bytes_sent(a_result):
    row = results.merge([a_result(sent_bytes=1000, sent_exempt_bytes=1000),
                         a_result(sent_bytes=3000, sent_exempt_bytes=0)])
    assert row["exempt_share"] == 0.25


def test_a_row_has_every_field_that_results_json_promises(a_result):
    row = results.merge([a_result()])
    promised = {"name", "algorithm", "total_s", "steps", "forgiven_bytes", "gradient_bytes", "retransmitted_bytes",
                "trims", "switch_trims", "marks", "rate_cuts", "timeouts", "exempt_share", "wrong",
                "budget_violations", "ranks_identical"}
    assert promised <= row.keys()
    assert row["rate_cuts"].keys() == {"mark", "trim", "timeout"}
    assert row["steps"][0].keys() == {"step", "critical", "allreduce_ms", "expected", "received", "forgiven",
                                      "contributions_lost"}


def test_the_light_row_is_kept_apart_from_the_main_row(a_result):
    runs = [a_result(), a_result(row="light"), a_result(turn=2)]
    assert [row["turns"] for row in results.rows(runs, "main")] == [2]
    assert [row["turns"] for row in results.rows(runs, "light")] == [1]


def test_a_change_is_against_the_baseline_of_the_same_algorithm(a_result):
    rows = results.rows([a_result("tight", "ring", total_s=1.0), a_result("tight", total_s=10.0),
                         a_result("forgive-all", total_s=8.0)], "main")
    assert round(results.change(rows, rows[2]), 6) == -0.2


def lines_of(result, **options):
    return checks.check_variant(results.merge([result]), **options)


def test_a_row_in_which_everything_holds_gets_no_line(a_result):
    assert lines_of(a_result()) == []
    assert lines_of(a_result("plain", forgiven=0)) == []


def test_a_trim_that_the_switch_did_not_cut_is_a_failure(a_result):
    lines = lines_of(a_result(trims=8))
    assert len(lines) == 1
    assert "8 trims" in lines[0] and lines[0].startswith("direct forgive-all")


def test_wrong_elements_and_budget_violations_are_failures(a_result):
    assert "3 wrong" in lines_of(a_result(wrong=3))[0]
    assert "violated 2 times" in lines_of(a_result(budget_violations=2))[0]


def test_forgiving_where_nothing_may_be_forgiven_is_a_failure(a_result):
    for policy in ("tcp", "plain", "exempt-only"):
        assert "where nothing may be" in " ".join(lines_of(a_result(policy)))


def test_a_forgiving_policy_that_forgave_nothing_fails_only_where_congestion_is_expected(a_result):
    idle = a_result("forgive-reduce", forgiven=0)
    assert "nothing was forgiven" in lines_of(idle)[0]
    assert lines_of(idle, congested=False) == []


def test_ranks_may_differ_only_where_all_gather_bytes_may_be_lost(a_result):
    for policy, count in (("forgive-reduce", 1), ("forgive-all", 0)):
        result = a_result(policy)
        result.ranks_identical = False
        assert len(lines_of(result)) == count


def test_steps_that_do_not_add_up_are_a_failure(a_result):
    assert "add up to 400" in lines_of(a_result(forgiven_bytes=401))[0]


def test_what_a_run_complained_about_reaches_the_list_of_failures(a_result):
    result = a_result()
    result.faults.append("the switch counted 3 header_dropped")
    assert lines_of(result) == ["direct forgive-all: the switch counted 3 header_dropped"]
