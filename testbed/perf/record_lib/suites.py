# SPDX-License-Identifier: Apache-2.0
"""The benchmarks: how each is called once, what figures it gives, and which ratios are made of them."""
import collections
import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile

PLUGIN = os.path.join("plugin", "libnccl-net-forgive.so")
RUN_LIMIT_S = 300
# forgive_perf by size: bytes as it reads them, iterations, warm-up.
ALL_REDUCES = {"64M": ("4", "1"), "1K": ("3000", "100")}


class Failed(Exception):
    """A benchmark that cannot be run here, or failed: one line."""


class Suite:
    """One program, called once a round. `figures` are {name: (unit, value)}."""

    # (name of the ratio, figure above, figure below) within one round.
    ratios = ()
    # The least that a ratio must be, by its name.
    least = {}

    def __init__(self, name, program, words):
        self.name, self._program, self._words = name, program, words
        self._said = set()  # what a program has left out, said once

    def command(self):
        """As a reader would type it in the build folder."""
        return " ".join([self._program, *self._words])

    def run(self, build):
        raise NotImplementedError

    def call(self, build, words, environment=None):
        program = os.path.join(build, self._program)
        if not os.path.exists(program):
            raise Failed(f"{program} is missing: build it (cmake --build {build})")
        try:
            done = subprocess.run([program, *words], capture_output=True, text=True, timeout=RUN_LIMIT_S, check=False,
                                  env={**os.environ, **(environment or {})})
        except subprocess.TimeoutExpired:
            raise Failed(f"{self._program} has not ended after {RUN_LIMIT_S} s") from None
        if done.returncode != 0:
            lines = done.stderr.strip().splitlines() or [f"exit status {done.returncode}"]
            raise Failed(f"{self.name}: {lines[-1]}")
        for line in done.stderr.splitlines():
            if ": left out: " in line and line not in self._said:
                self._said.add(line)
                print(f"record: {self.name}: {line}", file=sys.stderr)
        return done.stdout

    def call_for_json(self, build, words, environment=None):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "figures.json")
            self.call(build, [*words, "--json", path], environment)
            with open(path, encoding="utf-8") as file:
                return json.load(file)


class Core(Suite):
    """The transport alone, by google-benchmark: processor time of one iteration."""

    def __init__(self):
        super().__init__("core", "testbed/perf/core_bench", ["--benchmark_min_time=0.3", "--benchmark_format=json"])

    def run(self, build):
        found = json.loads(self.call(build, self._words))
        figures = {}
        for one in found["benchmarks"]:
            if one.get("error_occurred"):
                raise Failed(f"core: {one['name']}: {one['error_message']}")
            manual = one["name"].endswith("/manual_time")
            figures[one["name"].removesuffix("/manual_time")] = (
                "ns", one["real_time"] if manual else one["cpu_time"])
        return figures


class Program(Suite):
    """engine_bench, driver_bench or collective_bench, one round a call."""

    def __init__(self, name, program, words, ratios, least):
        super().__init__(name, f"testbed/perf/{program}", words)
        self.ratios, self.least = ratios, least

    def run(self, build, *more):
        found = self.call_for_json(build, [*self._words, *more, "--rounds", "1"])
        return {name: (figure["unit"], figure["median"]) for name, figure in found["figures"].items()}


# An all-reduce beside TCP: the latter's time by ours. "tcp-threaded" hands over between the same two threads as the
# plugin does; of its latency ours may be 1.2.
_BESIDE_TCP = tuple((f"{tcp}/forgive {size}", f"{tcp} {size}", f"forgive {size}")
                    for size in ALL_REDUCES for tcp in ("tcp", "tcp-threaded"))
_BESIDE_TCP_LEAST = {"tcp/forgive 64M": 1.0, "tcp-threaded/forgive 1K": 1 / 1.2}


class AllReduce(Suite):
    """forgive_perf over loopback: both TCP baselines and the plugin one after the other."""

    ratios, least = _BESIDE_TCP, _BESIDE_TCP_LEAST

    def __init__(self):
        super().__init__("all_reduce", "testbed/perf/forgive_perf",
                         ["--plugin", PLUGIN, "--ranks", "2", "--no-check", "-b", "64M", "-e", "64M", "-n", "4"])

    def run(self, build):
        figures = {}
        for size, (iterations, warm_up) in ALL_REDUCES.items():
            for name, plugin in (("tcp", "tcp"), ("tcp-threaded", "tcp-threaded"),
                                 ("forgive", os.path.join(build, PLUGIN))):
                words = ["--plugin", plugin, "--ranks", "2", "--no-check", "-b", size, "-e", size, "-n", iterations,
                         "-w", warm_up]
                found = self.call_for_json(build, words)
                figures[f"{name} {size}"] = ("us", found[0]["time_us"])
        return figures


class KernelDrivers(Suite):
    """The two drivers over kernel UDP, in turns that alternate: what the table of decision 0090 rests on."""

    names = ("udp", "uring")
    figures = ("64M", "64M processor", "1K", "1K processor", "engine", "engine a CPU", "many", "many a CPU")
    ratios = tuple((f"uring/udp {figure}", f"uring {figure}", f"udp {figure}") for figure in figures)

    def __init__(self):
        super().__init__("drivers", "testbed/perf/forgive_perf",
                         ["--plugin", PLUGIN, "--ranks", "2", "--no-check", "-b", "64M", "-e", "64M"])
        self._wire = Program("drivers", "driver_bench", ["--idle-seconds", "0"], (), {})
        self._rounds = collections.Counter()  # by build: of two that are compared each alternates

    def run(self, build):
        order = self.names if self._rounds[build] % 2 == 0 else self.names[::-1]
        self._rounds[build] += 1
        found = {}
        for name in order:
            for size, (iterations, warm_up) in {**ALL_REDUCES, "1K": ("8000", "500")}.items():
                before = _processor_seconds()
                words = ["--plugin", os.path.join(build, PLUGIN), "--ranks", "2", "--no-check", "-b", size, "-e", size,
                         "-n", iterations, "-w", warm_up]
                result = self.call_for_json(build, words, {"FORGIVE_DRIVER": name, "FORGIVE_CC": "none"})
                found[f"{name} {size}"] = ("us", result[0]["time_us"])
                found[f"{name} {size} processor"] = ("s", _processor_seconds() - before)
            for figure, value in self._wire.run(build, "--driver", name).items():
                if figure in self.figures:
                    found[f"{name} {figure}"] = value
        return found


def _processor_seconds():
    """Of all children that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


_DRIVER_RATIOS = (("engine/raw", "engine", "raw"), ("many/engine", "many", "engine"),
                  ("many/wide", "many", "wide"))  # wide: one connection through the memory of many
_OVER_TCP = (("engine/tcp", "engine", "tcp"),)
_OVER_TESTPMD = (("engine/testpmd", "engine", "testpmd"),)
_TESTPMD_LEAST = {"engine/testpmd": 0.6}
_EVERY_LEAST = {"many/engine": 0.9}
_KERNEL_LEAST = {"engine/raw": 0.7, "engine/tcp": 1.0}  # of the drivers over the kernel's sockets


def _driver(name, *words):
    ratios = _DRIVER_RATIOS + (_OVER_TESTPMD if "memif" in words else _OVER_TCP)
    least = _EVERY_LEAST | (_TESTPMD_LEAST if "memif" in words else {} if "dpdk" in words else _KERNEL_LEAST)
    return Program(name, "driver_bench", [*words, "--idle-seconds", "1"], ratios, least)


def every():
    """All suites by their names, in the order in which they run."""
    suites = [
        Core(),
        Program("engine", "engine_bench", [], (("engine/ceiling", "engine", "ceiling"),), {"engine/ceiling": 0.7}),
        _driver("udp", "--driver", "udp"),
        _driver("uring", "--driver", "uring"),
        _driver("af_packet", "--driver", "dpdk"),
        _driver("memif", "--driver", "dpdk", "--network", "memif"),
        Program("null", "driver_bench", ["--driver", "dpdk", "--network", "null"], (), {}),
        AllReduce(),
        KernelDrivers(),
        Program("all_reduce_veth", "collective_bench", ["--network", "veth"], _BESIDE_TCP, _BESIDE_TCP_LEAST),
        # Beside TCP over loopback: the kernel has no part in a memif.
        Program("all_reduce_memif", "collective_bench", ["--driver", "dpdk", "--network", "memif"], _BESIDE_TCP,
                _BESIDE_TCP_LEAST),
    ]
    return {suite.name: suite for suite in suites}


def compiler(build):
    """What the build's cache says of the compiler."""
    path = os.path.join(build, "CMakeCache.txt")
    try:
        with open(path, encoding="utf-8") as file:
            words = dict(line.strip().split("=", 1) for line in file if line.startswith("CMAKE_") and "=" in line)
    except OSError:
        raise Failed(f"{path} is missing: {build} is no build folder (testbed/setup makes one)") from None
    cxx = next((value for key, value in words.items() if key.startswith("CMAKE_CXX_COMPILER:")), "c++")
    kind = next((value for key, value in words.items() if key.startswith("CMAKE_BUILD_TYPE:")), "")
    if shutil.which(cxx) is None:
        return kind
    first = subprocess.run([cxx, "--version"], capture_output=True, text=True, check=False).stdout.splitlines()
    return f"{first[0] if first else cxx}, {kind}"
