# SPDX-License-Identifier: Apache-2.0
# forgive_perf over the real plugin on loopback: without faults, and with trims, drops and disorder injected.
import os

import pytest
from harness import COLLECTIVES, perf, read_json

PLUGIN = os.environ["FORGIVE_PLUGIN"]
FAULTS = "trim=0.05,drop=0.005,duplicate=0.01,reorder=0.02,corrupt=0.001,seed=7"


def faulty(trims, faults=FAULTS, **more):
    return dict(FORGIVE_GRADIENT_TRAFFIC="all", FORGIVE_TRIM="1", FORGIVE_FAULT=faults, FORGIVE_FAULT_LOG=str(trims),
                **more)


@pytest.mark.parametrize("api", ("v6", "v7", "v8", "v9", "v10", "v11", "v12"))
def test_every_version_is_right_without_loss_and_exact_with_it(tmp_path, api):
    run = perf("--plugin", PLUGIN, "--api", api, "--ranks", 2, "-b", "64K", "-e", "64K", "-n", 2)
    assert run.returncode == 0, run.stderr
    assert f"forgive, API {api}" in run.stdout
    trims, result = tmp_path / "trims", tmp_path / "result.json"
    run = perf("--plugin", PLUGIN, "--api", api, "--ranks", 2, "-b", "1M", "-e", "1M", "-n", 4, "-w", 1, "--trims",
               trims, "--json", result, env=faulty(trims))
    assert run.returncode == 0, run.stdout + run.stderr
    assert all(size["forgiven_bytes"] > 0 for size in read_json(result))
    assert "ranks identical: yes" in run.stdout


@pytest.mark.parametrize("algorithm", ("ring", "direct"))
@pytest.mark.parametrize("collective", COLLECTIVES)
def test_every_collective_is_right(collective, algorithm):
    run = perf("--plugin", PLUGIN, "--collective", collective, "--algorithm", algorithm, "--ranks", 3, "-b", "1K",
               "-e", "4M", "-f", 64, "-n", 3, "-w", 1)
    assert run.returncode == 0, run.stderr


@pytest.mark.parametrize("algorithm", ("ring", "direct"))
def test_four_ranks_are_right_from_small_to_large(algorithm):
    run = perf("--plugin", PLUGIN, "--algorithm", algorithm, "--ranks", 4, "-b", "1K", "-e", "64M", "-f", 16, "-n", 2,
               "-w", 1, timeout=300)
    assert run.returncode == 0, run.stderr


@pytest.mark.parametrize("eligible", ("reduce", "all"))
@pytest.mark.parametrize("algorithm", ("ring", "direct"))
def test_what_is_forgiven_is_exactly_what_the_ledger_says(tmp_path, algorithm, eligible):
    trims, result = tmp_path / "trims", tmp_path / "result.json"
    run = perf("--plugin", PLUGIN, "--algorithm", algorithm, "--ranks", 4, "-b", "1M", "-e", "4M", "-f", 4, "-n", 4,
               "-w", 1, "--trims", trims, "--json", result, env=faulty(trims, FORGIVE_ELIGIBLE=eligible))
    assert run.returncode == 0, run.stdout + run.stderr
    assert all(size["forgiven_bytes"] > 0 for size in read_json(result))
    if eligible == "reduce":
        assert "ranks identical: yes" in run.stdout


@pytest.mark.parametrize("ranks", (2, 3))
def test_mixed_traffic_is_forgiven_in_steps_only(tmp_path, ranks):
    trims = tmp_path / "trims"
    run = perf("--plugin", PLUGIN, "--ranks", ranks, "--scenario", "mixed", "--bytes", "4M", "--trims", trims,
               env=faulty(trims))
    assert run.returncode == 0, run.stdout + run.stderr
    forgiven = {}
    for line in run.stdout.splitlines():
        if line.endswith(" wrong"):
            what = line[1:27].strip()
            forgiven[what] = forgiven.get(what, 0) + int(line.split("B forgiven")[0].split()[-1])
    assert forgiven.pop("all-reduce in a step") > 0
    assert "all-gather in a step" in forgiven and sum(forgiven.values()) == 0
    assert "ranks identical: yes" in run.stdout


@pytest.mark.parametrize("expected", ("schedule", "learn"))
def test_steps_keep_their_budgets(tmp_path, expected):
    trims, result = tmp_path / "trims", tmp_path / "result.json"
    run = perf("--plugin", PLUGIN, "--ranks", 4, "--steps", 6, "--critical", "2", "--bytes", "4M", "--expected",
               expected, "--trims", trims, "--json", result, env=faulty(trims))
    assert run.returncode == 0, run.stdout + run.stderr
    written = read_json(result)
    steps = written["steps"]
    assert written["wrong"] == 0 and written["budget_violations"] == 0 and written["ranks_identical"]
    assert written["forgiven_bytes"] > 0 and 0 < written["exempt_share"] <= 1
    for step in steps[1:]:
        assert step["expected"] == step["received"] + step["forgiven"]
        assert step["forgiven"] <= step["expected"] * (0.005 if step["critical"] else 0.1)
    assert (steps[0]["forgiven"] > 0) == (expected == "schedule")


def test_no_draw_forgives_nothing_and_stays_exempt(tmp_path):
    trims, result = tmp_path / "trims", tmp_path / "result.json"
    run = perf("--plugin", PLUGIN, "--ranks", 3, "--steps", 3, "--bytes", "4M", "--trims", trims, "--json", result,
               env=faulty(trims, FORGIVE_P="0"))
    assert run.returncode == 0, run.stdout + run.stderr
    written = read_json(result)
    assert written["forgiven_bytes"] == 0 and written["exempt_share"] > 0 and written["trims"] > 0


def test_drops_are_never_forgiven(tmp_path):
    trims, result = tmp_path / "trims", tmp_path / "result.json"
    run = perf("--plugin", PLUGIN, "--ranks", 2, "--steps", 3, "--bytes", "4M", "--trims", trims, "--json", result,
               env=faulty(trims, "drop=0.02,seed=3"))
    assert run.returncode == 0, run.stdout + run.stderr
    written = read_json(result)
    assert written["forgiven_bytes"] == 0 and written["retransmitted_bytes"] > 0
