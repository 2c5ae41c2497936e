# SPDX-License-Identifier: Apache-2.0
# A rank that dies, a plugin that fails, a user who interrupts: everything ends, with one line, and nothing is left.
import os
import signal
import subprocess
import time

import pytest
from harness import BASELINES, FAKE_NET, PERF, environment, own_lines, perf
from processes import children, is_running

LONG = ("--ranks", "3", "-b", "1M", "-e", "1M", "-n", "100000", "-w", "1")


def start(plugin, *arguments):
    return subprocess.Popen([PERF, "--plugin", plugin, *arguments], env=environment(), stdout=subprocess.PIPE,
                            stderr=subprocess.PIPE, text=True)


def wait_for_traffic(process):
    """Waits until the table's head is printed: connections stand and the first operations run."""
    for line in process.stdout:
        if "(elements)" in line:
            return children(process.pid)
    raise AssertionError(process.stderr.read())


def gone(pids):
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        if not any(map(is_running, pids)):
            return True
        time.sleep(0.05)
    return False


@pytest.mark.parametrize("victim", (0, 1))
@pytest.mark.parametrize("plugin", (*BASELINES, FAKE_NET))
def test_a_killed_rank_ends_all_ranks(plugin, victim):
    process = start(plugin, *LONG)
    ranks = wait_for_traffic(process)
    os.kill(ranks[victim], signal.SIGKILL)
    _, error = process.communicate(timeout=60)
    assert process.returncode == 3
    assert own_lines(error) == [f"forgive_perf: rank {victim} was killed by signal 9 (Killed); all ranks have ended"]
    assert gone(ranks)


@pytest.mark.parametrize("plugin", BASELINES)
@pytest.mark.parametrize("number", (signal.SIGINT, signal.SIGTERM))
def test_an_interrupt_ends_all_ranks(number, plugin):
    process = start(plugin, *LONG)
    ranks = wait_for_traffic(process)
    process.send_signal(number)
    _, error = process.communicate(timeout=60)
    assert process.returncode == 128 + number
    assert own_lines(error) == ["forgive_perf: interrupted; all ranks have ended"]
    assert gone(ranks)


def test_ranks_end_with_a_launcher_that_is_killed():
    process = start("tcp", *LONG)
    ranks = wait_for_traffic(process)
    process.kill()
    process.wait(timeout=60)
    assert gone(ranks)


@pytest.mark.parametrize("plugin", BASELINES)
def test_a_stopped_rank_is_a_clear_error(plugin):
    process = start(plugin, *LONG, "--timeout", "5")  # for the start, too
    ranks = wait_for_traffic(process)
    os.kill(ranks[1], signal.SIGSTOP)
    try:
        _, error = process.communicate(timeout=60)
    finally:
        for pid in ranks:
            if os.path.exists(f"/proc/{pid}"):
                os.kill(pid, signal.SIGCONT)
    assert process.returncode == 3
    assert len(own_lines(error)) == 1 and "5 s" in own_lines(error)[0]
    assert gone(ranks)


def test_a_plugin_that_does_not_start_is_a_clear_error():
    run = perf("--plugin", FAKE_NET, "--ranks", 3, env={"FAKE_FAIL": "init"})
    assert run.returncode == 3
    assert len(own_lines(run.stderr)) == 1 and "init failed with system error" in run.stderr


def test_one_process_a_rank_learns_of_a_death(tmp_path):
    started = []
    for rank in range(3):
        started.append(start(FAKE_NET, "--rank", str(rank), "--world", "3", "--rendezvous", f"unix:{tmp_path}/r",
                             "-b", "1M", "-e", "1M", "-n", "100000"))
    wait_for_traffic(started[0])
    started[2].kill()
    for process in started[:2]:
        _, error = process.communicate(timeout=60)
        assert process.returncode == 3
        assert len(own_lines(error)) == 1
    started[2].communicate(timeout=60)
