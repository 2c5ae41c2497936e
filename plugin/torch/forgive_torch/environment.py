# SPDX-License-Identifier: Apache-2.0
"""Sets what NCCL and the plugin read from the environment, before either is loaded."""
from __future__ import annotations

import os
import sys
from typing import Optional, Union

from .library import ForgiveError, find_library

Setting = Union[str, int, float]


def _too_late() -> bool:
    """Whether a process group of NCCL stands already."""
    torch = sys.modules.get("torch")
    if torch is None or not torch.distributed.is_available() or not torch.distributed.is_initialized():
        return False
    return bool(torch.distributed.get_backend() == "nccl")


DSCP_DATA = 10  # FORGIVE_DSCP_DATA's default
DSCP_SHIFT = 2   # a traffic class is an IP type of service: its upper six bits are the code point


def traffic_class() -> int:
    """Of the gradients' communicator, where NCCL takes one: FORGIVE_TRAFFIC_CLASS, else the class whose code point is
    that of all data (FORGIVE_DSCP_DATA): data packets carry it, and the switch must trim it."""
    for name, default, shift in (("FORGIVE_TRAFFIC_CLASS", None, 0), ("FORGIVE_DSCP_DATA", DSCP_DATA, DSCP_SHIFT)):
        value = os.environ.get(name, default)
        if value is None:
            continue
        try:
            return int(value) << shift
        except ValueError:
            raise ForgiveError(f"{name}={value}: not an integer") from None
    raise AssertionError("the last one has a default")


def enable(ranks: Optional[int] = None, *, promise: bool = True, p_low: Optional[float] = None,
           p_high: Optional[float] = None, eligible: Optional[str] = None, **variables: Setting) -> dict[str, str]:
    """Makes NCCL load the plugin in this process. Call it before init_process_group, on every rank.

    promise: the operator's word (docs/using.md): the gradient ring has `ranks` ranks (WORLD_SIZE if not given), and
    between a step's begin and end only its all-reduces run; False: nothing is eligible by it. p_low, p_high, eligible
    are FORGIVE_P_LOW, FORGIVE_P_HIGH, FORGIVE_ELIGIBLE; others by their own names, such as FORGIVE_STATS="f.%p".
    What the environment sets already stays, except that NCCL_NET must be forgive. Returns what is now set.
    """
    if _too_late():
        raise ForgiveError("forgive_torch.enable() comes too late: NCCL is in use; call it before "
                           "init_process_group")
    wanted: dict[str, Setting] = {"NCCL_NET_PLUGIN": find_library(), "NCCL_NET": "forgive",
                                  "NCCL_NET_PLUGIN_REF_COUNT": "1"}
    if promise:
        count = ranks if ranks is not None else os.environ.get("FORGIVE_RING_RANKS") or os.environ.get("WORLD_SIZE")
        if count is None:
            raise ForgiveError("forgive_torch.enable(): how many ranks has the gradient ring? Give ranks=, or set "
                               "WORLD_SIZE (torchrun does)")
        if int(count) < 2:
            raise ForgiveError(f"forgive_torch.enable(): ranks={count}: a ring has at least 2 ranks")
        wanted.update({"FORGIVE_GRADIENT_TRAFFIC": "all", "FORGIVE_RING_RANKS": int(count), "NCCL_ALGO": "Ring",
                       "NCCL_PROTO": "Simple"})
    for name, value in (("FORGIVE_P_LOW", p_low), ("FORGIVE_P_HIGH", p_high), ("FORGIVE_ELIGIBLE", eligible)):
        if value is not None:
            wanted[name] = format(value, ".6f").rstrip("0") if isinstance(value, float) else value
    for name in variables:
        if not name.startswith(("FORGIVE_", "NCCL_")):
            raise ForgiveError(f"forgive_torch.enable(): {name}: names begin with FORGIVE_ or NCCL_")
    wanted.update(variables)
    if os.environ.get("NCCL_NET", "forgive") != "forgive":
        raise ForgiveError(f"NCCL_NET={os.environ['NCCL_NET']}: unset it, or set it to forgive")
    for name, value in wanted.items():
        os.environ.setdefault(name, str(value))
    return {name: os.environ[name] for name in wanted}
