# SPDX-License-Identifier: Apache-2.0
"""The plugin's ledger of one rank, taken step by step: into a file at once, so that a rank that is lost leaves it."""
import os

import numpy

import forgive_torch
from forgive_torch import library


class RankLedger:
    """The lines of this process, and a CSV file that goes on after a restart."""

    def __init__(self, path):
        self._path = path
        self._taken = 0  # lines of this process

    def begin_after(self, step):
        """Drops the file's lines of later steps: they will be made again."""
        lines = []
        if os.path.exists(self._path):
            with open(self._path, encoding="ascii") as file:
                names, *rows = file.read().splitlines() or [""]
            place = names.split(",").index("step")
            # A line that was cut short by the end of its process is of a later step too.
            lines = [row for row in rows if row.count(",") == names.count(",") and int(row.split(",")[place]) <= step]
        with open(self._path + ".new", "w", encoding="ascii") as file:
            file.write("\n".join([",".join(numpy.dtype(library.Range).names), *lines]) + "\n")
        os.replace(self._path + ".new", self._path)

    def take(self):
        """The sums of the lines since the last call, by step: {"bytes": {...}, "contributions": {...}}."""
        lines = forgive_torch.ledger(self._taken)
        self._taken += len(lines)
        with open(self._path, "a", encoding="ascii") as file:
            numpy.savetxt(file, lines, fmt="%d", delimiter=",")
        steps, place = numpy.unique(lines["step"], return_inverse=True)
        lengths = lines["length"].astype(numpy.int64)

        def by_step(values):
            return dict(zip(map(int, steps), map(int, numpy.bincount(place, values, len(steps)))))
        return {"bytes": by_step(lengths), "contributions": by_step(lengths * lines["contributions"])}
