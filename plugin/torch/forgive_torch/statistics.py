# SPDX-License-Identifier: Apache-2.0
"""The plugin's counters and its ledger, as dictionaries and numpy arrays."""
from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING, Optional

from . import library as lib

if TYPE_CHECKING:
    import numpy

_BATCH = 65536  # ledger lines a call


def _fields(structure: ctypes.Structure, without: tuple[str, ...]) -> dict[str, int]:
    return {name: getattr(structure, name) for name, *_ in structure._fields_ if name not in without}


def stats(library: Optional[ctypes.CDLL] = None) -> dict[str, int]:
    """Totals of this process, by the names of forgive_stats_t."""
    library = library or lib.load()
    out = lib.Stats(ctypes.sizeof(lib.Stats))
    lib.check(library, library.forgive_stats(ctypes.byref(out)))
    return _fields(out, ("size",))


def step_stats(step: int, library: Optional[ctypes.CDLL] = None) -> dict[str, int]:
    """The account of one of the last 256 steps, by the names of forgive_step_stats_t."""
    library = library or lib.load()
    out = lib.StepStats()
    lib.check(library, library.forgive_step_stats(step, ctypes.byref(out)))
    return _fields(out, ())


def ledger(first: int = 0, library: Optional[ctypes.CDLL] = None) -> "numpy.ndarray":
    """Lines `first` and up of the ledger: a structured array with the fields of forgive_range_t."""
    try:
        import numpy
    except ImportError as error:
        raise lib.ForgiveError(f"forgive_torch.ledger() needs numpy: {error}: pip install numpy, or apt-get install "
                               "python3-numpy") from error
    library = library or lib.load()
    parts = []
    while True:
        lines = numpy.zeros(_BATCH, dtype=numpy.dtype(lib.Range))
        count = lib.check(library, library.forgive_forgiven_ranges(first, lines.ctypes.data, _BATCH))
        parts.append(lines[:count])
        first += count
        if count < _BATCH:
            return numpy.concatenate(parts)
