# SPDX-License-Identifier: Apache-2.0
# The simulator's JSON lines, read into runs; what the report needs is computed here.
import json
import os
import statistics
from dataclasses import dataclass, field


class ReportError(Exception):
    """One line: what is wrong with which thing, and the way out."""


@dataclass
class Run:
    """One finished run: its first line, its steps, its last line."""
    path: str
    run: dict
    steps: list = field(default_factory=list)
    summary: dict = None

    @property
    def family(self):
        return self.run["family"]

    @property
    def policy(self):
        return self.run["policy"]

    @property
    def seed(self):
        return self.run["seed"]


def _line(text, path, number):
    try:
        line = json.loads(text)
    except ValueError as error:
        raise ReportError(f"{path}:{number}: not JSON ({error}): only what forgive_sim wrote belongs there") from None
    if not isinstance(line, dict) or "kind" not in line:
        raise ReportError(f"{path}:{number}: not a line of forgive_sim (no \"kind\")")
    return line


def read_file(path):
    """The runs of one file of JSON lines. Raises ReportError."""
    runs = []
    with open(path, encoding="utf-8") as file:
        for number, text in enumerate(file, 1):
            if not text.strip():
                continue
            line = _line(text, path, number)
            kind = line["kind"]
            if kind == "run":
                runs.append(Run(path, line))
                continue
            if not runs:
                raise ReportError(f"{path}:{number}: a {kind} before any run")
            if kind == "step":
                runs[-1].steps.append(line)
            elif kind == "summary":
                runs[-1].summary = line
    for run in runs:
        if run.summary is None:
            raise ReportError(f"{path}: the run of {run.run.get('plan')} has no summary: it did not end; run it again")
    return runs


def read(folder):
    """All runs of a results folder, in the order of family, policy and seed. Raises ReportError."""
    if not os.path.isdir(folder):
        raise ReportError(f"{folder}: no such folder; `forgive_sim sweep NAME --out {folder}` makes it")
    paths = sorted(os.path.join(where, name) for where, _, names in os.walk(folder) for name in names
                   if name.endswith(".jsonl"))
    runs = [run for path in paths for run in read_file(path)]
    if not runs:
        raise ReportError(f"{folder}: no finished run (*.jsonl) in it; `forgive_sim sweep NAME --out {folder}` makes some")
    return sorted(runs, key=lambda run: (run.family, run.policy, run.seed))


def families(runs):
    """{family: {policy: [runs, a seed each]}}, in the order in which they were read."""
    table = {}
    for run in runs:
        table.setdefault(run.family, {}).setdefault(run.policy, []).append(run)
    return table


def by_fifth(run, key):
    """Bytes of all steps by the fifth of the step in which they fell."""
    return [sum(step[key][fifth] for step in run.steps) for fifth in range(5)]


def _ratio(part, whole):
    return part / whole if whole else None


def derived(run, key):
    """A figure of a run: a key of its summary (dots go deeper) or one computed from its lines; None if undefined."""
    summary = run.summary
    if key == "mark_share":
        return _ratio(summary["rate_cuts"]["mark"], sum(summary["rate_cuts"].values()))
    if key == "given_up":
        return _ratio(summary["gradient_bytes_given_up"], summary["gradient_bytes"])
    if key == "retransmitted":
        return _ratio(summary["retransmitted_bytes"], summary["data_bytes"])
    if key == "trims_first_to_last_fifth":
        fifths = by_fifth(run, "trimmed_bytes_by_fifth")
        return _ratio(fifths[0], fifths[4])
    if key in ("forgiven_share_first_fifth", "forgiven_share_last_fifth"):
        fifth = 0 if "first" in key else 4
        return _ratio(by_fifth(run, "forgiven_bytes_by_fifth")[fifth],
                      by_fifth(run, "trimmed_bytes_by_fifth")[fifth])
    value = summary
    for part in key.split("."):
        value = value.get(part) if isinstance(value, dict) else None
    return value


def change_of_training(policies, policy, baseline="tight"):
    """Training time against the baseline's, seed by seed: [fraction, ...] for the seeds that both have."""
    base = {run.seed: run.summary["training_us"] for run in policies.get(baseline, [])}
    return [run.summary["training_us"] / base[run.seed] - 1 for run in policies[policy] if base.get(run.seed)]


def figures(runs, key):
    """The figure of each run that has it."""
    return [value for value in (derived(run, key) for run in runs) if value is not None]


def ratios(policies, policy, baseline, key):
    base = {run.seed: derived(run, key) for run in policies.get(baseline, [])}
    return [derived(run, key) / base[run.seed] for run in policies[policy] if base.get(run.seed)]


def median(values):
    return statistics.median(values) if values else None
