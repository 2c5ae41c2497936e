# SPDX-License-Identifier: Apache-2.0
# Signals that end the demo: noted when they come, acted upon at safe points only, so that nothing started is lost.
import signal
import time

from errors import Interrupted

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Interrupts:
    """Only the first signal counts; any further one changes nothing."""

    def __init__(self):
        self.number = None

    def install(self):
        for number in SIGNALS:
            signal.signal(number, self._note)

    def _note(self, number, _):
        if self.number is None:
            self.number = number

    def check(self):
        """Raises Interrupted if a signal has come."""
        if self.number is not None:
            raise Interrupted(self.number)

    def pause(self, seconds):
        """Sleeps, but no longer than until a signal."""
        end = time.monotonic() + seconds
        while True:
            self.check()
            rest = end - time.monotonic()
            if rest <= 0:
                return
            time.sleep(min(rest, 0.05))
