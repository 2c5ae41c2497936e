# SPDX-License-Identifier: Apache-2.0
"""Opens and closes the loss budget of each training step, classified by a detector."""
from __future__ import annotations

import contextlib
import ctypes
import warnings
from typing import Any, Iterable, Iterator, Optional, Union

from . import library as lib
from .detector import Detector

Norms = Union[float, Iterable[float]]


class StepScheduler:
    """For hand-written loops; the communication hook uses one too.

        scheduler = StepScheduler(Detector(window=10))
        for batch in data:
            loss(batch).backward()
            with scheduler.step() as step:           # device synchronised here ...
                all_reduce_gradients()
                step.norm = gradient_norm()          # ... and at the end of the block
            optimizer.step()

    plugin: the loaded library, False for none (the steps are then only numbered and classified).
    """

    def __init__(self, detector: Optional[Detector] = None, *, expected_bytes: int = 0, first_step: int = 1,
                 plugin: Union[ctypes.CDLL, bool, None] = None):
        self.detector = detector or Detector()
        self.expected_bytes = expected_bytes
        self.next_step = first_step
        self.step_open: Optional[int] = None  # the number of the open step
        self.critical = True                  # of the last step begun
        self.budgeted = False                 # whether the plugin opened a budget for it
        self.refused: list[tuple[int, str]] = []  # the first steps that it refused, and why
        self._plugin: Optional[ctypes.CDLL] = None
        if plugin is not False:
            self._plugin = plugin if isinstance(plugin, ctypes.CDLL) else lib.load()

    def begin(self, expected_bytes: Optional[int] = None) -> bool:
        """Begins the next step; device synchronised, no collective running. Returns whether it is critical.

        Where the plugin refuses the budget the step goes on without one: everything arrives, and a warning says why.
        """
        if self.step_open is not None:
            raise lib.ForgiveError(f"step {self.step_open} is open: end it first")
        step = self.next_step
        self.critical = self.detector.is_critical(step)
        self.budgeted = False
        if self._plugin is not None:
            expected = self.expected_bytes if expected_bytes is None else expected_bytes
            code = self._plugin.forgive_step_begin(step, int(self.critical), expected)
            if code == lib.ERROR_BAD_ARGUMENT:
                raise lib.ForgiveError(lib.last_error(self._plugin), code)
            self.budgeted = code == lib.OK
            if code != lib.OK:
                self._refuse(step, lib.last_error(self._plugin))
        self.step_open = step
        self.next_step = step + 1
        return self.critical

    def end(self, norms: Optional[Norms] = None) -> None:
        """Ends the open step; device synchronised. `norms`: of its gradients, for the class of the steps after it."""
        step = self.step_open
        if step is None:
            raise lib.ForgiveError("no step is open: begin one first")
        self.step_open = None
        # First: whatever the norms are, the budget is closed, or no later step would get one.
        if self.budgeted and self._plugin is not None:
            code = self._plugin.forgive_step_end(step)
            if code != lib.OK:
                self._refuse(step, lib.last_error(self._plugin))
        if norms is not None:
            self.detector.observe(step, norms)

    def _refuse(self, step: int, why: str) -> None:
        if not any(text == why for _, text in self.refused):
            warnings.warn(f"forgive_torch: step {step} has no loss budget: {why}", stacklevel=3)
        if len(self.refused) < 1000:
            self.refused.append((step, why))

    class Open:
        """What `with scheduler.step() as step` gives: set step.norm before the block ends."""

        def __init__(self, number: int, critical: bool):
            self.number = number
            self.critical = critical
            self.norm: Optional[Norms] = None

    @contextlib.contextmanager
    def step(self, expected_bytes: Optional[int] = None) -> Iterator["StepScheduler.Open"]:
        critical = self.begin(expected_bytes)
        opened = StepScheduler.Open(self.next_step - 1, critical)
        try:
            yield opened
        finally:
            self.end(opened.norm)

    def state_dict(self) -> dict[str, Any]:
        """For a checkpoint, between steps."""
        self._check_between_steps()
        return {"next_step": self.next_step, "detector": self.detector.state()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Goes on from state_dict(), between steps."""
        self._check_between_steps()
        if not {"next_step", "detector"} <= set(state):
            raise lib.ForgiveError("a scheduler's saved state has next_step and detector; this one has "
                                   + (", ".join(map(str, state)) or "nothing"))
        self.detector.restore(state["detector"])
        self.next_step = state["next_step"]

    def _check_between_steps(self) -> None:
        if self.step_open is not None:
            raise lib.ForgiveError(f"step {self.step_open} is open: take or load a checkpoint between steps")

    def __getstate__(self) -> dict[str, Any]:
        """Of a copy or a pickle, which has the library of its process."""
        self._check_between_steps()
        return {**self.__dict__, "_plugin": self._plugin is not None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state, _plugin=lib.load() if state["_plugin"] else None)
