# SPDX-License-Identifier: Apache-2.0
# The nccl-tests configurations: the run script before a stand-in for nccl-tests, and the parser of its output.
import functools
import json
import os
import pathlib
import subprocess

import pytest

HERE = pathlib.Path(__file__).resolve().parent
CONFIGS = HERE.parent.parent / "nccl-tests-configs"
LIBRARY = os.environ["FORGIVE_PLUGIN"]
DOCTOR = os.environ.get("FORGIVE_DOCTOR", "")
# forgive_perf's, as its own test names them.
SIZE_KEYS = ["size", "count", "type", "time_us", "algbw_gbs", "busbw_gbs", "wrong", "forgiven_bytes",
             "contributions_lost"]
NAMES = ("socket", "lossless", "plain", "exempt-only", "forgive")
FROM_OUTSIDE = ("FORGIVE_", "NCCL_", "SLURM_", "STAND_IN")


def environment(own):
    kept = {name: value for name, value in os.environ.items() if not name.startswith(FROM_OUTSIDE)}
    return {**kept, **own}


def start(*command, stdin=None, **own):
    return subprocess.run([*map(str, command)], env=environment(own), input=stdin, capture_output=True, text=True,
                          timeout=60, check=False)


@pytest.fixture(name="tests")
def tests_folder(tmp_path):
    folder = tmp_path / "nccl-tests"
    folder.mkdir()
    for collective in ("all_reduce", "reduce_scatter"):
        (folder / f"{collective}_perf").symlink_to(HERE / "stand_in")
    return folder


@pytest.fixture(name="library")
def library_alone(tmp_path):
    """The library where no doctor lies beside it, which would refuse what is not built."""
    file = tmp_path / "lib" / "libnccl-net-forgive.so"
    file.parent.mkdir()
    file.symlink_to(LIBRARY)
    return file


def run(tests, output, *options, **own):
    return start(CONFIGS / "run", "--tests", tests, "--output", output, "--launcher", HERE / "launch", "--turns", 1,
                 "--begin", "1M", "--end", "4M", "--factor", 2, *options, **{"HEAD_START_S": "0.3", **own})


def parse(text, *options):
    return start(CONFIGS / "parse.py", "-", *options, stdin=text)


@functools.cache
def table(**own):
    return start(HERE / "stand_in", "-b", "1M", "-e", "4M", "-f", "2", "-c", own.pop("check", "1"), **own).stdout


# ---- The parser ----

def test_a_table_becomes_the_json_of_forgive_perf():
    made = parse(table())
    rows = json.loads(made.stdout)
    assert made.returncode == 0 and [list(row) for row in rows] == [SIZE_KEYS] * 3
    assert rows[0] == {"size": 1 << 20, "count": 1 << 18, "type": "float", "time_us": 104.86, "algbw_gbs": 10.0,
                       "busbw_gbs": 10.0, "wrong": 0, "forgiven_bytes": None, "contributions_lost": None}


def test_in_place_columns_are_their_own():
    assert json.loads(parse(table(), "--place", "in").stdout)[0]["busbw_gbs"] == 20.0
    refused = parse(table(STAND_IN="one-place"), "--place", "in")
    assert refused.returncode == 2 and "no in-place columns" in refused.stderr
    assert len(json.loads(parse(table(STAND_IN="one-place")).stdout)) == 3


def test_lines_of_nccl_between_the_rows_and_labels_before_them_do_not_matter():
    noisy = table(STAND_IN="noise")
    for label in ("[1,0]<stdout>:", "[1,0]<stdout>: ", "0: "):
        labelled = "".join(label + line + "\n" for line in noisy.splitlines())
        assert json.loads(parse(labelled).stdout) == json.loads(parse(table()).stdout)


def test_wrong_elements_are_counted_and_said_by_the_status():
    made = parse(table(STAND_IN="wrong"))
    assert made.returncode == 1 and [row["wrong"] for row in json.loads(made.stdout)] == [3, 3, 3]


def test_a_run_without_a_check_says_nothing_about_wrong_elements():
    made = parse(table(check="0"))
    assert made.returncode == 0 and [row["wrong"] for row in json.loads(made.stdout)] == [None] * 3


def test_a_log_that_was_cut_short_is_no_result(tmp_path):
    made = parse(table(STAND_IN="cut-short"), "--json", tmp_path / "x.json")
    assert made.returncode == 3 and "did not come to its end" in made.stderr and not list(tmp_path.iterdir())


@pytest.mark.parametrize("text, words", (
    ("# Avg bus bandwidth    : 1\n", "no line"),
    ("  1048576   262144   float   sum   1437.3   23.35   43.77  5e-07   1431.7   23.44   43.94  5e-07\n", "2.11"),
))
def test_what_is_no_table_is_refused(text, words):
    made = parse(text)
    assert made.returncode == 2 and words in made.stderr and len(made.stderr.splitlines()) == 1


def test_a_log_that_is_not_there_is_named():
    made = start(CONFIGS / "parse.py", "/no/such.log")
    assert made.returncode == 2 and made.stderr == "parse.py: /no/such.log: No such file or directory\n"


def statistics(folder, forgiven):
    files = []
    for rank, value in enumerate(forgiven):
        file = folder / f"rank{rank}.jsonl"
        lines = [{"type": "init"}, {"type": "final", "totals": {"forgiven_bytes": value, "contributions_lost": 2 * value}}]
        file.write_text("".join(json.dumps(line) + "\n" for line in lines))
        files.append(file)
    return files


def test_the_ranks_statistics_are_summed_and_belong_to_one_size(tmp_path):
    files = statistics(tmp_path, (100, 23))
    one = start(HERE / "stand_in", "-b", "1M", "-e", "1M", "-f", "2", "-c", "0").stdout
    row = json.loads(parse(one, "--statistics", *files).stdout)[0]
    assert (row["forgiven_bytes"], row["contributions_lost"]) == (123, 246)
    several = parse(table(), "--statistics", *files)
    assert json.loads(several.stdout)[0]["forgiven_bytes"] is None and "forgiven 123 B" in several.stderr


def test_a_statistics_file_without_an_end_is_refused(tmp_path):
    file = tmp_path / "rank0.jsonl"
    file.write_text('{"type": "init"}\n')
    made = parse(table(), "--statistics", file)
    assert made.returncode == 2 and "rank0.jsonl" in made.stderr


# ---- The run script ----

def test_every_configuration_has_its_turn_with_its_own_environment(tests, library, tmp_path):
    log, output = tmp_path / "log", tmp_path / "results"
    made = run(tests, output, "--hosts", "a,b,c", "--collective", "all_reduce", "--library", library,
               STAND_IN_LOG=str(log))
    assert made.returncode == 0, made.stderr
    assert sorted(file.name for file in output.glob("*.json")) == sorted(f"{name}.all_reduce.1.json" for name in NAMES)
    lines = [line for line in log.read_text().splitlines() if line.startswith("0 all_reduce_perf")]
    assert [("-c 0" in line, "NCCL_NET=forgive" in line, f"NCCL_NET_PLUGIN={library}" in line,
             "FORGIVE_RING_RANKS=3" in line) for line in lines] == [
                 (False, False, False, False), (False, True, True, False), (False, True, True, False),
                 (False, True, True, True), (True, True, True, True)]
    assert "NCCL_NET=Socket" in lines[0] and "@" not in log.read_text()
    assert len(log.read_text().splitlines()) == 3 * len(NAMES)


def test_collectives_and_configurations_take_turns(tests, library, tmp_path):
    made = run(tests, tmp_path / "results", "--hosts", "a,b", "--ranks-per-host", 4, "--library", library, "--dry-run",
               "--config", "socket,plain", "--turns", 2)
    lines = made.stdout.splitlines()
    assert [("NCCL_NET=Socket" in line, "all_reduce_perf" in line) for line in lines] == 2 * [
        (True, True), (False, True), (True, False), (False, False)]
    assert all(" -np 8 --host a:4\\,b:4 " in line for line in lines)


def test_slurms_words_are_used_inside_an_allocation(tests, library, tmp_path):
    made = run(tests, tmp_path / "results", "--slurm", "--hosts", "a,b", "--library", library, "--dry-run",
               "--config", "plain", "--collective", "all_reduce")
    assert made.returncode == 0 and made.stdout.count("\n") == 1
    assert "--overlap --nodelist=a\\,b --nodes=2 --ntasks=2 --ntasks-per-node=1 env NCCL_NET=forgive" in made.stdout


def test_slurm_without_an_allocation_is_refused(tests, tmp_path):
    made = run(tests, tmp_path / "results", "--slurm")
    assert made.returncode == 2 and "salloc" in made.stderr


def test_a_second_job_runs_beside_the_measured_one_and_ends_with_it(tests, tmp_path):
    log = tmp_path / "log"
    made = run(tests, tmp_path / "results", "--hosts", "a,b", "--congestion", "c,d", "--config", "socket",
               "--collective", "all_reduce", STAND_IN_LOG=str(log), STAND_IN_BESIDE="2")
    assert made.returncode == 0, made.stderr
    lines = log.read_text().splitlines()
    assert sum("-n 1000000" in line for line in lines) == 2 and len(lines) == 4
    listed = subprocess.run(["ps", "-eo", "args"], capture_output=True, text=True, check=True).stdout
    assert str(tests) not in listed


def test_a_second_job_that_ends_at_once_is_said(tests, tmp_path):
    (tests / "broken").mkdir()
    (tests / "broken" / "all_reduce_perf").symlink_to("/bin/false")
    made = run(tests / "broken", tmp_path / "results", "--hosts", "a,b", "--congestion", "c,d", "--config", "socket",
               "--collective", "all_reduce", HEAD_START_S="30")
    assert made.returncode == 3 and "the second job ended" in made.stderr


def test_wrong_elements_fail_where_nothing_is_forgiven(tests, library, tmp_path):
    options = ("--hosts", "a,b", "--library", library, "--collective", "all_reduce", "--check", 1)
    plain = run(tests, tmp_path / "plain", *options, "--config", "plain", STAND_IN="wrong")
    assert plain.returncode == 1
    exempt = run(tests, tmp_path / "exempt", *options, "--config", "exempt-only", STAND_IN="wrong")
    assert exempt.returncode == 1
    forgive = run(tests, tmp_path / "forgive", *options, "--config", "forgive", STAND_IN="wrong")
    assert forgive.returncode == 0 and "#wrong counts what was forgiven" in forgive.stdout


def test_a_run_that_dies_is_status_3_and_leaves_no_result(tests, tmp_path):
    made = run(tests, tmp_path / "results", "--hosts", "a,b", "--config", "socket", "--collective", "all_reduce",
               STAND_IN="cut-short")
    assert made.returncode == 3 and "Test NCCL failure" in made.stderr
    assert not list((tmp_path / "results").glob("*.json"))


@pytest.mark.parametrize("options, words", (
    (("--hosts", "a", "--config", "socket"), "one rank"),
    (("--hosts", "a,b", "--config", "calm"), "calm: no such configuration"),
    (("--hosts", "a,b", "--collective", "tree"), "tree_perf"),
    (("--hosts", "a,b", "--turns", "0"), "--turns 0"),
    (("--hosts", "a,b", "--begin", "1Q"), "--begin 1Q"),
    (("--hosts", "a,b", "--library", "/no/such.so", "--config", "plain"), "/no/such.so"),
    (("--hosts", "a,b", "--launcher", "nosuchrun"), "nosuchrun"),
    (("--hosts",), "--hosts needs a value"),
    (("--frobnicate",), "--frobnicate"),
    ((), "--hosts"),
))
def test_bad_input_is_named_before_anything_runs(tests, tmp_path, options, words):
    log = tmp_path / "log"
    made = run(tests, tmp_path / "results", *options, STAND_IN_LOG=str(log))
    assert made.returncode == 2 and words in made.stderr.splitlines()[-1]
    assert not log.exists()


# ---- The configurations, by the library's own word ----

def lines_of(name):
    text = (CONFIGS / f"{name}.env").read_text(encoding="utf-8")
    return dict(line.split("=", 1) for line in text.splitlines() if "=" in line and not line.startswith("#"))


@pytest.mark.skipif(not DOCTOR, reason="no forgive_doctor in this build")
@pytest.mark.parametrize("name", NAMES[1:])
def test_the_library_takes_every_setting(name):
    own = {key: value.replace("@library@", LIBRARY).replace("@ranks@", "4") for key, value in lines_of(name).items()}
    report = json.loads(start(DOCTOR, "--json", "--library", LIBRARY, **own).stdout)
    failures = [f for f in report["findings"] if f["section"] == "Start" and f["status"] == "fail"]
    assert failures == []
    assert not [f for f in report["findings"] if "no such variable" in f["text"]]


def test_the_configurations_differ_in_what_their_names_say():
    assert lines_of("socket")["NCCL_NET"] == "Socket"
    assert lines_of("lossless")["FORGIVE_TRIM"] == "0" and lines_of("plain")["FORGIVE_TRIM"] == "1"
    exempt, forgive = lines_of("exempt-only"), lines_of("forgive")
    assert exempt["FORGIVE_P"] == "0" and forgive["FORGIVE_P"] == "1"
    for name in ("FORGIVE_P_LOW", "FORGIVE_P_HIGH", "FORGIVE_STEP", "FORGIVE_GRADIENT_TRAFFIC", "FORGIVE_DETECTOR",
                 "FORGIVE_DETECTOR_STEPS", "NCCL_PROFILER_PLUGIN"):
        assert exempt[name] == forgive[name]
