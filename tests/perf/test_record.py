# SPDX-License-Identifier: Apache-2.0
# The benchmark programs and testbed/perf/record: what they refuse, and what record makes of figures.
import json
import os
import subprocess

import pytest
from harness import PERF

BUILD = os.path.realpath(os.path.join(os.path.dirname(PERF), "..", ".."))
ROOT = os.path.realpath(os.path.join(os.path.dirname(__file__), "..", ".."))
RECORD = os.path.join(ROOT, "testbed", "perf", "record")


def run(*words):
    return subprocess.run(words, capture_output=True, text=True, timeout=120, check=False)


def program(name):
    path = os.path.join(os.path.dirname(PERF), name)
    if not os.path.exists(path):
        pytest.skip(f"{name} is not built")
    return path


def line(benchmark, commit, samples, **more):
    return {"benchmark": benchmark, "commit": commit, "unit": "ns", "median": sorted(samples)[len(samples) // 2],
            "samples": samples, "date": "2026-01-01T00:00:00+00:00", "machine": {"cpus": 2}, "command": "x", **more}


def file_of(tmp_path, *lines):
    path = tmp_path / "lines"
    path.write_text("".join(json.dumps(one) + "\n" for one in lines))
    return str(path)


@pytest.mark.parametrize("name, arguments, words", (
    ("engine_bench", ("--rounds", "0"), ("--rounds 0", "1 to 1000")),
    ("engine_bench", ("--queue", "3"), ("--queue", "64")),
    ("engine_bench", ("--window", "x"), ("--window", "x")),
    ("driver_bench", (), ("--driver",)),
    ("driver_bench", ("--driver", "rdma"), ("rdma", "uring")),
    ("driver_bench", ("--driver", "udp", "--network", "memif"), ("memif", "dpdk")),
    ("driver_bench", ("--driver", "udp", "--network", "null"), ("null", "dpdk")),
    ("driver_bench", ("--driver", "udp", "--seconds", "0"), ("--seconds 0",)),
    ("driver_bench", ("--driver", "udp", "--connections", "0"), ("--connections", "1024")),
    ("collective_bench", ("--driver", "rdma"), ("rdma", "uring")),
    ("collective_bench", ("--network", "memif"), ("memif", "dpdk")),
    ("collective_bench", ("--driver", "dpdk", "--network", "null"), ("null", "veth", "memif")),
    ("collective_bench", ("--rounds", "0"), ("--rounds 0", "1 to 1000")),
))
def test_a_bench_refuses_what_makes_no_sense_in_one_line(name, arguments, words):
    done = run(program(name), *arguments)
    assert done.returncode == 2, done.stdout
    assert done.stderr.count("\n") == 1 and done.stderr.startswith(f"{name}: ")
    for word in words:
        assert word in done.stderr


@pytest.mark.parametrize("arguments, words", (
    (("--rounds", "0"), ("--rounds", "1")),
    (("--only", "core,rdma"), ("rdma", "memif")),
    (("--build", "/no/such"), ("/no/such", "testbed/setup")),
    (("-o", "/no/such/file", "--only", "core"), ("/no/such/file",)),
    (("--compare", "aaaa", "bbbb"), ("aaaa", "-o")),
    (("--plot", "x.png"), ("-o",)),
))
def test_record_refuses_what_makes_no_sense_in_one_line(arguments, words):
    done = run(RECORD, *arguments)
    assert done.returncode == 1, done.stdout
    assert done.stderr.count("\n") == 1 and done.stderr.startswith("record: "), done.stderr
    for word in words:
        assert word in done.stderr


def test_engine_bench_moves_bytes_and_names_its_ceiling(tmp_path):
    path = tmp_path / "figures"
    done = run(program("engine_bench"), "--rounds", "1", "--seconds", "0.1", "--json", str(path))
    assert done.returncode == 0, done.stderr
    found = json.loads(path.read_text())
    assert found["figures"]["engine"]["median"] > 0
    engine, ceiling = (found["figures"][name]["samples"][0] for name in ("engine", "ceiling"))
    assert found["ratios"]["engine/ceiling"] == pytest.approx(engine / ceiling)


def needs_root_and_plugin():
    if os.geteuid() != 0:
        pytest.skip("namespaces need root")
    if not os.path.exists(os.path.join(BUILD, "plugin", "libnccl-net-forgive.so")):
        pytest.skip("the plugin is not built")


def test_collective_bench_reduces_over_a_wire_beside_both_baselines(tmp_path):
    needs_root_and_plugin()
    path = tmp_path / "figures"
    done = run(program("collective_bench"), "--rounds", "1", "--json", str(path))
    assert done.returncode == 0, done.stderr
    found = json.loads(path.read_text())
    assert set(found["figures"]) == {f"{name} {size}" for name in ("tcp", "tcp-threaded", "forgive")
                                     for size in ("64M", "1K")}
    tcp, forgive = (found["figures"][f"{name} 1K"]["samples"][0] for name in ("tcp-threaded", "forgive"))
    assert found["ratios"]["tcp-threaded/forgive 1K"] == pytest.approx(tcp / forgive)


def test_collective_bench_says_in_one_line_what_a_rank_said(tmp_path):
    needs_root_and_plugin()
    done = run(program("collective_bench"), "--rounds", "1", "--plugin", str(tmp_path / "no.so"))
    assert done.returncode == 3, done.stdout
    assert done.stderr.count("\n") == 1 and "no.so" in done.stderr, done.stderr


def test_record_compares_two_commits_by_their_newest_lines(tmp_path):
    path = file_of(tmp_path, line("core BM_Ack", "aaaa1", [900]), line("core BM_Ack", "aaaa1", [100]),
                   line("core BM_Ack", "bbbb2", [50]), line("core BM_New", "bbbb2", [1]))
    done = run(RECORD, "--compare", "aaaa", "bbbb", "-o", path)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[1].split() == ["core", "BM_Ack", "ns", "100.0", "50", "0.500"]
    assert "BM_New" not in done.stdout


def test_record_pairs_the_rounds_of_what_ran_in_turns(tmp_path):
    # The medians' ratio would be 2; within each round it is 0.5, 0.5 and 4.
    path = file_of(tmp_path, line("a b", "aaaa", [10, 20, 10], turns="t"),
                   line("a b", "bbbb", [5, 10, 40], turns="t"))
    done = run(RECORD, "--compare", "aaaa", "bbbb", "-o", path)
    assert done.stdout.splitlines()[1].split()[-1] == "0.500"


# A program of a build: it notes its words and its driver, and measures what FIGURES says of it.
STAND_IN = """#!/usr/bin/python3
import json, os, sys
place = os.path.dirname(os.path.realpath(__file__))
words = sys.argv[1:]
name = os.path.basename(__file__)
driver = words[words.index("--driver") + 1] if "--driver" in words else os.environ["FORGIVE_DRIVER"]
with open(os.path.join(place, "calls"), "a") as file:
    size = words[words.index("-b") + 1] if "-b" in words else "wire"
    print(driver, size, os.environ.get("FORGIVE_CC", "-"), file=file)
slow = 3 if driver == "uring" else 1
if name == "forgive_perf":
    sum(range(400000))  # processor time
    figures = [{"time_us": slow * (1000 if size == "64M" else 10)}]
else:
    figures = {"figures": {each: {"unit": "Gbit/s", "median": 30 / slow, "samples": [30 / slow]}
                           for each in ("engine", "many", "many a CPU", "raw")}}
with open(words[words.index("--json") + 1], "w") as file:
    json.dump(figures, file)
"""


TURNS = [("udp", "uring"), ("uring", "udp"), ("udp", "uring")]  # of three rounds


def stand_in_build(folder):
    """A build folder of stand-ins."""
    programs = folder / "testbed" / "perf"
    programs.mkdir(parents=True)
    for name in ("forgive_perf", "driver_bench"):
        (programs / name).write_text(STAND_IN)
        (programs / name).chmod(0o755)
    (folder / "CMakeCache.txt").write_text("CMAKE_BUILD_TYPE:STRING=Release\n")
    return folder


def calls_of(build):
    return (build / "testbed" / "perf" / "calls").read_text().splitlines()


def test_record_measures_both_kernel_drivers_in_turns_that_alternate(tmp_path):
    build = stand_in_build(tmp_path / "build")
    path = tmp_path / "lines"
    done = run(RECORD, "--build", str(build), "--only", "drivers", "--rounds", "3", "-o", str(path))
    assert done.returncode == 0, done.stderr
    each = ("64M none", "1K none", "wire -")
    assert calls_of(build) == [f"{driver} {what}" for turn in TURNS for driver in turn for what in each]
    found = {one["benchmark"]: one for one in map(json.loads, path.read_text().splitlines())}
    figures = ("64M", "64M processor", "1K", "1K processor", "engine", "many", "many a CPU")
    assert set(found) == {f"drivers {driver} {figure}" for driver in ("udp", "uring") for figure in figures}
    assert found["drivers uring 64M"]["samples"] == [3000, 3000, 3000]
    assert found["drivers uring 64M"]["ratios"] == {"uring/udp 64M": 3}
    assert found["drivers uring many a CPU"]["ratios"] == {"uring/udp many a CPU": pytest.approx(1 / 3)}
    assert all(0 < spent < 100 for spent in found["drivers udp 1K processor"]["samples"])


def test_record_alternates_the_kernel_drivers_of_each_of_two_builds(tmp_path):
    builds = [stand_in_build(tmp_path / name) for name in "AB"]
    done = run(RECORD, "--compare", *map(str, builds), "--only", "drivers", "--rounds", "3")
    assert done.returncode == 0, done.stderr
    for build in builds:
        assert [call.split()[0] for call in calls_of(build)[::3]] == [driver for turn in TURNS for driver in turn]


def test_record_says_which_commits_the_file_has(tmp_path):
    done = run(RECORD, "--compare", "cccc", "aaaa", "-o", file_of(tmp_path, line("a b", "aaaa", [1])))
    assert done.returncode == 1
    assert "cccc" in done.stderr and "aaaa" in done.stderr


def test_record_draws_the_ratios_of_the_newest_commit(tmp_path):
    pytest.importorskip("matplotlib")
    path = file_of(tmp_path, line("udp engine", "aaaa", [1.0], ratios={"engine/raw": 0.5}, least={"engine/raw": 0.7}))
    picture = tmp_path / "ratios.png"
    done = run(RECORD, "-o", path, "--plot", str(picture))
    assert done.returncode == 0, done.stderr
    assert picture.read_bytes().startswith(b"\x89PNG")
