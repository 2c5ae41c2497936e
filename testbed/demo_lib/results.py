# SPDX-License-Identifier: Apache-2.0
# What a run gave, and how the turns of one policy become its row in results.json.
import dataclasses
import statistics

COUNTERS = ("forgiven_bytes", "gradient_bytes", "retransmitted_bytes", "trims", "switch_trims", "marks",
            "rate_cuts_mark", "rate_cuts_trim", "rate_cuts_timeout", "timeouts", "sent_bytes", "sent_exempt_bytes",
            "contributions_lost", "signals_ignored", "mode_changes", "wrong", "budget_violations")


@dataclasses.dataclass
class Step:
    """One step of one run: the slowest rank's time, the bytes of all ranks together."""

    step: int
    critical: bool
    allreduce_ms: float
    expected: int = 0
    received: int = 0
    forgiven: int = 0
    contributions_lost: int = 0


@dataclasses.dataclass
class RunResult:
    """One run. `counters` has a key for each of COUNTERS; `switch` holds what the switch counted meanwhile."""

    run: object
    total_s: float
    steps: list
    counters: dict
    switch: dict
    ranks_identical: bool
    faults: list = dataclasses.field(default_factory=list)  # lines that say what did not hold
    trace: object = None


def _median_steps(results):
    merged = []
    for turns in zip(*(result.steps for result in results)):
        merged.append({
            "step": turns[0].step,
            "critical": turns[0].critical,
            "allreduce_ms": round(statistics.median(turn.allreduce_ms for turn in turns), 3),
            "expected": sum(turn.expected for turn in turns),
            "received": sum(turn.received for turn in turns),
            "forgiven": sum(turn.forgiven for turn in turns),
            "contributions_lost": sum(turn.contributions_lost for turn in turns),
        })
    return merged


def merge(results):
    """The turns of one policy and algorithm as one row: times are medians of the turns, counters are sums."""
    total = {name: sum(result.counters[name] for result in results) for name in COUNTERS}
    switch = {}
    for result in results:
        for name, value in result.switch.items():
            switch[name] = switch.get(name, 0) + value
    return {
        "name": results[0].run.policy,
        "algorithm": results[0].run.algorithm,
        "total_s": round(statistics.median(result.total_s for result in results), 4),
        "steps": _median_steps(results),
        "forgiven_bytes": total["forgiven_bytes"],
        "gradient_bytes": total["gradient_bytes"],
        "retransmitted_bytes": total["retransmitted_bytes"],
        "trims": total["trims"],
        "switch_trims": total["switch_trims"],
        "marks": total["marks"],
        "rate_cuts": {cause: total[f"rate_cuts_{cause}"] for cause in ("mark", "trim", "timeout")},
        "timeouts": total["timeouts"],
        "exempt_share": round(total["sent_exempt_bytes"] / total["sent_bytes"], 6) if total["sent_bytes"] else 0.0,
        "wrong": total["wrong"],
        "budget_violations": total["budget_violations"],
        "ranks_identical": all(result.ranks_identical for result in results),
        # Beside the schema.
        "turns": len(results),
        "turn_total_s": [round(result.total_s, 4) for result in results],
        "sent_bytes": total["sent_bytes"],
        "sent_exempt_bytes": total["sent_exempt_bytes"],
        "contributions_lost": total["contributions_lost"],
        "signals_ignored": total["signals_ignored"],
        "mode_changes": total["mode_changes"],
        "switch": switch,
        "faults": [fault for result in results for fault in result.faults],
    }


def rows(results, row):
    """The merged variants of one row of results ("main", "light"), in the order of the runs."""
    groups = {}
    for result in results:
        if result.run.row == row:
            groups.setdefault((result.run.algorithm, result.run.policy), []).append(result)
    return [merge(group) for group in groups.values()]


def of(variants, algorithm, name):
    """The variant of that name, or None."""
    for variant in variants:
        if variant["algorithm"] == algorithm and variant["name"] == name:
            return variant
    return None


def median_allreduce_ms(variant, critical):
    """Over the critical steps, or the others; None where there are none."""
    times = [step["allreduce_ms"] for step in variant["steps"] if step["critical"] == critical]
    return statistics.median(times) if times else None


def change(variants, variant, baseline="tight"):
    """Time against the baseline of the same algorithm, as a fraction (-0.16: 16 % sooner); None without one."""
    base = of(variants, variant["algorithm"], baseline)
    return variant["total_s"] / base["total_s"] - 1 if base and base["total_s"] else None
