# SPDX-License-Identifier: Apache-2.0
# The demo's parameters: what testbed/demo.toml says, checked, with what --quick and --steps change.
import dataclasses
import os
import tomllib

from errors import DemoError

ROOT = os.path.realpath(os.path.join(os.path.dirname(__file__), "..", ".."))
FILE = os.path.join(ROOT, "testbed", "demo.toml")

POLICIES = ("tcp", "plain", "tight", "exempt-only", "forgive-reduce", "forgive-all")
ALGORITHMS = ("direct", "ring")

_RUN_KEYS = {"ranks": int, "steps": int, "critical": list, "compute_ms": int, "bytes": int, "turns": int,
             "light_turns": int, "algorithms": list, "light_algorithms": list, "seed": int, "run_limit_s": int,
             "total_limit_s": int, "trace_interval_us": int}

_MOST = 1000000000
_LIMITS = {"ranks": (2, 256), "steps": (1, 1000), "compute_ms": (0, 60000), "bytes": (4, 4 << 30), "turns": (1, 1000),
           "light_turns": (0, 1000), "seed": (0, _MOST), "run_limit_s": (1, 86400), "total_limit_s": (1, 86400),
           "trace_interval_us": (100, _MOST)}


@dataclasses.dataclass
class Parameters:
    """Everything that a run depends on, but for its policy the same for all."""

    run: dict           # [run]
    environment: dict   # [environment]: of every plugin run
    algorithms: dict    # [algorithm.NAME]: variables that say which algorithm it is
    policies: dict      # [policy.NAME]: variables that make the policy
    relay: dict         # [userspace.*]: what differs without root
    file: str

    @property
    def steps(self):
        return self.run["steps"]

    @property
    def critical(self):
        return [step for step in self.run["critical"] if step <= self.steps]

    def environment_of(self, policy, algorithm):
        return {**self.environment, **self.algorithms[algorithm], **self.policies[policy]}

    def gradient_bytes_of_step(self):
        """What all ranks together receive in a step: each of k ranks 2(k-1)/k of the buffer, ring or direct."""
        return 2 * (self.run["ranks"] - 1) * self.run["bytes"]

    def describe(self, content):
        """For results.json: the file's content, and what of it was used."""
        return {"file": os.path.relpath(self.file, ROOT), "run": self.run, "environment": self.environment,
                "algorithms": self.algorithms, "policies": self.policies, **content}


def read_file(path):
    try:
        with open(path, "rb") as file:
            return tomllib.load(file)
    except OSError as error:
        raise DemoError(f"{path}: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise DemoError(f"{path}: not TOML: {error}") from error


def _texts(table, where):
    if not isinstance(table, dict):
        raise DemoError(f"{where}: give a table")
    for name, value in table.items():
        if isinstance(value, (dict, list)):
            raise DemoError(f"{where}.{name}: give one value")
    return {name: str(value) for name, value in table.items()}


def _table(content, name, path):
    """A table that may be missing."""
    table = content.get(name, {})
    if not isinstance(table, dict):
        raise DemoError(f"{path}: {name}: give a table")
    return table


def load(path=None, quick=False, userspace=False, steps=None):
    """Reads and checks the file. Raises DemoError that names the key."""
    path = os.path.abspath(path or FILE)
    content = read_file(path)
    for table in ("lab", "burst", "run", "environment", "algorithm", "policy"):
        if not isinstance(content.get(table), dict):
            raise DemoError(f"{path}: the table [{table}] is missing")
    run = dict(content["run"])
    environment = _texts(content["environment"], f"{path}: environment")
    relay = _table(content, "userspace", path)
    if userspace:
        run.update(_table(relay, "run", path))
        environment.update(_texts(relay.get("environment", {}), f"{path}: userspace.environment"))
    if quick:
        run.update(_table(content, "quick", path))
        if userspace:
            run.update(_table(relay, "quick", path))
    if steps is not None:
        run["steps"] = steps
    _check_run(run, path)
    hosts = content["lab"].get("hosts", run["ranks"])
    if not userspace and isinstance(hosts, int) and run["ranks"] > hosts:
        raise DemoError(f"{path}: run.ranks = {run['ranks']}: more than lab.hosts, {hosts}: a host has one rank")
    algorithms = {name: _texts(content["algorithm"].get(name, {}), f"{path}: algorithm.{name}")
                  for name in ALGORITHMS}
    policies = {name: _texts(content["policy"].get(name, {}), f"{path}: policy.{name}") for name in POLICIES}
    for name in content["policy"]:
        if name not in POLICIES:
            raise DemoError(f"{path}: policy.{name}: no such policy; there are {', '.join(POLICIES)}")
    return Parameters(run, environment, algorithms, policies, relay, path)


def _check_run(run, path):
    for key, kind in _RUN_KEYS.items():
        if not isinstance(run.get(key), kind) or isinstance(run[key], bool):
            raise DemoError(f"{path}: run.{key} is missing or not of the right kind")
    for key in run:
        if key not in _RUN_KEYS:
            raise DemoError(f"{path}: run.{key} is not known")
    for key, (least, most) in _LIMITS.items():
        if not least <= run[key] <= most:
            raise DemoError(f"{path}: run.{key} = {run[key]}: give a number from {least} to {most}")
    for step in run["critical"]:
        if not isinstance(step, int) or isinstance(step, bool) or step < 1:
            raise DemoError(f"{path}: run.critical: {step}: give step numbers from 1")
    for key in ("algorithms", "light_algorithms"):
        for algorithm in run[key]:
            if algorithm not in ALGORITHMS:
                raise DemoError(f"{path}: run.{key}: {algorithm} is neither of {', '.join(ALGORITHMS)}")
