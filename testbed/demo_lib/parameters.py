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
    for name, value in table.items():
        if isinstance(value, (dict, list)):
            raise DemoError(f"{where}.{name}: give one value")
    return {name: str(value) for name, value in table.items()}


def load(path=None, quick=False, userspace=False, steps=None):
    """Reads and checks the file. Raises DemoError that names the key."""
    path = os.path.abspath(path or FILE)
    content = read_file(path)
    for table in ("lab", "burst", "run", "environment", "algorithm", "policy"):
        if not isinstance(content.get(table), dict):
            raise DemoError(f"{path}: the table [{table}] is missing")
    run = dict(content["run"])
    environment = _texts(content["environment"], f"{path}: environment")
    relay = content.get("userspace", {})
    if userspace:
        run.update(relay.get("run", {}))
        environment.update(_texts(relay.get("environment", {}), f"{path}: userspace.environment"))
    if quick:
        run.update(content.get("quick", {}))
        if userspace:
            run.update(relay.get("quick", {}))
    if steps is not None:
        run["steps"] = steps
    _check_run(run, path)
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
    for key in ("ranks", "steps", "bytes", "turns", "run_limit_s", "total_limit_s"):
        if run[key] < 1:
            raise DemoError(f"{path}: run.{key} = {run[key]}: give 1 or more")
    for key in ("algorithms", "light_algorithms"):
        for algorithm in run[key]:
            if algorithm not in ALGORITHMS:
                raise DemoError(f"{path}: run.{key}: {algorithm} is neither of {', '.join(ALGORITHMS)}")
