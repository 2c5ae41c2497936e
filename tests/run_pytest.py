#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# Runs a pytest file that needs root and network namespaces, for ctest: exit status 77 and a reason where it cannot.
#
#   run_pytest.py [--own-namespace] [--program NAME=PACKAGE]... BUILD_FOLDER FILE
import argparse
import importlib.util
import os
import shlex
import shutil
import subprocess
import sys


def missing(programs):
    if os.geteuid() != 0:
        return "network namespaces, BPF and raw sockets need root"
    if importlib.util.find_spec("pytest") is None:
        return f"{sys.executable} has no pytest (apt-get install python3-pytest)"
    for program, package in (words.split("=") for words in programs):
        if shutil.which(program, path=os.environ.get("PATH", "") + ":/usr/sbin:/sbin") is None:
            return f"{program} is not installed (apt-get install {package})"
    # A container may be root and yet not be allowed to.
    if subprocess.run(["unshare", "--net", "true"], capture_output=True, check=False).returncode != 0:
        return "this root may not make network namespaces"
    return None


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--own-namespace", action="store_true", help="the tests have a network to themselves")
    parser.add_argument("--program", action="append", default=[], metavar="NAME=PACKAGE", help="what they call")
    parser.add_argument("build")
    parser.add_argument("file")
    arguments = parser.parse_args()
    reason = missing(arguments.program)
    if reason:
        print(f"skipped: {reason}")
        return 77
    environment = dict(os.environ, FORGIVE_TEST_BUILD=arguments.build, PYTHONDONTWRITEBYTECODE="1")
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", arguments.file]
    if arguments.own_namespace:
        command = ["unshare", "--net", "sh", "-c", "ip link set lo up && exec " + shlex.join(command)]
    return subprocess.run(command, env=environment, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
