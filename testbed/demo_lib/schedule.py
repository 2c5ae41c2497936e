# SPDX-License-Identifier: Apache-2.0
# Which runs there are and in what order: policies in turns, so that the machine's noise hits all alike.
import dataclasses

from parameters import POLICIES


@dataclasses.dataclass(frozen=True)
class Run:
    """20 steps of one policy by one algorithm."""

    row: str        # "main" or "light"
    turn: int       # from 1
    algorithm: str
    policy: str
    traced: bool = False  # its transport writes samples for the plots

    @property
    def label(self):
        return f"{self.row}-{self.algorithm}-{self.policy}-{self.turn}"


@dataclasses.dataclass(frozen=True)
class Block:
    """Runs that are compared with each other: done whole, or not at all."""

    row: str
    turn: int
    algorithm: str
    runs: tuple


def blocks(run, policies):
    """In the order of their importance: first turns of both algorithms, the light row, then further turns."""
    order = [("main", 1, algorithm) for algorithm in run["algorithms"]]
    order += [("light", turn, algorithm) for turn in range(1, run["light_turns"] + 1)
              for algorithm in run["light_algorithms"]]
    order += [("main", turn, algorithm) for turn in range(2, run["turns"] + 1) for algorithm in run["algorithms"]]
    return [Block(row, turn, algorithm,
                  tuple(Run(row, turn, algorithm, policy, traced=(row == "main" and turn == 1 and policy != "tcp"))
                        for policy in policies))
            for row, turn, algorithm in order]


def select(names, userspace):
    """The policies to run: all, or those of a list by commas; in user space not TCP, which no relay can trim."""
    chosen = [name for name in POLICIES if not names or name in names.split(",")]
    unknown = [name for name in names.split(",") if names and name not in POLICIES]
    if userspace and "tcp" in chosen:
        chosen.remove("tcp")
    return chosen, unknown


class Budget:
    """Whether a block still fits into the time, judged by the blocks that were done."""

    def __init__(self, limit_seconds):
        self.limit_seconds = limit_seconds
        self.seconds_of = {}  # (row, algorithm) -> longest block

    def note(self, block, seconds):
        key = (block.row, block.algorithm)
        self.seconds_of[key] = max(seconds, self.seconds_of.get(key, 0))

    def expected_seconds(self, block):
        known = self.seconds_of.get((block.row, block.algorithm)) or self.seconds_of.get(("main", block.algorithm))
        if known is None and self.seconds_of:
            known = max(self.seconds_of.values())
        return known

    def fits(self, block, elapsed_seconds):
        """The first turn of the main row is always done."""
        if block.row == "main" and block.turn == 1:
            return True
        expected = self.expected_seconds(block)
        return expected is None or elapsed_seconds + expected <= self.limit_seconds

    def seconds_left(self, blocks_left):
        """An estimate of what these will take; None while nothing is known."""
        estimates = [self.expected_seconds(block) for block in blocks_left]
        return None if None in estimates else sum(estimates)
