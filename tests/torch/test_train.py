# SPDX-License-Identifier: Apache-2.0
"""testbed/train: the plugin changes no bit at p = 0, losses stay within budget, a lost rank ends all, restarts."""
import importlib.util
import json
import os
import pathlib
import subprocess

import pytest

SOURCE = pathlib.Path(os.environ["FORGIVE_SOURCE"])
BUILD = os.environ["FORGIVE_BUILD"]
# Looked for, not loaded: that takes seconds, and only the ranks need it.
if importlib.util.find_spec("torch") is None:
    pytest.skip("PyTorch is not installed (apt-get install python3-torch)", allow_module_level=True)


def train(output, *words, timeout=120):
    return subprocess.run([SOURCE / "testbed" / "train", "--build", BUILD, "--output", output, *map(str, words)],
                          capture_output=True, text=True, timeout=timeout, check=False)


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
    for name in ("learning.png", "losses.png"):
        assert (output / name).read_bytes().startswith(b"\x89PNG")


def test_a_lost_rank_ends_the_others_and_a_restart_at_p_zero_ends_as_sockets_do_bit_by_bit(tmp_path, local):
    words = ("--local", "--ranks", 2, "--fault", "trim=0.05", "--window", 1, "--steps", 6, "--policy", "plain",
             "--checkpoint-every", 2)
    killed = train(tmp_path, *words, "--die", "1:4")
    assert killed.returncode == 1, killed.stdout
    assert "rank 1: ended by signal 9" in killed.stderr and "rank 0: " in killed.stderr, killed.stderr
    assert killed.stderr.count("\n") == 1 and "Traceback" not in killed.stderr
    assert not (tmp_path / "results.json").exists()
    again = train(tmp_path, *words, "--resume")
    assert again.returncode == 0, again.stdout + again.stderr
    plain = found(tmp_path)["plain"]
    assert plain["forgiven"] == 0 and plain["stats"][0]["trims"] > 0
    assert plain["parameters"] == local[1]["tcp"]["parameters"]


@pytest.mark.parametrize("words, complaint", [
    (["--policy", "magic"], "--policy magic: give some of gloo, tcp"),
    (["--ranks", "2"], "--ranks and --fault go with --local"),
    (["--steps", "0"], "0: give a number from 1"),
    (["--local", "--config", "none.toml"], "none.toml: No such file"),
    (["--local", "--bursts", "x"], "--bursts goes with --policy masks"),
])
def test_what_makes_no_sense_is_said_in_one_line(tmp_path, words, complaint):
    done = train(tmp_path / "out", *words)
    assert done.returncode == 1 and complaint in done.stderr and done.stderr.count("\n") == 1
    assert not (tmp_path / "out").exists()
