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

import identity  # noqa: E402
import machine  # noqa: E402
import outcome  # noqa: E402
import report  # noqa: E402
import settings  # noqa: E402
from errors import DemoError as TrainError  # noqa: E402
from errors import Interrupted  # noqa: E402
from fabrics import Loopback, TrainLab  # noqa: E402
from whole_files import write_whole  # noqa: E402
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
        self.local = arguments.local or arguments.policies == ["masks"]
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
        if self.local:
            return Loopback(self.arguments.fault)
        return TrainLab(self.processes, self.parameters, self.output, "main", os.path.abspath(self.arguments.build))

    def run_all(self):
        """The runs of all policies, in order. Raises TrainError, Interrupted."""
        for policy in self.arguments.policies:
            self._check_folder(policy)
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

    def _check_folder(self, policy):
        """What stands in the policy's folder is removed, or gone on from: it must be of a run, and of the same one."""
        folder = os.path.join(self.output, policy)
        path = os.path.join(folder, "plan.json")
        if not os.path.isdir(folder) or not os.listdir(folder):
            return
        try:
            with open(path, encoding="utf-8") as file:
                saved = json.load(file)
        except (OSError, ValueError) as error:
            raise TrainError(f"{folder} is not of a training ({path}: {getattr(error, 'strerror', None) or error}): "
                             "remove it, or name another folder by --output") from error
        if self.arguments.resume:
            saved = saved.get("identity") if isinstance(saved, dict) else None
            other = identity.difference(saved, self._named(policy, self._what(policy)))
            if other is not None:
                raise TrainError(f"--resume: {folder} has {other}: give the same options, or leave --resume out")

    @staticmethod
    def _named(policy, what):
        # As JSON gives it back.
        return what | {"identity": json.loads(json.dumps(identity.of_plan(policy, what)))}

    def _what(self, policy):
        """The part of the plan that is the same wherever the run is."""
        run, arguments = self.parameters.run, self.arguments
        masks = {**self.parameters.policies["masks"], "bursts": arguments.bursts} if policy == "masks" else None
        return {"ranks": self.ranks, "seed": arguments.seed, "model": arguments.model, "batch": self.model["batch"],
                "rate": self.model["rate"], "bucket_mb": run["bucket_mb"], "masks": masks,
                "algorithm": arguments.algorithm or run["algorithm"],
                "detector": self.parameters.detector | ({"window": arguments.window} if arguments.window else {})}

    def _plan(self, policy, folder, fabric):
        run, arguments = self.parameters.run, self.arguments
        plugin = {"gloo": None, "masks": None, "tcp": "tcp"}.get(policy, self.plugin)
        return self._named(policy, self._what(policy)) | {
            "steps": arguments.steps or self.model["steps"], "folder": folder, "meet": fabric.meeting_places(),
            "limit_s": run["limit_s"], "plugin": plugin, "collective": self.collective,
            "evaluate_every": run["evaluate_every"],
            "checkpoint_every": arguments.checkpoint_every or run["checkpoint_every"],
            "resume": arguments.resume, "die": arguments.die}

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
            with contextlib.suppress(FileNotFoundError):
                shutil.rmtree(folder)
        os.makedirs(folder, exist_ok=True)
        plan = self._plan(policy, folder, fabric)
        path = os.path.join(folder, "plan.json")
        write_whole(path, json.dumps(plan, indent=1).encode())
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
            log, own, last = os.path.join(folder, f"rank{rank}.log"), [], ""
            with contextlib.suppress(OSError):
                with open(log, encoding="utf-8", errors="replace") as file:
                    lines = [line.strip() for line in file if line.strip()]
                own = [line.removeprefix("train: ") for line in lines if line.startswith("train: ")][:1]
                last = lines[-1] if lines else ""
            words += own
            if code is not None and code < 0:
                words.append(f"rank {rank}: ended by signal {-code}")
            elif code and not own:
                words.append(f"rank {rank}: {last or f'ended with exit status {code}'} (see {log})")
        return "; ".join(words) or f"not done within {limit} s; what the ranks said is in {folder}"


@contextlib.contextmanager
def only_one(local, output):
    """One training at a time in a folder, and one over the lab, which has one name."""
    wanted = [(output, os.O_RDONLY, f"another training writes to {output}: name another folder by --output, or ")]
    if not local:
        path = os.path.join(tempfile.gettempdir(), f"forgive-train-{os.geteuid()}.lock")
        wanted.append((path, os.O_RDWR | os.O_CREAT, "another training over the lab is running: "))
    os.makedirs(output, exist_ok=True)
    with contextlib.ExitStack() as stack:
        for path, flags, complaint in wanted:
            descriptor = os.open(path, flags | os.O_CLOEXEC, 0o600)
            stack.callback(os.close, descriptor)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as error:
                raise TrainError(complaint + "wait until it has ended") from error
        yield


def publish(found, output, metric):
    path = os.path.join(output, "results.json")
    write_whole(path, (json.dumps(found, indent=1) + "\n").encode())
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
        training = Training(arguments, parameters, interrupts)
        with only_one(training.local, training.output):
            found = training.run_all()
            publish(found, training.output, METRICS[arguments.model])
        return EXIT_FAILED if found["failures"] else 0
    except entry.OutputError:
        raise
    except OSError as error:
        print(f"train: {error.filename or 'the results'}: {error.strerror}: name another folder by --output",
              file=sys.stderr)
        return EXIT_FAILED
    except TrainError as error:
        print(f"train: {error}", file=sys.stderr)
        return EXIT_FAILED
    except Interrupted as error:
        print("train: interrupted; nothing is left running", file=sys.stderr)
        return 128 + error.number


if __name__ == "__main__":
    sys.exit(entry.run("train", main))
