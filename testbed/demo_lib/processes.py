# SPDX-License-Identifier: Apache-2.0
# Starts the demo's programs and makes sure that each of them ends.
import ctypes
import os
import signal
import subprocess
import time

from errors import DemoError

PR_SET_PDEATHSIG = 1
POLL_SECONDS = 0.02
LAST_WORDS_SECONDS = 20

_libc = ctypes.CDLL(None)


def _begin_child(niceness):
    """In the child: should the demo be killed, the kernel ends the child too."""
    _libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if niceness:
        try:
            os.setpriority(os.PRIO_PROCESS, 0, niceness)
            # Where the kernel groups processes by session, niceness counts within a group only; the group has its
            # own.
            with open("/proc/self/autogroup", "w", encoding="ascii") as file:
                file.write(str(niceness))
        except OSError:
            pass  # without root: as any other program


class Processes:
    """Every program that the demo has started and that may still run."""

    def __init__(self, interrupts):
        self.interrupts = interrupts
        self.running = []

    def start(self, command, environment=None, log=os.devnull, stdout=None, niceness=0):
        """Starts a program in a session of its own (an interrupt of the terminal is the demo's to handle)."""
        with open(log, "ab") as file:
            try:
                process = subprocess.Popen(command, env=environment, stdin=subprocess.DEVNULL,
                                           stdout=stdout if stdout is not None else file, stderr=file,
                                           start_new_session=True, preexec_fn=lambda: _begin_child(niceness))
            except OSError as error:
                raise DemoError(f"{command[0]}: {error.strerror}: build it by `testbed/setup`") from error
        self.running.append(process)
        return process

    def wait(self, processes, seconds):
        """Waits until all have ended, or one has failed, or the time is over. Returns whether all have ended well.
        Raises Interrupted."""
        end = time.monotonic() + seconds
        while True:
            codes = [process.poll() for process in processes]
            self.running = [process for process in self.running if process.returncode is None]
            if all(code is not None for code in codes):
                return all(code == 0 for code in codes)
            if any(code not in (None, 0) for code in codes):
                # The others notice by themselves; their own words are worth waiting for.
                end = min(end, time.monotonic() + LAST_WORDS_SECONDS)
            if time.monotonic() >= end:
                return False
            self.interrupts.pause(POLL_SECONDS)

    def end(self, processes, gently_seconds=0.0):
        """Ends them: by SIGTERM first if they are given time, else at once."""
        end = time.monotonic() + gently_seconds
        if gently_seconds > 0:
            for process in processes:
                _signal(process, signal.SIGTERM)
            while time.monotonic() < end and any(process.poll() is None for process in processes):
                time.sleep(POLL_SECONDS)
        for process in processes:
            _signal(process, signal.SIGKILL)
        for process in processes:
            process.wait()
        self.running = [process for process in self.running if process.returncode is None]

    def end_all(self):
        self.end(list(self.running))


def _signal(process, number):
    if process.poll() is None:
        try:
            os.killpg(process.pid, number)
        except ProcessLookupError:
            pass
        except PermissionError:
            process.send_signal(number)


def call(command, seconds, what):
    """Runs a short program to its end, whatever signal comes. Returns its output; raises DemoError in its words."""
    try:
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=seconds,
                              start_new_session=True, check=False)
    except OSError as error:
        raise DemoError(f"{command[0]}: {error.strerror}") from error
    except subprocess.TimeoutExpired as error:
        raise DemoError(f"{what}: no answer within {seconds:g} s") from error
    if done.returncode != 0:
        raise DemoError(f"{what}: " + (" ".join(done.stderr.split()) or f"exit status {done.returncode}"))
    return done.stdout
