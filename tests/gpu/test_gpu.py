# SPDX-License-Identifier: Apache-2.0
# What is prepared for a host with a GPU, before stand-ins for CUDA, NCCL and the library: it builds, and it judges.
import json
import os
import pathlib
import subprocess

import pytest

HERE = pathlib.Path(__file__).resolve().parent
HOME = os.environ["STAND_IN_HOME"]
PLUGIN = os.environ["STAND_IN_PLUGIN"]
FROM_OUTSIDE = ("FORGIVE_", "NCCL_", "CUDA_", "STAND_IN")


def environment(own):
    kept = {name: value for name, value in os.environ.items() if not name.startswith(FROM_OUTSIDE)}
    return {**kept, "CUDA_HOME": HOME, "NCCL_HOME": HOME, **own}


@pytest.fixture(name="place", scope="module")
def built_place(tmp_path_factory):
    """A folder with an nvidia-smi that sees a GPU; the first run builds the program into it."""
    folder = tmp_path_factory.mktemp("gpu")
    tool = folder / "nvidia-smi"
    tool.write_text("#!/bin/sh\necho 'GPU 0: a stand-in (UUID: GPU-0)'\n")
    tool.chmod(0o755)
    return folder


def run(place, *options, path=True, **own):
    if path:
        own["PATH"] = f"{place}:{os.environ['PATH']}"
    exchange = place / "exchange"
    exchange.mkdir(exist_ok=True)
    return subprocess.run([HERE / "run", "--build", place, "--library", PLUGIN, "--turns", "1", "--sizes", "65536",
                           *options], env=environment({"STAND_IN_FOLDER": str(exchange), **own}),
                          capture_output=True, text=True, timeout=120, check=False)


LOST = {"STAND_IN_LOST_0": "4096", "STAND_IN_LOST_1": "160"}


def test_a_run_whose_losses_are_all_in_the_ledger_passes(place):
    made = run(place, **LOST)
    assert made.returncode == 0, made.stdout + made.stderr
    assert "ok: 3 runs" in made.stdout
    row = next(line.split() for line in made.stdout.splitlines() if " forgive " in line)
    assert row[0] == "65536" and row[-1] == str(8 * (4096 + 160))


@pytest.mark.parametrize("lie", ("account", "ledger", "budget"))
def test_a_ledger_that_says_otherwise_fails(place, lie):
    made = run(place, STAND_IN_LIE=lie, **LOST)
    assert made.returncode == 1 and "in 8 steps the elements that lack a contribution" in made.stdout


def test_an_element_that_is_wrong_fails_under_every_transport(place):
    made = run(place, STAND_IN_WRONG="1", **LOST)
    assert made.returncode == 1
    for mode in ("socket", "plain", "forgive"):
        assert f"FAILED {mode}, 65536 bytes, rank 1: " in made.stdout
        assert f"FAILED {mode}, 65536 bytes: the two ranks ended with different bits" in made.stdout


def test_a_check_in_which_nothing_was_forgiven_fails(place):
    made = run(place)
    assert made.returncode == 1 and "has proved nothing" in made.stdout


def test_a_step_that_is_refused_ends_the_check_with_its_reason(place):
    made = run(place, STAND_IN_LIE="begin", **LOST)
    assert made.returncode == 3 and "forgive_step_begin: the stand-in refuses" in made.stderr


def test_a_device_that_cannot_be_used_is_said(place):
    made = run(place, STAND_IN_NO_DEVICE="1")
    assert made.returncode == 3 and "cudaSetDevice: the stand-in was told to fail" in made.stderr


def test_settings_of_the_caller_do_not_reach_the_runs(place):
    assert run(place, FORGIVE_GRADIENT_TRAFFIC="all", NCCL_NET_PLUGIN="/no/such.so", **LOST).returncode == 0


@pytest.mark.skipif(pathlib.Path("/proc/driver/nvidia/gpus").exists(), reason="this host has a GPU")
def test_without_a_gpu_it_says_so_and_what_it_would_do(tmp_path):
    made = run(tmp_path, path=False)
    assert made.returncode == 77
    assert "no NVIDIA GPU" in made.stdout and "exactly those of the ledger" in made.stdout
    assert (tmp_path / "all_reduce").exists()


@pytest.mark.parametrize("options, words", ((("--turns", "0"), "--turns 0"), (("--sizes", "1M"), "--sizes 1M"),
                                            (("--frobnicate",), "--frobnicate"), (("--turns",), "--turns needs"),
                                            (("--library", "/no/such.so"), "/no/such.so")))
def test_bad_input_is_named(place, options, words):
    made = run(place, *options)
    assert made.returncode == 2 and words in made.stderr.splitlines()[-1]


def test_a_file_that_is_no_result_is_refused(tmp_path):
    file = tmp_path / "results"
    for text in ("", "{}\n", json.dumps({"mode": "plain", "rank": 0, "size": 4}) + "\n"):
        file.write_text(text)
        made = subprocess.run([HERE / "summary.py", file], capture_output=True, text=True, check=False)
        assert made.returncode == 2 and len(made.stderr.splitlines()) == 1
