# SPDX-License-Identifier: Apache-2.0
"""The plugin's ledger of one rank, taken step by step: into a file at once, so that a rank that is lost leaves it."""
import numpy

import forgive_torch
from whole_files import keep_lines, named
from forgive_torch import library

NAMES = numpy.dtype(library.Range).names


class RankLedger:
    """The lines of this process, and a CSV file that goes on after a restart."""

    def __init__(self, path):
        self._path = path
        self._taken = 0  # lines of this process

    def begin_after(self, step):
        """Drops the file's lines of later steps: they will be made again."""
        def wanted(row):
            values = row.split(",")
            return len(values) == len(NAMES) and all(map(str.isdigit, values)) and (
                int(values[NAMES.index("step")]) <= step)
        keep_lines(self._path, wanted, ",".join(NAMES) + "\n")

    def take(self):
        """The sums of the lines since the last call, by step: {"bytes": {...}, "contributions": {...}}."""
        lines = forgive_torch.ledger(self._taken)
        self._taken += len(lines)
        with named(self._path), open(self._path, "a", encoding="ascii") as file:
            numpy.savetxt(file, lines, fmt="%d", delimiter=",")
        steps, place = numpy.unique(lines["step"], return_inverse=True)
        lengths = lines["length"].astype(numpy.int64)

        def by_step(values):
            return dict(zip(map(int, steps), map(int, numpy.bincount(place, values, len(steps)))))
        return {"bytes": by_step(lengths), "contributions": by_step(lengths * lines["contributions"])}
