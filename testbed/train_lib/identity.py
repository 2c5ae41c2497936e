# SPDX-License-Identifier: Apache-2.0
"""What makes a run the run that it is: a checkpoint belongs to one, and only that one goes on from it."""


def of_plan(policy, plan):
    """By name, as JSON has it."""
    return {"policy": policy} | {name: plan[name] for name in ("model", "seed", "ranks", "algorithm", "batch", "rate",
                                                               "bucket_mb", "detector", "masks")}


def difference(saved, plan):
    """The first thing that a saved identity has otherwise, as "seed 1, not 2"; None if there is none."""
    saved = saved if isinstance(saved, dict) else {}
    for name, value in plan["identity"].items():
        if saved.get(name) != value:
            return f"{name} {saved.get(name)}, not {value}"
    return None
