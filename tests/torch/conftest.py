# SPDX-License-Identifier: Apache-2.0
"""Lets the tests import the package from the source tree, and finds ports for ranks."""
import os
import pathlib
import socket
import sys

SOURCE = pathlib.Path(os.environ["FORGIVE_SOURCE"])
sys.path[:0] = [str(SOURCE / "plugin" / "torch"), str(SOURCE / "tests" / "torch")]


def a_free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]
