# SPDX-License-Identifier: Apache-2.0
# The commands: up, exec, burst, status, down.
import functools
import json
import os
import re
import signal
import sys

import entry

from . import fabric, leaf_spine, report, system
from .parameters import FIELDS, LabError, Parameters, checked, from_file, read_table

NUMBER = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?")
MOST_DIGITS = 40
BURST_KEYS = {"rate_mbps": (1, 100000), "on_ms": (1, 3600000), "off_ms": (0, 3600000)}


class Interrupted(BaseException):
    """A signal asked us to stop; what was begun is undone on the way out."""

    def __init__(self, number):
        super().__init__(number)
        self.number = number


def _parser():
    parser = entry.Parser(failure=LabError, prog="lab",
                          description="Hosts behind one trimming switch, in network namespaces (needs root).")
    commands = parser.add_subparsers(dest="command", required=True,
                                     parser_class=functools.partial(entry.Parser, failure=LabError))
    up = commands.add_parser("up", help="build a lab")
    up.add_argument("--config", metavar="FILE.toml", help="parameters from its table [lab]; flags go before it")
    up.add_argument("--variant", help="of the file: its table [VARIANT.lab] goes before [lab]")
    up.add_argument("--build", metavar="DIR", help="build folder with the lab's programs (build/release)")
    up.add_argument("--trims-log", metavar="FILE", help="where to log the trims (in the lab's own folder)")
    for name, field in FIELDS.items():
        flag = "--" + name.replace("_", "-")
        if field.type is bool:
            if name == "trim":
                up.add_argument("--no-trim", dest="trim", action="store_false", default=None,
                                help="drop where the switch would cut")
            else:
                up.add_argument(flag, action="store_true", default=None, help=field.metadata["text"])
        else:
            default = "" if field.default is None else f" ({field.default})"
            up.add_argument(flag, metavar="|".join(field.metadata["limits"]) if field.type is str else "N",
                            help=field.metadata["text"] + default)
    execute = commands.add_parser("exec", help="run a command on a host: lab exec h0 -- ping 10.77.0.2")
    execute.add_argument("host", help="h0, h1, ... or burst")
    burst = commands.add_parser("burst", help="UDP bursts that the switch may not cut, until --duration-s is over")
    burst.add_argument("--to", help="a host, or several by commas: each burst goes to one of them")
    burst.add_argument("--config", metavar="FILE.toml", help="parameters from its table [burst]; flags go before it")
    burst.add_argument("--variant", help="of the file: its table [VARIANT.burst] goes before [burst]")
    burst.add_argument("--rate-mbps", metavar="N", help="while a burst lasts, frames' share of the wire included")
    burst.add_argument("--on-ms", metavar="N", help="mean length of a burst: each lasts 0.5 to 1.5 times that")
    burst.add_argument("--off-ms", metavar="N", help="mean pause: each lasts 0.5 to 1.5 times that")
    burst.add_argument("--duration-s", metavar="N", required=True)
    burst.add_argument("--seed", metavar="N", default="1")
    burst.add_argument("--datagram-bytes", metavar="N", default="4096")
    burst.add_argument("--print-schedule", action="store_true", help="start, length (us), destination; nothing is sent")
    status = commands.add_parser("status", help="parameters and counters")
    status.add_argument("--json", action="store_true")
    down = commands.add_parser("down", help="take a lab away, whatever runs in it")
    for command in (up, execute, burst, status, down):
        command.add_argument("--name", default="main", help="of the lab: several may exist (main)")
    return parser


def _need_root(what):
    if os.geteuid() != 0:
        raise LabError(f"lab {what} needs root (network namespaces, BPF): run it by sudo")


def _up(arguments, _):
    _need_root("up")
    values = from_file(arguments.config, arguments.variant) if arguments.config else {}
    if arguments.variant and not arguments.config:
        raise LabError("--variant needs --config, whose table it names")
    for name in FIELDS:
        given = getattr(arguments, name)
        if given is not None:
            values[name] = checked(name, _number(given), "--" + name.replace("_", "-"))
    lab = fabric.Lab(arguments.name)
    parameters = Parameters(**values).with_defaults()
    trims_log = os.path.abspath(arguments.trims_log) if arguments.trims_log else None
    description = fabric.up(lab, parameters, arguments.build, trims_log,
                            leaf_spine.build if parameters.topology == "leaf-spine" else None, _ignore_interrupts)
    queue = "the true backlog" if description["true_backlog"] else "a VIRTUAL queue (it drifts from the true one)"
    shape = f", {report.shape(description['parameters'])}" if parameters.topology != "star" else ""
    print(f"lab {lab.name} is up: {parameters.hosts} hosts{shape}, {parameters.rate_mbps:g} Mbit/s, "
          f"{parameters.rtt_ms:g} ms; the switch decides by {queue}; trims in {description['trims_log']}")
    return 0


def _number(value):
    """A flag's text as a number where it is one, written in decimal digits: int() and float() take more than that."""
    if isinstance(value, str) and len(value) <= MOST_DIGITS and NUMBER.fullmatch(value):
        return int(value) if value.lstrip("+-").isdigit() else float(value)
    return value


def _find_host(status, name):
    for host in status["hosts"]:
        if host["name"] == name:
            return host
    names = ", ".join(host["name"] for host in status["hosts"])
    raise LabError(f"lab '{status['name']}' has no host '{name}' (it has {names})")


def _replace_by(namespace, command):
    system.enter(namespace)
    try:
        os.execvp(command[0], command)
    except OSError as error:
        print(f"lab: {command[0]}: {error.strerror}", file=sys.stderr)
        return 127 if isinstance(error, FileNotFoundError) else 126


def _exec(arguments, command):
    _need_root("exec")
    if not command:
        raise LabError("lab exec HOST -- COMMAND...: there is no command after --")
    host = _find_host(fabric.Lab(arguments.name).read(), arguments.host)
    return _replace_by(host["namespace"], command)


def _burst(arguments, _):
    _need_root("burst")
    status = fabric.Lab(arguments.name).read()
    table = read_table(arguments.config, "burst", arguments.variant) if arguments.config else {}
    for key in table:
        if key not in BURST_KEYS and key != "to":
            raise LabError(f"{arguments.config}: burst.{key} is not known (to, {', '.join(BURST_KEYS)})")
    command = [os.path.join(status["programs"], "forgive_burst")]
    names = arguments.to or table.get("to")
    if not isinstance(names, str):
        raise LabError("lab burst needs --to HOST, or burst.to in --config")
    everyone = [host["name"] for host in status["hosts"] if host["name"] != fabric.BURST_HOST]
    for name in everyone if names == "all" else names.split(","):
        command += ["--to", _find_host(status, name)["sink"]]
    for key, (least, most) in BURST_KEYS.items():
        flag = "--" + key.replace("_", "-")
        value = getattr(arguments, key) if getattr(arguments, key) is not None else table.get(key)
        if value is None:
            raise LabError(f"lab burst needs {flag}, or burst.{key} in --config")
        command += [flag, str(_whole(value, flag, least, most))]
    command += ["--duration-ms", str(_duration_ms(arguments.duration_s))]
    command += ["--seed", str(_whole(arguments.seed, "--seed", 0, 2**63 - 1))]
    command += ["--datagram-bytes", str(_whole(arguments.datagram_bytes, "--datagram-bytes", 64, 8900))]
    if arguments.print_schedule:
        command.append("--print-schedule")
    return _replace_by(_find_host(status, fabric.BURST_HOST)["namespace"], command)


def _whole(value, flag, least, most):
    number = _number(value)
    if isinstance(number, float) and number.is_integer():
        number = int(number)
    if not isinstance(number, int) or isinstance(number, bool) or not least <= number <= most:
        raise LabError(f"{flag} must be a whole number from {least} to {most}, not {value!r}")
    return number


def _duration_ms(value):
    number = _number(value)
    if isinstance(number, str) or not 0.001 <= number <= 86400:
        raise LabError(f"--duration-s must be a number from 0.001 to 86400, not {value!r}")
    return round(number * 1000)


def _status(arguments, _):
    _need_root("status")
    status = report.collect(fabric.Lab(arguments.name))
    print(json.dumps(status, indent=1) if arguments.json else report.text(status))
    return 0


def _down(arguments, _):
    _need_root("down")
    lab = fabric.Lab(arguments.name)
    print(f"lab {lab.name} is down" if fabric.down(lab) else f"lab {lab.name} was not up")
    return 0


COMMANDS = {"up": _up, "exec": _exec, "burst": _burst, "status": _status, "down": _down}


def _interrupt(number, _):
    raise Interrupted(number)


def _ignore_interrupts():
    """The lab is up and stays so: what comes now is too late, also while the interpreter ends, when it hands every
    signal that has a handler back to the system."""
    fabric.on_interrupt(signal.SIG_IGN)


def main(words):
    """Returns the exit status: 0, 1 after one line of error, 128 and the signal's number after an interrupt."""
    own, command = words, []
    if "--" in words:
        own, command = words[:words.index("--")], words[words.index("--") + 1:]
    try:
        arguments = _parser().parse_args(own)
        if command and arguments.command != "exec":
            raise LabError(f"lab {arguments.command} takes no command after --")
        if arguments.command == "up":
            fabric.on_interrupt(_interrupt)
        return COMMANDS[arguments.command](arguments, command)
    except LabError as error:
        print(f"lab: {error}", file=sys.stderr)
        return 1
    except entry.OutputError:
        raise
    except OSError as error:
        print(f"lab: {error}", file=sys.stderr)
        return 1
    except Interrupted as interrupt:
        print("lab: interrupted; nothing is left", file=sys.stderr)
        return 128 + interrupt.number
