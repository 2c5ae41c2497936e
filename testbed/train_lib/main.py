# SPDX-License-Identifier: Apache-2.0
"""testbed/train: one run for each policy on the same fabric, then results.json, a table and a page."""
import os
import sys

HERE = os.path.dirname(os.path.realpath(__file__))
TESTBED = os.path.dirname(HERE)
sys.path[:0] = [HERE, os.path.join(TESTBED, "demo_lib"), os.path.join(TESTBED, "entry_lib")]

import entry  # noqa: E402

if __name__ == "__main__":
    entry.begin()

import contextlib  # noqa: E402
import fcntl  # noqa: E402
import json  # noqa: E402
import shutil  # noqa: E402
import subprocess  # noqa: E402
import tempfile  # noqa: E402
import time  # noqa: E402

import machine  # noqa: E402
import outcome  # noqa: E402
import report  # noqa: E402
import settings  # noqa: E402
from errors import DemoError as TrainError  # noqa: E402
from errors import Interrupted  # noqa: E402
from fabrics import Loopback, TrainLab  # noqa: E402
from interrupts import Interrupts  # noqa: E402
from processes import Processes  # noqa: E402

METRICS = {"cnn": "accuracy", "transformer": "test loss"}  # of models.TASKS, which needs torch to load
PLUGIN = os.path.join("plugin", "libnccl-net-forgive.so")
COLLECTIVE = os.path.join("testbed", "perf", "libforgive_collective.so")
FOREIGN = ("FORGIVE_", "NCCL_", "GLOO_", "MASTER_")
EXIT_FAILED = 1


class Training:
    def __init__(self, arguments, parameters, interrupts):
        self.arguments, self.parameters = arguments, parameters
        self.processes = Processes(interrupts)
        self.output = os.path.abspath(arguments.output)
        build = os.path.abspath(arguments.build)
        self.plugin, self.collective = os.path.join(build, PLUGIN), os.path.join(build, COLLECTIVE)
        self.ranks = arguments.ranks or parameters.run["ranks"]
        self.model = parameters.models[arguments.model]
        for file in (self.plugin, self.collective):
            if not os.path.exists(file):
                raise TrainError(f"{file} is missing: build it by testbed/setup, or name a build by --build")
        self.python = arguments.python or sys.executable
        self._check_python()

    def _check_python(self):
        """Looks for torch without loading it, which takes seconds."""
        try:
            done = subprocess.run([self.python, "-c", "import importlib.util as u, sys; sys.exit(3 if "
                                   "u.find_spec('torch') is None else 0)"], capture_output=True, check=False)
        except OSError as error:
            raise TrainError(f"--python {self.python}: {error.strerror}") from error
        if done.returncode == 3 and not self.arguments.python:
            raise TrainError("PyTorch is not installed: apt-get install python3-torch, or name a Python that has one "
                             "by --python")
        if done.returncode != 0:
            raise TrainError(f"--python {self.python}: it has no torch")

    def fabric(self):
        if self.arguments.local or self.arguments.policies == ["masks"]:
            return Loopback(self.arguments.fault)
        return TrainLab(self.processes, self.parameters, self.output, "main", os.path.abspath(self.arguments.build))

    def run_all(self):
        """The runs of all policies, in order. Raises TrainError, Interrupted."""
        os.makedirs(self.output, exist_ok=True)
        fabric, runs = self.fabric(), []
        try:
            fabric.up()
            described = fabric.describe()
            for policy in self.arguments.policies:
                print(f"train: {self.arguments.model}, {policy} ...", flush=True)
                runs.append(self._run(policy, fabric))
        finally:
            self.processes.end_all()
            fabric.down()
        return {"machine": machine.describe(), "commit": machine.commit(), "model": self.arguments.model,
                "seed": self.arguments.seed, "ranks": self.ranks, "fabric": {fabric.kind: described},
                "parameters": self.parameters.describe(), "runs": runs,
                "failures": [line for run in runs for line in run["failures"]],
                "command": " ".join(["testbed/train", *sys.argv[1:]])}

    def _plan(self, policy, folder, fabric):
        run, arguments = self.parameters.run, self.arguments
        algorithm = arguments.algorithm or run["algorithm"]
        plugin = {"gloo": None, "masks": None, "tcp": "tcp"}.get(policy, self.plugin)
        masks = {**self.parameters.policies["masks"], "bursts": arguments.bursts} if policy == "masks" else None
        return {"ranks": self.ranks, "seed": arguments.seed, "model": arguments.model, "batch": self.model["batch"],
                "rate": self.model["rate"], "steps": arguments.steps or self.model["steps"], "folder": folder,
                "meet": fabric.meeting_places(), "limit_s": run["limit_s"], "bucket_mb": run["bucket_mb"],
                "plugin": plugin, "collective": self.collective, "algorithm": algorithm, "masks": masks,
                "detector": self.parameters.detector | ({"window": arguments.window} if arguments.window else {}),
                "evaluate_every": run["evaluate_every"],
                "checkpoint_every": arguments.checkpoint_every or run["checkpoint_every"],
                "resume": arguments.resume, "die": arguments.die,
                "identity": f"{policy} {arguments.model} seed {arguments.seed} ranks {self.ranks} {algorithm}"}

    def _environment(self, policy, algorithm, fabric, rank):
        own = {name: value for name, value in os.environ.items() if not name.startswith(FOREIGN)}
        own.update({"OMP_NUM_THREADS": "1", "FORGIVE_LIBRARY": self.plugin})
        if policy not in settings.WITHOUT_PLUGIN:
            given = {**self.parameters.environment, **self.parameters.algorithms[algorithm],
                     **self.parameters.policies[policy]}
            own.update({name: str(value) for name, value in given.items()})
            # k of the promise follows the ranks where these are not the file's.
            own["FORGIVE_GRADIENT_RANKS"] = str(self.ranks)
            if algorithm == "ring":
                own["FORGIVE_RING_RANKS"] = str(self.ranks)
            own["FORGIVE_SEED"] = str(self.arguments.seed * 1000 + rank)
        own.update(fabric.environment(rank))
        return own

    def _run(self, policy, fabric):
        folder = os.path.join(self.output, policy)
        if not self.arguments.resume:
            shutil.rmtree(folder, ignore_errors=True)
        os.makedirs(folder, exist_ok=True)
        plan = self._plan(policy, folder, fabric)
        path = os.path.join(folder, "plan.json")
        with open(path, "w", encoding="utf-8") as file:
            json.dump(plan, file, indent=1)
        limit = plan["limit_s"]
        bursts = fabric.start_bursts(self.arguments.seed, limit + 20)
        begin, ranks = time.monotonic(), []
        try:
            for rank in range(self.ranks):
                words = [self.python, "-B", os.path.join(HERE, "rank.py"), path, str(rank)]
                log = os.path.join(folder, f"rank{rank}.log")
                with contextlib.suppress(FileNotFoundError):
                    os.remove(log)
                ranks.append(self.processes.start(fabric.command(rank, words),
                                                  self._environment(policy, plan["algorithm"], fabric, rank), log))
            well = self.processes.wait(ranks, limit + 15)
            codes = [process.poll() for process in ranks]
        finally:
            self.processes.end(ranks + ([bursts] if bursts else []))
        if not well:
            raise TrainError(f"{policy}: {self._complaint(folder, codes, limit)}")
        return outcome.put_together(policy, folder, self.ranks, round(time.monotonic() - begin, 2))

    def _complaint(self, folder, codes, limit):
        """What ended the run: a rank that was killed, else a rank's own words."""
        words = []
        for rank, code in enumerate(codes):
            with contextlib.suppress(OSError):
                with open(os.path.join(folder, f"rank{rank}.log"), encoding="utf-8", errors="replace") as file:
                    words += [line.strip().removeprefix("train: ") for line in file if line.startswith("train: ")][:1]
            if code is not None and code < 0:
                words.append(f"rank {rank}: ended by signal {-code}")
        return "; ".join(words) or f"not done within {limit} s; what the ranks said is in {folder}"


@contextlib.contextmanager
def only_one(local):
    """One training over the lab at a time: it has one name."""
    if local:
        yield
        return
    path = os.path.join(tempfile.gettempdir(), f"forgive-train-{os.geteuid()}.lock")
    with open(path, "a", encoding="ascii") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise TrainError("another training over the lab is running: wait until it has ended") from error
        yield


def publish(found, output, metric):
    path = os.path.join(output, "results.json")
    with open(path + ".new", "w", encoding="utf-8") as file:
        json.dump(found, file, indent=1)
        file.write("\n")
    os.replace(path + ".new", path)
    print(report.table(found["runs"], metric))
    page = report.page(found, metric, output)
    for line in found["failures"]:
        print(f"train: FAILED: {line}", file=sys.stderr)
    print(f"train: {path} {page}")


def main(words):
    interrupts = Interrupts()
    try:
        arguments = settings.parse(words)
        parameters = settings.Parameters(arguments.config)
        interrupts.install()
        with only_one(arguments.local):
            training = Training(arguments, parameters, interrupts)
            found = training.run_all()
        publish(found, training.output, METRICS[arguments.model])
        return EXIT_FAILED if found["failures"] else 0
    except TrainError as error:
        print(f"train: {error}", file=sys.stderr)
        return EXIT_FAILED
    except Interrupted as error:
        print("train: interrupted; nothing is left running", file=sys.stderr)
        return 128 + error.number


if __name__ == "__main__":
    sys.exit(entry.run("train", main))
