#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# Runs one of these pytest files in a network namespace of its own; exit status 77 and a reason where it cannot.
#
#   run_pytest.py BUILD_FOLDER FILE [PYTEST_ARGUMENT...]
import importlib.util
import os
import shlex
import subprocess
import sys


def main():
    reason = None
    if os.geteuid() != 0:
        reason = "raw sockets and network namespaces need root"
    elif importlib.util.find_spec("pytest") is None:
        reason = f"{sys.executable} has no pytest (apt-get install python3-pytest)"
    # A container may be root and yet not be allowed to.
    elif subprocess.run(["unshare", "--net", "true"], capture_output=True, check=False).returncode != 0:
        reason = "this root may not make network namespaces"
    if reason:
        print(f"skipped: {reason}")
        return 77
    environment = dict(os.environ, FORGIVE_TEST_BUILD=sys.argv[1], PYTHONDONTWRITEBYTECODE="1")
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", *sys.argv[2:]]
    inside = "ip link set lo up && exec " + shlex.join(command)
    return subprocess.run(["unshare", "--net", "sh", "-c", inside], env=environment, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
