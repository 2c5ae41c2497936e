# SPDX-License-Identifier: Apache-2.0
# Reads what forgive_perf --steps wrote: one JSON file a run, sums over all ranks.
import json

from errors import DemoError
from results import COUNTERS, RunResult, Step


def read(path):
    """The file's content. Raises DemoError that names the file."""
    try:
        with open(path, encoding="utf-8") as file:
            content = json.load(file)
    except OSError as error:
        raise DemoError(f"{path}: {error.strerror}: forgive_perf wrote no result") from error
    except ValueError as error:
        raise DemoError(f"{path}: not what forgive_perf writes ({error})") from error
    return content


def _count(content, name):
    """A counter; 0 where the network has none (kernel TCP)."""
    return content.get(name) or 0


def to_result(run, content, switch, expected_steps):
    """The run's result. `switch`: what the switch counted during it. Raises DemoError if something is missing."""
    try:
        steps = [Step(**step) for step in content["steps"]]
        cuts = content["rate_cuts"]
        counters = dict.fromkeys(COUNTERS, 0)
        for name in ("forgiven_bytes", "gradient_bytes", "retransmitted_bytes", "trims", "marks", "timeouts",
                     "sent_bytes", "sent_exempt_bytes", "budget_violations"):
            counters[name] = _count(content, name)
        counters["wrong"] = content["wrong"]
        for cause in ("mark", "trim", "timeout"):
            counters[f"rate_cuts_{cause}"] = cuts[cause] or 0
        for name in ("signals_ignored", "mode_changes"):
            counters[name] = sum(rank.get(name, 0) for rank in content.get("per_rank", []))
        counters["contributions_lost"] = sum(step.contributions_lost for step in steps)
        counters["switch_trims"] = switch.get("trimmed", 0)
        result = RunResult(run, content["total_s"], steps, counters, switch, bool(content["ranks_identical"]))
    except (KeyError, TypeError) as error:
        raise DemoError(f"{run.label}: forgive_perf's result lacks something ({error!r})") from error
    if len(steps) != expected_steps:
        result.faults.append(f"{len(steps)} steps instead of {expected_steps}")
    if counters["wrong"] is None:
        raise DemoError(f"{run.label}: forgive_perf did not check its results")
    return result
