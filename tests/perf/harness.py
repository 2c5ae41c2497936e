# SPDX-License-Identifier: Apache-2.0
# Starts forgive_perf for the tests and keeps what it said.
import json
import os
import subprocess
import sys

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.realpath(__file__))))  # for processes

PERF = os.environ["FORGIVE_PERF"]
FAKE_NET = os.environ["FAKE_NET"]
FAKE_NET_V6 = os.environ["FAKE_NET_V6"]

BASELINES = ("tcp", "tcp-threaded")
COLLECTIVES = ("all_reduce", "reduce_scatter", "all_gather", "broadcast", "sendrecv")
SIZE_KEYS = ["size", "count", "type", "time_us", "algbw_gbs", "busbw_gbs", "wrong", "forgiven_bytes",
             "contributions_lost"]
FROM_OUTSIDE = ("FORGIVE_", "FAKE_", "NCCL_")


def environment(**own):
    """The test's own environment: nothing of FORGIVE's or NCCL's comes from outside."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(FROM_OUTSIDE)}
    kept.update(own)
    return kept


def perf(*arguments, env=None, timeout=120, wrapper=()):
    """Runs forgive_perf to its end. Returns the finished process with text output."""
    return subprocess.run([*wrapper, PERF, *map(str, arguments)], env=environment(**(env or {})), capture_output=True,
                          text=True, timeout=timeout, check=False)


def read_json(path):
    with open(path, encoding="utf-8") as file:
        return json.load(file)


def own_lines(text):
    """forgive_perf's own lines of standard error."""
    return [line for line in text.splitlines() if line.startswith("forgive_perf:")]
