# SPDX-License-Identifier: Apache-2.0
"""The detector of critical steps: the plugin's own C++ class, called through forgive.h."""
from __future__ import annotations

import ctypes
from typing import Any, Iterable, Optional, Union

from . import library as lib

KINDS = {"accordion": 0, "dblp": 1, "steps": 2}
_MOST_U64 = 2**64 - 1


def _whole(name: str, value: Any, most: int = _MOST_U64) -> int:
    """A whole number that the C interface holds: ctypes would cut any other one, or take it for a large one."""
    if isinstance(value, bool) or not hasattr(value, "__index__") or not 0 <= value.__index__() <= most:
        raise lib.ForgiveError(f"detector: {name}={value}: give a whole number from 0 to {most}")
    return int(value.__index__())


def _numbers(norms: Any) -> list[float]:
    """A number of any kind (also a tensor's or an array's only one), or several."""
    single = not hasattr(norms, "__iter__") or getattr(norms, "ndim", 1) == 0
    try:
        return [float(norms)] if single else [float(norm) for norm in norms]
    except (TypeError, ValueError) as error:
        raise lib.ForgiveError(f"detector: norms {norms!r}: give a number, or one a layer") from error


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
        self.kind, self.layers = kind, _whole("layers", layers, 2**32 - 1)
        self.window, self.steps = _whole("window", window), [_whole("step", step) for step in steps]
        (self.threshold,) = _numbers(threshold)
        config = lib.DetectorConfig(ctypes.sizeof(lib.DetectorConfig), KINDS[kind], self.layers, self.window,
                                    self.threshold, (ctypes.c_uint64 * max(1, len(self.steps)))(*self.steps),
                                    len(self.steps))
        self._handle = self._library.forgive_detector_create(ctypes.byref(config))
        if not self._handle:
            raise lib.ForgiveError(lib.last_error(self._library))

    def __del__(self) -> None:
        if getattr(self, "_handle", None):
            self._library.forgive_detector_destroy(self._handle)
            self._handle = None

    def __reduce__(self) -> tuple[Any, ...]:
        """A copy, and what comes out of a pickle, is a detector of its own with the same state; it uses the library
        of its process."""
        return _restored, (self.kind, self.window, self.threshold, self.layers, self.steps, self.state())

    def is_critical(self, step: int) -> bool:
        """The class of a step that begins now."""
        code = self._library.forgive_detector_is_critical(self._handle, _whole("step", step))
        return lib.check(self._library, code) == 1

    def is_layer_critical(self, layer: int) -> bool:
        code = self._library.forgive_detector_is_layer_critical(self._handle, _whole("layer", layer, 2**32 - 1))
        return lib.check(self._library, code) == 1

    def observe(self, step: int, norms: Union[float, Iterable[float]]) -> None:
        """The norm of a step, or one a layer. Step numbers rise. NaN, infinite and negative ones are counted."""
        values = _numbers(norms)
        array = (ctypes.c_double * max(1, len(values)))(*values)
        code = self._library.forgive_detector_observe(self._handle, _whole("step", step), array, len(values))
        lib.check(self._library, code)

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
        if not isinstance(state, bytes):
            raise lib.ForgiveError(f"detector: a {type(state).__name__} is no saved state: give what state() returned")
        lib.check(self._library, self._library.forgive_detector_restore(self._handle, state, len(state)))


def _restored(kind: str, window: int, threshold: float, layers: int, steps: list[int], state: bytes) -> Detector:
    detector = Detector(kind, window, threshold, layers, steps)
    detector.restore(state)
    return detector
