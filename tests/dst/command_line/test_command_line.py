# SPDX-License-Identifier: Apache-2.0
# forgive_dst as its user meets it: the same result with any number of jobs, and one clear line for what it cannot do.
import os
import subprocess

import pytest

DST = os.environ["FORGIVE_DST"]


def run(*arguments):
    return subprocess.run([DST, *arguments], capture_output=True, text=True, check=False)


def test_the_result_is_the_same_whatever_the_jobs():
    one = run("--seed", "7", "--runs", "300", "--counts")
    three = run("--seed", "7", "--runs", "300", "--counts", "--jobs", "3")
    assert one.returncode == three.returncode == 0, one.stdout + one.stderr
    assert one.stdout == three.stdout
    assert "300 schedules" in one.stdout


def test_another_seed_is_another_schedule():
    assert run("--seed", "7", "--runs", "1").stdout != run("--seed", "8", "--runs", "1").stdout


def test_the_trace_of_a_schedule_tells_what_happened():
    done = run("--seed", "7", "--runs", "1", "--trace")
    assert done.returncode == 0
    assert "-> data" in done.stderr and "reports" in done.stderr


@pytest.mark.parametrize("arguments, says", [
    (["--seed", "x"], "--seed"),
    (["--seed", "-1"], "--seed"),
    (["--seed", ""], "--seed"),
    (["--runs", "0"], "--runs"),
    (["--seed", "18446744073709551615", "--runs", "2"], "--runs"),
    (["--jobs", "0"], "--jobs"),
    (["--jobs", "5000"], "--jobs"),
    (["--world", "huge"], "--world"),
    (["--replay", "/nonexistent"], "--replay"),
    (["--replay", DST, "--seed", "1"], "--replay"),
    (["--speed", "1"], "--speed"),
])
def test_bad_options_get_one_line_and_exit_2(arguments, says):
    done = run(*arguments)
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr.startswith("forgive_dst: ") and says in done.stderr
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize("text, says", [("12 huge\n", ":1: "), ("# nothing\n", "no seed"), ("12\nx\n", ":2: ")])
def test_a_bad_file_of_seeds_is_named(tmp_path, text, says):
    seeds = tmp_path / "seeds.txt"
    seeds.write_text(text)
    done = run("--replay", str(seeds))
    assert done.returncode == 2
    assert str(seeds) in done.stderr and says in done.stderr and done.stderr.count("\n") == 1


def test_a_file_of_seeds_is_replayed(tmp_path):
    seeds = tmp_path / "seeds.txt"
    seeds.write_text("# two of them\n7\n3 large  # why\n")
    done = run("--replay", str(seeds))
    assert done.returncode == 0
    assert "2 schedules" in done.stdout
