# SPDX-License-Identifier: Apache-2.0
# What the lab asks of the operating system: namespaces, mounts, processes, the lock, and the tools ip, tc, ethtool.
import contextlib
import ctypes
import errno
import fcntl
import json
import os
import shutil
import signal
import subprocess
import time

from .parameters import LabError

STATE_ROOT = "/run/forgive-lab"
NAMESPACE_FOLDER = "/run/netns"
CLONE_NEWNET = 0x40000000
MNT_DETACH = 2

_libc = ctypes.CDLL(None, use_errno=True)


def _call(name, *arguments):
    if getattr(_libc, name)(*arguments) != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{name}: {os.strerror(number)}")


def namespace_path(namespace):
    return os.path.join(NAMESPACE_FOLDER, namespace)


def enter(namespace):
    """Moves this process into a named network namespace for good."""
    try:
        descriptor = os.open(namespace_path(namespace), os.O_RDONLY | os.O_CLOEXEC)
    except OSError as error:
        raise LabError(f"network namespace {namespace}: {error.strerror}") from error
    try:
        _call("setns", descriptor, CLONE_NEWNET)
    except OSError as error:
        raise LabError(f"network namespace {namespace}: {error.strerror}") from error
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def inside(namespace):
    """This process is in a named network namespace for the length of the block; children begin there."""
    home = os.open("/proc/self/ns/net", os.O_RDONLY | os.O_CLOEXEC)
    try:
        enter(namespace)
        yield
    finally:
        _call("setns", home, CLONE_NEWNET)
        os.close(home)


def unmount(path):
    """True unless something stays mounted there."""
    try:
        _call("umount2", os.fsencode(path), MNT_DETACH)
    except OSError as error:
        return error.errno in (errno.EINVAL, errno.ENOENT)
    return True


def write_sysctl(path, value):
    """In the network namespace that the process is in; a kernel without that switch is left alone."""
    with contextlib.suppress(OSError):
        with open(os.path.join("/proc/sys", path), "w", encoding="ascii") as file:
            file.write(str(value))


def is_link_local_ready(interface):
    """Whether IPv6 speaks on the interface, in the process's network namespace; yes if the kernel has no IPv6."""
    tentative = 0x40
    try:
        with open("/proc/self/net/if_inet6", encoding="ascii") as file:
            addresses = [line.split() for line in file]
        with open("/proc/self/net/ipv6_route", encoding="ascii") as file:
            routes = [line.split() for line in file]
    except FileNotFoundError:
        return True
    has_address = any(fields[5] == interface and fields[0].startswith("fe80") and not int(fields[4], 16) & tentative
                      for fields in addresses)
    return has_address and any(fields[-1] == interface and fields[0].startswith("ff00") for fields in routes)


def tool(name):
    path = shutil.which(name, path=os.environ.get("PATH", "") + ":/usr/sbin:/sbin:/usr/bin:/bin")
    if path is None:
        package = "ethtool" if name == "ethtool" else "iproute2"
        raise LabError(f"{name} is not installed: apt-get install {package}")
    return path


def run(arguments, text_input=None):
    """Runs one of the tools; raises LabError with its own words if it fails. Returns what it printed."""
    result = subprocess.run([tool(arguments[0]), *arguments[1:]], input=text_input, capture_output=True, text=True,
                            check=False)
    if result.returncode != 0:
        words = " ".join(result.stderr.split()) or f"exit status {result.returncode}"
        raise LabError(f"{' '.join(arguments)}: {words}")
    return result.stdout


def batch(name, namespace, lines):
    """Many lines of `ip` or `tc` in one process; namespace None: the present one."""
    where = ["-n", namespace] if namespace else []
    run([name, *where, "-batch", "-"], "\n".join(lines) + "\n")


def query(*arguments):
    """What `ip -j` or `tc -j` prints, as objects."""
    return json.loads(run(list(arguments)) or "[]")


def namespaces_of(prefix):
    try:
        return sorted(entry for entry in os.listdir(NAMESPACE_FOLDER) if entry.startswith(prefix))
    except FileNotFoundError:
        return []


def processes_in(namespaces):
    """Process numbers of everything that runs in these network namespaces, this process and its parents left out."""
    wanted = set()
    for namespace in namespaces:
        with contextlib.suppress(OSError):
            wanted.add(os.stat(namespace_path(namespace)).st_ino)
    spared, parent = set(), os.getpid()
    while parent > 1 and parent not in spared:
        spared.add(parent)
        status = _status_of(parent)
        parent = status[1] if status else 0
    found = []
    for entry in os.listdir("/proc"):
        if entry.isdigit() and int(entry) not in spared:
            with contextlib.suppress(OSError):
                if os.stat(f"/proc/{entry}/ns/net").st_ino in wanted:
                    found.append(int(entry))
    return found


def _status_of(process):
    """State letter and parent of a process; None if there is none."""
    try:
        with open(f"/proc/{process}/stat", encoding="utf-8", errors="replace") as file:
            fields = file.read().rpartition(")")[2].split()
        return fields[0], int(fields[1])
    except (OSError, ValueError, IndexError):
        return None


def _is_running(process):
    status = _status_of(process)
    return status is not None and status[0] not in "ZX"


def end_processes(namespaces, patience_s=0.6):
    """Asks everything in these namespaces to end, then ends it."""
    asked = set()
    for number in (signal.SIGTERM, signal.SIGKILL):
        deadline = time.monotonic() + patience_s
        asked |= set(processes_in(namespaces))
        for process in filter(_is_running, asked):
            with contextlib.suppress(ProcessLookupError):
                os.kill(process, number)
                os.kill(process, signal.SIGCONT)
        # One that is ending leaves its namespace a little before it is gone.
        while any(map(_is_running, asked)) and time.monotonic() < deadline:
            time.sleep(0.005)
        if not any(map(_is_running, asked)) and not processes_in(namespaces):
            return


@contextlib.contextmanager
def lock():
    """One `up` or `down` at a time. The lock is the state folder itself, so that nothing is left behind."""
    while True:
        os.makedirs(STATE_ROOT, exist_ok=True)
        try:
            descriptor = os.open(STATE_ROOT, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except FileNotFoundError:
            continue
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        # Whoever held it before may have removed the folder that was locked here.
        with contextlib.suppress(FileNotFoundError):
            if os.stat(STATE_ROOT).st_ino == os.fstat(descriptor).st_ino:
                break
        os.close(descriptor)
    try:
        yield
    finally:
        with contextlib.suppress(OSError):
            os.rmdir(STATE_ROOT)
        os.close(descriptor)
