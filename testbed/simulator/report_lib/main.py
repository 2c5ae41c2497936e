# SPDX-License-Identifier: Apache-2.0
# The simulator's report from the command line; testbed/simulator/report calls it.
import os
import sys

HERE = os.path.dirname(os.path.realpath(__file__))
sys.path[:0] = [HERE] + [os.path.join(HERE, "..", "..", name) for name in ("page_lib", "entry_lib")]

import entry  # noqa: E402

if __name__ == "__main__":
    entry.begin()

import argparse  # noqa: E402
import json  # noqa: E402

import results  # noqa: E402
import tables  # noqa: E402
from results import ReportError  # noqa: E402

DESCRIPTION = """\
Draws what `forgive_sim sweep` left in a folder: tables beside the specification's own figures, and plots. The page
is self-contained; its plots are also written as PNG files beside it."""


def _arguments(words):
    parser = entry.Parser(failure=ReportError, prog="testbed/simulator/report", description=DESCRIPTION,
                          formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("folder", help="where the results are")
    parser.add_argument("-o", "--output", default="report.html", metavar="FILE", help="the page (report.html)")
    return parser.parse_args(words)


def seed_figures():
    with open(os.path.join(HERE, "seed_figures.json"), encoding="utf-8") as file:
        return json.load(file)


def _scale_note(runs):
    scales = sorted({run.run["scale"] for run in runs})
    if scales == [1]:
        return []
    return [f"Scaled runs: bytes were multiplied by {', '.join(f'{scale:g}' for scale in scales)}. Only runs of scale 1 "
            "may be compared with the specification."]


def _text(family, policies, stated):
    """The table for a terminal."""
    rows = [[str(cell) for cell in row] for row in [tables.HEADINGS] + tables.family(policies, stated)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(tables.HEADINGS))]
    lines = ["", family, ""]
    for row in rows:
        lines.append("  " + "  ".join(cell.ljust(width) if place == 0 else cell.rjust(width)
                                      for place, (cell, width) in enumerate(zip(row, widths))))
    return "\n".join(lines)


def _sections(families, seed, pictures):
    import figures  # matplotlib takes a second to load
    import page
    import plots
    for name, policies in families.items():
        stated = seed.get(name, {})
        label = name.replace("/", "-")
        body = ""
        if len(policies) > 1 and "tight" in policies:
            body += figures.embed(plots.training(policies, stated), f"{label}-training", pictures)
            body += figures.embed(plots.trade(policies), f"{label}-trade", pictures)
        body += figures.embed(plots.all_reduce(policies), f"{label}-all-reduce", pictures)
        body += figures.embed(plots.fifths(policies), f"{label}-fifths", pictures)
        body += page.table(tables.HEADINGS, tables.family(policies, stated))
        if name == "worst-fabric":
            body += ("<p>Sentences of the specification, and what these runs say to them:</p>" +
                     page.table(("figure", "here", "specification"),
                                tables.statements(policies, seed["statements"])))
        yield name, body


def write(runs, path):
    """Writes the page and its pictures; prints the tables. May raise OSError."""
    import page
    seed = seed_figures()
    families = results.families(runs)
    commits = sorted({run.run["commit"] for run in runs})
    notes = [f"{len(runs)} runs; commit {', '.join(commits)}. Specification: {seed['source']}."] + _scale_note(runs)
    violations = sum(run.summary["budget_violations"] for run in runs)
    lost = sum(not run.summary["conservation"] for run in runs)
    lead = (f"Loss budgets violated: {violations}. Runs in which a byte was unaccounted for: {lost}.",)
    pictures = os.path.splitext(os.path.abspath(path))[0] + "-pictures"
    page.write(path, "FORGIVE: the simulator", "FORGIVE, simulated",
               page.paragraphs(lead) + page.paragraphs(notes, "small"), _sections(families, seed, pictures))
    for name, policies in families.items():
        print(_text(name, policies, seed.get(name, {})))
    print("\n" + "\n".join(notes + list(lead)))
    print(f"\nreport: {path}")


def main(words):
    try:
        arguments = _arguments(words)
        write(results.read(arguments.folder), arguments.output)
    except ReportError as error:
        print(f"report: {error}", file=sys.stderr)
        return 1
    except entry.OutputError:
        raise
    except OSError as error:
        print(f"report: {error.filename or arguments.output}: {error.strerror}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(entry.run("report", main))
