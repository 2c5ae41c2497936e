# SPDX-License-Identifier: Apache-2.0
"""testbed/train: the plugin changes no bit at p = 0, losses stay within budget, a lost rank ends all, restarts."""
import csv
import fcntl
import importlib.util
import json
import os
import pathlib
import resource
import subprocess
import sys

import pytest

SOURCE = pathlib.Path(os.environ["FORGIVE_SOURCE"])
BUILD = os.environ["FORGIVE_BUILD"]
# Looked for, not loaded: that takes seconds, and only the ranks need it.
if importlib.util.find_spec("torch") is None:
    pytest.skip("PyTorch is not installed (apt-get install python3-torch)", allow_module_level=True)


def train(output, *words, timeout=250, before=None):
    words = ["--build", BUILD, "--output", output, "--python", sys.executable, *map(str, words)]
    return subprocess.run([SOURCE / "testbed" / "train", *words], capture_output=True, text=True, timeout=timeout,
                          check=False, preexec_fn=before)


def one_line(done):
    assert done.returncode == 1 and done.stderr.count("\n") == 1, done.stdout + done.stderr
    return done.stderr


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


FOUR_STEPS = ("--local", "--ranks", 2, "--policy", "gloo", "--steps", 4)


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """A run that has ended, with checkpoints."""
    output = tmp_path_factory.mktemp("saved")
    done = train(output, *FOUR_STEPS, "--checkpoint-every", 2)
    assert done.returncode == 0, done.stdout + done.stderr
    return output


@pytest.mark.parametrize("words, complaint", [
    (["--seed", 2], "gloo has seed 1, not 2"), (["--ranks", 3], "gloo has ranks 2, not 3"),
    (["--model", "transformer"], "gloo has model cnn, not transformer"), (["--window", 3], "gloo has detector")])
def test_a_run_does_not_go_on_from_another_ones_checkpoints(saved, words, complaint):
    before = {path: path.read_bytes() for path in sorted((saved / "gloo").iterdir()) if path.is_file()}
    assert complaint in one_line(train(saved, *FOUR_STEPS, "--resume", *words))
    assert {path: path.read_bytes() for path in sorted((saved / "gloo").iterdir()) if path.is_file()} == before


def test_a_run_goes_on_behind_a_line_that_was_cut_short(saved):
    with open(saved / "gloo" / "steps1.jsonl", "a", encoding="utf-8") as file:
        file.write('{"step": 3, "seco')
    done = train(saved, *FOUR_STEPS, "--resume")
    assert done.returncode == 0, done.stdout + done.stderr
    assert [row["step"] for row in found(saved)["gloo"]["steps"]] == [1, 2, 3, 4]


def test_a_damaged_checkpoint_is_named(saved):
    path = saved / "gloo" / "checkpoints" / "step4.rank1.pt"
    content = path.read_bytes()
    path.write_bytes(content[:1000])
    assert f"{path}: not a checkpoint" in one_line(train(saved, *FOUR_STEPS, "--resume"))
    path.write_bytes(content)


def test_a_folder_that_is_not_of_a_training_is_left_alone(tmp_path):
    (tmp_path / "gloo").mkdir()
    (tmp_path / "gloo" / "thesis").write_text("mine", encoding="utf-8")
    assert "gloo is not of a training" in one_line(train(tmp_path, *FOUR_STEPS))
    assert [path.name for path in (tmp_path / "gloo").iterdir()] == ["thesis"]


def test_two_trainings_do_not_write_to_one_folder(tmp_path):
    descriptor = os.open(tmp_path, os.O_RDONLY)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    assert f"another training writes to {tmp_path}" in one_line(train(tmp_path, *FOUR_STEPS))
    os.close(descriptor)


def test_where_results_cannot_be_written_the_file_is_named_and_no_half_one_is_left(tmp_path):
    (tmp_path / "file").write_text("", encoding="utf-8")
    assert "file: File exists: name another folder by --output" in one_line(train(tmp_path / "file", *FOUR_STEPS))
    # A disk that is full in the middle of a checkpoint.
    done = train(tmp_path / "full", *FOUR_STEPS, "--checkpoint-every", 2,
                 before=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (100000, 100000)))
    assert "step2.rank" in one_line(done) and "File too large" in done.stderr
    assert not list((tmp_path / "full").glob("**/*.new")) and not list((tmp_path / "full").glob("**/*.pt"))


def test_a_rank_that_ends_by_what_nobody_foresaw_is_shown_with_its_last_word(tmp_path):
    text = (SOURCE / "testbed" / "train.toml").read_text(encoding="utf-8")
    (tmp_path / "odd.toml").write_text(text.replace("rate = 0.05", 'rate = "fast"'), encoding="utf-8")
    said = one_line(train(tmp_path / "out", *FOUR_STEPS, "--config", tmp_path / "odd.toml"))
    assert "TypeError: " in said and "rank0.log" in said and "not done within" not in said


@pytest.mark.parametrize("words, complaint", [
    (["--local", "--policy", "tcp,gloo,tcp"], "--policy: tcp is there twice"),
    (["--local", "--ranks", "1", "--policy", "gloo,plain"], "--ranks 1: an all-reduce has at least 2"),
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
