#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Reads the lines of both ranks of every run of tests/gpu/run; prints medians beside each other, and judges.

summary.py RESULTS      exit status 0, 1 a check failed, 2 the file is not what it should be
"""

import json
import statistics
import sys

MODES = ("socket", "plain", "forgive")


def problems_of(pair):
    """What must hold of the two ranks of one run, and does not."""
    mode, found = pair[0]["mode"], []
    for line in pair:
        where = f"{mode}, {line['size']} bytes, rank {line['rank']}"
        if line["wrong"]:
            found.append(f"{where}: {line['wrong']} wrong elements")
        if line["unequal_steps"]:
            found.append(f"{where}: in {line['unequal_steps']} steps the elements that lack a contribution "
                         f"({line['lone_bytes']} bytes), the account ({line['forgiven_bytes']}) and the ledger "
                         f"({line['ledger_bytes']}) differ")
        if mode != "forgive" and line["forgiven_bytes"]:
            found.append(f"{where}: {line['forgiven_bytes']} bytes forgiven where nothing may be")
    if pair[0]["hash"] != pair[1]["hash"]:
        found.append(f"{mode}, {pair[0]['size']} bytes: the two ranks ended with different bits")
    return found


def read(name):
    """The runs: pairs of lines of rank 0 and rank 1."""
    with open(name, encoding="utf-8") as file:
        lines = [json.loads(line) for line in file if line.strip()]
    pairs = list(zip(lines[::2], lines[1::2]))
    if not pairs or len(lines) % 2 or any((a["rank"], b["rank"]) != (0, 1) or a["mode"] != b["mode"] or
                                          a["size"] != b["size"] for a, b in pairs):
        raise ValueError("not the lines of two ranks, a run after the other")
    return pairs


def table(pairs):
    """Medians over turns of the slower rank, and each mode's ratio to sockets."""
    print(f"{'size':>12} {'mode':>8} {'busbw GB/s':>11} {'least':>8} {'most':>8} {'to socket':>10} {'forgiven B':>11}")
    for size in sorted({a["size"] for a, _ in pairs}):
        medians = {}
        for mode in MODES:
            runs = [pair for pair in pairs if pair[0]["size"] == size and pair[0]["mode"] == mode]
            if not runs:
                continue
            rates = [min(a["busbw_gbs"], b["busbw_gbs"]) for a, b in runs]
            medians[mode] = statistics.median(rates)
            forgiven = sum(a["forgiven_bytes"] + b["forgiven_bytes"] for a, b in runs)
            ratio = f"{medians[mode] / medians['socket']:.2f}" if "socket" in medians else "-"
            print(f"{size:>12} {mode:>8} {medians[mode]:>11.3f} {min(rates):>8.3f} {max(rates):>8.3f} {ratio:>10} "
                  f"{forgiven:>11}")


def main(arguments):
    if len(arguments) != 1:
        print(__doc__.strip(), file=sys.stderr)
        return 2
    try:
        pairs = read(arguments[0])
    except (OSError, ValueError, KeyError) as error:
        print(f"summary.py: {arguments[0]}: {error}", file=sys.stderr)
        return 2
    table(pairs)
    problems = [problem for pair in pairs for problem in problems_of(pair)]
    forgiving = [pair for pair in pairs if pair[0]["mode"] == "forgive"]
    if forgiving and not any(line["forgiven_bytes"] for pair in forgiving for line in pair):
        problems.append("forgive: nothing was forgiven in any run, so its check has proved nothing: see "
                        "docs/troubleshooting.md, Nothing is forgiven")
    for problem in problems:
        print(f"FAILED {problem}")
    if not problems:
        print(f"ok: {len(pairs)} runs, every element accounted for, both ranks alike")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
