# SPDX-License-Identifier: Apache-2.0
"""Puts the plugin's library into the wheel, which is therefore one of this platform."""
import os
import shutil
import sys

from setuptools import Distribution, setup
from setuptools.command.build_py import build_py

NAME = "libnccl-net-forgive.so"
HERE = os.path.dirname(os.path.abspath(__file__))


def library():
    """The plugin's file: FORGIVE_LIBRARY, else the release build of the tree that this lies in."""
    path = os.environ.get("FORGIVE_LIBRARY") or os.path.join(HERE, "..", "..", "build", "release", "plugin", NAME)
    if not os.path.isfile(path):
        sys.exit(f"forgive-torch: {path} is missing: build it by testbed/setup, or set FORGIVE_LIBRARY to a {NAME}")
    return path


class BuildWithLibrary(build_py):
    def run(self):
        super().run()
        folder = os.path.join(self.build_lib, "forgive_torch", "lib")
        os.makedirs(folder, exist_ok=True)
        shutil.copyfile(library(), os.path.join(folder, NAME))


class PlatformDistribution(Distribution):
    def has_ext_modules(self):
        return True


class AnyPython:
    """The library needs this platform but no particular Python."""

    @staticmethod
    def command():
        from wheel.bdist_wheel import bdist_wheel

        class Wheel(bdist_wheel):
            def get_tag(self):
                return ("py3", "none", super().get_tag()[2])
        return Wheel


setup(cmdclass={"build_py": BuildWithLibrary, "bdist_wheel": AnyPython.command()}, distclass=PlatformDistribution)
