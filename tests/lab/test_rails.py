# SPDX-License-Identifier: Apache-2.0
# Two rails between two hosts. As two devices of the plugin: a rail that fails is that rail's matter only. As one
# device: each connection is striped over both, and goes on over either.
import contextlib
import glob
import json
import os
import subprocess
import time

import pytest
from conftest import NAME
from job import HELD_STEPS, PERF, PLUGIN, SILENT, Job
from processes import clean_environment

pytestmark = pytest.mark.usefixtures("nothing_left")

HOSTS = (f"fgv-{NAME}-a", f"fgv-{NAME}-b")
# Of a job to which something happens after step 3: HELD_STEPS may be done by then.
STEPS = 3 + HELD_STEPS + 30


def ip(*words):
    subprocess.run(["ip", *words], check=True)


# The addresses of a rail's two ends.
KINDS = {"ipv4": lambda rail, host: f"10.78.{rail}.{host + 1}/24",
         "ipv6": lambda rail, host: f"fd78:{rail}::{host + 1}/64",
         "link-local": lambda rail, host: f"fe80::{host + 1}/64"}


@contextlib.contextmanager
def two_rails(kind="ipv4"):
    """Two hosts with the interfaces rail0 and rail1, each pair in a network of its own."""
    try:
        for host in HOSTS:
            ip("netns", "add", host)
            ip("-n", host, "link", "set", "lo", "up")
        for rail in ("rail0", "rail1"):
            ip("-n", HOSTS[0], "link", "add", rail, "mtu", "9000", "type", "veth",
               "peer", "name", rail, "mtu", "9000", "netns", HOSTS[1])
            for number, host in enumerate(HOSTS):
                ip("-n", host, "link", "set", rail, "addrgenmode", "none")
                nodad = [] if kind == "ipv4" else ["nodad"]
                ip("-n", host, "address", "add", KINDS[kind](rail[-1], number), "dev", rail, *nodad)
                ip("-n", host, "link", "set", rail, "up")
        yield
    finally:
        for host in HOSTS:
            subprocess.run(["ip", "netns", "delete", host], check=False)


class RailJob(Job):
    """A training-like job of both hosts over one device of their plugins, by default with a device a rail."""

    def __init__(self, folder, rail, steps, hold_at=None, **own):
        if "FORGIVE_RAILS" not in own:
            own |= {"FORGIVE_INTERFACE": "rail", "NCCL_SOCKET_FAMILY": "AF_INET"}
        environment = clean_environment(FORGIVE_GRADIENT_TRAFFIC="all", FORGIVE_RING_RANKS="2",
                                        FORGIVE_GRADIENT_RANKS="2", **own)
        words = ["--device", str(rail), "--timeout", "30", "--steps", str(steps), "--compute-ms", "50", "--bytes", "1M"]
        super().__init__(folder, rail, len(HOSTS), words, lambda rank, command, **options: subprocess.Popen(
            ["ip", "netns", "exec", HOSTS[rank], *command], env=environment, stdout=subprocess.PIPE, text=True,
            **options), hold_at)


class StripedJob(RailJob):
    """The same over one device of both rails."""

    def __init__(self, folder, steps, hold_at=None, **own):
        self.folder = folder
        super().__init__(folder, 0, steps, hold_at, FORGIVE_RAILS="rail0,rail1",
                         FORGIVE_STATS=os.path.join(folder, "statistics%p"), **own)

    def wait_until_both_count(self, what):
        """Until each rank's statistics, which have a line a step, say so."""
        deadline = time.monotonic() + 60
        while not all(rank["totals"].get(what, 0) > 0 for rank in self.last_lines()):
            assert self.ranks[0].poll() is None and time.monotonic() < deadline, f"no {what}"
            time.sleep(0.02)

    def last_lines(self):
        """Of both ranks' statistics, the last line with totals."""
        found = []
        for name in glob.glob(os.path.join(self.folder, "statistics*")):
            with open(name, encoding="utf-8") as file:
                whole = [line for line in file.readlines() if line.endswith("\n") and '"totals"' in line]
                found.append(json.loads(whole[-1]) if whole else {"totals": {}})
        assert len(found) == len(HOSTS)
        return found


def assert_even(lines):
    for rank in lines:
        for direction in ("sent_bytes", "received_bytes"):
            shares = [rail[direction] for rail in rank["rails"]]
            assert len(shares) == 2 and 3 * min(shares) > 2 * max(shares), f"{direction} by rail: {shares}"


def test_a_rail_that_is_down_for_a_while_stops_its_own_connections_only_and_both_end_exactly(tmp_path):
    with two_rails():
        jobs = [RailJob(tmp_path, rail, STEPS, hold_at=3, FORGIVE_PEER_TIMEOUT_S="20") for rail in (0, 1)]
        for job in jobs:
            job.wait_for_step(3)
        ip("-n", HOSTS[0], "link", "set", "rail1", "down")
        jobs[1].assert_stands_for(1)
        stood_at = jobs[1].step
        jobs[0].assert_goes_on_for(3)
        assert jobs[1].step == stood_at, "rail 1 was not down: this proves nothing"
        ip("-n", HOSTS[0], "link", "set", "rail1", "up")
        for job in jobs:
            job.assert_exact()


def test_a_rail_that_stays_down_fails_its_own_connections_with_a_reason_and_the_other_rail_goes_on(tmp_path):
    with two_rails():
        jobs = [RailJob(tmp_path, rail, STEPS, hold_at=3, FORGIVE_PEER_TIMEOUT_S="2") for rail in (0, 1)]
        for job in jobs:
            job.wait_for_step(3)
        ip("-n", HOSTS[0], "link", "set", "rail1", "down")
        errors, statuses = jobs[1].end()
        assert statuses == [3, 3] and any(SILENT in error for error in errors), errors
        jobs[0].assert_goes_on_for(3)
        jobs[0].assert_exact()


# ---- Striped ----


@pytest.mark.parametrize("driver", ["udp", "uring"])
@pytest.mark.parametrize("kind", sorted(KINDS))
def test_an_all_reduce_is_striped_evenly_over_two_rails_and_exact(tmp_path, kind, driver):
    with two_rails(kind):
        job = StripedJob(tmp_path, steps=20, FORGIVE_DRIVER=driver)
        errors, statuses = job.end()
        if driver == "uring" and statuses != [0, 0] and any("io_uring" in error for error in errors):
            pytest.skip(errors[0])
        job.assert_exact()
        assert_even(job.last_lines())


@pytest.mark.parametrize("rail", [0, 1])
def test_a_rail_that_is_down_for_seconds_leaves_the_job_going_over_the_other_and_is_taken_again(tmp_path, rail):
    with two_rails():
        job = StripedJob(tmp_path, STEPS + 80, hold_at=3, FORGIVE_PEER_TIMEOUT_S="20")
        job.wait_for_step(3)
        ip("-n", HOSTS[0], "link", "set", f"rail{rail}", "down")
        job.release()
        job.wait_until_both_count("paths_given_up")  # or it was not down, which would prove nothing
        job.wait_for_step(job.step + 3)
        ip("-n", HOSTS[0], "link", "set", f"rail{rail}", "up")
        job.assert_exact()
        for rank in job.last_lines():
            assert rank["totals"]["paths_returned"] > 0, "the rail was not taken again"


@pytest.mark.parametrize("rail", [0, 1])
def test_a_job_begins_while_a_rail_leads_nowhere(tmp_path, rail):
    with two_rails():
        for number, host in enumerate(HOSTS):
            ip("-n", host, "neigh", "add", f"10.78.{rail}.{2 - number}", "lladdr", "02:00:00:00:00:99",
               "dev", f"rail{rail}", "nud", "permanent")
        job = StripedJob(tmp_path, steps=20, FORGIVE_PEER_TIMEOUT_S="10")
        job.assert_exact()
        for rank in job.last_lines():
            assert rank["rails"][rail]["received_bytes"] == 0 < rank["rails"][1 - rail]["received_bytes"]


def test_trims_on_both_rails_are_charged_to_one_budget_exactly(tmp_path):
    with two_rails():
        job = StripedJob(tmp_path, steps=40, FORGIVE_P_LOW="0.02", FORGIVE_P_HIGH="0.05",
                         FORGIVE_FAULT="trim=0.15,seed=3")
        result = job.assert_right()
        assert_even(job.last_lines())
        full = 0
        for step in result["steps"]:
            budget = step["expected"] * (20 if step["critical"] else 50) // 1000
            assert step["forgiven"] <= budget
            assert step["received"] + step["forgiven"] == step["expected"], "a byte was counted twice, or not at all"
            full += budget - step["forgiven"] < 9000
        assert full > 0, "no step used up its budget: this proves nothing"


def test_hosts_with_another_number_of_rails_say_what_to_set(tmp_path):
    with two_rails():
        environment = clean_environment(FORGIVE_GRADIENT_TRAFFIC="none", FORGIVE_PEER_TIMEOUT_S="2")
        ranks = []
        for rank, host in enumerate(HOSTS):
            own = {"FORGIVE_RAILS": "rail0,rail1"} if rank == 0 else {"FORGIVE_INTERFACE": "rail0"}
            ranks.append(subprocess.Popen(
                ["ip", "netns", "exec", host, PERF, "--plugin", PLUGIN, "--world", "2", "--rank", str(rank),
                 "--rendezvous", f"unix:{os.path.join(tmp_path, 'rendezvous')}", "--timeout", "30", "--bytes", "1M"],
                env=environment | own, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True))
        errors = [rank.communicate(timeout=60)[1] for rank in ranks]
        assert all(rank.returncode != 0 for rank in ranks), errors
        assert any("set FORGIVE_RAILS on all hosts" in error for error in errors), errors
