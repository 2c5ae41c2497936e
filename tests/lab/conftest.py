# SPDX-License-Identifier: Apache-2.0
# What the tests of whole labs share: the command, a lab for one test, a look at what a lab could leave behind.
import contextlib
import json
import os
import subprocess
import sys
import time

import pytest

HERE = os.path.dirname(os.path.realpath(__file__))
sys.path.insert(0, os.path.dirname(HERE))  # for processes
LAB = os.path.realpath(os.path.join(HERE, "..", "..", "testbed", "lab", "lab"))
BUILD = os.environ.get("FORGIVE_TEST_BUILD", os.path.realpath(os.path.join(HERE, "..", "..", "build", "release")))
# Of the labs that tests make: a user's own labs may be up meanwhile.
NAME = "fgvtest"
TRAFFIC = os.path.join(HERE, "traffic.py")


def command(*words):
    return [sys.executable, LAB, *words]


def run(*words, **options):
    return subprocess.run(command(*words), capture_output=True, text=True, timeout=120, check=False, **options)


def one_line(result):
    """The only line of an error; fails if it is not one line, or if the command succeeded."""
    assert result.returncode != 0, result.stdout
    lines = result.stderr.splitlines()
    assert len(lines) == 1, result.stderr
    assert lines[0].startswith("lab: ")
    return lines[0]


class Lab:
    """One lab that is up."""

    def __init__(self, name):
        self.name = name

    def start(self, host, *words, **options):
        return subprocess.Popen(command("exec", "--name", self.name, host, "--", *words), stdout=subprocess.PIPE,
                                text=True, **options)

    def exec(self, host, *words):
        return run("exec", "--name", self.name, host, "--", *words)

    def status(self):
        result = run("status", "--name", self.name, "--json")
        assert result.returncode == 0, result.stderr
        return json.loads(result.stdout)

    def port(self, host):
        return next(port for port in self.status()["ports"] if port["host"] == host)

    def host(self, name):
        return next(host for host in self.status()["hosts"] if host["name"] == name)

    def logged_trims(self):
        """The lines of the log, once it has caught up with what the switch has counted (it is written every 10 ms)."""
        time.sleep(0.1)
        deadline = time.monotonic() + 30
        while True:
            status = self.status()
            with open(status["trims_log"], encoding="ascii") as file:
                lines = file.read().splitlines()
            if len(lines) >= status["totals"]["trimmed"] or time.monotonic() > deadline:
                return lines


@contextlib.contextmanager
def lab_up(*flags, name=NAME):
    result = run("up", "--name", name, "--build", BUILD, *flags)
    assert result.returncode == 0, result.stderr
    try:
        yield Lab(name)
    finally:
        assert run("down", "--name", name).returncode == 0


def traces():
    """Everything on this machine that the tests' labs might leave behind."""
    def entries(folder, prefix):
        return sorted(name for name in os.listdir(folder) if name.startswith(prefix)) if os.path.isdir(folder) else []

    with open("/proc/self/mountinfo", encoding="utf-8") as file:
        mounts = sorted(line.split()[4] for line in file if NAME in line)
    processes = []
    for entry in os.listdir("/proc"):
        with contextlib.suppress(OSError):
            if entry.isdigit():
                with open(f"/proc/{entry}/cmdline", "rb") as file:
                    words = file.read()
                if b"forgive_" in words.partition(b"\0")[0] and f"/{NAME}".encode() in words:
                    processes.append(int(entry))
    links = subprocess.run(["ip", "-o", "link"], capture_output=True, text=True, check=True).stdout
    return {
        "namespaces": entries("/run/netns", f"fgv-{NAME}"),
        "state": entries("/run/forgive-lab", NAME),
        "mounts": mounts,
        "processes": sorted(processes),
        "links": sorted(line.split(":")[1].strip() for line in links.splitlines()),
    }


@pytest.fixture
def nothing_left():
    """Fails a test after which there is more on the machine than before it."""
    before = traces()
    yield
    assert traces() == before
