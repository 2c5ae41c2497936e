# SPDX-License-Identifier: Apache-2.0
# Where and from what the results were made: the machine and the commit.
import os
import platform
import subprocess

from parameters import ROOT


def _first_line(path, prefix):
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            for line in file:
                if line.startswith(prefix):
                    return line.split(":", 1)[-1].strip()
    except OSError:
        pass
    return "unknown"


def _release():
    try:
        return platform.freedesktop_os_release().get("PRETTY_NAME", "unknown")
    except OSError:
        return "unknown"


def describe():
    """The machine, without its name or addresses."""
    return {
        "cpu": _first_line("/proc/cpuinfo", "model name"),
        "cpus": len(os.sched_getaffinity(0)),
        "memory": _first_line("/proc/meminfo", "MemTotal"),
        "kernel": platform.release(),
        "system": _release(),
    }


def commit():
    """The commit's id, followed by "+" if tracked files differ from it; "unknown" outside a clone."""
    def git(*words):
        return subprocess.run(["git", "-c", "safe.directory=*", "-C", ROOT, *words], capture_output=True, text=True,
                              timeout=20, check=True, start_new_session=True).stdout.strip()
    try:
        return git("rev-parse", "HEAD") + ("+" if git("status", "--porcelain", "--untracked-files=no") else "")
    except (OSError, subprocess.SubprocessError):
        return "unknown"
