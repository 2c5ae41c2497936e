# SPDX-License-Identifier: Apache-2.0
# Reading: the parameter file, forgive_perf's results, the plugin's statistics.
import json

import parameters
import perf_output
import pytest
import schedule
import statistics_file
import traces
from errors import DemoError


def test_the_committed_parameters_are_whole_and_name_all_policies():
    loaded = parameters.load()
    assert loaded.steps == 20 and loaded.critical == [1, 2, 3, 20]
    assert set(loaded.policies) == set(parameters.POLICIES)


def test_quick_changes_only_how_much_is_run():
    usual, quick = parameters.load(), parameters.load(quick=True)
    assert quick.run["bytes"] < usual.run["bytes"] and quick.run["ranks"] == usual.run["ranks"]
    assert (quick.environment, quick.policies) == (usual.environment, usual.policies)


def test_policies_differ_in_the_loss_probabilities_and_in_nothing_else():
    loaded = parameters.load()
    allowed = {"FORGIVE_P_LOW", "FORGIVE_P_HIGH", "FORGIVE_P", "FORGIVE_ELIGIBLE"}
    assert all(set(variables) <= allowed for variables in loaded.policies.values())


def test_critical_steps_beyond_the_last_step_are_left_out():
    assert parameters.load(steps=2).critical == [1, 2]


def test_an_unknown_key_is_named(tmp_path):
    with open(parameters.FILE, encoding="utf-8") as file:
        text = file.read()
    path = tmp_path / "demo.toml"
    path.write_text(text.replace("turns = 2", "turns = 2\ntuns = 3", 1))
    with pytest.raises(DemoError, match="run.tuns"):
        parameters.load(str(path))


def perf_content():
    return {"steps": [{"step": 1, "critical": True, "allreduce_ms": 5.0, "expected": 100, "received": 90,
                       "forgiven": 10, "contributions_lost": 20}],
            "total_s": 1.5, "gradient_bytes": 100, "forgiven_bytes": 10, "retransmitted_bytes": 4, "sent_bytes": 200,
            "sent_exempt_bytes": 50, "trims": 2, "marks": 1, "rate_cuts": {"mark": 1, "trim": 2, "timeout": 3},
            "timeouts": 3, "exempt_share": 0.25, "wrong": 0, "budget_violations": 0, "ranks_identical": True,
            "per_rank": [{"signals_ignored": 2, "mode_changes": 1}, {"signals_ignored": 3, "mode_changes": 1}]}


RUN = schedule.Run("main", 1, "direct", "forgive-all")


def test_a_result_of_forgive_perf_is_read_whole():
    result = perf_output.to_result(RUN, perf_content(), {"trimmed": 2}, 1)
    assert result.counters["rate_cuts_timeout"] == 3
    assert result.counters["signals_ignored"] == 5
    assert result.counters["contributions_lost"] == 20
    assert result.counters["switch_trims"] == 2
    assert result.faults == []


def test_counters_that_tcp_has_not_are_zero():
    content = perf_content() | {name: None for name in ("retransmitted_bytes", "sent_bytes", "sent_exempt_bytes",
                                                        "trims", "marks", "timeouts", "exempt_share")}
    content |= {"rate_cuts": {"mark": None, "trim": None, "timeout": None}, "per_rank": []}
    assert perf_output.to_result(RUN, content, {}, 1).counters["marks"] == 0


def test_a_run_that_was_not_checked_is_refused():
    with pytest.raises(DemoError, match="did not check"):
        perf_output.to_result(RUN, perf_content() | {"wrong": None}, {}, 1)


def test_missing_steps_are_a_fault():
    assert perf_output.to_result(RUN, perf_content(), {"trimmed": 2}, 20).faults == ["1 steps instead of 20"]


def step_line(number, critical, forgiven, begin_ns):
    return {"type": "step", "step": number, "critical": critical, "p_ppm": 100000, "budget": 1000,
            "forgiven": forgiven, "begin_ns": begin_ns, "end_ns": begin_ns + 10_000_000, "totals": {"trims": number}}


def sample_line(step, time_ns, received, rate):
    return {"type": "sample", "time_ns": time_ns, "step": step, "open": True, "received": received,
            "forgiven": 50, "outstanding": 0, "budget": 1000, "exhausted": False,
            "connections": [{"id": "b", "sends": False, "rate_bps": 0, "exempt": False, "in_flight": 0},
                            {"id": "a", "sends": True, "rate_bps": rate, "exempt": True, "in_flight": 0}]}


def write_lines(tmp_path, lines):
    path = tmp_path / "statistics.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return str(path)


def example(tmp_path):
    lines = [{"type": "init", "driver": "udp"}]
    lines += [sample_line(4, 1_000_000 * i, 900 * i, 10 * i) for i in range(1, 6)]
    lines += [step_line(4, False, 50, 0), step_line(5, True, 90, 20_000_000),
              {"type": "final", "totals": {"trims": 9}}]
    return statistics_file.read(write_lines(tmp_path, lines))


def test_the_last_totals_of_a_statistics_file_count(tmp_path):
    assert example(tmp_path).totals == {"trims": 9}


def test_statistics_without_totals_or_with_half_a_line_are_refused(tmp_path):
    with pytest.raises(DemoError, match="no totals"):
        statistics_file.read(write_lines(tmp_path, [{"type": "init"}]))
    with pytest.raises(DemoError, match="line 1"):
        statistics_file.read(write_lines(tmp_path, [{"kind": "init"}]))


def test_the_vesting_plot_shows_a_step_that_is_not_critical_and_never_more_than_the_budget(tmp_path):
    vesting = traces.vesting_of("forgive-all", "direct", example(tmp_path))
    assert vesting.step == 4
    assert [round(point.vested) for point in vesting.vesting] == [100, 200, 300, 400, 500]
    assert all(point.vested <= vesting.budget for point in vesting.vesting)


def test_the_rate_plot_follows_one_sending_connection(tmp_path):
    flow = traces.flow_of("tight", "direct", example(tmp_path), 4, 4)
    assert [point.rate_bps for point in flow.points] == [10, 20, 30, 40, 50]
