# SPDX-License-Identifier: Apache-2.0
# A training-like job whose ranks run on hosts of a test, watched from outside while it runs.
import json
import os
import subprocess
import threading
import time

from conftest import BUILD

PERF = os.path.join(BUILD, "testbed", "perf", "forgive_perf")
PLUGIN = os.path.join(BUILD, "plugin", "libnccl-net-forgive.so")
SILENT = "the peer was silent for FORGIVE_PEER_TIMEOUT_S"


class Job:
    """Ranks of forgive_perf, of which rank 0 prints a line a step: they are read as they come."""

    def __init__(self, folder, name, ranks, words, start):
        """start(rank, words, **options) starts a rank on its host and returns its process; `name` tells jobs in the
        same folder apart."""
        self.result = os.path.join(folder, f"result{name}.json")
        words = [PERF, "--plugin", PLUGIN, *words, "--world", str(ranks), "--rendezvous",
                 f"unix:{os.path.join(folder, f'rendezvous{name}')}"]
        self.ranks = [start(rank, [*words, "--rank", str(rank), *(("--json", self.result) if rank == 0 else ())],
                            stderr=subprocess.PIPE) for rank in range(ranks)]
        self.step = 0
        self.said = []
        self.reader = threading.Thread(target=self._read, daemon=True)
        self.reader.start()

    def _read(self):
        for line in self.ranks[0].stdout:
            self.said.append(line)
            words = line.split()
            if words and words[0].isdigit():
                self.step = int(words[0])

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

    def steps_within(self, seconds):
        """How many steps end in this time, not counting those that were done before it and are only printed."""
        time.sleep(0.2)
        before = self.step
        time.sleep(seconds)
        return self.step - before

    def assert_stands_for(self, seconds):
        """Nothing gets through, so that at most one step ends: the one whose data had all arrived."""
        assert self.steps_within(seconds) <= 1, "the job went on: this proves nothing"
        assert self.ranks[0].poll() is None, "the job was over: this proves nothing"

    def end(self):
        """What all ranks said on standard error, and their exit statuses."""
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
