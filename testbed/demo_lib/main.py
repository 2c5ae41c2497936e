# SPDX-License-Identifier: Apache-2.0
# The demo from the command line to the exit status; testbed/demo calls it after the build.
import os
import sys

HERE = os.path.dirname(os.path.realpath(__file__))
TESTBED = os.path.dirname(HERE)
sys.path[:0] = [HERE, os.path.join(TESTBED, "page_lib"), os.path.join(TESTBED, "entry_lib")]

import entry  # noqa: E402

if __name__ == "__main__":
    entry.begin()

import contextlib  # noqa: E402
import fcntl  # noqa: E402
import json  # noqa: E402
import tempfile  # noqa: E402
import time  # noqa: E402

import checks  # noqa: E402
import command_line  # noqa: E402
import machine  # noqa: E402
import parameters as parameter_file  # noqa: E402
import results as result_rows  # noqa: E402
import runner as run_one  # noqa: E402
import schedule  # noqa: E402
import table  # noqa: E402
import traces  # noqa: E402
from errors import DemoError, Interrupted  # noqa: E402
from fabric import LabFabric  # noqa: E402
from interrupts import Interrupts  # noqa: E402
from processes import Processes  # noqa: E402
from progress import Progress  # noqa: E402
from relay_fabric import RelayFabric  # noqa: E402
from whole_files import write_whole  # noqa: E402

EXIT_FAILED = 1
NEEDED_BYTES = 128 << 20  # what the runs write before it is thrown away, and some
FULL_BYTES = 1 << 20
USERSPACE_NOTE = (
    "Without root: a user-space relay on loopback stands for the switch. Its times depend on this machine's "
    "scheduler more than the lab's do. There are no bursts, so ring is not congested. There is no tcp row: plain "
    "loopback would not pass the relay and could not be compared.")


def free_bytes(folder):
    """What an ordinary user may still write there."""
    status = os.statvfs(folder)
    return status.f_bavail * status.f_frsize


def no_room(folder):
    return (f"{folder}: {free_bytes(folder) >> 20} MB left on the device, the demo needs {NEEDED_BYTES >> 20}: "
            "make room, or name another folder by --output")


class Demo:
    """One demo: fabrics one after the other, runs on them, results at the end."""

    def __init__(self, arguments, parameters, interrupts):
        self.arguments = arguments
        self.parameters = parameters
        self.interrupts = interrupts
        self.processes = Processes(interrupts)
        self.output = os.path.abspath(arguments.output)
        self.folder = os.path.join(self.output, "runs")
        self.build = os.path.abspath(arguments.build)
        self.results = []
        self.notes = []
        self.failures = []
        self.losses = {}
        self.described = {}
        self.started = time.monotonic()

    def prepare(self):
        run_one.discard(self.folder)
        os.makedirs(self.folder, exist_ok=True)
        if free_bytes(self.output) < NEEDED_BYTES:
            raise DemoError(no_room(self.output))
        names, unknown = schedule.select(self.arguments.only, self.arguments.userspace)
        if unknown or not names:
            raise DemoError(f"--only {self.arguments.only}: give some of {', '.join(parameter_file.POLICIES)}")
        if self.arguments.userspace:
            self.notes.append(USERSPACE_NOTE)
        self.blocks = schedule.blocks(self.parameters.run, names)
        self.progress = Progress(sum(len(block.runs) for block in self.blocks))
        self.budget = schedule.Budget(self.parameters.run["total_limit_s"])
        self.runner = run_one.Runner(self.processes, self.parameters, self.folder, self.build)

    def run(self):
        """All blocks, with as few changes of the fabric as their order allows. Raises Interrupted, DemoError."""
        fabric = None
        try:
            for place, block in enumerate(self.blocks):
                if not self.budget.fits(block, self.progress.elapsed()):
                    self._skip(block)
                    continue
                if fabric is None or fabric.row != block.row:
                    fabric = self._change(fabric, block.row)
                self._run_block(block, fabric, self.blocks[place + 1:])
        finally:
            self.processes.end_all()
            if fabric is not None:
                fabric.down()

    def _change(self, fabric, row):
        if fabric is not None:
            fabric.down()
        kind = RelayFabric if self.arguments.userspace else LabFabric
        fabric = kind(self.processes, self.parameters, self.folder, row, self.build)
        try:
            fabric.up()
        except BaseException:
            fabric.down()
            raise
        self.described[row] = fabric.describe()
        self.losses = fabric.losses()
        return fabric

    def _run_block(self, block, fabric, blocks_left):
        begin = time.monotonic()
        for place, run in enumerate(block.runs):
            self.interrupts.check()
            self.progress.begin(run)
            try:
                result = self.runner.run(run, fabric)
            except BaseException:
                self.progress.abandon()
                raise
            self.results.append(result)
            self.progress.end(result, self._seconds_left(block, place + 1, time.monotonic() - begin, blocks_left))
        self._check_losses(block, fabric)
        self.budget.note(block, time.monotonic() - begin)

    def _check_losses(self, block, fabric):
        """Puts down what the fabric lost during the block, where it must lose nothing."""
        before, self.losses = self.losses, fabric.losses()
        for name, value in self.losses.items():
            if value != before.get(name, 0):
                self.failures.append(f"{block.row} {block.algorithm}, turn {block.turn}: the lab counted "
                                     f"{value - before.get(name, 0)} {name}")

    def _seconds_left(self, block, done, seconds, blocks_left):
        """Before any block is done: as long as its runs so far, on the average."""
        a_run = seconds / done
        here = a_run * (len(block.runs) - done)
        expected = self.budget.seconds_left(blocks_left)
        return here + (expected if expected is not None else a_run * sum(len(other.runs) for other in blocks_left))

    def _skip(self, block):
        self.progress.skip(len(block.runs))
        note = (f"Turn {block.turn} of {block.algorithm} ({block.row}) was left out: it did not fit into "
                f"{self.parameters.run['total_limit_s']} s on this machine.")
        self.notes.append(note)
        print(note, flush=True)

    def summary(self):
        """The content of results.json."""
        # On ring only bursts overload a link: the relay has none, and few of them meet a quick run.
        few_bursts = self.arguments.userspace or self.arguments.quick
        congested = ("direct",) if few_bursts else parameter_file.ALGORITHMS
        variants = result_rows.rows(self.results, "main")
        light = result_rows.rows(self.results, "light")
        return {
            "machine": machine.describe(),
            "commit": machine.commit(),
            "parameters": self.parameters.describe({"fabric": self.described}),
            "variants": variants,
            "light": light,
            "failures": checks.check_all(variants, light, congested) + self.failures,
            "notes": self.notes,
            "command": " ".join(["testbed/demo", *sys.argv[1:]]),
            "duration_s": round(time.monotonic() - self.started, 1),
        }

    def plotted_traces(self):
        """A budget over a step and one flow's rates, of the first turn of `direct`."""
        found = {result.run.policy: result for result in self.results
                 if result.run.algorithm == "direct" and result.trace is not None}
        vesting = None
        for policy in ("forgive-all", "forgive-reduce"):
            if vesting is None and policy in found:
                vesting = traces.vesting_of(policy, "direct", found[policy].trace)
        first = min(len(self.parameters.critical) + 1, self.parameters.steps)
        flows = [traces.flow_of(policy, "direct", found[policy].trace, first, first + 2)
                 for policy in ("plain", "tight", "exempt-only", "forgive-all") if policy in found]
        return vesting, [flow for flow in flows if flow is not None]


def titles(demo):
    """A heading for each table."""
    tcp = demo.described.get("main", {}).get("tcp")
    bursts = "" if demo.arguments.userspace else ", background bursts"
    suffix = f" (kernel TCP: {tcp})" if tcp else ""
    return {("variants", "direct"): f"direct: every rank to every other, fan-in {demo.parameters.run['ranks'] - 1}"
                                    f"{bursts}{suffix}",
            ("variants", "ring"): f"ring: fan-in 1{bursts}{suffix}",
            ("light", "direct"): f"direct, light: the less congested fabric{suffix}",
            ("light", "ring"): f"ring, light: the less congested fabric{suffix}"}


def publish(demo, summary):
    """results.json, the report and its pictures. No run is under way any more."""
    path = os.path.join(demo.output, "results.json")
    write_whole(path, (json.dumps(summary, indent=1) + "\n").encode())
    import report  # matplotlib takes a second to load, and only here is it needed
    vesting, flows = demo.plotted_traces()
    page = os.path.join(demo.output, "report.html")
    report.write(summary, vesting, flows, page, os.path.join(demo.output, "pictures"))
    return path, page


@contextlib.contextmanager
def only_one():
    """One demo at a time: two would share the processors and spoil each other's times."""
    folder = "/run" if os.geteuid() == 0 else tempfile.gettempdir()
    path = os.path.join(folder, f"forgive-demo-{os.geteuid()}.lock")
    with open(path, "a", encoding="ascii") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise DemoError("another demo is running: wait until it has ended") from error
        yield


def work(arguments, interrupts):
    parameters = parameter_file.load(arguments.config, quick=arguments.quick, userspace=arguments.userspace,
                                     steps=arguments.steps)
    demo = Demo(arguments, parameters, interrupts)
    try:
        with only_one():
            demo.prepare()
            demo.run()
        interrupts.end_at_once()
        summary = demo.summary()
        paths = publish(demo, summary)
    except entry.OutputError:
        raise
    except OSError as error:
        raise DemoError(f"{error.filename or demo.output}: {error.strerror}: name another folder by "
                        "--output") from error
    except DemoError as error:
        if os.path.exists(demo.output) and free_bytes(demo.output) < FULL_BYTES:
            raise DemoError(no_room(demo.output)) from error
        raise
    if not arguments.keep and not summary["failures"]:
        run_one.discard(demo.folder)
    print(table.text(summary, titles(demo)))
    for note in demo.notes:
        print("  " + note)
    print(f"\n  {paths[0]}\n  {paths[1]}\n")
    for line in summary["failures"]:
        print(f"demo: FAILED: {line}", file=sys.stderr)
    return EXIT_FAILED if summary["failures"] else 0


def main(words):
    interrupts = Interrupts()
    try:
        arguments = command_line.parse(words)
        if arguments.only_check or arguments.setup:
            return 0
        interrupts.install()
        return work(arguments, interrupts)
    except DemoError as error:
        print(f"demo: {error}", file=sys.stderr)
        return EXIT_FAILED
    except Interrupted as interrupt:
        print("demo: interrupted; nothing is left running", file=sys.stderr)
        return 128 + interrupt.number


if __name__ == "__main__":
    sys.exit(entry.run("demo", main))
