# SPDX-License-Identifier: Apache-2.0
# Runs forgive_perf beside an attacker, in the network namespace that the tests have to themselves.
import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import time

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.realpath(__file__))))
from processes import children, clean_environment, resident_bytes  # noqa: E402

BUILD = os.environ["FORGIVE_TEST_BUILD"]
PERF = os.path.join(BUILD, "testbed", "perf", "forgive_perf")
PLUGIN = os.path.join(BUILD, "plugin", "libnccl-net-forgive.so")
ATTACK = os.path.join(BUILD, "tests", "security", "forgive_attack")
RANKS = 3
KINDS = ("data", "report", "control", "connect", "reply", "replay", "trimmed", "replay-other", "flipped", "malformed",
         "icmp", "blind")


def environment(**own):
    """Whatever the operator's word makes forgivable is."""
    return clean_environment(FORGIVE_GRADIENT_TRAFFIC="all", **own)


@contextlib.contextmanager
def attacker(*flags):
    """An attacker that sends while the block runs; afterwards the list has one entry: what it sent."""
    process = subprocess.Popen([ATTACK, *flags], stdout=subprocess.PIPE, text=True)
    told = []
    try:
        assert process.stdout.readline() == "attacking\n"
        yield told
    finally:
        process.send_signal(signal.SIGTERM)
        told.append(json.loads(process.communicate(timeout=30)[0]))


class Watch(threading.Thread):
    """Looks at the ranks' memory every 0.05 s once `settled` is set, so that what they take at their start is no
    growth, however long it took them."""

    def __init__(self, launcher):
        super().__init__(daemon=True)
        self.launcher = launcher
        self.settled = threading.Event()
        self.samples = {}  # of each rank's process

    def look(self):
        with contextlib.suppress(OSError, IndexError, ValueError):
            for pid in children(self.launcher.pid):
                self.samples.setdefault(pid, []).append(resident_bytes(pid))

    def run(self):
        while self.launcher.poll() is None:
            if self.settled.wait(0.05):
                self.look()
                time.sleep(0.05)


def read_steps(process, watch, settled_at):
    """All that the launcher prints, a line a step; after the step `settled_at` the ranks' memory is watched."""
    said = []
    for line in process.stdout:
        said.append(line)
        if line.split()[:1] == [str(settled_at)]:
            watch.settled.set()
    return "".join(said)


def all_reduces(folder, steps, size, compute_ms=5, **own):
    """Training-like steps over the plugin on loopback. Returns forgive_perf's result, and the ranks' memory after the
    first third of the steps."""
    result, trims = os.path.join(folder, "result.json"), os.path.join(folder, "trims")
    if "FORGIVE_FAULT" in own:
        own["FORGIVE_FAULT_LOG"] = trims
    words = [PERF, "--plugin", PLUGIN, "--ranks", str(RANKS), "--steps", str(steps), "--critical", "1", "--bytes",
             str(size), "--compute-ms", str(compute_ms), "--json", result, "--timeout", "30"]
    if "FORGIVE_FAULT" in own:
        words += ["--trims", trims]
    process = subprocess.Popen(words, env=environment(**own), stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                               text=True)
    watch = Watch(process)
    watch.start()
    said = read_steps(process, watch, steps // 3)
    assert process.wait(timeout=120) == 0, said
    watch.join()
    with open(result, encoding="utf-8") as file:
        return json.load(file), watch.samples


def refused(result, *counters):
    return [sum(rank[counter] for rank in result["per_rank"]) for counter in counters]
