# SPDX-License-Identifier: Apache-2.0
# The harness over its own TCP baselines: every collective, both algorithms, every mode.
import socket
import subprocess

import pytest
from harness import BASELINES, COLLECTIVES, PERF, SIZE_KEYS, environment, perf, read_json


@pytest.mark.parametrize("plugin", BASELINES)
@pytest.mark.parametrize("ranks", (2, 3))
@pytest.mark.parametrize("algorithm", ("ring", "direct"))
@pytest.mark.parametrize("collective", COLLECTIVES)
def test_every_collective_is_right(tmp_path, collective, algorithm, ranks, plugin):
    result = tmp_path / "result.json"
    run = perf("--plugin", plugin, "--collective", collective, "--algorithm", algorithm, "--ranks", ranks, "-b", "1K",
               "-e", "4M", "-f", 64, "-n", 3, "-w", 1, "--json", result)
    assert run.returncode == 0, run.stderr
    assert f"{plugin}, congestion control" in run.stdout
    sizes = read_json(result)
    assert len(sizes) == 3
    for size in sizes:
        assert list(size) == SIZE_KEYS
        assert size["wrong"] == 0 and size["forgiven_bytes"] == 0 and size["contributions_lost"] == 0
        assert size["type"] == "float" and size["algbw_gbs"] > 0 and size["busbw_gbs"] > 0
    whole = sizes[0]["count"] * (ranks if collective in ("reduce_scatter", "all_gather") else 1)
    assert sizes[0]["size"] == 4 * whole


def test_without_the_check_nothing_is_said_of_wrong(tmp_path):
    result = tmp_path / "result.json"
    run = perf("--plugin", "tcp", "--ranks", 2, "-b", "4K", "-e", "4K", "-n", 2, "--no-check", "--json", result)
    assert run.returncode == 0, run.stderr
    assert "N/A" in run.stdout and read_json(result)[0]["wrong"] is None


def test_steps_are_written_as_asked(tmp_path):
    result = tmp_path / "result.json"
    run = perf("--plugin", "tcp", "--ranks", 3, "--algorithm", "direct", "--steps", 4, "--critical", "1,4",
               "--compute-ms", 2, "--bytes", "1M", "--json", result)
    assert run.returncode == 0, run.stderr
    written = read_json(result)
    assert [step["step"] for step in written["steps"]] == [1, 2, 3, 4]
    assert [step["critical"] for step in written["steps"]] == [True, False, False, True]
    assert all(step["allreduce_ms"] > 0 for step in written["steps"])
    assert list(written["steps"][0]) == ["step", "critical", "allreduce_ms", "expected", "received", "forgiven",
                                         "contributions_lost"]
    assert written["wrong"] == 0 and written["budget_violations"] == 0 and written["ranks_identical"] is True
    # Both phases: every rank receives 2 (k - 1) / k of the vector; shards are rounded up to 16 bytes.
    assert abs(written["gradient_bytes"] - 4 * 2 * 2 * 2**20) < 4096
    assert written["trims"] is None and written["rate_cuts"] == {"mark": None, "trim": None, "timeout": None}
    assert written["per_rank"] == []


@pytest.mark.parametrize("plugin", BASELINES)
def test_mixed_traffic_is_right_without_steps(plugin):
    run = perf("--plugin", plugin, "--ranks", 3, "--scenario", "mixed", "--bytes", "512K")
    assert run.returncode == 0, run.stderr
    assert "mixed: wrong 0" in run.stdout


@pytest.mark.parametrize("plugin", BASELINES)
@pytest.mark.parametrize("where", ("127.0.0.1:0", "unix"))
def test_one_process_a_rank_is_right(tmp_path, where, plugin):
    # Port 0 would be another one on every rank: ask the kernel for a free one first.
    if where == "unix":
        rendezvous = f"unix:{tmp_path}/rendezvous"
    else:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            rendezvous = f"127.0.0.1:{probe.getsockname()[1]}"
    result = tmp_path / "result.json"
    started = []
    for rank in range(3):
        command = [PERF, "--plugin", plugin, "--rank", str(rank), "--world", "3", "--rendezvous", rendezvous,
                   "-b", "64K", "-e", "64K", "-n", "3", "--json", str(result)]
        started.append(subprocess.Popen(command, env=environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                        text=True))
    outputs = [process.communicate(timeout=60) for process in started]
    assert [process.returncode for process in started] == [0, 0, 0], outputs
    assert outputs[0][0] and not outputs[1][0] and not outputs[2][0]
    assert read_json(result)[0]["wrong"] == 0
    assert not (tmp_path / "rendezvous").exists()


def test_ranks_of_different_baselines_do_not_start(tmp_path):
    started = [subprocess.Popen([PERF, "--plugin", plugin, "--rank", str(rank), "--world", "2", "--rendezvous",
                                 f"unix:{tmp_path}/rendezvous", "-b", "4K", "-e", "4K"], env=environment(),
                                stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
               for rank, plugin in enumerate(BASELINES)]
    outputs = [process.communicate(timeout=60) for process in started]
    assert all(process.returncode in (2, 3) for process in started), outputs
    assert any("options" in error for _, error in outputs), outputs
