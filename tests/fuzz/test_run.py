# SPDX-License-Identifier: Apache-2.0
"""Tests of tests/fuzz/run with a stand-in for libFuzzer: counting, stopping, replaying, keeping few inputs."""

import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import threading
import time
import unittest

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))

import fuzz_target  # noqa: E402
from fuzz_record import FAST, SANITIZED, Record  # noqa: E402
from fuzz_target import Runner, Target, executions_of  # noqa: E402

# Says what libFuzzer would: a hundred executions each time, or as many as are asked for. It fails where a found input
# is named "bad", waits where one is named "slow", and keeps the inputs that begin with "k".
STAND_IN = """#!/usr/bin/python3
import pathlib, signal, sys, time
options = dict(word[1:].split("=", 1) for word in sys.argv[1:] if word.startswith("-"))
folders = [pathlib.Path(word) for word in sys.argv[1:] if not word.startswith("-")]
if "merge" in options:
    for path in [path for folder in folders[1:] for path in folder.iterdir() if path.name.startswith("k")]:
        (folders[0] / path.name).write_bytes(path.read_bytes())
    sys.exit(0)
runs = min(100, int(options.get("runs", 100)))
def end(status):
    print(f"#{runs}\\tDONE   cov: 7 ft: 42 corp: 1/1b\\nstat::number_of_executed_units: {runs}", flush=True)
    sys.exit(status)
signal.signal(signal.SIGINT, lambda *_: end(72))
names = {path.name for path in folders[0].iterdir()}
if "slow" in names:
    (folders[0] / "started").touch()
    time.sleep(60)
if "bad" in names:
    pathlib.Path(options["artifact_prefix"] + "crash-1").touch()
    end(77)
end(0)
"""


# A cmake that builds until it is interrupted, and then fails as the real one does.
ENDLESS_CMAKE = """#!/bin/bash
trap 'echo "ninja: build stopped: interrupted by user."; exit 2' INT
touch "$(dirname "$0")/started"
for _ in $(seq 600); do sleep 0.1; done
"""


class Build(unittest.TestCase):
    """The whole program, which gets no further than to a stand-in for cmake."""

    def interrupted(self, number):
        with tempfile.TemporaryDirectory() as folder:
            for name in ("cmake", "clang++"):
                program = pathlib.Path(folder, name)
                program.write_text(ENDLESS_CMAKE, encoding="utf-8")
                program.chmod(0o755)
            path = f"{folder}:{os.environ['PATH']}"
            run = subprocess.Popen([sys.executable, HERE / "run", "--minutes", "1"], env=dict(os.environ, PATH=path),
                                   stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
            while not pathlib.Path(folder, "started").exists() and run.poll() is None:
                time.sleep(0.01)
            run.send_signal(number)
            return run.communicate(timeout=60)[1], run.returncode

    def test_an_interrupted_build_says_so_and_not_that_it_failed(self):
        for number in (signal.SIGINT, signal.SIGTERM):
            said, status = self.interrupted(number)
            self.assertEqual(said, "tests/fuzz/run: interrupted while it was building; nothing was fuzzed\n")
            self.assertEqual(status, 130)


class Run(unittest.TestCase):
    """One target in a folder of its own."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = pathlib.Path(folder.name)
        program = self.root / "stand_in"
        program.write_text(STAND_IN, encoding="utf-8")
        program.chmod(0o755)
        self.target = Target("wire", ["-max_len=9"], program)
        (self.root / "tests/fuzz/corpus/wire").mkdir(parents=True)
        self.stop = threading.Event()
        self.runner = Runner(self.root, "abc1234", self.stop)
        self.found = self.runner.found(self.target)

    def test_runs_until_the_count_is_reached_over_runs_and_no_further(self):
        self.assertEqual(self.runner.fuzz(self.target, FAST, None, 250), "")
        self.assertEqual(self.runner.record(self.target).executions(FAST), 250)
        self.runner.fuzz(self.target, FAST, None, 250)
        self.assertEqual(self.runner.record(self.target).executions(FAST), 250)
        self.runner.fuzz(self.target, FAST, None, 330)
        self.assertEqual(self.runner.record(self.target).executions(FAST), 330)

    def test_executions_with_and_without_sanitizers_are_counted_apart(self):
        self.runner.fuzz(self.target, FAST, None, 200)
        self.runner.fuzz(self.target, SANITIZED, None, 50)
        record = self.runner.record(self.target)
        self.assertEqual((record.executions(FAST), record.executions(SANITIZED), record.features()), (200, 50, 42))

    def test_a_record_names_the_first_and_the_last_commit(self):
        self.runner.fuzz(self.target, FAST, None, 10)
        Runner(self.root, "def5678", self.stop).fuzz(self.target, FAST, None, 20)
        self.assertEqual(self.runner.record(self.target).commits(), "abc1234..def5678")
        self.assertEqual([entry["executions"] for entry in self.runner.record(self.target).entries], [10, 10])

    def test_a_failing_input_is_named_ends_the_target_and_its_executions_count(self):
        (self.found / "bad").touch()
        failure = self.runner.fuzz(self.target, FAST, None, 1000)
        self.assertEqual(failure, str(self.root / "build/fuzz/failed/wire-crash-1"))
        self.assertEqual(self.runner.record(self.target).executions(FAST), 100)

    def test_a_replay_with_sanitizers_that_fails_names_the_input(self):
        (self.found / "bad").touch()
        self.assertTrue(self.runner.replay(self.target).endswith("wire-crash-1"))

    def test_a_program_that_fails_without_an_input_is_no_success(self):
        self.target.program.write_text("#!/bin/sh\nexit 3\n", encoding="utf-8")
        self.assertIn("exit status 3", self.runner.fuzz(self.target, FAST, 5, None))

    def test_what_ran_before_a_stop_is_counted_and_no_failure(self):
        (self.found / "slow").touch()

        def stop_once_started():
            while not (self.found / "started").exists() and not self.stop.wait(0.01):
                pass
            self.stop.set()
        stopper = threading.Thread(target=stop_once_started)
        stopper.start()
        self.assertEqual(self.runner.fuzz(self.target, FAST, None, 10**6), "")
        stopper.join()
        self.assertEqual(self.runner.record(self.target).executions(FAST), 100)

    def test_of_many_inputs_those_are_kept_that_reach_something_and_not_again_before_they_are_twice_as_many(self):
        for number in range(fuzz_target.FEW_INPUTS):
            (self.found / f"{'k' if number < 200 else 'd'}{number}").touch()
        self.runner.shrink(self.target)
        self.assertEqual(len(list(self.found.iterdir())), 200)
        for number in range(199):
            (self.found / f"e{number}").touch()
        self.runner.shrink(self.target)
        self.assertEqual(len(list(self.found.iterdir())), 399)
        (self.found / "e199").touch()
        self.runner.shrink(self.target)
        self.assertEqual(len(list(self.found.iterdir())), 200)

    def test_a_merge_that_fails_leaves_every_input(self):
        for number in range(fuzz_target.FEW_INPUTS):
            (self.found / f"k{number}").touch()
        self.target.program.write_text("#!/bin/sh\nexit 1\n", encoding="utf-8")
        self.runner.shrink(self.target)
        self.assertEqual([path.name for path in self.found.parent.iterdir()], ["wire"])
        self.assertEqual(len(list(self.found.iterdir())), fuzz_target.FEW_INPUTS)

    def test_a_log_that_was_cut_tells_the_last_count_in_it(self):
        log = "#2\tINITED cov: 5 ft: 6 corp: 1/1b\n#4096\tpulse  cov: 7 ft: 9 corp: 3/8b exec/s: 1\n"
        self.assertEqual(executions_of(log), (4096, 9))
        self.assertEqual(executions_of(""), (0, 0))

    def test_a_record_is_read_as_it_was_written(self):
        self.runner.fuzz(self.target, FAST, None, 10)
        path = self.root / "build/fuzz/found/wire.json"
        self.assertEqual(Record.load(path).entries, self.runner.record(self.target).entries)
        self.assertEqual(list(path.parent.glob("*.new")), [])


if __name__ == "__main__":
    unittest.main()
