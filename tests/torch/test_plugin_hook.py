# SPDX-License-Identifier: Apache-2.0
"""At p = 0 DDP over the plugin trains bit by bit as without FORGIVE's hook, and as over sockets, in spite of trims."""
import importlib.util
import json
import os
import pathlib
import subprocess
import sys

import pytest

# Looked for, not loaded: that takes seconds, and only the ranks need it.
if importlib.util.find_spec("torch") is None:
    pytest.skip("PyTorch is not installed (apt-get install python3-torch)", allow_module_level=True)
SOURCE = pathlib.Path(os.environ["FORGIVE_SOURCE"])
RANKS = 3  # with two, sums have one order only
PROMISE = {"ring": {"FORGIVE_RING_RANKS": "3"}, "direct": {"FORGIVE_RING_RANKS": "2", "FORGIVE_GRADIENT_RANKS": "3"}}


@pytest.mark.parametrize("algorithm", ["ring", "direct"])
def test_at_p_zero_the_hook_over_the_plugin_changes_no_bit(tmp_path, algorithm):
    import conftest
    environment = dict(os.environ, GLOO_SOCKET_IFNAME="lo", FORGIVE_INTERFACE="=lo", FORGIVE_FAULT="trim=0.05",
                       FORGIVE_GRADIENT_TRAFFIC="all", FORGIVE_P_LOW="0", FORGIVE_P_HIGH="0", FORGIVE_LOG="warning",
                       **PROMISE[algorithm])
    gloo, *meet = map(str, conftest.free_ports(3))
    processes = [subprocess.Popen([sys.executable, "-B", SOURCE / "tests" / "torch" / "plugin_worker.py", str(rank),
                                   str(RANKS), gloo, ",".join(meet), algorithm, tmp_path], env=environment,
                                  stderr=subprocess.PIPE, text=True) for rank in range(RANKS)]
    for process in processes:
        _, said = process.communicate(timeout=120)
        assert process.returncode == 0, said
    found = [json.loads((tmp_path / f"{rank}.json").read_text(encoding="utf-8")) for rank in range(RANKS)]
    assert len({each[kind] for each in found for kind in ("sockets", "plain", "hook")}) == 1
    for each in found:
        assert each["refused"] == [] and each["steps"] == 3 and each["p"] == 0 and each["forgiven"] == 0
        assert min(each["trims"]) > 0  # with the hook and without
