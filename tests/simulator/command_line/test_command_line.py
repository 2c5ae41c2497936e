# SPDX-License-Identifier: Apache-2.0
# forgive_sim as its user meets it: errors that name the way out, files that are whole or not there, sweeps that go on.
import csv
import json
import os
import shutil
import signal
import subprocess
import threading
import time

import pytest

SIM = os.environ["FORGIVE_SIM"]

BASE = """
about = "small"
seeds = [1, 2]
[fabric]
leaves = 4
hosts_per_leaf = 2
spines = 1
data_queue_bytes = 65536
ecn_min_bytes = 16384
ecn_max_bytes = 49152
[workload]
ranks_per_leaf = 2
tp = 2
dp = 4
steps = 3
critical_steps = [1]
compute_us = 100
tp_bytes = 262144
tp_streams = 2
dp_bytes = 2000000
dp_streams = 2
fan_in = 3
burst_step = 1
[variants.none]
about = "nothing given up"
policy.rule = "none"
[variants.forgive]
about = "the protocol"
policy.rule = "forgive"
"""


@pytest.fixture
def plans(tmp_path):
    folder = tmp_path / "plans"
    folder.mkdir()
    (folder / "small.toml").write_text(BASE)
    return folder


def run(*words, plans=None, timeout=120, wrapper=()):
    command = [*wrapper, SIM, *map(str, words)] + (["--plans", str(plans)] if plans else [])
    return subprocess.run(command, capture_output=True, text=True, timeout=timeout)


def files(folder):
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def test_list_names_every_plan(plans):
    result = run("list", plans=plans)
    assert result.returncode == 0
    assert "small/none" in result.stdout and "small/forgive" in result.stdout


def test_show_says_what_is_allowed(plans):
    result = run("show", "small/forgive", plans=plans)
    assert result.returncode == 0
    assert "policy.p_high" in result.stdout and "fraction from 0 to 1" in result.stdout


def test_a_run_writes_its_lines_once_it_is_whole(plans, tmp_path):
    out = tmp_path / "run.jsonl"
    result = run("run", "small/forgive", "--seed", 2, "--set", "p_high=0.05", "--json", out, plans=plans)
    assert result.returncode == 0, result.stderr
    lines = [json.loads(line) for line in out.read_text().splitlines()]
    assert [line["kind"] for line in lines] == ["run", "step", "step", "step", "summary"]
    assert lines[0]["parameters"]["policy.p_high"] == 0.05 and lines[0]["seed"] == 2
    assert list(tmp_path.glob("*.partial")) == []


def test_the_ledger_has_a_line_for_each_byte_that_the_results_call_forgiven(plans, tmp_path):
    results, ledger = tmp_path / "results.jsonl", tmp_path / "ledger.csv"
    done = run("run", "small/forgive", "--json", results, "--ledger", ledger, "--quiet", plans=plans)
    assert done.returncode == 0, done.stderr
    forgiven = {line["step"]: line["forgiven"] for line in map(json.loads, results.read_text().splitlines())
                if line["kind"] == "step"}
    rows = list(csv.DictReader(ledger.open()))
    assert sum(forgiven.values()) > 0
    for step, bytes_ in forgiven.items():
        assert sum(int(row["length"]) for row in rows if int(row["step"]) == step) == bytes_
    places = [(row["connection_id"], row["message"], row["offset"]) for row in rows]
    assert len(places) == len(set(places))  # a byte is forgiven once
    assert [int(row["time_ns"]) for row in rows] == sorted(int(row["time_ns"]) for row in rows)


def test_scale_is_said(plans):
    result = run("run", "small/none", "--scale", "0.5", plans=plans)
    assert json.loads(result.stdout.splitlines()[0])["scale"] == 0.5
    assert "scaled by 0.5" in result.stderr


@pytest.mark.parametrize("words, said", [
    (("run", "small/nothing"), "none"),
    (("run", "elsewhere/none"), "list"),
    (("run", "small/none", "--set", "p_hihg=1"), "p_hihg"),
    (("run", "small/none", "--set", "leaves=0"), "whole number from 1"),
    (("run", "small/none", "--set", "spines=2000"), "fabric.spines"),
    (("run", "small/none", "--set", "dp=64"), "128 ranks"),
    (("run", "small/none", "--scale", "0"), "--scale 0"),
    (("sweep", "small", "--jobs", "0", "--out", "x"), "--jobs"),
])
def test_a_mistake_is_one_line_and_nothing_is_written(plans, tmp_path, words, said):
    out = tmp_path / "out"
    words = [str(out) if word == "x" else word for word in words]
    json_words = ["--json", str(out)] if words[0] == "run" else []
    result = run(*words, *json_words, plans=plans)
    assert result.returncode == 2
    assert said in result.stderr
    assert result.stdout == "" and not out.exists()
    assert len(result.stderr.strip().splitlines()) <= 2


def test_a_bad_file_is_named_with_its_line(plans, tmp_path):
    (plans / "bad.toml").write_text("[policy]\np_low = 2\n")
    result = run("run", "bad", plans=plans)
    assert result.returncode == 2 and "bad.toml:2: policy.p_low = 2: allowed is" in result.stderr


@pytest.mark.parametrize("option", ["--json", "--ledger"])
def test_a_folder_that_is_not_there_is_no_place_for_results(plans, tmp_path, option):
    result = run("run", "small/none", option, tmp_path / "no" / "out", plans=plans)
    assert result.returncode == 2 and "cannot write there" in result.stderr


@pytest.mark.skipif(os.geteuid() == 0 and shutil.which("setpriv") is None, reason="root may write everywhere")
def test_in_a_folder_that_may_not_be_written_a_device_takes_results_and_a_file_does_not(plans, tmp_path):
    folder = tmp_path / "locked"
    folder.mkdir()
    (folder / "device").symlink_to("/dev/null")
    (folder / "file").write_text("before")
    folder.chmod(0o555)
    wrapper = ("setpriv", "--bounding-set=-dac_override", "--inh-caps=-dac_override") if os.geteuid() == 0 else ()
    device = run("run", "small/none", "--json", folder / "device", plans=plans, wrapper=wrapper)
    assert device.returncode == 0, device.stderr
    file = run("run", "small/none", "--json", folder / "file", plans=plans, wrapper=wrapper)
    assert file.returncode == 2 and "cannot write there" in file.stderr
    assert (folder / "file").read_text() == "before"


@pytest.mark.parametrize("option", ["--json", "--ledger"])
def test_a_pipe_gets_the_results_and_stays_a_pipe(plans, tmp_path, option):
    os.mkfifo(tmp_path / "pipe")
    got = []
    reader = threading.Thread(target=lambda: got.append((tmp_path / "pipe").read_text()), daemon=True)
    reader.start()
    result = run("run", "small/forgive", option, tmp_path / "pipe", plans=plans)
    reader.join(10)
    assert result.returncode == 0, result.stderr
    assert got and got[0].count("\n") > 1 and (tmp_path / "pipe").is_fifo()


def test_a_sweep_writes_the_same_bytes_with_any_number_of_jobs(plans, tmp_path):
    for jobs in (1, 3):
        result = run("sweep", "small", "--jobs", jobs, "--out", tmp_path / str(jobs), plans=plans)
        assert result.returncode == 0, result.stderr
    one, three = files(tmp_path / "1"), files(tmp_path / "3")
    assert set(one) == {f"small/{name}-seed{seed}.jsonl" for name in ("none", "forgive") for seed in (1, 2)}
    assert one == three


def test_an_interrupted_sweep_keeps_what_is_finished_and_goes_on(plans, tmp_path):
    out = tmp_path / "out"
    words = [SIM, "sweep", "small", "--jobs", "2", "--out", str(out), "--plans", str(plans), "--set", "steps=200",
             "--seeds", "1,2,3,4,5,6,7,8"]
    sweep = subprocess.Popen(words, stderr=subprocess.PIPE, text=True)
    deadline = time.monotonic() + 60
    while not list(out.rglob("*.jsonl")) and time.monotonic() < deadline:
        time.sleep(0.01)
    sweep.send_signal(signal.SIGINT)
    _, said = sweep.communicate(timeout=60)
    assert sweep.returncode == 130 and "goes on from there" in said
    before = files(out)
    assert 0 < len(before) < 16
    for content in before.values():
        assert json.loads(content.splitlines()[-1])["kind"] == "summary"
    result = subprocess.run(words, capture_output=True, text=True, timeout=300)
    assert result.returncode == 0, result.stderr
    assert f"{len(before)} of 16 runs are finished already" in result.stderr
    after = files(out)
    assert len(after) == 16 and all(after[name] == content for name, content in before.items())


def test_a_sweep_refuses_a_folder_with_other_parameters(plans, tmp_path):
    assert run("sweep", "small", "--seeds", 1, "--out", tmp_path / "o", plans=plans).returncode == 0
    result = run("sweep", "small", "--seeds", 1, "--out", tmp_path / "o", "--set", "p_high=0.2", plans=plans)
    assert result.returncode == 2 and "other parameters" in result.stderr


def test_emitted_jobs_are_commands_that_fill_the_folder(plans, tmp_path):
    jobs = tmp_path / "jobs.txt"
    out = tmp_path / "o"
    assert run("sweep", "small", "--out", out, "--emit-jobs", jobs, plans=plans).returncode == 0
    assert files(out) == {}
    lines = jobs.read_text().splitlines()
    assert len(lines) == 4
    assert subprocess.run(lines[0], shell=True, timeout=120).returncode == 0
    assert len(files(out)) == 1


@pytest.mark.parametrize("words, named", [
    (["run", "small/none", "--seed", "-1"], "--seed: -1"), (["run", "small/none", "--seed", ""], "--seed"),
    (["run", "small/none", "--seed", "99999999999999999999"], "--seed: 99999999999999999999"),
    (["run", "small/none", "--scale", "x"], "--scale: x"), (["run", "small/none", "--json", ""], "--json"),
    (["sweep", "small", "--out", ""], "--out"), (["sweep", "small", "--out", "o", "--seeds", "1,b"], "--seeds: b"),
    (["run"], "PLAN"), ([], "subcommand")])
def test_a_bad_word_is_one_line_that_names_it(plans, words, named):
    done = run(*words, plans=plans if words else None)
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1 and done.stderr.startswith("forgive_sim: ") and named in done.stderr


def test_a_list_that_cannot_be_written_is_one_line_and_a_failure(plans):
    with open("/dev/full", "w", encoding="ascii") as full:
        done = subprocess.run([SIM, "list", "--plans", str(plans)], stdout=full, stderr=subprocess.PIPE, text=True,
                              timeout=60, check=False)
    assert (done.returncode, done.stderr) == (1, "forgive_sim: standard output: No space left on device\n")
