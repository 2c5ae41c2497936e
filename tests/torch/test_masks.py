# SPDX-License-Identifier: Apache-2.0
"""Loss injection by masks: rates, bursts as a ledger says, repeatability, and one short training."""
import json
import os
import pathlib
import subprocess
import sys

import numpy
import pytest

pytest.importorskip("torch")
SOURCE = pathlib.Path(os.environ["FORGIVE_SOURCE"])
sys.path.insert(0, str(SOURCE / "testbed" / "train_lib"))

import masks  # noqa: E402

SETTING = {"p_low": 0.005, "p_high": 0.1, "bursts": None}


def test_segments_are_lost_at_the_rate_and_the_same_again():
    made = [masks.Masks(SETTING, 0, 4, seed=1) for _ in range(2)]
    lost = made[0].lost_segments(20000, 5, 0, 0.1)
    assert 0.09 < lost.mean() < 0.11
    assert (lost == made[1].lost_segments(20000, 5, 0, 0.1)).all()
    for other in (masks.Masks(SETTING, 1, 4, 1), masks.Masks(SETTING, 0, 4, 2)):
        assert (lost != other.lost_segments(20000, 5, 0, 0.1)).any()
    assert (lost != made[0].lost_segments(20000, 6, 0, 0.1)).any()
    assert not made[0].lost_segments(20000, 5, 0, 0.0).any()


def runs_of(lost):
    """The lengths of the stretches that are lost."""
    edges = numpy.flatnonzero(numpy.diff(numpy.concatenate(([0], lost.astype(int), [0]))))
    return edges[1::2] - edges[::2]


def test_bursts_have_the_lengths_of_the_ledger(tmp_path):
    ledger = tmp_path / "ledger.jsonl"
    ledger.write_text("".join(json.dumps({"step": step, "length": 40960}) + "\n" for step in (1, 2, 2)),
                      encoding="utf-8")
    bursts = masks.Masks(SETTING | {"bursts": str(ledger)}, 0, 4, 1).lost_segments(20000, 5, 0, 0.05)
    chance = masks.Masks(SETTING, 0, 4, 1).lost_segments(20000, 5, 0, 0.05)
    assert 0.045 < bursts.mean() <= 0.05
    assert numpy.median(runs_of(bursts)) == 10 and numpy.median(runs_of(chance)) == 1


def test_neighbours_in_a_message_are_one_stretch_in_every_kind_of_ledger(tmp_path):
    lines = [(7, "a", 3, 8192, 4096), (7, "a", 3, 0, 4096), (7, "a", 3, 4096, 4096), (7, "b", 3, 12288, 4096),
             (8, "a", 4, 0, 8192)]
    kinds = {
        "csv": "step,connection_id,message,offset,length\n" + "".join(
            ",".join(map(str, line)) + "\n" for line in lines),
        "jsonl": "".join(json.dumps(dict(zip(("step", "connection_id", "message", "offset", "length"), line))) + "\n"
                         for line in lines),
        "perf": "".join(f"0 {step} 1 2 {connection} {message} 0 {offset} {length} 1\n"
                        for step, connection, message, offset, length in lines)}
    for kind, text in kinds.items():
        (tmp_path / kind).write_text(text, encoding="utf-8")
        assert masks.read_bursts(str(tmp_path / kind)) == {7: [3, 1], 8: [2]}


# Eight hosts, whose switches have small queues.
PLAN = """
about = "small"
[fabric]
leaves = 4
hosts_per_leaf = 2
spines = 1
data_queue_bytes = 65536
ecn_min_bytes = 16384
ecn_max_bytes = 49152
[workload]
ranks_per_leaf = 2
tp = 2
dp = 4
steps = 3
critical_steps = [1]
compute_us = 100
tp_bytes = 262144
tp_streams = 2
dp_bytes = 2000000
dp_streams = 2
fan_in = 3
burst_step = 1
[policy]
rule = "forgive"
"""


def test_a_simulations_ledger_is_replayed(tmp_path):
    (tmp_path / "small.toml").write_text(PLAN, encoding="utf-8")
    subprocess.run([os.environ["FORGIVE_SIM"], "run", tmp_path / "small.toml", "--json", tmp_path / "results.jsonl",
                    "--ledger", tmp_path / "ledger.csv", "--quiet"], check=True, timeout=60)
    results = [json.loads(line) for line in (tmp_path / "results.jsonl").read_text(encoding="utf-8").splitlines()]
    forgiven = {line["step"]: line["forgiven"] for line in results if line["kind"] == "step" and line["forgiven"]}
    bursts = masks.read_bursts(str(tmp_path / "ledger.csv"))
    assert set(bursts) == set(forgiven) and len(forgiven) > 1
    for step, lengths in bursts.items():
        # Segments are whole ones, and a stretch has one at least.
        assert abs(sum(lengths) * 4096 - forgiven[step]) <= 4096 * len(lengths)
    assert max(max(lengths) for lengths in bursts.values()) > 1  # neighbours are one stretch
    lost = masks.Masks(SETTING | {"bursts": str(tmp_path / "ledger.csv")}, 0, 4, 1).lost_segments(20000, 5, 0, 0.05)
    assert 0.045 < lost.mean() <= 0.05


@pytest.mark.parametrize("text, complaint", [
    ("", "holds no line"), ("step,length\n1,x\n", ":2: no step and length"),
    ('{"step": 1}\n', ":1: no step and length"), ('{"step": null, "length": 1}\n', ":1: no step and length"),
    ("\udcff\udcfe\x00\udc80\n", ":1: no step and length")])
def test_a_bad_ledger_is_named(tmp_path, text, complaint):
    (tmp_path / "ledger").write_text(text, encoding="utf-8", errors="surrogateescape")
    with pytest.raises(masks.MaskError, match=complaint):
        masks.read_bursts(str(tmp_path / "ledger"))


def test_a_training_with_masks_loses_by_the_class_of_the_step_and_replicas_stay_identical(tmp_path):
    done = subprocess.run([SOURCE / "testbed" / "train", "--build", os.environ["FORGIVE_BUILD"], "--output", tmp_path,
                           "--local", "--ranks", "2", "--policy", "masks", "--window", "1", "--steps", "5",
                           "--python", sys.executable],
                          capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    (run,) = json.loads((tmp_path / "results.json").read_text(encoding="utf-8"))["runs"]
    assert run["identical"] and run["steps"][0]["critical"] == [True, True]

    def share(critical):
        rows = [row for row in run["steps"] if set(row["critical"]) == {critical}]
        return sum(row["forgiven"] for row in rows) / sum(row["forgiven"] + row["received"] for row in rows)
    assert share(True) < 0.02 and share(False) > 0.06
