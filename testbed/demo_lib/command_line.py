# SPDX-License-Identifier: Apache-2.0
# The demo's command line.
import argparse
import os

import entry
from errors import DemoError
from parameters import ROOT

DESCRIPTION = """\
Four hosts behind one trimming switch run training-like steps, each with a gradient all-reduce, under six policies:
tcp (kernel TCP), plain (congestion control, no loss tolerance), tight (0.5 % on every step), exempt-only (the
exemption without forgiveness), forgive-reduce and forgive-all (0.5 % on critical steps, 10 % on the others).
The parameters stand in testbed/demo.toml; docs/demo.md explains what is seen."""


def parse(words):
    parser = entry.Parser(failure=DemoError, prog="testbed/demo", description=DESCRIPTION,
                          formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--setup", action="store_true", help="install what is missing, build, and stop")
    parser.add_argument("--quick", action="store_true", help="the same with smaller steps, once: under a minute")
    parser.add_argument("--userspace", action="store_true",
                        help="without root: a user-space relay on loopback stands for the switch; no tcp row")
    parser.add_argument("--steps", type=_steps, metavar="N", help="steps of each run (20)")
    parser.add_argument("--only", metavar="NAMES", default="", help="these policies only, by commas")
    parser.add_argument("--keep", action="store_true", help="keep what every run wrote, in OUTPUT/runs")
    parser.add_argument("--output", metavar="DIR", default=os.path.join(ROOT, "build", "demo"),
                        help="where results go (build/demo)")
    parser.add_argument("--config", metavar="FILE", help="parameters from another file than testbed/demo.toml")
    parser.add_argument("--build", metavar="DIR", default=os.path.join(ROOT, "build", "release"),
                        help="whose programs to run (build/release)")
    parser.add_argument("--only-check", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args(words)
    if not arguments.setup and not arguments.userspace and os.geteuid() != 0:
        raise DemoError("the lab needs root (network namespaces, eBPF): run `sudo testbed/demo`, or "
                        "`testbed/demo --userspace`, which needs none")
    return arguments


def _steps(text):
    number = entry.whole_number(text)
    if number is None or not 1 <= number <= 1000:
        raise argparse.ArgumentTypeError(f"{text}: give a number of steps from 1 to 1000")
    return number
