# SPDX-License-Identifier: Apache-2.0
# What stands between the ranks: the lab with its trimming switch, or without root a relay on loopback.
import json
import os

from errors import DemoError
from parameters import ROOT
from processes import call

LAB = os.path.join(ROOT, "testbed", "lab", "lab")
LAB_NAME = "demo"
UP_SECONDS = 20
DOWN_SECONDS = 20
ANSWER_SECONDS = 10
# What of the switch's counters is kept with a run.
SWITCH_COUNTERS = ("whole", "trimmed", "marked", "control", "other", "dropped", "header_dropped", "gso_refused",
                   "queue_overflow", "uplink_dropped", "link_lost", "unlogged", "log_lost")


class LabFabric:
    """Hosts in network namespaces behind the eBPF switch. Only one demo at a time has it."""

    kind = "lab"

    def __init__(self, processes, parameters, folder, row, log):
        self.processes = processes
        self.parameters = parameters
        self.row = row
        self.log = log
        self.trims_log = os.path.join(folder, f"trims-{row}.log")
        self.status = None

    def up(self):
        """Builds it; what a killed demo left is taken away first. Raises Interrupted, DemoError."""
        call([LAB, "down", "--name", LAB_NAME], DOWN_SECONDS, "taking away what was left of an earlier lab")
        with open(self.trims_log, "w", encoding="ascii"):
            pass
        command = [LAB, "up", "--name", LAB_NAME, "--config", self.parameters.file, "--trims-log", self.trims_log]
        if self.row != "main":
            command += ["--variant", self.row]
        process = self.processes.start(command, log=self.log)
        if not self.processes.wait([process], UP_SECONDS):
            self.processes.end([process], gently_seconds=1)
            raise DemoError("lab up: " + (_last_line(self.log) or "it did not come up"))
        self.status = self._read_status()

    def down(self):
        call([LAB, "down", "--name", LAB_NAME], DOWN_SECONDS, "lab down")

    def _read_status(self):
        return json.loads(call([LAB, "status", "--name", LAB_NAME, "--json"], ANSWER_SECONDS, "lab status"))

    def command(self, rank, words):
        """The command that runs `words` on the rank's host."""
        host = self.status["hosts"][rank]
        return ["nsenter", f"--net=/run/netns/{host['namespace']}", "--"] + words

    def environment(self, rank):
        return {"FORGIVE_INTERFACE": "=" + self.status["hosts"][rank]["interface"]}

    def rendezvous_host(self):
        return self.status["hosts"][0]["ipv4"]

    def start_bursts(self, seed, seconds):
        """Background bursts, the same for each policy of a turn."""
        command = [LAB, "burst", "--name", LAB_NAME, "--config", self.parameters.file, "--seed", str(seed),
                   "--duration-s", str(seconds)]
        if self.row != "main":
            command += ["--variant", self.row]
        return self.processes.start(command, log=self.log)

    def counters(self):
        """What the switch has counted since it came up."""
        totals = self._read_status()["totals"]
        counted = {name: totals[name] for name in SWITCH_COUNTERS if name in totals}
        return counted | {"tcp_retransmitted_segments": self._tcp_retransmitted_segments()}

    def _tcp_name(self):
        """The congestion control of kernel TCP on the hosts."""
        words = ["cat", "/proc/sys/net/ipv4/tcp_congestion_control", "/proc/sys/net/ipv4/tcp_ecn"]
        name, ecn = call(self.command(0, words), ANSWER_SECONDS, "reading TCP's settings").split()
        return name + (" with ECN" if ecn == "1" else "")

    def _tcp_retransmitted_segments(self):
        """What kernel TCP has sent again on all hosts since they came up."""
        total = 0
        for rank in range(self.parameters.run["ranks"]):
            text = call(self.command(rank, ["cat", "/proc/net/snmp"]), ANSWER_SECONDS, "reading TCP's counters")
            names, values = [line.split()[1:] for line in text.splitlines() if line.startswith("Tcp:")]
            total += int(dict(zip(names, values))["RetransSegs"])
        return total

    def describe(self):
        """For results.json: the parameters in full, and what the hosts' kernel brings along."""
        return {"tcp": self._tcp_name(), "true_backlog": self.status["true_backlog"]} | self.status["parameters"]


def _last_line(path):
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            lines = file.read().split("\n")
    except OSError:
        return ""
    lines = [line for line in lines if line.strip()]
    return lines[-1].removeprefix("lab: ") if lines else ""
