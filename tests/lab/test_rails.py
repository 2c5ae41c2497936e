# SPDX-License-Identifier: Apache-2.0
# Two rails between two hosts, each a device of the plugin: a rail that fails is that rail's matter only.
import contextlib
import json
import os
import subprocess
import threading
import time

import pytest
from conftest import BUILD, NAME
from processes import clean_environment

pytestmark = pytest.mark.usefixtures("nothing_left")

PERF = os.path.join(BUILD, "testbed", "perf", "forgive_perf")
PLUGIN = os.path.join(BUILD, "plugin", "libnccl-net-forgive.so")
HOSTS = (f"fgv-{NAME}-a", f"fgv-{NAME}-b")
SILENT = "the peer was silent for FORGIVE_PEER_TIMEOUT_S"


def ip(*words):
    subprocess.run(["ip", *words], check=True)


@contextlib.contextmanager
def two_rails():
    """Two hosts with the interfaces rail0 and rail1, each pair in a network of its own."""
    try:
        for host in HOSTS:
            ip("netns", "add", host)
            ip("-n", host, "link", "set", "lo", "up")
        for rail in ("rail0", "rail1"):
            ip("-n", HOSTS[0], "link", "add", rail, "mtu", "9000", "type", "veth",
               "peer", "name", rail, "mtu", "9000", "netns", HOSTS[1])
            for number, host in enumerate(HOSTS):
                ip("-n", host, "address", "add", f"10.78.{rail[-1]}.{number + 1}/24", "dev", rail)
                ip("-n", host, "link", "set", rail, "up")
        yield
    finally:
        for host in HOSTS:
            subprocess.run(["ip", "netns", "delete", host], check=False)


class RailJob:
    """A training-like job of both hosts over one rail, whose plugin has both."""

    def __init__(self, folder, rail, steps, **own):
        self.result = os.path.join(folder, f"result{rail}.json")
        environment = clean_environment(FORGIVE_INTERFACE="rail", NCCL_SOCKET_FAMILY="AF_INET",
                                        FORGIVE_GRADIENT_TRAFFIC="all", FORGIVE_RING_RANKS="2",
                                        FORGIVE_GRADIENT_RANKS="2", **own)
        self.ranks = []
        for rank, host in enumerate(HOSTS):
            words = ["ip", "netns", "exec", host, PERF, "--plugin", PLUGIN, "--device", str(rail), "--world", "2",
                     "--rank", str(rank), "--rendezvous", f"unix:{os.path.join(folder, f'rendezvous{rail}')}",
                     "--timeout", "30", "--steps", str(steps), "--compute-ms", "50", "--bytes", "1M"]
            words += ["--json", self.result] if rank == 0 else []
            self.ranks.append(subprocess.Popen(words, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                               text=True))
        self.step = 0
        self.said = []
        self.reader = threading.Thread(target=self._read)
        self.reader.start()

    def _read(self):
        """Rank 0 prints a line a step."""
        for line in self.ranks[0].stdout:
            self.said.append(line)
            words = line.split()
            if words and words[0].isdigit():
                self.step = int(words[0])

    def wait_for_step(self, number):
        while self.step < number:
            assert self.ranks[0].poll() is None, self.ranks[0].stderr.read()
            time.sleep(0.01)

    def end(self):
        """What the ranks said on standard error, and their exit statuses."""
        self.reader.join(timeout=90)
        errors = [rank.stderr.read() for rank in self.ranks]
        return errors, [rank.wait(timeout=30) for rank in self.ranks]

    def assert_exact(self):
        errors, statuses = self.end()
        assert statuses == [0, 0], errors
        with open(self.result, encoding="utf-8") as file:
            result = json.load(file)
        assert (result["wrong"], result["budget_violations"], result["forgiven_bytes"]) == (0, 0, 0)
        assert result["ranks_identical"]
        return result


def test_a_rail_that_is_down_for_two_seconds_stops_its_own_connections_only_and_both_end_exactly(tmp_path):
    with two_rails():
        jobs = [RailJob(tmp_path, rail, steps=80, FORGIVE_PEER_TIMEOUT_S="20") for rail in (0, 1)]
        for job in jobs:
            job.wait_for_step(3)
        ip("-n", HOSTS[0], "link", "set", "rail1", "down")
        time.sleep(0.2)  # what was done before is printed now
        before = [job.step for job in jobs]
        time.sleep(1.8)
        after = [job.step for job in jobs]
        ip("-n", HOSTS[0], "link", "set", "rail1", "up")
        for job in jobs:
            job.assert_exact()
        assert after[0] >= before[0] + 3, "rail 0 stood still with rail 1"
        assert after[1] <= before[1] + 1, "rail 1 was not down: this proves nothing"


def test_a_rail_that_stays_down_fails_its_own_connections_with_a_reason_and_the_other_rail_goes_on(tmp_path):
    with two_rails():
        jobs = [RailJob(tmp_path, rail, steps=100, FORGIVE_PEER_TIMEOUT_S="2") for rail in (0, 1)]
        for job in jobs:
            job.wait_for_step(3)
        ip("-n", HOSTS[0], "link", "set", "rail1", "down")
        errors, statuses = jobs[1].end()
        assert statuses == [3, 3] and any(SILENT in error for error in errors), errors
        failed_at = jobs[0].step
        jobs[0].assert_exact()
        assert 3 <= failed_at < jobs[0].step == 100, "rail 0 was done before rail 1 failed: this proves nothing"
