# SPDX-License-Identifier: Apache-2.0
# An attacker beside an all-reduce: no byte is wrong, no budget moves, no memory grows, and no answer helps it.
import socket
import subprocess

import pytest
from harness import ATTACK, KINDS, RANKS, all_reduces, attacker, environment, refused

MEBIBYTE = 1 << 20
# Of a rank's resident memory between the first third of an attacked run's steps and its end.
LEAST_LEAK = 3 * MEBIBYTE


def assert_no_growth(memory):
    assert len(memory) == RANKS and min(map(len, memory.values())) >= 2, memory
    for samples in memory.values():
        assert max(samples) - samples[0] < LEAST_LEAK, samples


def test_ten_thousand_hostile_packets_a_second_change_no_byte_and_spend_no_budget(tmp_path):
    with attacker("--rate", "10000") as told:
        result, memory = all_reduces(tmp_path, 60, 6 * MEBIBYTE, compute_ms=20)
    sent = told[0]
    assert sent["refused"] == 0
    assert min(sent["kinds"][kind] for kind in KINDS) > 0, "an attack was not tried"
    assert (result["wrong"], result["budget_violations"]) == (0, 0)
    assert result["ranks_identical"]
    # Nothing trims here: a header that was cut and sent again must not pass for a trim, though the steps are open.
    assert (result["trims"], result["forgiven_bytes"]) == (0, 0)
    assert all(step["received"] == step["expected"] for step in result["steps"])
    bad_tag, replayed, malformed, unknown = refused(result, "bad_tag", "replayed", "malformed", "unknown_connection")
    assert bad_tag > 100 and replayed > 100 and malformed > 100 and unknown > 100
    assert_no_growth(memory)


def test_under_attack_only_real_trims_are_forgiven_and_budgets_hold(tmp_path):
    with attacker("--rate", "10000", "--seed", "2") as told:
        result, _ = all_reduces(tmp_path, 30, 6 * MEBIBYTE, compute_ms=20, FORGIVE_FAULT="trim=0.03,seed=5")
    assert told[0]["kinds"]["trimmed"] > 0
    # forgive_perf checks that whatever is missing was cut, as the log says, and forgiven, as the ledger says.
    assert (result["wrong"], result["budget_violations"]) == (0, 0)
    assert result["forgiven_bytes"] > 0 and result["ranks_identical"]
    for step in result["steps"]:
        assert step["expected"] == step["received"] + step["forgiven"]
        assert step["forgiven"] <= step["expected"] * (0.005 if step["critical"] else 0.1)


@pytest.mark.parametrize("kinds", ("connect,reply", "replay-other", "malformed,blind"))
def test_a_flood_of_one_kind_takes_no_memory_and_harms_no_connection(tmp_path, kinds):
    with attacker("--rate", "30000", "--only", kinds) as told:
        result, memory = all_reduces(tmp_path, 60, 2 * MEBIBYTE, compute_ms=20)
    assert told[0]["sent"] > 0
    assert (result["wrong"], result["trims"], result["forgiven_bytes"]) == (0, 0, 0)
    assert_no_growth(memory)


def believed_mtu():
    """What an ordinary socket thinks that passes to the ranks' address."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as ordinary:
        ordinary.connect(("127.0.0.1", 9))
        return ordinary.getsockopt(socket.IPPROTO_IP, 14)  # IP_MTU


def test_a_forged_fragmentation_needed_deceives_the_kernel_and_makes_no_packet_of_ours_smaller(tmp_path):
    with attacker("--rate", "2000", "--only", "icmp") as told:
        result, _ = all_reduces(tmp_path, 30, 4 * MEBIBYTE, compute_ms=20)
    assert told[0]["kinds"]["icmp"] > 0
    assert believed_mtu() == 576, "the attack does not work even where nobody minds it"
    assert result["wrong"] == 0
    for rank in result["per_rank"]:
        assert rank["sent_bytes"] / rank["packets_sent"] > 3500, "payloads became smaller"


def test_a_job_that_starts_where_the_kernel_was_deceived_uses_whole_packets_too(tmp_path):
    with attacker("--rate", "2000", "--only", "icmp"):
        all_reduces(tmp_path, 10, 4 * MEBIBYTE, compute_ms=20)
    assert believed_mtu() == 576
    result, _ = all_reduces(tmp_path, 5, 4 * MEBIBYTE)
    assert result["wrong"] == 0
    assert all(rank["sent_bytes"] / rank["packets_sent"] > 3500 for rank in result["per_rank"])


def test_an_attacker_that_asks_for_an_unknown_kind_is_told_which_there_are():
    run = subprocess.run([ATTACK, "--only", "magic"], env=environment(), capture_output=True, text=True, check=False)
    assert run.returncode == 2
    assert run.stderr.splitlines() == ['attack: --only: "magic" is no kind; known are ' + " ".join(KINDS)]
