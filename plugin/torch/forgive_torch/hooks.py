# SPDX-License-Identifier: Apache-2.0
"""The communication hook for DistributedDataParallel, and the process group that carries gradients."""
# No postponed annotations here: DDP looks at the real types of a hook's arguments. (torch declares GradBucket, but not
# to checkers of types.)
import inspect
from typing import Any, Callable, Optional, cast

import torch
import torch.distributed as dist

from .detector import Detector
from .environment import traffic_class
from .library import ForgiveError
from .scheduler import StepScheduler

# What carries a bucket: sums the tensor over the group's ranks, in place, and gives a future of that tensor.
Carrier = Callable[[Any, torch.Tensor], torch.futures.Future[torch.Tensor]]


def gradient_group(ranks: Optional[list[int]] = None, backend: Optional[str] = None) -> Any:
    """A process group of its own for gradients, marked for the plugin where this PyTorch can: by NCCL's traffic class
    (PyTorch 2.8 and later) and by its description, which becomes the communicator's name. Every rank must call it."""
    if not dist.is_initialized():
        raise ForgiveError("forgive_torch.gradient_group(): call init_process_group first")
    backend = backend or dist.get_backend()
    options: dict[str, Any] = {"ranks": ranks, "backend": backend}
    if "group_desc" in inspect.signature(dist.new_group).parameters:
        options["group_desc"] = "forgive_gradients"
    if backend == "nccl":  # where it is one of several, the options of one are not taken
        nccl = dist.ProcessGroupNCCL.Options()
        if hasattr(getattr(nccl, "config", None), "traffic_class"):
            setattr(nccl.config, "traffic_class", traffic_class())
            options["pg_options"] = nccl
    return dist.new_group(**options)


def all_reduce_carrier(group: Any, tensor: torch.Tensor) -> torch.futures.Future[torch.Tensor]:
    """One all-reduce."""
    work = cast(Any, dist.all_reduce(tensor, group=group, async_op=True))
    future: torch.futures.Future[torch.Tensor] = work.get_future().then(lambda done: done.value()[0])
    return future


def reduce_scatter_carrier(group: Any, tensor: torch.Tensor) -> torch.futures.Future[torch.Tensor]:
    """A reduce-scatter and an all-gather of the shards, so that the two phases are two collectives. gloo, which has
    no reduce-scatter, does an all-to-all and a local sum in rank order (the direct kind). Waits on CPU tensors."""
    group = group if group is not None else dist.group.WORLD
    ranks = dist.get_world_size(group)
    count = -(-tensor.numel() // ranks) * ranks
    padded = tensor if count == tensor.numel() else torch.nn.functional.pad(tensor, (0, count - tensor.numel()))
    if uses_nccl(group, tensor.device):
        shard = torch.empty(count // ranks, dtype=tensor.dtype, device=tensor.device)
        dist.reduce_scatter_tensor(shard, padded, group=group)
        if padded is tensor:
            work = cast(Any, dist.all_gather_into_tensor(tensor, shard, group=group, async_op=True))
            future: torch.futures.Future[torch.Tensor] = work.get_future().then(lambda _: tensor)
            return future
        whole = torch.empty_like(padded)
        dist.all_gather_into_tensor(whole, shard, group=group)
    else:
        parts = torch.empty_like(padded)
        dist.all_to_all_single(parts, padded, group=group)
        pieces = list(parts.chunk(ranks))
        shard = pieces[0].clone()
        for piece in pieces[1:]:
            shard += piece
        gathered = [torch.empty_like(shard) for _ in range(ranks)]
        dist.all_gather(gathered, shard, group=group)
        whole = torch.cat(gathered)
    tensor.copy_(whole[: tensor.numel()])
    return _done(tensor)


def _done(tensor: torch.Tensor) -> torch.futures.Future[torch.Tensor]:
    devices: Any = [tensor.device] if tensor.device.type == "cuda" else None
    future: torch.futures.Future[torch.Tensor] = torch.futures.Future(devices=devices)
    future.set_result(tensor)
    return future


def uses_nccl(group: Any, device: torch.device) -> bool:
    """Whether NCCL carries the group's tensors of this device; init_process_group() without a backend has one a kind
    of device."""
    if device.type != "cuda":
        return False
    backends = [dist.get_backend(group)]
    if hasattr(dist, "get_backend_config"):  # PyTorch 2.0 and later
        backends.append(dist.get_backend_config(group))
    return any("nccl" in backend for backend in backends)


def norm_of(gradient: torch.Tensor) -> torch.Tensor:
    """The Euclidean norm; of the short kinds of numbers in float32, since theirs ends at 65,504 or has three digits."""
    short = gradient.dtype in (torch.float16, torch.bfloat16)
    return torch.linalg.vector_norm(gradient, dtype=torch.float32 if short else None)


def synchronize(tensor: Optional[torch.Tensor]) -> None:
    """Waits for the tensor's device."""
    if tensor is not None and tensor.device.type == "cuda":
        torch.cuda.synchronize(tensor.device)


class GradientHook:
    """A DDP communication hook: begins a step at its first bucket, computes the norm of the rank's own gradients,
    passes the buckets on, and ends the step before the next forward pass (or at the last bucket, if the carrier has
    then finished). Averages, as DDP does without a hook.

    per_layer: one norm a parameter instead of the whole model's; the detector must then have as many layers.
    """

    def __init__(self, scheduler: StepScheduler, carrier: Carrier = all_reduce_carrier, *,
                 parameters: Optional[list[torch.nn.Parameter]] = None, per_layer: bool = False):
        self.scheduler = scheduler
        self.carrier = carrier
        self._layer_of = {id(parameter): place for place, parameter in enumerate(parameters or [])}
        self._per_layer = per_layer
        self._norms: list[tuple[int, torch.Tensor]] = []  # (layer, norm) of this step
        self._last: Optional[torch.Tensor] = None         # a tensor of the open step, for its device
        self._futures: list[Any] = []
        self.last_norm: Optional[float] = None            # the whole model's, of the last step that ended

    def __call__(self, group: Any, bucket: dist.GradBucket  # type: ignore[name-defined]
                 ) -> torch.futures.Future[torch.Tensor]:
        buffer = bucket.buffer()
        if bucket.index() == 0 and self.scheduler.step_open is not None:
            self.finish()  # a backward pass without a forward pass before it
        if self.scheduler.step_open is None:
            synchronize(buffer)
            self.scheduler.begin()
        self._note_norms(bucket, buffer)
        self._last = buffer
        buffer.mul_(1.0 / dist.get_world_size(group))  # as DDP does: a division rounds otherwise
        future = self.carrier(group, buffer)
        self._futures.append(future)
        if bucket.is_last() and buffer.device.type == "cpu" and all(each.done() for each in self._futures):
            self.finish()
        return future

    def _note_norms(self, bucket: Any, buffer: torch.Tensor) -> None:
        if not self._per_layer:
            self._norms.append((0, norm_of(buffer)))
            return
        for parameter, gradient in zip(bucket.parameters(), bucket.gradients()):
            self._norms.append((self._layer_of[id(parameter)], norm_of(gradient)))

    def finish(self) -> None:
        """Ends the open step, if there is one. The model's next forward pass calls it; call it before anything else
        that communicates on the gradient group, and before a checkpoint."""
        if self.scheduler.step_open is None:
            return
        for future in self._futures:
            future.wait()
        synchronize(self._last)
        squares = [0.0] * self.scheduler.detector.layers
        for layer, norm in self._norms:
            squares[layer] += float(norm) ** 2
        self.last_norm = sum(squares) ** 0.5
        self._norms, self._futures, self._last = [], [], None
        self.scheduler.end([square ** 0.5 for square in squares])


def make_scheduler(group: Any, parameters: list[torch.nn.Parameter], detector: Detector,
                   expected_bytes: int) -> StepScheduler:
    """Without NCCL beneath, steps are classified but no budget is opened."""
    return StepScheduler(detector, expected_bytes=expected_bytes,
                         plugin=None if uses_nccl(group, parameters[0].device) else False)


def check_layers(scheduler: StepScheduler, layers: int, why: str) -> None:
    """A detector of another number of layers would see none, or zeros for most of them."""
    if scheduler.detector.layers != layers:
        raise ForgiveError(f"{why}, the detector has {scheduler.detector.layers} layers: give Detector(layers={layers})")


def connect(group: Any, parameters: list[torch.nn.Parameter]) -> None:
    """Makes the group's communicator now: else its first collective does, within a step."""
    if uses_nccl(group, parameters[0].device):
        dist.all_reduce(torch.zeros(1, device=parameters[0].device), group=group)


def register(model: torch.nn.parallel.DistributedDataParallel, detector: Optional[Detector] = None, *,
             group: Any = None, scheduler: Optional[StepScheduler] = None, carrier: Carrier = all_reduce_carrier,
             per_layer: bool = False, expected_bytes: int = 0) -> GradientHook:
    """Puts a GradientHook on a DDP model; every rank calls it. `group` carries the gradients: if none is given, the
    model's own process group, or a new gradient_group() where the model has the default one, so that nothing else
    travels with them. Without NCCL beneath, steps are classified but no budget is opened, unless a scheduler with a
    plugin is given."""
    if not isinstance(model, torch.nn.parallel.DistributedDataParallel):
        raise ForgiveError(f"forgive_torch.register(): a {type(model).__name__} is no DistributedDataParallel: give "
                           "what DistributedDataParallel(net) returns")
    if group is None:
        group = gradient_group() if model.process_group is dist.group.WORLD else model.process_group
    parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
    if scheduler is None:
        layers = len(parameters) if per_layer else 1
        scheduler = make_scheduler(group, parameters, detector or Detector(layers=layers), expected_bytes)
    if per_layer:
        check_layers(scheduler, len(parameters), f"per_layer: the model has {len(parameters)} parameters with gradients")
    else:
        check_layers(scheduler, 1, "without per_layer=True a step has one norm")
    connect(group, parameters)
    hook = GradientHook(scheduler, carrier, parameters=parameters, per_layer=per_layer)
    model.register_comm_hook(group, hook.__call__)  # a function: DDP asks for its name
    model.register_forward_pre_hook(lambda module, inputs: hook.finish())
    return hook
