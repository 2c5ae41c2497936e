# SPDX-License-Identifier: Apache-2.0
# Signals that end the demo: noted when they come, acted upon at safe points only, so that nothing started is lost.
import os
import signal
import sys
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

    def end_at_once(self):
        """From now on nothing runs beside the demo itself: a signal may end it wherever it is."""
        self.check()
        for number in SIGNALS:
            signal.signal(number, _end)

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


def _end(number, _):
    print("demo: interrupted; nothing is left running", file=sys.stderr, flush=True)
    os._exit(128 + number)
