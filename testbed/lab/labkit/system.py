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
        parent = _parent_of(parent)
    found = []
    for entry in os.listdir("/proc"):
        if entry.isdigit() and int(entry) not in spared:
            with contextlib.suppress(OSError):
                if os.stat(f"/proc/{entry}/ns/net").st_ino in wanted:
                    found.append(int(entry))
    return found


def _parent_of(process):
    try:
        with open(f"/proc/{process}/stat", encoding="ascii", errors="replace") as file:
            return int(file.read().rpartition(")")[2].split()[1])
    except (OSError, ValueError, IndexError):
        return 0


def end_processes(namespaces, patience_s=0.6):
    """Asks everything in these namespaces to end, then ends it."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        remaining = processes_in(namespaces)
        for process in remaining:
            with contextlib.suppress(ProcessLookupError):
                os.kill(process, number)
                if number == signal.SIGTERM:
                    os.kill(process, signal.SIGCONT)
        deadline = time.monotonic() + patience_s
        while remaining and time.monotonic() < deadline:
            time.sleep(0.01)
            remaining = processes_in(namespaces)
        if not remaining:
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
