# SPDX-License-Identifier: Apache-2.0
# The fabric without root: every packet passes a user-space relay on loopback, which queues, marks and trims.
import json
import os
import select
import socket
import time

from errors import DemoError
from lines import last_line

RELAY = os.path.join("testbed", "lab", "forgive_relay")
START_SECONDS = 20
RENDEZVOUS_PORT = 20000  # and up: below the ports that the kernel gives to whoever asks for any
RENDEZVOUS_PORTS = 10000
ASK_SECONDS = 0.2


class RelayFabric:
    """One relay process; the ranks are processes on loopback that reach each other through it only."""

    kind = "userspace"

    def __init__(self, processes, parameters, folder, row, build):
        self.processes = processes
        self.parameters = parameters
        self.row = row
        self.relay = os.path.join(build, RELAY)
        self.log = os.path.join(folder, "fabric.log")
        self.trims_log = os.path.join(folder, f"trims-{row}.log")
        self.statistics = os.path.join(folder, f"relay-{row}.json")
        self.process = None
        self.port = RENDEZVOUS_PORT + os.getpid() % RENDEZVOUS_PORTS
        self.address = None

    def up(self):
        """Starts the relay. Raises DemoError in its words."""
        with open(self.trims_log, "w", encoding="ascii"):
            pass
        command = [self.relay, "--config", self.parameters.file, "--trims-log", self.trims_log, "--statistics",
                   self.statistics]
        if self.row != "main":
            command += ["--variant", self.row]
        reading, writing = os.pipe()
        try:
            self.process = self.processes.start(command, log=self.log, stdout=writing)
        finally:
            os.close(writing)
        with open(reading, encoding="utf-8") as output:
            line = self._first_line(output)
        if not line.startswith("ready "):
            raise DemoError(last_line(self.log) or f"{self.relay} did not start: see {self.log}")
        self.address = line.split()[1]

    def _first_line(self, output):
        """What the relay says, or nothing if it ends or is silent. Raises Interrupted."""
        end = time.monotonic() + START_SECONDS
        while time.monotonic() < end:
            self.processes.interrupts.check()
            if select.select([output], [], [], 0.05)[0]:
                return output.readline()
        return ""

    def down(self):
        if self.process is not None:
            self.processes.end([self.process], gently_seconds=0.5)

    def command(self, _, words):
        return words

    def environment(self, _):
        return {"FORGIVE_INTERFACE": "=lo", "FORGIVE_RELAY": self.address}

    def rendezvous(self):
        """Where the ranks of the next run meet: a port that is free now, and that the kernel gives to nobody by
        itself. Raises DemoError."""
        for _ in range(RENDEZVOUS_PORTS):
            self.port = RENDEZVOUS_PORT + (self.port + 1 - RENDEZVOUS_PORT) % RENDEZVOUS_PORTS
            with socket.socket() as probe:
                try:
                    probe.bind(("127.0.0.1", self.port))
                except OSError:
                    continue
                return f"127.0.0.1:{self.port}"
        raise DemoError(f"no port from {RENDEZVOUS_PORT} on is free on loopback: end what holds them")

    def start_bursts(self, _seed, _seconds):
        """There are none: without them only `direct` is congested."""

    def counters(self):
        """What the relay has counted of all that it was sent before this call. Raises DemoError, Interrupted."""
        before = self._read()["foreign"]
        host, port = self.address.rsplit(":", 1)
        end = time.monotonic() + START_SECONDS
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asking:
            # A datagram that is none of ours is counted behind all that came before it, however late the relay is.
            while (counted := self._read())["foreign"] == before:
                if time.monotonic() > end:
                    raise DemoError(f"{self.relay} does not answer: see {self.log}")
                asking.sendto(b"?", (host, int(port)))
                pause = time.monotonic() + ASK_SECONDS
                while time.monotonic() < pause and self._read()["foreign"] == before:
                    self.processes.interrupts.check()
                    time.sleep(0.005)
        return counted

    def _read(self):
        try:
            with open(self.statistics, encoding="utf-8") as file:
                return json.load(file)
        except (OSError, ValueError) as error:
            raise DemoError(f"{self.statistics}: {error}: the relay has ended, see {self.log}") from error

    def losses(self):
        """What should be zero since it started."""
        counters = self.counters()
        return {name: counters[name] for name in ("header_dropped", "socket_drops", "send_errors")}

    def describe(self):
        return {"relay": self.parameters.relay.get("lab", {})}
