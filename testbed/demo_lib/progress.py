# SPDX-License-Identifier: Apache-2.0
# One line a run while the demo works, with an estimate of the time that is left.
import sys
import time


def duration(seconds):
    seconds = max(0, round(seconds))
    return f"{seconds // 60}:{seconds % 60:02d}"


class Progress:
    def __init__(self, total):
        self.total = total
        self.done = 0
        self.started = time.monotonic()
        self.terminal = sys.stdout.isatty()

    def elapsed(self):
        return time.monotonic() - self.started

    def begin(self, run):
        self.done += 1
        self._text = f"[{self.done:2}/{self.total}] {run.row:<5} {run.algorithm:<7}{run.policy:<15}"
        if self.terminal:
            print(f"{self._text} ...", end="", flush=True)

    def end(self, result, seconds_left):
        left = f"about {duration(seconds_left)} left" if seconds_left is not None else ""
        print(f"{chr(13) if self.terminal else ''}{self._text} {result.total_s:6.2f} s  {left:<18}", flush=True)

    def abandon(self):
        """The line of a run that did not come to its end."""
        if self.terminal:
            print(flush=True)

    def skip(self, count):
        self.total -= count
