# SPDX-License-Identifier: Apache-2.0
"""One rank of DDP over the plugin, with FORGIVE's hook and without: plugin_worker.py RANK RANKS GLOO MEET,MEET ALGORITHM
FOLDER. GLOO and MEET are ports on loopback: for gloo, and for an all-reduce by sockets and one by the plugin."""
import json
import os
import pathlib
import sys

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

SOURCE = pathlib.Path(os.environ["FORGIVE_SOURCE"])
sys.path[:0] = [str(SOURCE / "plugin" / "torch"), str(SOURCE / "testbed" / "train_lib")]

import forgive_torch  # noqa: E402
from collective import Collective  # noqa: E402

STEPS = 3


def train(rank, carrier, hooked):
    """The parameters after some steps whose buckets the carrier summed: by FORGIVE's hook, or by a plain one."""
    torch.manual_seed(1)
    net = torch.nn.Sequential(torch.nn.Linear(64, 1000), torch.nn.Tanh(), torch.nn.Linear(1000, 64))
    model = DistributedDataParallel(net, bucket_cap_mb=0.2)
    scheduler = None
    if hooked:
        scheduler = forgive_torch.StepScheduler(forgive_torch.Detector(window=1))
        forgive_torch.register(model, scheduler=scheduler, carrier=carrier.carry)
    else:
        def plain(group, bucket):
            return carrier.carry(group, bucket.buffer().mul_(1.0 / dist.get_world_size()))
        model.register_comm_hook(dist.group.WORLD, plain)
    optimizer, data = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9), torch.Generator().manual_seed(rank)
    for _ in range(STEPS):
        inputs, targets = torch.randn(16, 64, generator=data), torch.randn(16, 64, generator=data)
        optimizer.zero_grad()
        torch.nn.functional.mse_loss(model(inputs), targets).backward()
        optimizer.step()
    flat = torch.cat([each.detach().flatten() for each in net.parameters()])
    return flat.numpy().tobytes().hex(), scheduler


def main(rank, ranks, gloo, meet, algorithm, out):
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{gloo}", rank=rank, world_size=ranks)
    library = str(pathlib.Path(os.environ["FORGIVE_BUILD"]) / "testbed" / "perf" / "libforgive_collective.so")
    sockets, plugin = (Collective(library, name, algorithm, rank, ranks, f"127.0.0.1:{port}", 60)
                       for name, port in zip(("tcp", os.environ["FORGIVE_LIBRARY"]), meet.split(",")))
    found = {"sockets": train(rank, sockets, False)[0], "plain": train(rank, plugin, False)[0]}
    trims = forgive_torch.stats()["trims"]
    found["hook"], scheduler = train(rank, plugin, True)
    found["refused"], found["steps"] = scheduler.refused, scheduler.next_step - 1
    found["trims"] = [trims, forgive_torch.stats()["trims"] - trims]
    found["forgiven"] = len(forgive_torch.ledger())
    found["p"] = forgive_torch.step_stats(STEPS)["p_ppm"]
    with open(os.path.join(out, f"{rank}.json"), "w", encoding="utf-8") as file:
        json.dump(found, file)
    dist.barrier()
    for collective in (sockets, plugin):
        collective.close()
    dist.destroy_process_group()


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), *sys.argv[3:])
