# SPDX-License-Identifier: Apache-2.0
# What tests of whole jobs ask of the processes that they start.
import os


def clean_environment(**own):
    """The process's environment with `own`: nothing of FORGIVE's or NCCL's comes from outside."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("FORGIVE_", "NCCL_"))}
    return dict(kept, **own)


def children(pid):
    """The processes that it has started and that are there. May raise OSError."""
    with open(f"/proc/{pid}/task/{pid}/children", encoding="utf-8") as file:
        return [int(child) for child in file.read().split()]


def is_running(pid):
    """Whether it is there and has not ended: one that nobody has waited for yet has."""
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
            fields = file.read().rpartition(")")[2].split()
    except OSError:
        return False
    return bool(fields) and fields[0] not in "ZX"


def resident_bytes(pid):
    """May raise OSError, or IndexError while it ends."""
    with open(f"/proc/{pid}/statm", encoding="ascii") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
