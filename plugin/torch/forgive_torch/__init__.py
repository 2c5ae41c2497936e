# SPDX-License-Identifier: Apache-2.0
"""FORGIVE for PyTorch: steps, the detector of critical steps, communication hooks, statistics and the ledger.

Only what is named after torch's own things needs torch: the rest works without it, and what needs it says so.
"""
from typing import TYPE_CHECKING

from .detector import Detector
from .environment import enable
from .library import ForgiveError, find_library, load, why_no_torch
from .scheduler import StepScheduler
from .statistics import ledger, stats, step_stats

if TYPE_CHECKING:  # what __getattr__ gives, for checkers of types
    from .hooks import GradientHook, all_reduce_carrier, gradient_group, reduce_scatter_carrier, register
    from .sharding import ShardedGradientHook, fsdp_hook, register_sharded

__version__ = "0.1.0"

_NEEDS_TORCH = {name: room for room, names in {
    "hooks": ("GradientHook", "register", "gradient_group", "all_reduce_carrier", "reduce_scatter_carrier"),
    "sharding": ("ShardedGradientHook", "register_sharded", "fsdp_hook")}.items() for name in names}

__all__ = ["Detector", "ForgiveError", "GradientHook", "ShardedGradientHook", "StepScheduler", "all_reduce_carrier",
           "enable", "find_library", "fsdp_hook", "gradient_group", "ledger", "load", "reduce_scatter_carrier",
           "register", "register_sharded", "stats", "step_stats"]


def __getattr__(name: str) -> object:
    if name not in _NEEDS_TORCH:
        raise AttributeError(f"forgive_torch has no {name}")
    try:
        import torch.distributed
    except (ImportError, OSError) as error:
        raise ForgiveError(f"forgive_torch.{name} needs PyTorch, which is {why_no_torch(error)}") from error
    if not torch.distributed.is_available():
        raise ForgiveError(f"forgive_torch.{name} needs a PyTorch with torch.distributed; this build has none")
    import importlib
    return getattr(importlib.import_module("." + _NEEDS_TORCH[name], __name__), name)
