# SPDX-License-Identifier: Apache-2.0
"""Running one fuzz target: in pieces that are counted, replayed, and its inputs kept few."""

import dataclasses
import os
import pathlib
import re
import shutil
import signal
import subprocess
import time

from fuzz_record import FAST, SANITIZED, Record

PROGRESS_SECONDS = 10
# After each piece its executions are counted: what a crash of the machine can lose.
PIECE_SECONDS = 300
# An input that needs longer, or more memory, is a failure too.
SLOWEST_SECONDS, MOST_MEGABYTES = 10, 2048
# Fewer inputs than these are not worth a pass over all.
FEW_INPUTS = 256
# Cheap enough for many executions; the command that repeats a failure is without them.
ENVIRONMENT = {"ASAN_OPTIONS": "malloc_context_size=2:quarantine_size_mb=16:strict_string_checks=1",
               "UBSAN_OPTIONS": "print_stacktrace=1",
               # Without sanitizers: memory is not given back to the kernel between executions.
               "MALLOC_TRIM_THRESHOLD_": "67108864", "MALLOC_MMAP_THRESHOLD_": "33554432"}
# Without sanitizers the bookkeeping of libFuzzer's entropic schedule costs more than the executions themselves.
OPTIONS = {FAST: ["-entropic=0"], SANITIZED: []}
MOST_RUNS = 2**31 - 1  # that libFuzzer's option holds


class Fault(Exception):
    """One clear line for the user, and exit status 1."""


@dataclasses.dataclass
class Target:
    """A target of one build, with its options for libFuzzer."""
    name: str
    options: list
    program: pathlib.Path


def executions_of(log):
    """How many executions a log tells of, and how many features: libFuzzer says so now and then, and at its end."""
    lines = re.findall(r"^#(\d+)\s.*?ft: (\d+)", log, re.M)
    final = re.search(r"stat::number_of_executed_units: (\d+)", log)
    executions = int(final.group(1)) if final else int(lines[-1][0]) if lines else 0
    return executions, int(lines[-1][1]) if lines else 0


class Runner:
    """Runs targets, and keeps what they find below build/fuzz. `stop`, an event, ends what runs."""

    def __init__(self, root, commit, stop):
        self.root, self.commit, self.stop = pathlib.Path(root), commit, stop
        self.folder = self.root / "build/fuzz"

    def found(self, target):
        """The folder of the inputs that a target found."""
        folder = self.folder / "found" / target.name
        folder.mkdir(parents=True, exist_ok=True)
        return folder

    def corpus(self, target):
        """The hand-made inputs, which stay as they are."""
        return self.root / "tests/fuzz/corpus" / target.name

    def record(self, target):
        """The counts so far."""
        return Record.load(self.folder / "found" / f"{target.name}.json")

    def fuzz(self, target, kind, seconds, executions):
        """In pieces, until the time or the count is reached; None: no such limit. Returns the failure, or nothing."""
        begin = time.monotonic()
        while not self.stop.is_set():
            record = self.record(target)
            left = None if executions is None else executions - record.executions(kind)
            passed = time.monotonic() - begin
            if (left is not None and left <= 0) or (seconds is not None and passed >= seconds):
                break
            piece = PIECE_SECONDS if seconds is None else min(PIECE_SECONDS, seconds - passed)
            words = [f"-max_total_time={max(1, round(piece))}", "-reload=0"]
            # libFuzzer counts the inputs that it begins with among its runs.
            words += [] if left is None else [f"-runs={min(left, MOST_RUNS)}"]
            failure = self.run(target, kind, words, f"{record.executions(kind):,} before")
            if failure:
                return failure
        return ""

    def replay(self, target):
        """Every kept input once, by the build with sanitizers."""
        inputs = sum(1 for folder in (self.found(target), self.corpus(target)) for _ in folder.iterdir())
        print(f"{target.name}: replaying {inputs} inputs with sanitizers", flush=True)
        return "" if self.stop.is_set() else self.run(target, SANITIZED, ["-runs=0"], "replay")

    def run(self, target, kind, options, what):
        """One process, and its entry in the record. Returns the failing input, or what else ended it, or nothing."""
        failed = self.folder / "failed"
        failed.mkdir(parents=True, exist_ok=True)
        before = {path.name for path in failed.iterdir()}
        log = self.folder / f"{target.name}.{kind}.log"
        words = [str(target.program), *target.options, *OPTIONS[kind], *options, "-print_final_stats=1",
                 f"-timeout={SLOWEST_SECONDS}",
                 f"-rss_limit_mb={MOST_MEGABYTES}", f"-artifact_prefix={failed}/{target.name}-",
                 str(self.found(target)), str(self.corpus(target))]
        begin = time.monotonic()
        status = self.watch(words, log, lambda text: print(
            f"{target.name}: {time.monotonic() - begin:.0f} s, {executions_of(text)[0]:,} executions ({what}), "
            f"{executions_of(text)[1]:,} features", flush=True))
        executions, features = executions_of(log.read_text(encoding="utf-8", errors="replace"))
        self.record(target).add(kind, self.commit, executions, time.monotonic() - begin, features)
        inputs = sorted({path.name for path in failed.iterdir()} - before)
        if inputs:
            return str(failed / inputs[0])
        return "" if status == 0 or self.stop.is_set() else f"(exit status {status}, see {log})"

    def watch(self, words, log, progress):
        """Waits for a process and shows its progress; at a stop it is asked to end, so that it says its counts."""
        with open(log, "w", encoding="utf-8") as output:
            process = subprocess.Popen(words, cwd=self.root, stdout=output, stderr=subprocess.STDOUT,
                                       start_new_session=True, env=dict(ENVIRONMENT, **os.environ))
            shown = time.monotonic()
            try:
                while process.poll() is None:
                    if self.stop.wait(0.2):
                        process.send_signal(signal.SIGINT)
                        return process.wait(timeout=SLOWEST_SECONDS)
                    if time.monotonic() - shown >= PROGRESS_SECONDS:
                        shown = time.monotonic()
                        progress(log.read_text(encoding="utf-8", errors="replace"))
                return process.returncode
            except subprocess.TimeoutExpired:
                return -1
            finally:
                if process.poll() is None:
                    process.kill()
                    process.wait()

    def shrink(self, target):
        """Keeps of the found inputs those that reach something that no other does, once there are many more."""
        found, record = self.found(target), self.record(target)
        if self.stop.is_set() or sum(1 for _ in found.iterdir()) < max(FEW_INPUTS, 2 * record.kept):
            return
        before = sum(1 for _ in found.iterdir())
        fewer = found.with_name(f"{target.name}.fewer")
        shutil.rmtree(fewer, ignore_errors=True)
        fewer.mkdir()
        words = [str(target.program), *target.options, "-merge=1", f"-timeout={SLOWEST_SECONDS}",
                 f"-rss_limit_mb={MOST_MEGABYTES}", str(fewer), str(self.corpus(target)), str(found)]
        status = self.watch(words, self.folder / f"{target.name}.merge.log", lambda _: None)
        if status != 0 or not any(fewer.iterdir()):
            shutil.rmtree(fewer)
            return
        old = found.with_name(f"{target.name}.old")
        found.rename(old)
        fewer.rename(found)
        shutil.rmtree(old)
        record.kept = sum(1 for _ in found.iterdir())
        record.save()
        print(f"{target.name}: of {before} inputs {record.kept} are kept", flush=True)
