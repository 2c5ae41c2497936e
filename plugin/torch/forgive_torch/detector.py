# SPDX-License-Identifier: Apache-2.0
"""The detector of critical steps: the plugin's own C++ class, called through forgive.h."""
from __future__ import annotations

import ctypes
from typing import Iterable, Optional, Union

from . import library as lib

KINDS = {"accordion": 0, "dblp": 1, "steps": 2}


class Detector:
    """Classifies a step by the gradient norms of the steps before it (docs/detector.md).

    kind: "accordion" (mean norms of windows), "dblp" (the norm at each window's last step) or "steps" (a fixed list).
    window: steps. threshold: the least relative change that is critical. layers: norms a step brings.
    """

    def __init__(self, kind: str = "accordion", window: int = 10, threshold: float = 0.5, layers: int = 1,
                 steps: Iterable[int] = (1, 2, 3, 20), library: Optional[ctypes.CDLL] = None):
        self._library = library or lib.load()
        self._handle: Optional[int] = None
        if kind not in KINDS:
            raise lib.ForgiveError(f"detector {kind}: accepted are {', '.join(KINDS)}")
        steps = list(steps)
        self.kind, self.window, self.threshold, self.layers = kind, window, threshold, layers
        config = lib.DetectorConfig(ctypes.sizeof(lib.DetectorConfig), KINDS[kind], layers, window, threshold,
                                    (ctypes.c_uint64 * max(1, len(steps)))(*steps), len(steps))
        self._handle = self._library.forgive_detector_create(ctypes.byref(config))
        if not self._handle:
            raise lib.ForgiveError(lib.last_error(self._library))

    def __del__(self) -> None:
        if getattr(self, "_handle", None):
            self._library.forgive_detector_destroy(self._handle)
            self._handle = None

    def is_critical(self, step: int) -> bool:
        """The class of a step that begins now."""
        return lib.check(self._library, self._library.forgive_detector_is_critical(self._handle, step)) == 1

    def is_layer_critical(self, layer: int) -> bool:
        return lib.check(self._library, self._library.forgive_detector_is_layer_critical(self._handle, layer)) == 1

    def observe(self, step: int, norms: Union[float, Iterable[float]]) -> None:
        """The norm of a step, or one a layer. Step numbers rise. NaN, infinite and negative ones are counted."""
        values = [float(norms)] if isinstance(norms, (int, float)) else [float(norm) for norm in norms]
        array = (ctypes.c_double * max(1, len(values)))(*values)
        lib.check(self._library, self._library.forgive_detector_observe(self._handle, step, array, len(values)))

    def stats(self) -> dict[str, int]:
        """observed_steps, windows (whole ones) and bad_norms."""
        out = lib.DetectorStats(ctypes.sizeof(lib.DetectorStats))
        lib.check(self._library, self._library.forgive_detector_stats(self._handle, ctypes.byref(out)))
        return {name: getattr(out, name) for name, *_ in lib.DetectorStats._fields_ if name != "size"}

    def state(self) -> bytes:
        """Everything, for a checkpoint."""
        size = lib.check(self._library, self._library.forgive_detector_save(self._handle, None, 0))
        out = ctypes.create_string_buffer(size)
        lib.check(self._library, self._library.forgive_detector_save(self._handle, out, size))
        return out.raw

    def restore(self, state: bytes) -> None:
        """Goes on from state(); the settings must be those of the saved detector."""
        lib.check(self._library, self._library.forgive_detector_restore(self._handle, state, len(state)))
