# SPDX-License-Identifier: Apache-2.0
# The simulator's report on results made up here: its arithmetic, its page, its complaints.
import json
import os
import subprocess
import sys

import pytest

ROOT = os.path.realpath(os.path.join(os.path.dirname(__file__), "..", "..", ".."))
sys.path[:0] = [os.path.join(ROOT, "testbed", "simulator", "report_lib"), os.path.join(ROOT, "testbed", "page_lib")]

import results  # noqa: E402
import tables  # noqa: E402

REPORT = os.path.join(ROOT, "testbed", "simulator", "report")


def lines(policy, seed=1, training_us=1000.0, given_up=0, violations=0, scale=1):
    steps = [{"kind": "step", "step": number, "critical": number == 1, "start_us": 0, "step_us": training_us / 2,
              "dp_us": {"min": 1.0, "median": 2.0, "max": 3.0}, "tp_us": {"min": 1.0, "median": 2.0, "max": 3.0},
              "expected": 100, "budget": 10, "received": 90, "forgiven": given_up, "shed": 0, "contributions_lost": 0,
              "trims": 9, "trimmed_bytes_by_fifth": [70, 5, 5, 5, 10], "forgiven_bytes_by_fifth": [7, 0, 0, 0, 6],
              "invariant": True} for number in (1, 2)]
    summary = {"kind": "summary", "training_us": training_us, "data_packets": 10, "data_bytes": 1000,
               "gradient_bytes": 200, "gradient_bytes_given_up": 2 * given_up, "retransmitted_bytes": 50,
               "trim_rate": 0.03, "trims": 18, "trims_last_hop": 0, "marks": 4, "drops": 0,
               "rate_cuts": {"mark": 3, "trim": 1, "timeout": 0}, "notifications": 8 if policy == "tight" else 2,
               "timeouts": 2, "flag_changes_per_exempt_flow": 0.5, "exempt_flows": 4, "obeyed_again_share": 0.25,
               "obeyed_again_us_mean": 170.0, "dp_ms_median": {"critical": 2.0, "other": 1.0}, "tp_ms_median": 3.0,
               "events": 5, "conservation": True, "budget_violations": violations}
    run = {"kind": "run", "plan": f"worst-fabric/{policy}", "family": "worst-fabric", "policy": policy, "seed": seed,
           "scale": scale, "commit": "0123abc", "parameters": {}}
    return "".join(json.dumps(line) + "\n" for line in [run, *steps, summary])


@pytest.fixture
def folder(tmp_path):
    """Two policies, two seeds each: FORGIVE takes 20 % and 10 % less time than tight."""
    for policy, seed, time_us, given_up in (("tight", 1, 1000.0, 0), ("tight", 2, 2000.0, 0),
                                            ("forgive", 1, 800.0, 5), ("forgive", 2, 1800.0, 7)):
        (tmp_path / f"{policy}-{seed}.jsonl").write_text(lines(policy, seed, time_us, given_up))
    return tmp_path


def run_report(*words):
    return subprocess.run([REPORT, *map(str, words)], capture_output=True, text=True, check=False)


def test_training_time_is_compared_seed_by_seed(folder):
    policies = results.families(results.read(str(folder)))["worst-fabric"]
    assert results.change_of_training(policies, "forgive") == [pytest.approx(-0.2), pytest.approx(-0.1)]


def test_a_seed_that_only_one_policy_ran_is_not_compared(folder):
    (folder / "forgive-3.jsonl").write_text(lines("forgive", 3, 10.0))
    policies = results.families(results.read(str(folder)))["worst-fabric"]
    assert len(results.change_of_training(policies, "forgive")) == 2


def test_figures_are_computed_from_the_lines(folder):
    run = results.families(results.read(str(folder)))["worst-fabric"]["forgive"][0]
    assert results.derived(run, "mark_share") == 0.75
    assert results.derived(run, "given_up") == 0.05
    assert results.derived(run, "retransmitted") == 0.05
    assert results.derived(run, "trims_first_to_last_fifth") == 7
    assert results.derived(run, "forgiven_share_first_fifth") == 0.1
    assert results.derived(run, "forgiven_share_last_fifth") == 0.6
    assert results.derived(run, "dp_ms_median.other") == 1.0
    assert results.derived(run, "job2.rate") is None


def test_statements_stand_beside_the_specification(folder):
    policies = results.families(results.read(str(folder)))["worst-fabric"]
    rows = tables.statements(policies, [
        {"what": "notifications", "unit": "", "seed": [0.33, 0.33], "plan": "forgive", "key": "notifications",
         "against": "tight"},
        {"what": "not run", "unit": "", "seed": [1, 1], "plan": "up-front", "key": "timeouts"}])
    assert rows == [["notifications", "0.25", "0.33"]]


def test_the_page_holds_its_pictures_and_leaves_them_beside_itself(folder, tmp_path):
    page = tmp_path / "out" / "report.html"
    page.parent.mkdir()
    done = run_report(folder, "-o", page)
    assert done.returncode == 0, done.stderr
    text = page.read_text()
    assert text.count("<svg") == 4 and "http-equiv" not in text and "src=" not in text
    assert "-20.0..-10.0 %" in text and "-16.7..-16.1 %" in text
    pictures = sorted(os.listdir(tmp_path / "out" / "report-pictures"))
    assert pictures == ["worst-fabric-all-reduce.png", "worst-fabric-fifths.png", "worst-fabric-trade.png",
                        "worst-fabric-training.png"]
    assert "Loss budgets violated: 0." in done.stdout


def test_a_violated_budget_is_said_at_the_top(folder, tmp_path):
    (folder / "forgive-1.jsonl").write_text(lines("forgive", violations=3))
    done = run_report(folder, "-o", tmp_path / "report.html")
    assert "Loss budgets violated: 3." in done.stdout
    assert "Loss budgets violated: 3." in (tmp_path / "report.html").read_text()


def test_scaled_runs_say_so(folder, tmp_path):
    for name in os.listdir(folder):
        (folder / name).write_text(lines("tight", scale=0.1))
    assert "multiplied by 0.1" in run_report(folder, "-o", tmp_path / "r.html").stdout


@pytest.mark.parametrize("text, complaint", [
    ("{", "bad.jsonl:1: not JSON"),
    ("{}\n", "bad.jsonl:1: not a line of forgive_sim"),
    ('{"kind": "step"}\n', "bad.jsonl:1: a step before any run"),
    (lines("tight").rsplit("\n", 2)[0] + "\n", "did not end; run it again"),
])
def test_a_file_that_is_not_a_finished_run_is_named(folder, tmp_path, text, complaint):
    (folder / "bad.jsonl").write_text(text)
    done = run_report(folder, "-o", tmp_path / "report.html")
    assert done.returncode == 1 and complaint in done.stderr and done.stderr.count("\n") == 1
    assert not (tmp_path / "report.html").exists()


def test_an_empty_or_missing_folder_says_how_to_fill_it(tmp_path):
    for folder in (tmp_path, tmp_path / "none"):
        done = run_report(folder)
        assert done.returncode == 1 and "forgive_sim sweep" in done.stderr and done.stderr.count("\n") == 1


def test_a_page_that_cannot_be_written_is_named(folder):
    done = run_report(folder, "-o", "/proc/none/report.html")
    assert done.returncode == 1 and "/proc/none" in done.stderr and done.stderr.count("\n") == 1
