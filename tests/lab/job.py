# SPDX-License-Identifier: Apache-2.0
# A training-like job whose ranks run on hosts of a test, watched from outside while it runs.
import fcntl
import json
import os
import subprocess
import threading
import time

from conftest import BUILD

PERF = os.path.join(BUILD, "testbed", "perf", "forgive_perf")
PLUGIN = os.path.join(BUILD, "plugin", "libnccl-net-forgive.so")
# The least pipe, and how many of rank 0's lines of 95 bytes it holds at most, with one that is being written.
PIPE_BYTES = 4096
HELD_STEPS = PIPE_BYTES // 95 + 1
SILENT = "the peer was silent for FORGIVE_PEER_TIMEOUT_S"


class Job:
    """Ranks of forgive_perf, of which rank 0 prints a line a step: they are read as they come."""

    def __init__(self, folder, name, ranks, words, start, hold_at=None):
        """start(rank, words, **options) starts a rank on its host and returns its process; `name` tells jobs in the
        same folder apart. After the step `hold_at` nothing is read until release(): at most HELD_STEPS later rank 0
        waits with its next line, so that a test that takes its time finds the job still running."""
        self.result = os.path.join(folder, f"result{name}.json")
        words = [PERF, "--plugin", PLUGIN, *words, "--world", str(ranks), "--rendezvous",
                 f"unix:{os.path.join(folder, f'rendezvous{name}')}"]
        self.ranks = [start(rank, [*words, "--rank", str(rank), *(("--json", self.result) if rank == 0 else ())],
                            stderr=subprocess.PIPE) for rank in range(ranks)]
        self.step = 0
        self.said = []
        self.hold_at, self.released = hold_at, threading.Event()
        fcntl.fcntl(self.ranks[0].stdout, fcntl.F_SETPIPE_SZ, PIPE_BYTES)
        self.reader = threading.Thread(target=self._read, daemon=True)
        self.reader.start()

    def _read(self):
        # Without a buffer: what is not asked for stays in the pipe.
        for line in open(self.ranks[0].stdout.fileno(), "rb", buffering=0, closefd=False):
            line = line.decode()
            self.said.append(line)
            words = line.split()
            if words and words[0].isdigit():
                self.step = int(words[0])
                if self.step == self.hold_at:
                    self.released.wait()

    def release(self):
        self.released.set()

    def _wait(self, until):
        while not until():
            assert self.ranks[0].poll() is None or until(), self.ranks[0].stderr.read()
            time.sleep(0.01)

    def wait_for_step(self, number):
        self._wait(lambda: self.step >= number)

    def wait_for_traffic(self):
        """The table's head is printed when connections stand."""
        self._wait(lambda: any("(elements)" in line or line.startswith("#        size") for line in self.said))
        time.sleep(0.5)

    def assert_stands_for(self, seconds):
        """Waits until no step has ended for so long: one whose data had all arrived may still end, and those that were
        done before may be read late."""
        self.release()
        limit, step, since = time.monotonic() + 30, self.step, time.monotonic()
        while time.monotonic() < since + seconds:
            assert self.ranks[0].poll() is None, "the job was over: this proves nothing"
            assert time.monotonic() < limit, "the job went on: this proves nothing"
            time.sleep(0.01)
            if self.step != step:
                step, since = self.step, time.monotonic()

    def assert_goes_on_for(self, steps):
        """Waits until more steps have ended than those that were done before and are only read now."""
        self.release()
        self.wait_for_step(self.step + HELD_STEPS + steps)

    def end(self):
        """What all ranks said on standard error, and their exit statuses."""
        self.release()
        self.reader.join(timeout=150)
        errors = [rank.communicate(timeout=30)[1] for rank in self.ranks]
        return errors, [rank.returncode for rank in self.ranks]

    def assert_ended_well(self):
        """Returns what rank 0 wrote of all of them."""
        errors, statuses = self.end()
        assert statuses == [0] * len(self.ranks), (errors, self.said)
        with open(self.result, encoding="utf-8") as file:
            return json.load(file)

    def assert_right(self):
        """No byte is wrong that was not forgiven."""
        result = self.assert_ended_well()
        assert (result["wrong"], result["budget_violations"], result["ranks_identical"]) == (0, 0, True)
        return result

    def assert_exact(self):
        result = self.assert_right()
        assert result["forgiven_bytes"] == 0
        assert all(step["received"] == step["expected"] for step in result["steps"])
        return result

    def assert_failed(self, words, ranks=None):
        """Each of these ranks, by default all, ended by itself, with exit status 3, and said why in the product's
        words."""
        errors, statuses = self.end()
        ranks = range(len(self.ranks)) if ranks is None else ranks
        for rank in ranks:
            assert statuses[rank] == 3, (statuses, errors)
        assert any(words in errors[rank] for rank in ranks), errors
