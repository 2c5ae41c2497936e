# SPDX-License-Identifier: Apache-2.0
"""A real model on four lab hosts behind the trimming switch: replicas stay identical, or diverge by what is measured."""
import importlib.util
import json
import os
import pathlib
import subprocess

import pytest

# Looked for, not loaded: that takes seconds, and only the ranks need it.
if importlib.util.find_spec("torch") is None:
    pytest.skip("PyTorch is not installed (apt-get install python3-torch)", allow_module_level=True)
SOURCE = pathlib.Path(__file__).resolve().parents[2]


def test_a_model_trains_behind_the_switch_and_replicas_agree_where_they_must(tmp_path):
    done = subprocess.run([SOURCE / "testbed" / "train", "--build", os.environ["FORGIVE_TEST_BUILD"], "--output",
                           tmp_path, "--policy", "forgive-reduce,forgive-all", "--steps", "8", "--window", "1"],
                          capture_output=True, text=True, timeout=250, check=False)
    assert done.returncode == 0, done.stdout + done.stderr  # budgets and ledgers among it
    runs = {run["policy"]: run for run in json.loads((tmp_path / "results.json").read_text(encoding="utf-8"))["runs"]}
    for run in runs.values():
        assert run["forgiven"] > 0 and run["trims"] > 0 and run["failures"] == []
    assert runs["forgive-reduce"]["identical"] and runs["forgive-reduce"]["distance"] == 0
    assert not runs["forgive-all"]["identical"] and runs["forgive-all"]["distance"] > 0
