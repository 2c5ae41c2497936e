#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Turns what nccl-tests printed into the JSON that forgive_perf writes for a sweep: one object a size.

parse.py LOG [--place out|in] [--statistics FILE...] [--json FILE]
Exit status: 0, 1 nccl-tests found wrong elements, 2 bad input, 3 the log ends before the test did.
"""

import argparse
import json
import re
import sys

# What a launcher may put before a line: [1,0]<stdout>:, 0: (srun --label), host.
PREFIX = r"(?:\[\d+,\d+\](?:<std\w+>)?:\s*|\s*\d+:\s+)?"
ROW = re.compile(r"^" + PREFIX + r"\s*(\d+)\s+(\d+)\s+([a-z]\w*)\s+([a-z]\w*)\s+(-?\d+)\s+(\S.*?)\s*$")
# Versions before 2.11 had no root and an error in place of a count.
OLD_ROW = re.compile(r"^" + PREFIX + r"\s*\d+\s+\d+\s+[a-z]\w*\s+(?:[a-z]\w*\s+)?\d+\.?\d*\s.*e-\d+")
END = re.compile(r"^" + PREFIX + r"#\s*Out of bounds values\s*:\s*(\d+)\s*(\w+)")
NO_CHECK_END = re.compile(r"^" + PREFIX + r"#\s*Avg bus bandwidth\s*:\s*(\S+)")
CELLS = 4  # time, algbw, busbw, #wrong


class BadInput(Exception):
    """One line for a person."""


def number(text, line):
    try:
        value = float(text)
    except ValueError:
        raise BadInput(f"not a line of nccl-tests' table: {line.strip()}") from None
    return value


def row_of(match, place):
    """One object of the JSON; place 0: out of place, 1: in place."""
    cells = match.group(6).split()
    if len(cells) not in (CELLS, 2 * CELLS):
        return None
    if place * CELLS >= len(cells):
        raise BadInput("this log has no in-place columns: leave out --place in")
    time_us, algbw, busbw, wrong = cells[place * CELLS:(place + 1) * CELLS]
    line = match.group(0)
    if wrong != "N/A" and not wrong.isdigit():
        return None
    return {"size": int(match.group(1)), "count": int(match.group(2)), "type": match.group(3),
            "time_us": number(time_us, line), "algbw_gbs": number(algbw, line), "busbw_gbs": number(busbw, line),
            "wrong": None if wrong == "N/A" else int(wrong), "forgiven_bytes": None, "contributions_lost": None}


def parse(text, place):
    """Rows and whether the test came to its end."""
    rows, ended = [], False
    for line in text.splitlines():
        match = ROW.match(line)
        row = row_of(match, place) if match else None
        if row:
            rows.append(row)
        elif not match and OLD_ROW.match(line):
            raise BadInput("this table is of nccl-tests before 2.11, which counts no wrong elements: use a newer one")
        ended = ended or bool(END.match(line) or NO_CHECK_END.match(line))
    return rows, ended


def totals(files):
    """Forgiven bytes and contributions lost, summed over the ranks' statistics files."""
    forgiven = contributions = 0
    for name in files:
        try:
            with open(name, encoding="utf-8") as file:
                lines = [json.loads(line) for line in file if line.strip()]
        except (OSError, ValueError) as error:
            raise BadInput(f"{name}: not a statistics file ({error})") from None
        finals = [line["totals"] for line in lines if line.get("type") == "final"]
        if not finals:
            raise BadInput(f"{name}: has no final line: the rank did not come to its end")
        forgiven += finals[-1]["forgiven_bytes"]
        contributions += finals[-1]["contributions_lost"]
    return forgiven, contributions


def add_totals(rows, files):
    """A run's totals belong to a size only where there is one."""
    if not files:
        return
    forgiven, contributions = totals(files)
    if len(rows) == 1:
        rows[0]["forgiven_bytes"], rows[0]["contributions_lost"] = forgiven, contributions
    print(f"# forgiven {forgiven} B, contributions lost {contributions} B, over all sizes, warm-up included",
          file=sys.stderr)


def read(name):
    try:
        if name == "-":
            return sys.stdin.read()
        with open(name, encoding="utf-8", errors="replace") as file:
            return file.read()
    except OSError as error:
        raise BadInput(f"{name}: {error.strerror}") from None


def write(name, text):
    if name is None:
        sys.stdout.write(text)
        return
    try:
        with open(name, "w", encoding="utf-8") as file:
            file.write(text)
    except OSError as error:
        raise BadInput(f"--json {name}: {error.strerror}") from None


def run(options):
    rows, ended = parse(read(options.log), 1 if options.place == "in" else 0)
    if not rows and ended:
        raise BadInput(f"{options.log}: no line of nccl-tests' table")
    if not ended:
        print(f"parse.py: {options.log}: nccl-tests did not come to its end ({len(rows)} sizes)", file=sys.stderr)
        return 3
    add_totals(rows, options.statistics)
    write(options.json, json.dumps(rows, indent=1) + "\n")
    return 1 if any(row["wrong"] for row in rows) else 0


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("log", help="what nccl-tests printed; -: standard input")
    parser.add_argument("--place", choices=("out", "in"), default="out", help="which columns (default out)")
    parser.add_argument("--statistics", nargs="+", default=[], help="FORGIVE_STATS files of the run's ranks")
    parser.add_argument("--json", help="write there in place of standard output")
    options = parser.parse_args()
    try:
        return run(options)
    except BadInput as error:
        print(f"parse.py: {error}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())
