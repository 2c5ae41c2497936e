# SPDX-License-Identifier: Apache-2.0
"""FORGIVE for PyTorch: steps, the detector of critical steps, communication hooks, statistics and the ledger.

Only what is named after torch's own things needs torch: the rest works without it, and what needs it says so.
"""
from .detector import Detector
from .environment import enable
from .library import ForgiveError, find_library, load
from .scheduler import StepScheduler
from .statistics import ledger, stats, step_stats

__version__ = "0.1.0"

_NEEDS_TORCH = {name: room for room, names in {
    "hooks": ("GradientHook", "register", "gradient_group", "all_reduce_carrier", "reduce_scatter_carrier"),
    "sharding": ("ShardedGradientHook", "register_sharded", "fsdp_hook")}.items() for name in names}

__all__ = ["Detector", "ForgiveError", "StepScheduler", "enable", "find_library", "ledger", "load", "stats",
           "step_stats", *_NEEDS_TORCH]


def __getattr__(name: str) -> object:
    if name not in _NEEDS_TORCH:
        raise AttributeError(f"forgive_torch has no {name}")
    try:
        import torch.distributed
    except ImportError as error:
        raise ForgiveError(f"forgive_torch.{name} needs PyTorch, which is not installed: pip install torch, or "
                           "apt-get install python3-torch") from error
    if not torch.distributed.is_available():
        raise ForgiveError(f"forgive_torch.{name} needs a PyTorch with torch.distributed; this build has none")
    import importlib
    return getattr(importlib.import_module("." + _NEEDS_TORCH[name], __name__), name)
