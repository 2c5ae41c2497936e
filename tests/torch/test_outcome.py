# SPDX-License-Identifier: Apache-2.0
"""The checks of testbed/train see what they are for: made-up runs that break one rule each."""
import copy
import json
import os
import pathlib
import sys

import pytest

SOURCE = pathlib.Path(os.environ["FORGIVE_SOURCE"])
sys.path[:0] = [str(SOURCE / "testbed" / "train_lib"), str(SOURCE / "testbed" / "demo_lib")]

import outcome  # noqa: E402


def account(forgiven, received=1_000_000, p_ppm=100_000):
    return {"forgiven": forgiven, "received": received, "settled": received + forgiven, "p_ppm": p_ppm,
            "expected": 1_000_000, "budget": 100_000, "trims": 30, "contributions_lost": forgiven}


def ledger(step, forgiven):
    return {"bytes": {str(step): forgiven}, "contributions": {str(step): forgiven}}


def rank_lines(*accounts):
    lines = [{"step": step, "seconds": 0.1, "carried_s": 0.05, "loss": 1.0, "norm": 2.0, "critical": False,
              "parameters": f"{step:08x}", "account": each, "ledger": ledger(step, each["forgiven"])}
             for step, each in enumerate(accounts, 1)]
    lines[0]["fresh"] = True
    final = {"type": "final", "parameters": "x", "bad_norms": 0, "refused": [], "stats": {},
             "ledger": {"bytes": {}, "contributions": {}}}
    return lines + [final]


def failures(tmp_path, policy, *ranks):
    for rank, lines in enumerate(ranks):
        (tmp_path / f"steps{rank}.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines),
                                                     encoding="utf-8")
    return outcome.put_together(policy, str(tmp_path), len(ranks), 1.0)["failures"]


GOOD = rank_lines(account(0), account(90_000), account(50_000))


def changed(change):
    lines = copy.deepcopy(GOOD)
    change(lines)
    return lines


def test_a_run_in_which_all_holds_passes(tmp_path):
    assert failures(tmp_path, "forgive-reduce", GOOD, GOOD) == []


@pytest.mark.parametrize("lines, complaint", [
    # 110,000 are at most a tenth of what was received and forgiven, but step 1 brought only 1,000,000.
    (rank_lines(account(0), account(110_000)), "step 2: 110000 bytes forgiven, of 1000000 expected at p = 0.1"),
    (rank_lines(account(0), account(90_000, received=700_000)), "step 2: 90000 bytes forgiven after 700000 received"),
    (rank_lines(account(0), account(90_000, p_ppm=5000)), "expected at p = 0.005"),
    (changed(lambda lines: lines[1].update(ledger=ledger(2, 80_000) | {"contributions": {"2": 90_000}})),
     "step 2: the ledger has 80000 bytes, the account 90000"),
    (changed(lambda lines: lines[2]["ledger"]["contributions"].update({"3": 1})),
     "step 3: the ledger's contributions are not the account's"),
    (changed(lambda lines: lines[2]["ledger"]["bytes"].update({"2": 10})), "step 3: the ledger has lines of step 2"),
    (changed(lambda lines: lines[-1].update(ledger=ledger(3, 10))), "the ledger has lines after the last step"),
    (rank_lines(account(10), account(90_000)), "step 1: 10 bytes forgiven, of 0 expected"),
    # A restart: what the step before it brought is not known to the new process.
    (changed(lambda lines: lines[1].update(fresh=True)), "step 2: 90000 bytes forgiven, of 0 expected"),
    (changed(lambda lines: lines[-1].update(refused=[[2, "why"]])), "step 2 had no budget: why"),
    (changed(lambda lines: lines[1].update(parameters="other")), "the replicas differ from step 2 on"),
])
def test_what_does_not_hold_is_said_with_its_step(tmp_path, lines, complaint):
    found = failures(tmp_path, "forgive-reduce", GOOD, lines)
    assert any(complaint in line for line in found), found


def test_replicas_may_differ_only_where_final_values_may_be_lost(tmp_path):
    assert failures(tmp_path, "forgive-all", GOOD, changed(lambda lines: lines[1].update(parameters="other"))) == []


def test_nothing_may_be_forgiven_without_a_budget_for_it(tmp_path):
    assert any("bytes forgiven, where nothing may be" in line for line in failures(tmp_path, "plain", GOOD, GOOD))


def test_a_run_that_did_not_end_is_named(tmp_path):
    with pytest.raises(outcome.TrainError, match="steps1.jsonl: the run did not come to its end"):
        failures(tmp_path, "plain", GOOD, GOOD[:-1])
