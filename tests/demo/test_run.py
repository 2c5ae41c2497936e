# SPDX-License-Identifier: Apache-2.0
# The demo itself, cut short: through the relay, through the lab where permitted, and interrupted.
import json
import os
import signal
import subprocess
import sys
import time

import pytest
from conftest import ROOT

BUILD = os.environ.get("FORGIVE_BUILD", os.path.join(ROOT, "build", "release"))
MAIN = os.path.join(ROOT, "testbed", "demo_lib", "main.py")
# Policies that need not forgive, so that nothing depends on how congested a short run is.
SHORT = ["--quick", "--steps", "2", "--only", "plain,exempt-only"]
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="the lab needs root")


def command(tmp_path, *options):
    return [sys.executable, "-B", MAIN, "--build", BUILD, "--output", str(tmp_path / "demo"), *options]


def run(tmp_path, *options):
    return subprocess.run(command(tmp_path, *options), capture_output=True, text=True, timeout=240, check=False)


def processes_of(tmp_path):
    """Processes that have this test's folder in their command line."""
    found = []
    for entry in os.listdir("/proc"):
        try:
            with open(f"/proc/{entry}/cmdline", "rb") as file:
                words = file.read()
        except OSError:
            continue
        if entry.isdigit() and int(entry) != os.getpid() and os.fsencode(str(tmp_path / "demo")) in words:
            found.append(words)
    return found


def check_output(tmp_path):
    with open(tmp_path / "demo" / "results.json", encoding="utf-8") as file:
        results = json.load(file)
    assert {"machine", "commit", "parameters", "variants", "light"} <= results.keys()
    assert {(row["algorithm"], row["name"]) for row in results["variants"]} == {
        (algorithm, name) for algorithm in ("direct", "ring") for name in ("plain", "exempt-only")}
    assert all(len(row["steps"]) == 2 and row["wrong"] == 0 for row in results["variants"] + results["light"])
    assert all(row["trims"] == row["switch_trims"] for row in results["variants"] + results["light"])
    assert results["failures"] == []
    assert (tmp_path / "demo" / "report.html").stat().st_size > 10000
    assert not (tmp_path / "demo" / "runs").exists()


def test_a_short_demo_through_the_relay_holds_what_must_hold(tmp_path):
    done = run(tmp_path, "--userspace", *SHORT)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "user-space relay" in done.stdout
    check_output(tmp_path)
    assert processes_of(tmp_path) == []


@needs_root
def test_a_short_demo_through_the_lab_holds_what_must_hold_and_leaves_no_namespace(tmp_path):
    tmp_path = tmp_path / "a f\u00f6lder"  # folders are named as people like
    done = run(tmp_path, *SHORT)
    assert done.returncode == 0, done.stdout + done.stderr
    check_output(tmp_path)
    assert not [name for name in os.listdir("/run/netns") if name.startswith("fgv-demo-")]
    assert processes_of(tmp_path) == []


@pytest.mark.parametrize("lines_before", [1, 3])
def test_an_interrupted_demo_leaves_nothing_running_and_a_second_interrupt_does_no_harm(tmp_path, lines_before):
    process = subprocess.Popen(command(tmp_path, "--userspace", *SHORT), stdout=subprocess.PIPE,
                               stderr=subprocess.PIPE, text=True)
    for _ in range(lines_before):
        assert process.stdout.readline().startswith("[")
    time.sleep(0.3)  # into the next run
    process.send_signal(signal.SIGINT)
    process.send_signal(signal.SIGTERM)
    _, errors = process.communicate(timeout=60)
    assert process.returncode in (128 + signal.SIGINT, 128 + signal.SIGTERM)
    assert errors.strip() == "demo: interrupted; nothing is left running"
    assert processes_of(tmp_path) == []


def test_a_missing_build_is_one_line_that_says_what_to_do(tmp_path):
    done = subprocess.run([sys.executable, "-B", MAIN, "--userspace", "--build", str(tmp_path / "none"), "--output",
                           str(tmp_path / "demo")], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 1
    assert done.stderr.count("\n") == 1 and "testbed/setup" in done.stderr


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become somebody else")
def test_without_root_the_demo_names_both_ways_out(tmp_path):
    done = subprocess.run(command(tmp_path), capture_output=True, text=True, timeout=60, check=False, user=65534,
                          group=65534, extra_groups=[])
    assert done.returncode == 1
    assert done.stderr.count("\n") == 1 and "sudo" in done.stderr and "--userspace" in done.stderr


@pytest.mark.parametrize("options, named", [(["--steps", "0"], "--steps"), (["--only", "tpc"], "tpc"),
                                            (["--config", "/nowhere.toml"], "/nowhere.toml"), (["--fast"], "--fast")])
def test_bad_options_are_named_in_one_line(tmp_path, options, named):
    done = run(tmp_path, "--userspace", *options)
    assert done.returncode == 1
    assert done.stderr.count("\n") == 1 and named in done.stderr
