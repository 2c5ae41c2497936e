# SPDX-License-Identifier: Apache-2.0
"""Checkpoints of a run: a file a rank and step, since replicas may differ; the newest that all ranks have counts."""
import datetime
import io
import os
import re

import torch
import torch.distributed as dist

from whole_files import write_whole
from identity import difference

KEPT = 2  # of the newest, since a rank may be lost while the others write


class CheckpointError(RuntimeError):
    """One line: which file, and what is wrong with it."""


def minutes(seconds):
    return datetime.timedelta(seconds=seconds)


def _folder(plan):
    return os.path.join(plan["folder"], "checkpoints")


def _steps(plan, rank):
    """The steps of this rank's checkpoints."""
    try:
        names = os.listdir(_folder(plan))
    except FileNotFoundError:
        return []
    return sorted(int(found.group(1)) for found in
                  (re.fullmatch(rf"step(\d+)\.rank{rank}\.pt", name) for name in names) if found)


def write_tensors(path, what):
    """As torch.save does, which ends the process where the disk is full."""
    content = io.BytesIO()
    torch.save(what, content)
    write_whole(path, content.getvalue())


def save(plan, rank, step, net, optimizer, scheduler):
    """Whole or not at all."""
    os.makedirs(_folder(plan), exist_ok=True)
    write_tensors(os.path.join(_folder(plan), f"step{step}.rank{rank}.pt"),
                  {"step": step, "identity": plan["identity"], "net": net.state_dict(),
                   "optimizer": optimizer.state_dict(), "scheduler": scheduler.state_dict()})
    for old in _steps(plan, rank)[:-KEPT]:
        os.remove(os.path.join(_folder(plan), f"step{old}.rank{rank}.pt"))


def restore(plan, rank, net, optimizer, scheduler):
    """Puts the newest common checkpoint back, if the plan resumes. Returns its step, or 0."""
    if not plan["resume"]:
        return 0
    everyones = [None] * plan["ranks"]
    dist.all_gather_object(everyones, _steps(plan, rank))
    common = set(everyones[0]).intersection(*everyones[1:])
    if not common:
        return 0
    step = max(common)
    path = os.path.join(_folder(plan), f"step{step}.rank{rank}.pt")
    try:
        saved = torch.load(path, weights_only=False)  # our own file: it holds more than tensors
    except Exception as error:  # torch raises whatever the damage is
        raise CheckpointError(f"{path}: not a checkpoint: {error}; remove it and start again") from error
    other = difference(saved["identity"], plan)
    if other is not None:
        raise CheckpointError(f"{path}: of another run ({other}): remove it, or give the same options")
    net.load_state_dict(saved["net"])
    optimizer.load_state_dict(saved["optimizer"])
    scheduler.load_state_dict(saved["scheduler"])
    return step
