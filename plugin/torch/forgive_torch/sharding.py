# SPDX-License-Identifier: Apache-2.0
"""Hooks for sharded training: fully_shard, and FullyShardedDataParallel before it."""
import math
from typing import Any, Optional, Sequence

import torch
import torch.distributed as dist

from .detector import Detector
from .hooks import check_layers, connect, gradient_group, make_scheduler, norm_of, synchronize
from .library import ForgiveError
from .scheduler import StepScheduler


class ShardedGradientHook:
    """The reduce-scatter of a model made by fully_shard, on a process group of its own: parameters, which may never
    be lost, travel by all-gathers on the model's. Begins a step at the first gradient, takes the norm of the rank's
    own gradients, and ends the step before the next forward pass."""

    def __init__(self, scheduler: StepScheduler, group: Any):
        self.scheduler = scheduler
        self.group = group
        self._norms: list[torch.Tensor] = []
        self._last: Optional[torch.Tensor] = None  # a tensor of the open step, for its device
        self.last_norm: Optional[float] = None     # of the last step that ended

    def allocate(self, size: Sequence[int], *, dtype: torch.dtype, device: torch.device) -> torch.Tensor:
        """As fully_shard asks for its buffers."""
        return torch.empty(*size, dtype=dtype, device=device)

    def __call__(self, output_tensor: torch.Tensor, input_tensor: torch.Tensor, group: Any, op: Any,
                 async_op: bool = False) -> Any:
        if self.scheduler.step_open is None:
            synchronize(input_tensor)
            self.scheduler.begin()
        self._norms.append(norm_of(input_tensor))
        self._last = input_tensor
        return dist.reduce_scatter_tensor(output_tensor, input_tensor, op=op, group=self.group, async_op=async_op)

    def finish(self) -> None:
        """Ends the open step, if there is one. The next forward pass calls it; call it before a checkpoint."""
        if self.scheduler.step_open is None:
            return
        synchronize(self._last)
        self.last_norm = math.sqrt(sum(float(norm) ** 2 for norm in self._norms))
        self._norms, self._last = [], None
        self.scheduler.end(self.last_norm)


def register_sharded(model: torch.nn.Module, detector: Optional[Detector] = None, *, group: Any = None,
                     scheduler: Optional[StepScheduler] = None, expected_bytes: int = 0) -> ShardedGradientHook:
    """Puts a ShardedGradientHook on a model made by fully_shard, sharded over all ranks; every rank calls it. `group`
    carries the gradients: a new gradient_group() if none is given, else one with the same ranks in the same order."""
    sharded = [module for module in model.modules() if hasattr(module, "set_custom_reduce_scatter")]
    if not sharded:
        raise ForgiveError("forgive_torch.register_sharded(): nothing in this model was made by a fully_shard that "
                           "takes a reduce-scatter of one's own: newer PyTorch's does")
    group = gradient_group() if group is None else group
    parameters = list(model.parameters())
    scheduler = scheduler or make_scheduler(group, parameters, detector or Detector(), expected_bytes)
    check_layers(scheduler, 1, "a step of a sharded model has one norm")
    connect(group, parameters)
    hook = ShardedGradientHook(scheduler, group)
    for module in sharded:
        getattr(module, "set_custom_reduce_scatter")(hook)
    model.register_forward_pre_hook(lambda module, inputs: hook.finish(), prepend=True)
    return hook


def fsdp_hook(state: StepScheduler, gradient: torch.Tensor, output: Optional[torch.Tensor] = None) -> None:
    """A hook for FullyShardedDataParallel.register_comm_hook(scheduler, fsdp_hook): begins a step at the first
    gradient and reduce-scatters; the loop ends it with scheduler.end(norm) after backward. Parameters travel by
    all-gathers on the same group within the step, which the operator's word forbids: use it only where the plugin
    proves collectives by itself, with enable(promise=False) (docs/using-with-pytorch.md)."""
    if state.step_open is None:
        synchronize(gradient)
        state.begin()
    group = dist.group.WORLD
    gradient.div_(dist.get_world_size(group))
    if output is None:
        dist.all_reduce(gradient, group=group)
    else:
        dist.reduce_scatter_tensor(output, gradient, group=group)
