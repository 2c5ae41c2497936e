# SPDX-License-Identifier: Apache-2.0
"""Lets the tests import the package from the source tree, and finds ports for ranks."""
import contextlib
import os
import pathlib
import socket
import sys

SOURCE = pathlib.Path(os.environ["FORGIVE_SOURCE"])
sys.path[:0] = [str(SOURCE / "plugin" / "torch"), str(SOURCE / "tests" / "torch")]


def free_ports(count):
    """So many, and each another one: they are held until all are found."""
    with contextlib.ExitStack() as stack:
        probes = [stack.enter_context(socket.socket()) for _ in range(count)]
        for probe in probes:
            probe.bind(("127.0.0.1", 0))
        return [probe.getsockname()[1] for probe in probes]
