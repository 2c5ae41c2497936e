# SPDX-License-Identifier: Apache-2.0
"""testbed/train: the plugin changes no bit at p = 0, losses stay within budget, a lost rank ends all, restarts."""
import csv
import importlib.util
import json
import os
import pathlib
import subprocess
import sys

import pytest

SOURCE = pathlib.Path(os.environ["FORGIVE_SOURCE"])
BUILD = os.environ["FORGIVE_BUILD"]
# Looked for, not loaded: that takes seconds, and only the ranks need it.
if importlib.util.find_spec("torch") is None:
    pytest.skip("PyTorch is not installed (apt-get install python3-torch)", allow_module_level=True)


def train(output, *words, timeout=250):
    words = ["--build", BUILD, "--output", output, "--python", sys.executable, *map(str, words)]
    return subprocess.run([SOURCE / "testbed" / "train", *words], capture_output=True, text=True, timeout=timeout,
                          check=False)


def found(output):
    return {run["policy"]: run for run in json.loads((output / "results.json").read_text(encoding="utf-8"))["runs"]}


@pytest.fixture(scope="module")
def local(tmp_path_factory):
    """Two ranks on loopback, every twentieth packet trimmed at the receiver."""
    output = tmp_path_factory.mktemp("local")
    done = train(output, "--local", "--ranks", 2, "--fault", "trim=0.05", "--window", 1, "--steps", 6,
                 "--policy", "tcp,forgive-reduce")
    assert done.returncode == 0, done.stdout + done.stderr
    return output, found(output), done.stdout


def test_what_is_forgiven_changes_the_training_but_not_one_replica_against_another(local):
    _, runs, _ = local
    run = runs["forgive-reduce"]
    assert run["identical"] and run["failures"] == []
    assert run["parameters"] != runs["tcp"]["parameters"]
    assert run["forgiven"] > 0 and run["contributions_lost"] == run["forgiven"]  # one sender's part each
    for row in run["steps"]:
        assert row["forgiven"] <= row["budget"] <= 0.1 * row["expected"]
    assert run["steps"][0]["critical"] == [True, True] and any(not row["critical"][0] for row in run["steps"])


def test_results_are_shown(local):
    output, _, said = local
    assert "forgive-reduce" in said and "identical" in said
    for name in ("learning.png", "losses.png", "divergence.png"):
        assert (output / name).read_bytes().startswith(b"\x89PNG")
    page = (output / "index.html").read_text(encoding="utf-8")
    assert page.count("<svg") == 3 and "src=" not in page and "forgive-reduce</td>" in page


def killed_and_resumed(output, words, die, ranks):
    """Runs until `die` (RANK:STEP), where a rank is killed within its step; then goes on. Returns the finished run."""
    killed = train(output, *words, "--die", die)
    lost = int(die.split(":")[0])
    assert killed.returncode == 1, killed.stdout
    assert killed.stderr.count("\n") == 1 and "Traceback" not in killed.stderr
    assert f"rank {lost}: ended by signal 9" in killed.stderr
    for rank in set(range(ranks)) - {lost}:  # each in its own words: it was not ended from outside
        assert f"rank {rank}: " in killed.stderr and f"rank {rank}: ended" not in killed.stderr, killed.stderr
    assert not (output / "results.json").exists()
    again = train(output, *words, "--resume")
    assert again.returncode == 0, again.stdout + again.stderr
    (run,) = found(output).values()
    assert run["failures"] == [] and [row["step"] for row in run["steps"]] == list(range(1, 7))
    return run


def test_after_a_kill_a_restart_at_p_zero_ends_as_sockets_do_bit_by_bit_with_the_same_decisions(tmp_path, local):
    plain = killed_and_resumed(tmp_path, ("--local", "--ranks", 2, "--fault", "trim=0.05", "--window", 1, "--steps", 6,
                                          "--policy", "plain", "--checkpoint-every", 2), "1:4", 2)
    tcp = local[1]["tcp"]
    assert plain["forgiven"] == 0 and plain["stats"][0]["trims"] > 0
    assert plain["parameters"] == tcp["parameters"]
    decisions = [row["critical"] for row in plain["steps"]]
    # The restarted detector had not to begin anew, which would have made steps 3 and 4 critical.
    assert decisions == [row["critical"] for row in tcp["steps"]] and [False, False] in decisions[2:4]


def test_after_a_kill_with_losses_every_rank_says_why_it_ended_and_budgets_hold_across_the_restart(tmp_path):
    run = killed_and_resumed(tmp_path, ("--local", "--ranks", 3, "--fault", "trim=0.05", "--window", 1, "--steps", 6,
                                        "--policy", "forgive-reduce", "--checkpoint-every", 3), "2:6", 3)
    assert run["identical"]
    before, after = ([row for row in run["steps"] if (row["step"] > 3) == late] for late in (False, True))
    assert sum(row["forgiven"] for row in before) > 0 and sum(row["forgiven"] for row in after) > 0
    assert after[0]["expected"] == 0 == after[0]["forgiven"]  # the first step of a process expects nothing
    lines = [line for rank in range(3) for line in csv.DictReader(
        (tmp_path / "forgive-reduce" / f"ledger{rank}.csv").read_text(encoding="ascii").splitlines())]
    for row in run["steps"]:  # the files have what both processes forgave, and the steps that were lost once only
        assert sum(int(line["length"]) for line in lines if int(line["step"]) == row["step"]) == row["forgiven"]


@pytest.mark.parametrize("words, complaint", [
    (["--policy", "magic"], "--policy magic: give some of gloo, tcp"),
    (["--ranks", "2"], "--ranks and --fault go with --local"),
    (["--steps", "0"], "0: give a number from 1"),
    (["--local", "--config", "none.toml"], "none.toml: No such file"),
    (["--local", "--bursts", "x"], "--bursts goes with --policy masks"),
    (["--local", "--python", "/none/python"], "--python /none/python: No such file"),
    (["--local", "--python", "/bin/false"], "--python /bin/false: it has no torch"),
])
def test_what_makes_no_sense_is_said_in_one_line(tmp_path, words, complaint):
    done = train(tmp_path / "out", *words)
    assert done.returncode == 1 and complaint in done.stderr and done.stderr.count("\n") == 1
    assert not (tmp_path / "out").exists()
