# SPDX-License-Identifier: Apache-2.0
"""testbed/perf/record: benchmarks in turns, their figures as JSON lines, and comparisons."""
import os
import sys

HERE = os.path.dirname(os.path.realpath(__file__))
TESTBED = os.path.dirname(os.path.dirname(HERE))
sys.path[:0] = [HERE, os.path.join(TESTBED, "demo_lib"), os.path.join(TESTBED, "entry_lib")]

import entry  # noqa: E402

if __name__ == "__main__":
    entry.begin()

import argparse  # noqa: E402
import datetime  # noqa: E402
import json  # noqa: E402
import uuid  # noqa: E402

import machine  # noqa: E402
import suites  # noqa: E402
import table  # noqa: E402
from parameters import ROOT  # noqa: E402

EXIT_FAILED = 1
MOST_ROUNDS = 1000

DESCRIPTION = """\
Runs the benchmarks of a build in rounds and prints medians and ratios; -o appends them to a file, a JSON line each.
--compare takes two build folders, which then run in turns, or two commits that the file of -o has lines of."""


class RecordError(Exception):
    """One line for the reader."""


def parse(words):
    names = list(suites.every())
    parser = entry.Parser(failure=RecordError, prog="testbed/perf/record", description=DESCRIPTION,
                          formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("-o", "--output", metavar="FILE", help="append the lines to this file; --compare reads it")
    parser.add_argument("--build", metavar="DIR", default=os.path.join(ROOT, "build", "release"),
                        help="build folder (build/release)")
    parser.add_argument("--only", metavar="NAMES", default=",".join(names), help="by commas, of " + ", ".join(names))
    parser.add_argument("--rounds", type=entry.number_between(1, MOST_ROUNDS), default=5, metavar="N",
                        help="turns of each benchmark (5)")
    parser.add_argument("--compare", nargs=2, metavar=("A", "B"), help="two build folders, or two commits")
    parser.add_argument("--plot", metavar="PNG", help="draw the ratios of the newest run in the file of -o, and end")
    arguments = parser.parse_args(words)
    unknown = [name for name in arguments.only.split(",") if name not in names]
    if unknown:
        raise RecordError(f"--only {unknown[0]}: no such benchmark; give some of {', '.join(names)}")
    if arguments.output and os.path.isdir(arguments.output):
        raise RecordError(f"-o {arguments.output}: is a folder; name a file")
    if arguments.plot and not arguments.output:
        raise RecordError("--plot draws what a file has: name it by -o")
    return arguments


def facts(build):
    """What stands in each line of a run."""
    return {"date": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
            "commit": machine.commit(), "machine": {**machine.describe(), "compiler": suites.compiler(build)},
            "load": round(os.getloadavg()[0], 1)}


def run(builds, names, rounds, keep=lambda lines: None):
    """A list of lines for each build: in every round of every benchmark the builds have their turns. `keep` is told
    the first build's lines as soon as a benchmark has ended. What cannot run here is said and left out."""
    found = [[] for _ in builds]
    common = [facts(build) for build in builds]
    for name in names:
        suite = suites.every()[name]
        samples = [table.Samples() for _ in builds]
        try:
            for number in range(rounds):
                print(f"record: {name}, round {number + 1} of {rounds}", file=sys.stderr, flush=True)
                for build, one in zip(builds, samples):
                    one.add(suite.run(build))
        except suites.Failed as error:
            print(f"record: left out: {error}", file=sys.stderr)
            continue
        turns = {"turns": uuid.uuid4().hex[:12]} if len(builds) > 1 else {}
        new = [list(table.lines(suite, one, {**fact, **turns})) for one, fact in zip(samples, common)]
        for lines, more in zip(found, new):
            lines += more
        keep(new[0])
    if not found[0]:
        raise RecordError("nothing could be measured")
    return found


def appender(path):
    """What appends lines to the file, which is opened now: that it cannot be written is said before anything runs."""
    if not path:
        return lambda lines: None
    with open(path, "a", encoding="utf-8"):
        pass

    def append(lines):
        with open(path, "a", encoding="utf-8") as file:
            file.writelines(json.dumps(line) + "\n" for line in lines)
    return append


def read(path):
    """All lines of a file."""
    try:
        with open(path, encoding="utf-8") as file:
            return [json.loads(line) for line in file if line.strip()]
    except OSError as error:
        raise RecordError(f"{path}: {error.strerror}") from None
    except ValueError:
        raise RecordError(f"{path}: has a line that is not JSON; it is no file of record -o") from None


def newest_of(lines, commit):
    """The newest line of each benchmark of a commit, by a beginning of its name."""
    newest = {line["benchmark"]: line for line in lines if line["commit"].startswith(commit)}
    if not newest:
        known = ", ".join(sorted({line["commit"][:9] for line in lines})) or "none"
        raise RecordError(f"--compare {commit}: neither a folder nor a commit of the file, which has {known}")
    return list(newest.values())


def compare(arguments):
    first, second = arguments.compare
    if os.path.isdir(first) and os.path.isdir(second):
        found = run([first, second], arguments.only.split(","), arguments.rounds)
        labels = ("A", "B")
    else:
        if not arguments.output:
            raise RecordError(f"--compare {first} {second}: not two folders; for commits name their file by -o")
        lines = read(arguments.output)
        found = [newest_of(lines, first), newest_of(lines, second)]
        labels = (first[:9], second[:9])
    print(table.compared(found[0], found[1], labels))


def newest_run(lines):
    """The lines of the commit and machine that were recorded last."""
    if not lines:
        raise RecordError("the file has no lines")
    return newest_of(lines, lines[-1]["commit"])


def main(words):
    try:
        arguments = parse(words)
        if arguments.plot:
            import plot  # needs matplotlib
            plot.draw(newest_run(read(arguments.output)), arguments.plot)
            return 0
        if arguments.compare:
            compare(arguments)
            return 0
        found = run([arguments.build], arguments.only.split(","), arguments.rounds, appender(arguments.output))[0]
        print(table.recorded(found))
        return 0
    except (RecordError, suites.Failed) as error:
        print(f"record: {error}", file=sys.stderr)
    except ImportError as error:
        print(f"record: {error.name} is missing: apt-get install python3-matplotlib", file=sys.stderr)
    except entry.OutputError:
        raise
    except OSError as error:
        print(f"record: {error.filename or 'a file'}: {error.strerror}", file=sys.stderr)
    return EXIT_FAILED


if __name__ == "__main__":
    sys.exit(entry.run("record", main))
