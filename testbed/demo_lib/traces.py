# SPDX-License-Identifier: Apache-2.0
# From samples of one run to what the plots show: a budget over a step, a flow's rate over steps.
import collections
import dataclasses

PARTS = 1_000_000


@dataclasses.dataclass
class VestingPoint:
    time_ms: float
    vested: float
    forgiven: int
    outstanding: int


@dataclasses.dataclass
class Vesting:
    """A loss budget over one step at one rank. Bytes."""

    policy: str
    algorithm: str
    step: int
    budget: int
    vesting: list


@dataclasses.dataclass
class RatePoint:
    time_s: float
    rate_bps: float
    exempt: bool


@dataclasses.dataclass
class Flow:
    policy: str
    algorithm: str
    points: list


def vesting_of(policy, algorithm, statistics):
    """The step that was not critical and forgave the most, as this rank's samples show it; None without samples."""
    counts = {}
    for sample in statistics.samples:
        counts[sample.step] = counts.get(sample.step, 0) + 1
    candidates = [step for number, step in statistics.steps.items()
                  if not step["critical"] and step["forgiven"] > 0 and counts.get(number, 0) >= 3]
    if not candidates:
        return None
    chosen = max(candidates, key=lambda step: (step["forgiven"], -step["step"]))
    p = chosen["p_ppm"] / PARTS
    points = [VestingPoint((sample.time_s - chosen["begin_ns"] / 1e9) * 1e3,
                           min(p / (1 - p) * sample.received if p < 1 else chosen["budget"], chosen["budget"]),
                           sample.forgiven, sample.outstanding)
              for sample in statistics.samples if sample.step == chosen["step"]]
    return Vesting(policy, algorithm, chosen["step"], chosen["budget"], points)


def flow_of(policy, algorithm, statistics, first_step, last_step):
    """The rate of this rank's first flow between two steps; None without samples. A flow with no rate (0: not
    limited) shows as none."""
    shown = [step for number, step in statistics.steps.items() if first_step <= number <= last_step]
    if not shown:
        return None
    start, end = min(step["begin_ns"] for step in shown) / 1e9, max(step["end_ns"] for step in shown) / 1e9
    chosen = [sample for sample in statistics.samples if start <= sample.time_s <= end]
    seen = collections.Counter(name for sample in chosen for name in sample.rates)
    if not seen:
        return None
    name = seen.most_common(1)[0][0]
    return Flow(policy, algorithm, [RatePoint(sample.time_s - start, *sample.rates[name])
                                    for sample in chosen if name in sample.rates])
