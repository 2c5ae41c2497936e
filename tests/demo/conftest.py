# SPDX-License-Identifier: Apache-2.0
# Lets the tests import the demo's modules, and makes up results for them.
import os
import sys

import pytest

ROOT = os.path.realpath(os.path.join(os.path.dirname(__file__), "..", ".."))
sys.path[:0] = [os.path.join(ROOT, "testbed", room) for room in ("demo_lib", "page_lib", "entry_lib")]

import results  # noqa: E402
import schedule  # noqa: E402


def make_result(policy="forgive-all", algorithm="direct", row="main", turn=1, total_s=10.0, forgiven=400, **counters):
    """A run of two steps, the first critical, in which all that was forgiven was forgiven in the second."""
    steps = [results.Step(1, True, 30.0 + turn, expected=1000, received=1000),
             results.Step(2, False, 20.0 + turn, expected=1000, received=1000 - forgiven, forgiven=forgiven)]
    values = dict.fromkeys(results.COUNTERS, 0)
    values.update(forgiven_bytes=forgiven, gradient_bytes=2000, sent_bytes=4000, sent_exempt_bytes=1000, trims=7,
                  switch_trims=7, marks=3)
    values.update(counters)
    return results.RunResult(schedule.Run(row, turn, algorithm, policy), total_s, steps, values, {"trimmed": 7}, True)


@pytest.fixture
def a_result():
    return make_result


@pytest.fixture
def a_summary():
    """A whole results.json of two policies, as main.Demo.summary makes it."""
    runs = [make_result("tight", forgiven=0, total_s=12.0), make_result("forgive-all", total_s=9.0),
            make_result("tight", "ring", forgiven=0), make_result("forgive-all", "ring"),
            make_result("tight", row="light", forgiven=0), make_result("forgive-all", row="light")]
    return {"machine": {"cpu": "a <cpu>", "cpus": 2, "memory": "1 kB", "kernel": "6", "system": "Debian"},
            "commit": "0123", "command": "testbed/demo", "duration_s": 1.0, "failures": [], "notes": ["a note"],
            "parameters": {"environment": {"FORGIVE_LINK_RATE_MBPS": "200"}},
            "variants": results.rows(runs, "main"), "light": results.rows(runs, "light")}
