# SPDX-License-Identifier: Apache-2.0
"""What the ranks of one run wrote, put together by step, and what must hold whatever the times are."""
import json
import os

from errors import DemoError as TrainError

MAY_FORGIVE = ("tight", "forgive-reduce", "forgive-all")
MAY_DIVERGE = ("forgive-all",)
MILLION = 1_000_000


def read(folder, ranks):
    """(steps, finals): by rank, the lines by step and the last line."""
    steps, finals = [], []
    for rank in range(ranks):
        path = os.path.join(folder, f"steps{rank}.jsonl")
        by_step, final = {}, None
        try:
            with open(path, encoding="utf-8") as file:
                for line in map(json.loads, file):
                    if line.get("type") == "final":
                        final = line
                    else:
                        by_step[line["step"]] = line  # after a restart the later word counts
        except (OSError, ValueError) as error:
            raise TrainError(f"{path}: not what a rank writes: {error}") from error
        if final is None:
            raise TrainError(f"{path}: the run did not come to its end")
        steps.append(by_step)
        finals.append(final)
    return steps, finals


def _sum(lines, name):
    return sum(line["account"][name] for line in lines if "account" in line)


def put_together(policy, folder, ranks, seconds):
    """The run as results.json has it, with `failures`: lines of what does not hold."""
    steps, finals = read(folder, ranks)
    rows = []
    for number in sorted(set(steps[0]).intersection(*steps[1:])):
        lines = [rank[number] for rank in steps]
        row = {"step": number, "seconds": max(line["seconds"] for line in lines),
               "carried_s": max(line["carried_s"] for line in lines),
               "loss": sum(line["loss"] for line in lines) / ranks, "norms": [line["norm"] for line in lines],
               "critical": [line["critical"] for line in lines],
               "identical": len({line["parameters"] for line in lines}) == 1,
               "forgiven": _sum(lines, "forgiven"), "received": _sum(lines, "received"),
               "expected": _sum(lines, "expected"), "budget": _sum(lines, "budget"), "trims": _sum(lines, "trims"),
               "contributions_lost": _sum(lines, "contributions_lost")}
        if "masked" in lines[0]:
            row["forgiven"] = sum(line["masked"]["lost"] for line in lines)
            row["received"] = sum(line["masked"]["of"] for line in lines) - row["forgiven"]
            row["contributions_lost"] = row["forgiven"]  # each byte was one rank's part
        if "metric" in lines[0]:
            row["metric"] = lines[0]["metric"]
            row["distance"] = max(line["distance"] for line in lines)
            row["length"] = lines[0]["length"]
        rows.append(row)
    found = {"policy": policy, "wall_s": seconds, "train_s": sum(row["seconds"] for row in rows),
             "carried_s": sum(row["carried_s"] for row in rows), "loss": rows[-1]["loss"],
             "metric": rows[-1].get("metric"), "critical_steps": sum(row["critical"][0] for row in rows),
             "forgiven": sum(row["forgiven"] for row in rows), "received": sum(row["received"] for row in rows),
             # Of all steps: the accounts of single steps have only those of forgivable bytes.
             "trims": sum(final["stats"].get("trims", 0) for final in finals if "stats" in final),
             "contributions_lost": sum(row["contributions_lost"] for row in rows),
             "identical": all(row["identical"] for row in rows),
             "distance": max((row["distance"] for row in rows if "distance" in row), default=0.0),
             "parameters": finals[0]["parameters"], "bad_norms": sum(final["bad_norms"] for final in finals),
             "steps": rows, "stats": [final["stats"] for final in finals if "stats" in final]}
    with open(os.path.join(folder, "norms.csv"), "w", encoding="ascii") as file:  # of rank 0, for forgive_replay
        file.write("step,norm\n" + "".join(f"{row['step']},{row['norms'][0]!r}\n" for row in rows))
    found["failures"] = _check(policy, found, steps, finals)
    return found


def _check(policy, found, steps, finals):
    lines = []
    if policy not in MAY_FORGIVE and policy != "masks" and found["forgiven"] != 0:
        lines.append(f"{found['forgiven']} bytes forgiven, where nothing may be")
    if policy not in MAY_DIVERGE and not found["identical"]:
        first = next(row["step"] for row in found["steps"] if not row["identical"])
        lines.append(f"the replicas differ from step {first} on")
    for rank, (by_step, final) in enumerate(zip(steps, finals)):
        lines += [f"rank {rank}: {line}" for line in _check_rank(by_step, final)]
    return [f"{policy}: {line}" for line in lines]


def _check_rank(by_step, final):
    """The rank's budget, from its ledger and its own arithmetic."""
    lines = [f"step {step} had no budget: {why}" for step, why in final["refused"]]
    if final.get("ledger", {}).get("bytes"):
        lines.append(f"the ledger has lines after the last step: {final['ledger']['bytes']}")
    settled = 0
    for step, line in sorted(by_step.items()):
        ledger = line.get("ledger", {"bytes": {}, "contributions": {}})
        others = sorted(set(ledger["bytes"]) - {str(step)})
        if others:
            lines.append(f"step {step}: the ledger has lines of step {', '.join(others)}")
        account = line.get("account")
        if account is None:
            continue
        forgiven = ledger["bytes"].get(str(step), 0)
        # A step is expected to bring what the one before brought; the first of a process, nothing.
        expected = 0 if line.get("fresh") else settled
        if forgiven != account["forgiven"]:
            lines.append(f"step {step}: the ledger has {forgiven} bytes, the account {account['forgiven']}")
        if ledger["contributions"].get(str(step), 0) != account["contributions_lost"]:
            lines.append(f"step {step}: the ledger's contributions are not the account's")
        if forgiven * MILLION > account["p_ppm"] * expected:
            lines.append(f"step {step}: {forgiven} bytes forgiven, of {expected} expected at p = "
                         f"{account['p_ppm'] / MILLION:g}")
        if account["p_ppm"] > 0 and forgiven * MILLION > account["p_ppm"] * (account["received"] + forgiven):
            lines.append(f"step {step}: {forgiven} bytes forgiven after {account['received']} received")
        settled = account["settled"]
    return lines
