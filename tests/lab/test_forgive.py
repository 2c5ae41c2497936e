# SPDX-License-Identifier: Apache-2.0
# The plugin over a whole lab: an incast that the switch trims, in every mode that kernel UDP can see.
import pytest
from conftest import lab_up
from job import Job
from processes import clean_environment

pytestmark = pytest.mark.usefixtures("nothing_left")

# The ratios of testbed/demo.toml: 100 Mbit/s x 7 ms = 87,500 bytes; senders' links 1.5 times a receiving link.
LAB = ("--rate-mbps", "100", "--rtt-ms", "7", "--uplink-share", "1.5", "--ecn-min-bytes", "20000", "--ecn-max-bytes",
       "80000", "--trim-threshold-bytes", "105000", "--queue-bytes", "105000")
ENVIRONMENT = {
    "FORGIVE_GRADIENT_TRAFFIC": "all",
    "FORGIVE_RING_RANKS": "2",
    "FORGIVE_LINK_RATE_MBPS": "100",
    "FORGIVE_BASE_RTT_US": "7000",
    "FORGIVE_WINDOW_BYTES": "87500",
    "FORGIVE_RTO_US": "98000",
    "FORGIVE_CC": "dcqcn-astra",
    "FORGIVE_INTERFACE": "fgv0",
}


class DirectJob(Job):
    """Direct all-reduces of `size` bytes, one a step, a rank a host."""

    def __init__(self, lab, folder, ranks, environment, size, steps, hold_at=None):
        words = ["--algorithm", "direct", "--steps", str(steps), "--critical", "1", "--compute-ms", "5", "--bytes",
                 str(size), "--timeout", "100", "--trims", lab.status()["trims_log"]]
        own = clean_environment(**ENVIRONMENT | {"FORGIVE_GRADIENT_RANKS": str(ranks)} | environment)
        super().__init__(folder, "", ranks, words,
                         lambda rank, command, **options: lab.start(f"h{rank}", *command, env=own, **options),
                         hold_at)


def all_reduces(lab, folder, ranks, environment, size, steps=4):
    """Returns what rank 0 wrote of all of them."""
    return DirectJob(lab, folder, ranks, environment, size, steps).assert_ended_well()


def assert_right(lab, result):
    totals = lab.status()["totals"]
    assert (result["wrong"], result["budget_violations"]) == (0, 0)
    assert result["trims"] == totals["trimmed"], "the transport's trims are not the switch's"
    assert result["trims"] > 0, "nothing was trimmed: this proves nothing"
    assert totals["header_dropped"] == 0
    assert (totals["queue_overflow"], totals["gso_refused"], totals["unlogged"]) == (0, 0, 0)


@pytest.mark.parametrize("mode, family", [("full", "AF_INET"), ("stale", "AF_INET"), ("sai", "AF_INET"),
                                          ("sai", "AF_INET6")])
def test_what_is_wrong_after_an_incast_is_what_was_forgiven(tmp_path, mode, family):
    with lab_up(*LAB, "--trim-mode", mode) as lab:
        result = all_reduces(lab, str(tmp_path), 4, {"NCCL_SOCKET_FAMILY": family}, 2_000_000)
        assert_right(lab, result)
        assert result["forgiven_bytes"] > 0
        assert result["ranks_identical"], "only the reduce-scatter phase may lose bytes"


def test_no_header_is_lost_at_a_fan_in_of_seven(tmp_path):
    with lab_up(*LAB, "--hosts", "8", "--trim-mode", "sai") as lab:
        result = all_reduces(lab, str(tmp_path), 8, {"NCCL_SOCKET_FAMILY": "AF_INET"}, 2_000_000, steps=2)
        assert_right(lab, result)


def test_without_a_tolerance_every_trim_is_repaired(tmp_path):
    with lab_up(*LAB) as lab:
        result = all_reduces(lab, str(tmp_path), 4,
                             {"NCCL_SOCKET_FAMILY": "AF_INET", "FORGIVE_P_LOW": "0", "FORGIVE_P_HIGH": "0"}, 2_000_000)
        assert_right(lab, result)
        assert result["forgiven_bytes"] == 0
        assert result["retransmitted_bytes"] > 0
