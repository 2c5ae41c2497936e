#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# Runs one of the lab's pytest files for ctest: exit status 77 and a reason where it cannot run here.
#
#   run_pytest.py BUILD_FOLDER FILE [PYTEST_ARGUMENT...]
import importlib.util
import os
import shutil
import subprocess
import sys


def missing():
    if os.geteuid() != 0:
        return "network namespaces and BPF need root"
    if importlib.util.find_spec("pytest") is None:
        return f"{sys.executable} has no pytest (apt-get install python3-pytest)"
    for program, package in (("iperf3", "iperf3"), ("ping", "iputils-ping"), ("ethtool", "ethtool"),
                             ("tc", "iproute2")):
        if shutil.which(program, path=os.environ.get("PATH", "") + ":/usr/sbin:/sbin") is None:
            return f"{program} is not installed (apt-get install {package})"
    # A container may be root and yet not be allowed to.
    if subprocess.run(["unshare", "--net", "true"], capture_output=True, check=False).returncode != 0:
        return "this root may not make network namespaces"
    return None


def main():
    reason = missing()
    if reason:
        print(f"skipped: {reason}")
        return 77
    environment = dict(os.environ, FORGIVE_TEST_BUILD=sys.argv[1], PYTHONDONTWRITEBYTECODE="1")
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", *sys.argv[2:]]
    return subprocess.run(command, env=environment, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
