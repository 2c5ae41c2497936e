# SPDX-License-Identifier: Apache-2.0
"""The command line and testbed/train.toml, checked before anything runs."""
import argparse
import os
import tomllib

import entry
from errors import DemoError as TrainError
from parameters import ROOT

FILE = os.path.join(ROOT, "testbed", "train.toml")
POLICIES = ("gloo", "tcp", "plain", "tight", "forgive-reduce", "forgive-all", "masks")
DEFAULT_POLICIES = POLICIES[:-1]
WITHOUT_PLUGIN = ("gloo", "tcp", "masks")
MOST = 1000000000  # of what a number on the command line may be
MOST_RANKS = 64  # processes on this machine
_positive = entry.number_between(1, MOST)

DESCRIPTION = """\
Four hosts behind one trimming switch train a small model with DistributedDataParallel, whose buckets travel through
the plugin, once for each policy with the same seed and data. Results: results.json, a table, a page.
docs/training.md explains what is seen."""


def parse(words):
    parser = entry.Parser(failure=TrainError, prog="testbed/train", description=DESCRIPTION,
                          formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--model", choices=("cnn", "transformer"), default="cnn", help="cnn (default) or transformer")
    parser.add_argument("--policy", default=",".join(DEFAULT_POLICIES), metavar="NAMES",
                        help="by commas, of " + ", ".join(POLICIES))
    parser.add_argument("--steps", type=_positive, metavar="N", help="steps of each run")
    parser.add_argument("--seed", type=_positive, default=1, metavar="N", help="of model, data and draws (1)")
    parser.add_argument("--algorithm", choices=("direct", "ring"), help="of the plugin's all-reduce (direct)")
    parser.add_argument("--window", type=_positive, metavar="N", help="steps of the detector's windows (10)")
    parser.add_argument("--ranks", type=entry.number_between(1, MOST_RANKS), metavar="N",
                        help="with --local: processes (4)")
    parser.add_argument("--local", action="store_true", help="processes on loopback instead of the lab: no root")
    parser.add_argument("--fault", metavar="SPEC", help="with --local: FORGIVE_FAULT, such as trim=0.05")
    parser.add_argument("--bursts", metavar="FILE", help="of masks: a ledger whose stretches are replayed")
    parser.add_argument("--checkpoint-every", type=_positive, metavar="N", help="steps between checkpoints (none)")
    parser.add_argument("--resume", action="store_true", help="go on from the newest checkpoint in OUTPUT")
    parser.add_argument("--output", metavar="DIR", default=os.path.join(ROOT, "build", "train"),
                        help="where results go (build/train)")
    parser.add_argument("--config", metavar="FILE", default=FILE, help="parameters from another file")
    parser.add_argument("--build", metavar="DIR", default=os.path.join(ROOT, "build", "release"),
                        help="whose programs to run (build/release)")
    parser.add_argument("--python", metavar="FILE", help="the ranks' Python, which has a torch (/usr/bin/python3)")
    parser.add_argument("--die", metavar="RANK:STEP", help=argparse.SUPPRESS)
    arguments = parser.parse_args(words)
    arguments.policies = [name for name in arguments.policy.split(",") if name]
    _check(arguments)
    return arguments


def _check(arguments):
    for name in arguments.policies:
        if name not in POLICIES:
            raise TrainError(f"--policy {name}: give some of {', '.join(POLICIES)}")
        if arguments.policies.count(name) > 1:
            raise TrainError(f"--policy: {name} is there twice")
    if not arguments.policies:
        raise TrainError(f"--policy: give some of {', '.join(POLICIES)}")
    if not arguments.local and (arguments.ranks or arguments.fault):
        raise TrainError("--ranks and --fault go with --local: the lab is as the parameters say")
    if arguments.ranks == 1 and not set(arguments.policies) <= {"gloo", "masks"}:
        raise TrainError("--ranks 1: an all-reduce has at least 2; gloo and masks go with 1")
    lab = [name for name in arguments.policies if name != "masks"]
    if lab and not arguments.local and os.geteuid() != 0:
        raise TrainError("the lab needs root (network namespaces, eBPF): run sudo testbed/train, or "
                         "testbed/train --local, which needs none")
    if arguments.bursts and "masks" not in arguments.policies:
        raise TrainError("--bursts goes with --policy masks")
    if arguments.die is not None:
        arguments.die = [entry.whole_number(part) for part in arguments.die.split(":")]
        if len(arguments.die) != 2 or None in arguments.die:
            raise TrainError("--die: give RANK:STEP")


class Parameters:
    """What train.toml says; `file` as the lab reads it."""

    def __init__(self, path):
        try:
            with open(path, "rb") as file:
                content = tomllib.load(file)
        except OSError as error:
            raise TrainError(f"{path}: {error.strerror}") from error
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
            raise TrainError(f"{path}: not TOML: {error}") from error
        self.file = os.path.abspath(path)
        try:
            self.run, self.models, self.detector = content["run"], content["model"], content["detector"]
            self.environment, self.algorithms = content["environment"], content["algorithm"]
            self.policies = {name: content["policy"][name] for name in POLICIES}
        except KeyError as error:
            raise TrainError(f"{path}: {error} is missing: testbed/train.toml has it") from error

    def describe(self):
        return {"file": os.path.relpath(self.file, ROOT), "run": self.run, "model": self.models,
                "detector": self.detector, "environment": self.environment, "policy": self.policies}
