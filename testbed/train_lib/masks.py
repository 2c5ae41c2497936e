# SPDX-License-Identifier: Apache-2.0
"""Loss injection without a network: each rank's contribution to a sum loses segments, by chance or as a ledger says.

What a trim in the reduce-scatter phase of a direct all-reduce does: the receiver of a shard sums zeros for a segment
of one sender. All ranks end with the same result, as after FORGIVE_ELIGIBLE=reduce.
"""
import json

import numpy
import torch
import torch.distributed as dist

from carrier import Carrier

SEGMENT_ELEMENTS = 1024  # 4,096 bytes: one packet


class MaskError(RuntimeError):
    """One line: what is wrong with the masks."""


# The columns of forgive_perf --ledger, which are parted by spaces.
PERF_COLUMNS = ("operation", "step", "source", "destination", "connection_id", "message", "message_in_operation",
                "offset", "length", "contributions")


def _rows(path):
    """(step, place, offset, length) of each line: CSV with a header, JSON lines, or forgive_perf --ledger. `place`
    names the message; where a line does not say it, it is a place of its own."""
    with open(path, encoding="utf-8", errors="replace") as file:
        names = None
        for number, line in enumerate(file, 1):
            try:
                if line.startswith("#"):
                    continue
                if line.startswith("{"):
                    row = json.loads(line)
                elif "," in line:
                    if names is None:
                        names = line.strip().split(",")
                        continue
                    row = dict(zip(names, line.strip().split(",")))
                else:
                    row = dict(zip(PERF_COLUMNS, line.split(), strict=True))
                place = (row["connection_id"], row["message"]) if "message" in row else number
                yield int(row["step"]), place, int(row.get("offset", 0)), int(row["length"])
            except (ValueError, TypeError, KeyError) as error:
                raise MaskError(f"{path}:{number}: no step and length there ({error!r})") from error


def read_bursts(path):
    """By step, the lengths of the forgiven stretches in segments. A ledger has a line a packet: neighbours in a
    message are one stretch."""
    bursts, last = {}, (None, None, None)
    try:
        for step, place, offset, length in sorted(_rows(path), key=str_of_place):
            if (step, place, offset) == last:
                bursts[step][-1] += length
            else:
                bursts.setdefault(step, []).append(length)
            last = (step, place, offset + length)
    except OSError as error:
        raise MaskError(f"{path}: {error.strerror}") from error
    if not bursts:
        raise MaskError(f"{path}: holds no line")
    return {step: [max(1, length // (4 * SEGMENT_ELEMENTS)) for length in lengths]
            for step, lengths in bursts.items()}


def str_of_place(row):
    return row[0], str(row[1]), row[2]


class Masks(Carrier):
    """A carrier: zeroes segments of this rank's bucket for each other rank's shard, then sums by gloo.

    setting: {"p_low": ..., "p_high": ..., "bursts": FILE or None}. The class of the open step chooses the rate.
    """

    def __init__(self, setting, rank, ranks, seed):
        super().__init__()
        self.setting, self.rank, self.ranks, self.seed = setting, rank, ranks, seed
        self.scheduler = None
        self._bursts = read_bursts(setting["bursts"]) if setting.get("bursts") else None
        self._taken = [0, 0]  # bytes lost, bytes that could be lost
        self._bucket = (0, 0)  # (step, buckets of it so far)

    def take(self):
        """The bytes lost since the last call, and of how many."""
        taken, self._taken = self._taken, [0, 0]
        return {"lost": taken[0], "of": taken[1]}

    def lost_segments(self, segments, step, bucket, rate):
        """Which segments are lost; the same for the same seed, rank, step and bucket."""
        generator = numpy.random.default_rng([self.seed, self.rank, step, bucket])
        if self._bursts is None:
            return generator.random(segments) < rate
        lost = numpy.zeros(segments, dtype=bool)
        keys = sorted(self._bursts)
        lengths = self._bursts[keys[step % len(keys)]]
        budget = int(rate * segments)
        while budget > 0:
            length = min(int(generator.choice(lengths)), budget)
            first = int(generator.integers(segments))
            lost[first:first + length] = True
            budget -= length
        return lost

    def _sum(self, group, tensor):
        step = self.scheduler.step_open
        self._bucket = (step, self._bucket[1] + 1 if self._bucket[0] == step else 0)
        rate = self.setting["p_low" if self.scheduler.critical else "p_high"]
        segments = -(-tensor.numel() // SEGMENT_ELEMENTS)
        lost = self.lost_segments(segments, step, self._bucket[1], rate)
        # A rank keeps its own part: nothing of the shard that it sums itself crosses the network.
        own = -(-segments // self.ranks)
        lost[self.rank * own:(self.rank + 1) * own] = False
        mask = torch.from_numpy(numpy.repeat(lost, SEGMENT_ELEMENTS)[:tensor.numel()])
        tensor[mask] = 0
        self._taken[0] += int(mask.sum()) * 4
        self._taken[1] += tensor.numel() * 4 * (self.ranks - 1) // self.ranks
        dist.all_reduce(tensor, group=group)
