# SPDX-License-Identifier: Apache-2.0
"""What each fuzz target has had, over all runs: a file of counts beside the inputs that it found."""

import json
import os
import pathlib

SANITIZED, FAST = "sanitized", "fast"


class Record:
    """The counts of a target: an entry for each build and commit, in the order of their first run."""

    def __init__(self, path):
        self.path = pathlib.Path(path)
        self.entries = []
        self.kept = 0  # inputs that were left when they were last made fewer

    @staticmethod
    def load(path):
        """Of no file: nothing yet."""
        record = Record(path)
        if record.path.is_file():
            read = json.loads(record.path.read_text(encoding="utf-8"))
            record.entries, record.kept = read["entries"], read["kept"]
        return record

    def save(self):
        """Whole or not at all."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        new = self.path.with_suffix(".new")
        new.write_text(json.dumps({"entries": self.entries, "kept": self.kept}, indent=1) + "\n", encoding="utf-8")
        os.replace(new, self.path)

    def add(self, kind, commit, executions, seconds, features):
        """One run more. Features are those of the newest run: a sum of them means nothing."""
        for entry in self.entries:
            if entry["kind"] == kind and entry["commit"] == commit:
                entry["executions"] += executions
                entry["seconds"] += seconds
                entry["features"] = features or entry["features"]
                break
        else:
            self.entries.append({"kind": kind, "commit": commit, "executions": executions, "seconds": seconds,
                                 "features": features})
        self.save()

    def executions(self, kind):
        """Of all commits."""
        return sum(entry["executions"] for entry in self.entries if entry["kind"] == kind)

    def rate(self, kind):
        """Executions a second, over all runs."""
        return self.executions(kind) / max(1.0, sum(one["seconds"] for one in self.entries if one["kind"] == kind))

    def features(self):
        """Of the newest entry that has any; the build without sanitizers counts them a little differently."""
        return next((entry["features"] for entry in reversed(self.entries) if entry["features"]), 0)

    def commits(self):
        """The first and the last one."""
        names = [entry["commit"] for entry in self.entries]
        return "-" if not names else names[0] if len(set(names)) == 1 else f"{names[0]}..{names[-1]}"


def print_records(records):
    """A line a target, those of both builds apart."""
    print(f"{'target':10} {'with sanitizers':>15} {'a second':>9} {'without':>12} {'a second':>9} {'features':>9}"
          "  commits")
    for record in records:
        print(f"{record.path.stem:10} {record.executions(SANITIZED):15,} {record.rate(SANITIZED):9,.0f} "
              f"{record.executions(FAST):12,} {record.rate(FAST):9,.0f} {record.features():9,}  {record.commits()}",
              flush=True)
