# SPDX-License-Identifier: Apache-2.0
# Leaves under spines: ECMP tells sprayed paths apart, a dead spine is left, trims at spines are as good as at leaves.
import contextlib
import json
import subprocess

import pytest
from conftest import command, lab_up, one_line, run
from job import HELD_STEPS
from test_forgive import LAB, DirectJob, all_reduces, assert_right

pytestmark = pytest.mark.usefixtures("nothing_left")

FABRIC = ("--topology", "leaf-spine", "--spines", "2")
# A host on each leaf, and nothing is trimmed: what is missing was lost by a fault.
PAIR = (*FABRIC, "--hosts", "2", "--rate-mbps", "200", "--rtt-ms", "1", "--no-trim", "--queue-bytes", "400000")
HOSTS = ("10.77.0.1", "10.77.0.2")


def in_switch(lab, switch, *words):
    return subprocess.run(["ip", "-n", f"fgv-{lab.name}-{switch}", *words], check=True, capture_output=True,
                          text=True).stdout


def spine_of(lab, sender, source_port, port):
    """Which spine the leaf of host `sender` hashes a flow to the other host to."""
    route = in_switch(lab, f"leaf{sender}", "-j", "route", "get", HOSTS[1 - sender], "from", HOSTS[sender], "iif",
                      f"p{sender}", "ipproto", "udp", "sport", str(source_port), "dport", str(port))
    return json.loads(route)[0]["dev"]


def ports_of_both_spines(lab, paths):
    """The first of `paths` ports that spread each host's data over both spines, while what belongs to the first path,
    and with it all reports, passes one spine; and that spine."""
    for first in range(20000, 20000 + 100 * paths, paths):
        ways = [[spine_of(lab, sender, first + path, first) for path in range(paths)] for sender in (0, 1)]
        if ways[0][0] == ways[1][0] and all(2 * way.count("spine0") == paths for way in ways):
            return first, ways[0][0]
    raise AssertionError("no ports spread over both spines: is this ECMP?")


def settings(first, paths):
    return {"FORGIVE_PATHS": str(paths), "FORGIVE_PORT_RANGE": f"{first}-{first + paths - 1}",
            "NCCL_SOCKET_FAMILY": "AF_INET", "FORGIVE_LINK_RATE_MBPS": "200", "FORGIVE_BASE_RTT_US": "1000",
            "FORGIVE_RTO_US": "40000"}


def data_by_spine(lab, leaf="leaf0"):
    """Data frames that left a leaf, by spine."""
    return {port["to"]: port["whole"] for port in lab.status()["fabric_ports"] if port["switch"] == leaf}


@pytest.mark.parametrize("driver", ("udp", "uring"))
def test_four_paths_of_a_connection_use_both_spines_and_one_path_uses_one(tmp_path, driver):
    with lab_up(*PAIR) as lab:
        first, spine = ports_of_both_spines(lab, 4)
        result = all_reduces(lab, str(tmp_path), 2, settings(first, 1) | {"FORGIVE_DRIVER": driver}, 1_000_000)
        assert (result["wrong"], result["forgiven_bytes"]) == (0, 0)
        before = data_by_spine(lab)
        other = next(name for name in before if name != spine)
        assert before[spine] > 500 and before[other] == 0
        result = all_reduces(lab, str(tmp_path), 2, settings(first, 4) | {"FORGIVE_DRIVER": driver}, 1_000_000)
        assert (result["wrong"], result["forgiven_bytes"]) == (0, 0)
        after = data_by_spine(lab)
        sent = {name: after[name] - before[name] for name in after}
        assert min(sent.values()) > 0.25 * sum(sent.values()), sent
        assert data_by_spine(lab, "border") == {"spine0": 0, "spine1": 0}


@pytest.mark.parametrize("reports", ("reports_live", "reports_die"))
def test_a_spine_that_swallows_everything_is_left_and_every_byte_arrives(tmp_path, reports):
    with lab_up(*PAIR) as lab:
        first, spine = ports_of_both_spines(lab, 4)
        other = "spine1" if spine == "spine0" else "spine0"
        dead, good = (other, spine) if reports == "reports_live" else (spine, other)
        job = DirectJob(lab, str(tmp_path), 2, settings(first, 4) | {"FORGIVE_PEER_TIMEOUT_S": "20"}, 1_000_000,
                        5 + HELD_STEPS + 50, hold_at=5)
        job.wait_for_step(5)
        for address in HOSTS:  # the leaves' routes still say: half of the flows by this spine
            in_switch(lab, dead, "route", "replace", "blackhole", f"{address}/32")
        before = data_by_spine(lab)
        result = job.assert_exact()
        after = data_by_spine(lab)
        for rank in result["per_rank"]:
            assert rank["paths_given_up"] > 0, "nothing was swallowed: this proves nothing"
            assert rank["segment_cuts"] == 0, "a dead path was taken for a smaller MTU"
        sent = {name: after[name] - before[name] for name in after}
        assert sent[dead] < 0.2 * sent[good], sent


# Each host on a leaf of its own: three leaves' data and a burst meet at a spine's port to the fourth.
INCAST = (*FABRIC, *LAB, "--leaves", "4", "--hosts", "4")


@contextlib.contextmanager
def bursts(lab):
    """Nearly a link's worth to one host after the other, while the block lasts."""
    process = subprocess.Popen(command("burst", "--name", lab.name, "--to", "h0,h1,h2,h3", "--rate-mbps", "90", "--on-ms",
                                       "40", "--off-ms", "5", "--duration-s", "600"), stdout=subprocess.DEVNULL)
    try:
        yield
        assert process.poll() is None, "the bursts were over: this proves nothing"
    finally:
        process.terminate()
        process.wait()


def trims_of_spines(lab):
    return sum(port["trimmed"] for port in lab.status()["fabric_ports"] if port["switch"].startswith("spine"))


@pytest.mark.parametrize("mode, family", (("full", "AF_INET"), ("sai", "AF_INET6")))
def test_what_is_wrong_after_trims_at_spines_is_what_was_forgiven(tmp_path, mode, family):
    with lab_up(*INCAST, "--trim-mode", mode) as lab:
        with bursts(lab):
            result = all_reduces(lab, str(tmp_path), 4, {"NCCL_SOCKET_FAMILY": family, "FORGIVE_PATHS": "4"}, 2_000_000)
        assert_right(lab, result)
        assert trims_of_spines(lab) > 0, "no spine trimmed: this proves nothing"
        assert result["forgiven_bytes"] > 0
        assert result["ranks_identical"], "only the reduce-scatter phase may lose bytes"


def test_without_a_tolerance_every_trim_at_a_spine_is_repaired(tmp_path):
    with lab_up(*INCAST) as lab:
        with bursts(lab):
            result = all_reduces(lab, str(tmp_path), 4, {"NCCL_SOCKET_FAMILY": "AF_INET", "FORGIVE_PATHS": "4",
                                                         "FORGIVE_P_LOW": "0", "FORGIVE_P_HIGH": "0"}, 2_000_000)
        assert_right(lab, result)
        assert trims_of_spines(lab) > 0, "no spine trimmed: this proves nothing"
        assert result["forgiven_bytes"] == 0
        assert result["retransmitted_bytes"] > 0


@pytest.mark.parametrize("rtt_ms", ("0", "4"))
def test_every_host_reaches_every_other_and_status_names_each_port(rtt_ms):
    with lab_up(*FABRIC, "--hosts", "3", "--rtt-ms", rtt_ms) as lab:
        for host in ("h0", "h2", "burst"):
            for address in ("10.77.0.1", "10.77.0.2", "10.77.0.3", "fd00:77::1", "fd00:77::2", "fd00:77::3"):
                assert lab.exec(host, "ping", "-c", "1", "-W", "5", address).returncode == 0, (host, address)
        status = lab.status()
        assert [port["host"] for port in status["ports"]] == ["h0", "h1", "h2", "burst"]
        switches = {"leaf0", "leaf1", "border", "spine0", "spine1"}
        assert {port["switch"] for port in status["fabric_ports"]} == switches
        assert len(status["fabric_ports"]) == 12
        assert status["totals"]["other"] == sum(port["other"] for port in status["ports"] + status["fabric_ports"])
        assert status["log_running"] and (rtt_ms == "0" or status["delay_line"]["running"])
        words = run("status", "--name", lab.name).stdout
        assert "2 leaves under 2 spines" in words and "spine1 to border" in words


@pytest.mark.parametrize("flags, words", (
    (("--topology", "ring"), "--topology must be one of star, leaf-spine, not 'ring'"),
    (("--spines", "2"), "leaves and spines need topology leaf-spine"),
    (("--topology", "leaf-spine", "--leaves", "4", "--hosts", "3"), "hosts 3 are fewer than leaves 4"),
    (("--topology", "leaf-spine", "--spines", "9"), "--spines must be a whole number from 1 to 8, not 9")))
def test_a_fabric_that_cannot_be_is_refused_with_one_line(flags, words):
    assert words in one_line(run("up", "--name", "fgvtest", *flags))
