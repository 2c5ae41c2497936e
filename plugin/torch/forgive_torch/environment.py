# SPDX-License-Identifier: Apache-2.0
"""Sets what NCCL and the plugin read from the environment, before either is loaded."""
from __future__ import annotations

import os
import sys
import warnings
from typing import Optional, Union

from .library import ForgiveError, find_library

Setting = Union[str, int, float]


def _too_late() -> bool:
    """Whether a process group of NCCL stands already."""
    torch = sys.modules.get("torch")
    if torch is None or not torch.distributed.is_available() or not torch.distributed.is_initialized():
        return False
    return "nccl" in str(torch.distributed.get_backend())


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


def _fraction(name: str, value: float) -> str:
    """As the plugin reads it."""
    text = format(value, ".6f").rstrip("0").rstrip(".")
    if not 0 <= value <= 1 or float(text) != value:
        raise ForgiveError(f"forgive_torch.enable(): {name}={value}: give a fraction from 0 to 1 with at most six "
                           "decimals")
    return text


def _ring_ranks(given: Optional[int]) -> int:
    for name, value in (("ranks", given), ("FORGIVE_RING_RANKS", os.environ.get("FORGIVE_RING_RANKS")),
                        ("WORLD_SIZE", os.environ.get("WORLD_SIZE"))):
        if value in (None, ""):
            continue
        try:
            count = int(str(value))
        except ValueError:
            raise ForgiveError(f"forgive_torch.enable(): {name}={value}: not a number of ranks") from None
        if count < 2:
            raise ForgiveError(f"forgive_torch.enable(): {name}={value}: a ring has at least 2 ranks")
        return count
    raise ForgiveError("forgive_torch.enable(): how many ranks has the gradient ring? Give ranks=, or set WORLD_SIZE "
                       "(torchrun does)")


def enable(ranks: Optional[int] = None, *, promise: bool = True, p_low: Optional[float] = None,
           p_high: Optional[float] = None, eligible: Optional[str] = None, **variables: Setting) -> dict[str, str]:
    """Makes NCCL load the plugin in this process. Call it before init_process_group, on every rank.

    promise: the operator's word (docs/using.md): the gradient ring has `ranks` ranks (WORLD_SIZE if not given), and
    between a step's begin and end only its all-reduces run; False: nothing is eligible by it. p_low, p_high, eligible
    are FORGIVE_P_LOW, FORGIVE_P_HIGH, FORGIVE_ELIGIBLE; others by their own names, such as FORGIVE_STATS="f.%p".
    What the environment sets already stays (a warning says where that is something else), except that NCCL_NET must
    be forgive, and that without a promise none may be set. Returns what is now set.
    """
    if _too_late():
        raise ForgiveError("forgive_torch.enable() comes too late: NCCL is in use; call it before "
                           "init_process_group")
    wanted: dict[str, Setting] = {"NCCL_NET_PLUGIN": find_library(), "NCCL_NET": "forgive",
                                  "NCCL_NET_PLUGIN_REF_COUNT": "1"}
    if promise:
        wanted.update({"FORGIVE_GRADIENT_TRAFFIC": "all", "FORGIVE_RING_RANKS": _ring_ranks(ranks),
                       "NCCL_ALGO": "Ring", "NCCL_PROTO": "Simple"})
    elif os.environ.get("FORGIVE_GRADIENT_TRAFFIC", "none") != "none":
        raise ForgiveError("forgive_torch.enable(promise=False): FORGIVE_GRADIENT_TRAFFIC="
                           f"{os.environ['FORGIVE_GRADIENT_TRAFFIC']} is set, which is a promise: unset it")
    for name, value in (("FORGIVE_P_LOW", p_low), ("FORGIVE_P_HIGH", p_high), ("FORGIVE_ELIGIBLE", eligible)):
        if value is not None:
            wanted[name] = _fraction(name, value) if isinstance(value, (int, float)) else value
    for name in variables:
        if not name.startswith(("FORGIVE_", "NCCL_")):
            raise ForgiveError(f"forgive_torch.enable(): {name}: names begin with FORGIVE_ or NCCL_")
    wanted.update(variables)
    if os.environ.get("NCCL_NET", "forgive") != "forgive":
        raise ForgiveError(f"NCCL_NET={os.environ['NCCL_NET']}: unset it, or set it to forgive")
    for name, value in wanted.items():
        stands = os.environ.setdefault(name, str(value))
        # The library may be set by another of its names.
        if stands != str(value) and name not in ("NCCL_NET_PLUGIN", "NCCL_NET_PLUGIN_REF_COUNT"):
            warnings.warn(f"forgive_torch.enable(): {name}={stands} is set already and stays; not {value}",
                          stacklevel=2)
    return {name: os.environ[name] for name in wanted}
