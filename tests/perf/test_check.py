# SPDX-License-Identifier: Apache-2.0
# The check over a fake plugin: passes an honest one, and finds every way in which one may lie.
import pytest
from harness import COLLECTIVES, FAKE_NET, FAKE_NET_V6, own_lines, perf, read_json

RANKS = 3


def forgiving(trims, cheat="", **more):
    return dict(FORGIVE_GRADIENT_TRAFFIC="all", FAKE_FORGIVE_EVERY="3", FORGIVE_FAULT_LOG=str(trims),
                FAKE_CHEAT=cheat, **more)


def sweep(tmp_path, cheat="", arguments=(), **more):
    trims = tmp_path / "trims"
    result = tmp_path / "result.json"
    run = perf("--plugin", FAKE_NET, "--ranks", RANKS, "-b", "1M", "-e", "4M", "-f", 4, "-n", 3, "-w", 1,
               "--trims", trims, "--json", result, *arguments, env=forgiving(trims, cheat, **more))
    return run, read_json(result) if result.exists() else None


@pytest.mark.parametrize("api", ("v6", "v7", "v8"))
def test_every_version_is_driven(api):
    run = perf("--plugin", FAKE_NET, "--api", api, "--ranks", 2, "-b", "64K", "-e", "64K", "-n", 2)
    assert run.returncode == 0, run.stderr
    assert f"fake, API {api}" in run.stdout and "# INFO NET/FAKE : version 1, loopback" in run.stdout


def test_the_highest_version_is_taken():
    for plugin, api in ((FAKE_NET, "v8"), (FAKE_NET_V6, "v6")):
        run = perf("--plugin", plugin, "--ranks", 2, "-b", "4K", "-e", "4K", "-n", 1)
        assert run.returncode == 0 and f"fake, API {api}" in run.stdout


@pytest.mark.parametrize("algorithm", ("ring", "direct"))
@pytest.mark.parametrize("collective", COLLECTIVES)
def test_every_collective_runs_over_a_plugin(collective, algorithm):
    run = perf("--plugin", FAKE_NET, "--collective", collective, "--algorithm", algorithm, "--ranks", RANKS,
               "-b", "1K", "-e", "4M", "-f", 64, "-n", 2, "-w", 1)
    assert run.returncode == 0, run.stderr


@pytest.mark.parametrize("eligible", ("reduce", "all"))
@pytest.mark.parametrize("algorithm", ("ring", "direct"))
def test_an_honest_plugin_passes(tmp_path, algorithm, eligible):
    run, sizes = sweep(tmp_path, arguments=("--algorithm", algorithm), FORGIVE_ELIGIBLE=eligible)
    assert run.returncode == 0, run.stderr
    for size in sizes:
        assert size["wrong"] == 0 and size["forgiven_bytes"] > 0
        assert size["contributions_lost"] >= size["forgiven_bytes"]


def test_losses_in_the_reduce_phase_leave_the_ranks_identical(tmp_path):
    run, _ = sweep(tmp_path)
    assert "ranks identical: yes" in run.stdout
    run, _ = sweep(tmp_path, FORGIVE_ELIGIBLE="all")
    assert "ranks identical: no" in run.stdout


CHEATS = {
    "flip": "elements differ from the replay",
    "silent": "elements differ from the replay",
    "unforgiven": "elements differ from the replay",
    "offset": "elements differ from the replay",
    "untrimmed": "no record shows a trim of it",
    "gather": "a message of all_reduce's all-gather phase may not be forgiven",
    "budget": "bytes forgiven, the budget is",
    "sum": "the ledger's lines sum up to",
    "step": "is charged to step",
    "contributions": "lost contributions, the schedule",
    "twice": "some of these bytes were forgiven before",
    "unknown": "the ledger line is of no operation that ran",
}


@pytest.mark.parametrize("cheat", CHEATS)
def test_a_cheating_plugin_is_found(tmp_path, cheat):
    p = "0.001" if cheat == "budget" else "0.1"
    run, sizes = sweep(tmp_path, cheat, FORGIVE_P_HIGH=p)
    assert run.returncode == 1, run.stdout + run.stderr
    faults = [line for line in own_lines(run.stderr) if CHEATS[cheat] in line]
    assert faults and all("rank " in line for line in faults), run.stderr
    if cheat != "budget":
        assert sum(size["wrong"] for size in sizes) > 0
    assert "FAILED" in run.stdout


def test_without_a_record_of_trims_it_is_said_that_they_are_not_checked():
    run = perf("--plugin", FAKE_NET, "--ranks", RANKS, "-b", "1M", "-e", "1M", "-n", 2,
               env=forgiving("", "untrimmed"))
    assert run.returncode == 0, run.stderr
    assert "is not checked" in run.stdout


def test_the_ledger_file_has_a_line_a_range(tmp_path):
    ledger = tmp_path / "ledger"
    run, sizes = sweep(tmp_path, arguments=("--ledger", ledger))
    lines = [line.split() for line in ledger.read_text().splitlines() if not line.startswith("#")]
    assert run.returncode == 0
    assert sum(int(line[8]) for line in lines) == sum(size["forgiven_bytes"] for size in sizes) > 0


@pytest.mark.parametrize("expected", ("schedule", "learn"))
def test_steps_declare_or_learn_what_they_bring(tmp_path, expected):
    trims, result = tmp_path / "trims", tmp_path / "result.json"
    run = perf("--plugin", FAKE_NET, "--ranks", RANKS, "--steps", 5, "--critical", 3, "--bytes", "4M", "--expected",
               expected, "--trims", trims, "--json", result, env=forgiving(trims))
    assert run.returncode == 0, run.stderr
    written = read_json(result)
    forgiven = [step["forgiven"] for step in written["steps"]]
    assert (forgiven[0] > 0) == (expected == "schedule")
    assert forgiven[1] > 0 and forgiven[2] == 0 and forgiven[3] > 0
    assert written["forgiven_bytes"] == sum(forgiven) and len(written["per_rank"]) == RANKS
    assert written["per_rank"][0]["steps"] == 5
    reduce_bytes = (RANKS - 1) * 4 * 2**20
    assert abs(written["steps"][3]["expected"] - reduce_bytes) < 4096


def test_mixed_traffic_is_forgiven_in_steps_only(tmp_path):
    trims = tmp_path / "trims"
    run = perf("--plugin", FAKE_NET, "--ranks", RANKS, "--scenario", "mixed", "--bytes", "2M", "--trims", trims,
               env=forgiving(trims))
    assert run.returncode == 0, run.stdout + run.stderr
    forgiven = {}
    for line in run.stdout.splitlines():
        if line.endswith(" wrong"):
            what = line[1:27].strip()
            forgiven[what] = forgiven.get(what, 0) + int(line.split("B forgiven")[0].split()[-1])
    assert forgiven.pop("all-reduce in a step") > 0
    assert "all-gather in a step" in forgiven and sum(forgiven.values()) == 0


def test_odd_reduce_scatters_end_the_steps_but_not_the_run(tmp_path):
    run, sizes = sweep(tmp_path, arguments=("--collective", "reduce_scatter"))
    assert run.returncode == 0, run.stderr
    assert "# steps end here" in run.stdout and sizes[0]["wrong"] == 0
