# SPDX-License-Identifier: Apache-2.0
"""One rank of a small training over gloo: worker.py RANK RANKS PORT MODE,... STEPS FOLDER."""
import json
import sys

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

import forgive_torch


def train(rank, mode, steps, out):
    torch.manual_seed(1)
    net = torch.nn.Sequential(torch.nn.Linear(20, 301), torch.nn.Tanh(), torch.nn.Linear(301, 3))
    # "none" and "sum" differ by what a user adds; the others bring a group of their own.
    group = None if mode in ("none", "sum") else forgive_torch.gradient_group()
    model = DistributedDataParallel(net, process_group=group, bucket_cap_mb=0.01)
    hook, carried_by = None, set()

    def note_group(carrying, tensor):
        carried_by.add(carrying)
        return carrier(carrying, tensor)
    if mode != "none":
        carrier = forgive_torch.reduce_scatter_carrier if mode == "split" else forgive_torch.all_reduce_carrier
        layers = len(list(net.parameters())) if mode == "layers" else 1
        hook = forgive_torch.register(model, forgive_torch.Detector(window=1, layers=layers), carrier=note_group,
                                      per_layer=mode == "layers")
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    data = torch.Generator().manual_seed(100 + rank)
    norms, classes = [], []
    for _ in range(steps):
        inputs, targets = torch.randn(16, 20, generator=data), torch.randn(16, 3, generator=data)
        optimizer.zero_grad()
        with model.no_sync():  # the rank's own gradient, by which the norm is judged; it is accumulated twice
            torch.nn.functional.mse_loss(model(inputs), targets).backward()
        own = torch.cat([p.grad.flatten() for p in net.parameters()]).norm().item()
        optimizer.zero_grad()
        torch.nn.functional.mse_loss(model(inputs), targets).backward()
        if hook is not None:
            hook.finish()
            classes.append(hook.scheduler.critical)
            norms.append((own, hook.last_norm))
        optimizer.step()
    parameters = torch.cat([p.detach().flatten() for p in net.parameters()])
    parameters.numpy().tofile(f"{out}/{mode}.{rank}.f32")
    with open(f"{out}/{mode}.{rank}.json", "w", encoding="utf-8") as file:
        json.dump({"norms": norms, "classes": classes, "steps": hook.scheduler.next_step - 1 if hook else 0,
                   "own_group": len(carried_by) == 1 and dist.group.WORLD not in carried_by}, file)


def shard_by_hook(rank):
    """FSDP's hook as FSDP calls it for an unsharded gradient."""
    scheduler = forgive_torch.StepScheduler(plugin=False)
    first, second = torch.full((5,), rank + 1.0), torch.full((3,), rank * 4.0)
    forgive_torch.fsdp_hook(scheduler, first)
    forgive_torch.fsdp_hook(scheduler, second)
    opened = scheduler.step_open
    scheduler.end(1.0)
    return {"first": first.tolist(), "second": second.tolist(), "opened": opened, "next": scheduler.next_step}


def train_sharded(rank, kind, hooked):
    """A few steps of a sharded model, as in a user's script; only newer PyTorch shards on CPUs."""
    torch.manual_seed(1)
    net = torch.nn.Sequential(torch.nn.Linear(20, 31), torch.nn.Tanh(), torch.nn.Linear(31, 3))
    hook = None
    if kind == "fully_shard":
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.fsdp import fully_shard
        mesh = init_device_mesh("cpu", (dist.get_world_size(),))
        fully_shard(net[0], mesh=mesh)
        fully_shard(net, mesh=mesh)
        if hooked:
            hook = forgive_torch.register_sharded(net, forgive_torch.Detector(window=1))
    else:
        from torch.distributed.fsdp import FullyShardedDataParallel
        net = FullyShardedDataParallel(net, device_id=torch.device("cpu"))
        if hooked:
            scheduler = forgive_torch.StepScheduler(forgive_torch.Detector(window=1), plugin=False)
            net.register_comm_hook(scheduler, forgive_torch.fsdp_hook)
    optimizer, data, classes = torch.optim.SGD(net.parameters(), lr=0.1), torch.Generator().manual_seed(rank), []
    for _ in range(4):
        optimizer.zero_grad()
        inputs, targets = torch.randn(8, 20, generator=data), torch.randn(8, 3, generator=data)
        torch.nn.functional.mse_loss(net(inputs), targets).backward()
        if hooked:
            classes.append((hook.scheduler if hook else scheduler).critical)
        if hooked and not hook:
            scheduler.end(1.0)
        optimizer.step()
    if hook:
        hook.finish()
    parts = [each.to_local() if hasattr(each, "to_local") else each for each in net.parameters()]
    return torch.cat([part.detach().flatten() for part in parts]).tolist(), classes


def shard_models(rank):
    """By kind: whether the hook changed a bit, and the classes of the steps; or why it is refused."""
    if not hasattr(dist, "device_mesh"):  # this PyTorch shards on GPUs alone
        try:
            forgive_torch.register_sharded(torch.nn.Linear(2, 2))
        except forgive_torch.ForgiveError as error:
            return {"refused": str(error)}
    found = {}
    for kind in ("fully_shard", "FullyShardedDataParallel"):
        without, (parameters, classes) = train_sharded(rank, kind, False)[0], train_sharded(rank, kind, True)
        found[kind] = {"same": parameters == without, "classes": classes}
    return found


class Short(torch.nn.Module):
    """Its gradient is in half precision, whose largest number is less than the gradient's norm."""

    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(100).half())

    def forward(self, _):
        return (self.weight.float() * 60000).sum()


def said_of(call):
    try:
        call()
    except forgive_torch.ForgiveError as error:
        return str(error)
    return None


def edges(_):
    """The norm of a short gradient; what register says to things that it cannot take."""
    model = DistributedDataParallel(Short())
    hook = forgive_torch.register(model)
    model(None).backward()
    hook.finish()
    net = torch.nn.Linear(2, 2)
    layers = forgive_torch.Detector(layers=2)
    return {"short": hook.last_norm, "no_model": said_of(lambda: forgive_torch.register(net)), "layers": [
        said_of(lambda: forgive_torch.register(DistributedDataParallel(net), layers, per_layer=True)),
        said_of(lambda: forgive_torch.register(DistributedDataParallel(net), layers))]}


FINDINGS = {"shard": shard_by_hook, "sharded": shard_models, "edges": edges}


def main(rank, ranks, port, modes, steps, out):
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=ranks)
    for mode in modes.split(","):
        if mode in FINDINGS:
            with open(f"{out}/{mode}.{rank}.json", "w", encoding="utf-8") as file:
                json.dump(FINDINGS[mode](rank), file)
        else:
            train(rank, mode, steps, out)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3], sys.argv[4], int(sys.argv[5]), sys.argv[6])
