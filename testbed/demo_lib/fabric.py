# SPDX-License-Identifier: Apache-2.0
# What stands between the ranks: the lab with its trimming switch, or without root a relay on loopback.
import json
import os
import time

from errors import DemoError
from lines import last_line
from parameters import ROOT
from processes import call

LAB = os.path.join(ROOT, "testbed", "lab", "lab")
LAB_NAME = "demo"
UP_SECONDS = 20
DOWN_SECONDS = 20
ANSWER_SECONDS = 10
START_SECONDS = 10
RENDEZVOUS_PORT = 20000  # and up: below the ports that the kernel gives to whoever asks for any
# What no switch of a real fabric would lose, and what the switch could not do: each of these spoils a comparison.
LOSSES = ("header_dropped", "gso_refused", "unlogged", "log_lost", "queue_overflow", "link_lost")


class LabFabric:
    """Hosts in network namespaces behind the eBPF switch. Only one demo at a time has it."""

    kind = "lab"
    name = LAB_NAME  # of the lab; others than the demo have another one

    def __init__(self, processes, parameters, folder, row, build):
        self.processes = processes
        self.parameters = parameters
        self.row = row
        self.build = build
        self.log = os.path.join(folder, "fabric.log")
        self.trims_log = os.path.join(folder, f"trims-{row}.log")
        self.status = None
        self.runs = 0

    def up(self):
        """Builds it; what a killed demo left is taken away first. Raises Interrupted, DemoError."""
        self.down()
        self.processes.interrupts.check()
        with open(self.trims_log, "w", encoding="ascii"):
            pass
        command = [LAB, "up", "--name", self.name, "--config", self.parameters.file, "--trims-log", self.trims_log,
                   "--build", self.build]
        if self.row != "main":
            command += ["--variant", self.row]
        process = self.processes.start(command, log=self.log)
        if not self.processes.wait([process], UP_SECONDS):
            self.processes.end([process], gently_seconds=1)
            raise DemoError("lab up: " + (last_line(self.log).removeprefix("lab: ") or "it did not come up"))
        self.status = self._read_status()

    def down(self):
        """Takes away whatever there is of it."""
        if _is_there(self.name):
            call([LAB, "down", "--name", self.name], DOWN_SECONDS, "lab down")

    def _read_status(self):
        return json.loads(call([LAB, "status", "--name", self.name, "--json"], ANSWER_SECONDS, "lab status"))

    def command(self, rank, words):
        """The command that runs `words` on the rank's host."""
        host = self.status["hosts"][rank]
        return ["nsenter", f"--net=/run/netns/{host['namespace']}", "--"] + words

    def environment(self, rank):
        return {"FORGIVE_INTERFACE": "=" + self.status["hosts"][rank]["interface"]}

    def rendezvous(self):
        """Where the ranks of the next run meet. The hosts' ports are nobody else's; each run takes another one."""
        self.runs += 1
        return f"{self.status['hosts'][0]['ipv4']}:{RENDEZVOUS_PORT + self.runs % 2000}"

    def start_bursts(self, seed, seconds):
        """Background bursts, the same for each policy of a turn; returns when they have begun."""
        command = [LAB, "burst", "--name", self.name, "--config", self.parameters.file, "--seed", str(seed),
                   "--duration-s", str(seconds)]
        if self.row != "main":
            command += ["--variant", self.row]
        process = self.processes.start(command, log=self.log)
        end = time.monotonic() + START_SECONDS
        while process.poll() is None and not _runs(process.pid, "forgive_burst"):
            if time.monotonic() > end:
                raise DemoError(f"lab burst did not begin within {START_SECONDS} s: see {self.log}")
            self.processes.interrupts.pause(0.01)
        return process

    def counters(self):
        """What the switch's ports have counted since it came up, together. Quick: asked before and after each run."""
        words = [os.path.join(self.status["programs"], "forgive_lab_switch"), "counters",
                 f"/run/forgive-lab/{self.name}/bpf"]
        ports = json.loads(call(words, ANSWER_SECONDS, "the switch's counters"))["ports"].values()
        return {name: sum(port[name] for port in ports) for name in next(iter(ports))}

    def losses(self):
        """What should be zero, since it came up. Takes a while: asked after each block of runs."""
        totals = self._read_status()["totals"]
        return {name: totals[name] for name in LOSSES}

    def _tcp_name(self):
        """The congestion control of kernel TCP on the hosts."""
        words = ["cat", "/proc/sys/net/ipv4/tcp_congestion_control", "/proc/sys/net/ipv4/tcp_ecn"]
        name, ecn = call(self.command(0, words), ANSWER_SECONDS, "reading TCP's settings").split()
        return name + (" with ECN" if ecn == "1" else "")

    def describe(self):
        """For results.json: the parameters in full, and what the hosts' kernel brings along."""
        return {"tcp": self._tcp_name(), "true_backlog": self.status["true_backlog"]} | self.status["parameters"]


def _is_there(name):
    """Whether anything of the lab is up, be it from a demo that was killed."""
    if os.path.exists(f"/run/forgive-lab/{name}"):
        return True
    try:
        return any(space.startswith(f"fgv-{name}-") for space in os.listdir("/run/netns"))
    except FileNotFoundError:
        return False


def _runs(process_id, program):
    """Whether the process has become that program."""
    try:
        with open(f"/proc/{process_id}/comm", encoding="utf-8") as file:
            return file.read().strip() == program
    except OSError:
        return False
