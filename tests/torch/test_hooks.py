# SPDX-License-Identifier: Apache-2.0
"""The DDP hook between processes over gloo: it changes no bit, one step a backward pass, norms, several carriers."""
import importlib.util
import json
import os
import pathlib
import subprocess
import sys

import numpy
import pytest

# Looked for, not loaded: that takes seconds, and only the ranks need it.
if importlib.util.find_spec("torch") is None:
    pytest.skip("PyTorch is not installed (apt-get install python3-torch)", allow_module_level=True)
SOURCE = pathlib.Path(os.environ["FORGIVE_SOURCE"])
MODES = ("none", "sum", "split", "layers")
STEPS = 5


def run_ranks(out, ranks, modes):
    """By mode: the findings of each rank after a few steps, and with a training its parameters before them."""
    environment = dict(os.environ, PYTHONPATH=str(SOURCE / "plugin" / "torch"), GLOO_SOCKET_IFNAME="lo")
    import conftest
    words = [str(conftest.free_ports(1)[0]), ",".join(modes), str(STEPS), str(out)]
    worker = SOURCE / "tests" / "torch" / "worker.py"
    processes = [subprocess.Popen([sys.executable, "-B", worker, str(rank), str(ranks), *words], env=environment,
                                  stderr=subprocess.PIPE, text=True) for rank in range(ranks)]
    for process in processes:
        _, said = process.communicate(timeout=120)
        assert process.returncode == 0, said
    found = {}
    for mode in modes:
        lines = [json.loads((out / f"{mode}.{rank}.json").read_text(encoding="utf-8")) for rank in range(ranks)]
        found[mode] = lines if mode not in MODES else (
            [numpy.fromfile(out / f"{mode}.{rank}.f32", dtype=numpy.float32) for rank in range(ranks)], lines)
    return found


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    return run_ranks(tmp_path_factory.mktemp("trained"), 2, ("shard", "sharded", "edges", *MODES))


def test_the_hook_for_fsdp_averages_and_makes_one_step_of_several_gradients(trained):
    for rank in trained["shard"]:
        assert rank == {"first": [1.5] * 5, "second": [2.0] * 3, "opened": 1, "next": 2}


def test_a_sharded_model_trains_the_same_with_its_hook_or_is_told_that_this_torch_cannot(trained):
    for rank in trained["sharded"]:
        if "refused" in rank:
            assert "newer PyTorch" in rank["refused"]
        else:
            assert rank == {kind: {"same": True, "classes": [True, True, *rank[kind]["classes"][2:]]}
                            for kind in ("fully_shard", "FullyShardedDataParallel")}
            assert len(rank["fully_shard"]["classes"]) == 4 and False in rank["fully_shard"]["classes"]


def bits(parameters):
    return parameters.tobytes()


def test_the_hook_changes_no_bit(trained):
    plain, hooked = trained["none"][0], trained["sum"][0]
    assert bits(plain[0]) == bits(plain[1]) == bits(hooked[0]) == bits(hooked[1])


def test_the_hook_changes_no_bit_where_the_share_of_a_rank_is_no_power_of_two(tmp_path):
    found = run_ranks(tmp_path, 3, ("none", "sum"))
    assert len({bits(parameters) for mode in found.values() for parameters in mode[0]}) == 1


def test_the_norm_of_short_floats_is_not_bounded_by_theirs(trained):
    for rank in trained["edges"]:
        assert rank["short"] == pytest.approx(600000)


def test_what_cannot_be_registered_is_said_in_one_line(trained):
    for rank in trained["edges"]:
        assert "a Linear is no DistributedDataParallel: give what" in rank["no_model"]
        assert rank["layers"][0] is None and "has one norm, the detector has 2 layers" in rank["layers"][1]


@pytest.mark.parametrize("backends, device, expected", [
    (("nccl",), "cuda", True), (("gloo",), "cuda", False), (("gloo",), "cpu", False),
    # init_process_group() without a backend
    (("undefined", "cpu:gloo,cuda:nccl"), "cuda", True), (("cpu:gloo,cuda:nccl",) * 2, "cpu", False)])
def test_a_group_has_nccl_where_its_tensors_travel_by_it(monkeypatch, backends, device, expected):
    import torch
    import torch.distributed as dist
    from forgive_torch import hooks
    monkeypatch.setattr(dist, "get_backend", lambda _: backends[0])
    monkeypatch.setattr(dist, "get_backend_config", lambda _: backends[-1], raising=False)
    assert hooks.uses_nccl(None, torch.device(device)) == expected


@pytest.mark.parametrize("mode", ["sum", "split", "layers"])
def test_a_backward_pass_is_a_step_judged_by_the_ranks_own_gradients(trained, mode):
    found = trained[mode][1]
    for rank in found:
        assert rank["steps"] == STEPS and rank["classes"][:2] == [True, True]
        for own, judged in rank["norms"]:
            assert judged == pytest.approx(own, rel=1e-5)
    assert found[0]["norms"] != found[1]["norms"]


@pytest.mark.parametrize("mode", ["sum", "split"])
def test_nothing_but_gradients_travels_on_the_group_of_the_gradients(trained, mode):
    assert all(rank["own_group"] for rank in trained[mode][1])


def test_a_reduce_scatter_and_an_all_gather_give_the_same_training(trained):
    plain, split = trained["none"][0], trained["split"][0]
    assert bits(split[0]) == bits(split[1])
    numpy.testing.assert_allclose(split[0], plain[0], rtol=1e-4, atol=1e-6)
