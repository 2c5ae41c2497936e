# SPDX-License-Identifier: Apache-2.0
"""The wheel: built offline, with the library inside, and installed into an empty virtual environment."""
import os
import pathlib
import shutil
import subprocess
import zipfile

import pytest

SOURCE = pathlib.Path(os.environ["FORGIVE_SOURCE"])
PYTHON = "/usr/bin/python3"
CLEAN = {"PATH": "/usr/bin:/bin", "PIP_DISABLE_PIP_VERSION_CHECK": "1", "PIP_NO_INDEX": "1", "LC_ALL": "C.UTF-8"}


def run(*words, **more):
    done = subprocess.run([str(word) for word in words], capture_output=True, text=True, check=False, timeout=200,
                          env=dict(CLEAN, **more))
    return done.returncode, done.stdout + done.stderr


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    folder = tmp_path_factory.mktemp("wheel")
    shutil.copytree(SOURCE / "plugin" / "torch", folder / "source", ignore=shutil.ignore_patterns("__pycache__"))
    status, said = run(PYTHON, "-m", "pip", "wheel", "--no-build-isolation", "--no-deps", "-w", folder,
                       folder / "source", FORGIVE_LIBRARY=os.environ["FORGIVE_LIBRARY"])
    assert status == 0, said
    return next(folder.glob("*.whl"))


@pytest.fixture(scope="module")
def python(wheel, tmp_path_factory):
    """Of an empty environment with the wheel alone in it: neither torch nor numpy."""
    folder = tmp_path_factory.mktemp("environment")
    # Without a pip of its own, which takes longest to install: Debian's installs into it.
    status, said = run(PYTHON, "-m", "venv", "--without-pip", folder)
    assert status == 0, said
    status, said = run(PYTHON, "-m", "pip", "--python", folder / "bin" / "python", "install", "--no-deps", wheel)
    assert status == 0, said
    return folder / "bin" / "python"


def test_the_wheel_holds_the_library_and_is_for_this_platform(wheel):
    names = zipfile.ZipFile(wheel).namelist()
    assert "forgive_torch/lib/libnccl-net-forgive.so" in names and "forgive_torch/py.typed" in names
    assert wheel.name.startswith("forgive_torch-0.1.0-py3-none-linux_")


def test_without_torch_it_says_so_in_one_line_and_the_rest_works(python):
    status, said = run(python, "-m", "forgive_torch")
    assert status == 1 and said.count("torch: not installed: pip install torch") == 1, said
    assert "library: " in said and "Traceback" not in said
    status, said = run(python, "-c", "import forgive_torch as f; d = f.Detector(window=1); d.observe(1, 2.0); "
                                     "print(d.is_critical(2), d.stats())")
    assert status == 0 and "True {'observed_steps': 1, 'windows': 1, 'bad_norms': 0}" in said, said
    status, said = run(python, "-c", "import forgive_torch\n"
                                     "try:\n  forgive_torch.register\n"
                                     "except forgive_torch.ForgiveError as error:\n  print(error)")
    assert status == 0 and said.strip() == ("forgive_torch.register needs PyTorch, which is not installed: pip "
                                            "install torch, or apt-get install python3-torch")


def test_a_build_without_the_library_says_what_is_missing(tmp_path):
    shutil.copytree(SOURCE / "plugin" / "torch", tmp_path / "source", ignore=shutil.ignore_patterns("__pycache__"))
    done = subprocess.run([PYTHON, "setup.py", "bdist_wheel"], cwd=tmp_path / "source", capture_output=True,
                          text=True, env=dict(CLEAN, FORGIVE_LIBRARY=str(tmp_path / "none.so")), timeout=100,
                          check=False)
    assert done.returncode != 0 and "none.so is missing: build it by testbed/setup" in done.stderr
    assert not list(tmp_path.glob("**/*.whl"))
