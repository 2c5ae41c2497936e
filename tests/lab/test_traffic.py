# SPDX-License-Identifier: Apache-2.0
# Packets through whole labs: none is lost but where the lab says so, and every count equals what the receiver saw.
import json
import subprocess
import sys
import time

import pytest
from conftest import NAME, TRAFFIC, lab_up, run

pytestmark = pytest.mark.usefixtures("nothing_left")

SENDERS = 3
PACKETS = 1500  # by each sender
# Slow links, so that a busy machine's senders overload them too.
LINK = ("--rate-mbps", "100")
SENDER_MBPS = 70


def start(lab, host, *words):
    """Starts a program on a host that says "ready" and then waits for a line."""
    process = lab.start(host, sys.executable, *words, stdin=subprocess.PIPE)
    assert process.stdout.readline() == "ready\n"
    return process


def send_at_once(senders):
    """Lets all of them go, and waits for their end. Returns what each printed."""
    for sender in senders:
        sender.stdin.write("go\n")
        sender.stdin.flush()
    printed = [sender.communicate(timeout=120)[0] for sender in senders]
    assert [sender.returncode for sender in senders] == [0] * len(senders)
    return printed


def decided(lab, sent):
    """The counters of the port to h0, once the switch has decided on each of the `sent` packets."""
    deadline = time.monotonic() + 60
    while True:
        port = lab.port("h0")
        known = port["whole"] + port["trimmed"] + port["control"]
        # With a code point that the switch does not know they are counted among the hosts' own announcements.
        if (known or port["other"]) + port["dropped"] >= sent or time.monotonic() > deadline:
            return port


def seen_by(lab, receiver, sent):
    """What the receiver on h0 printed, once all have come that the switch let through."""
    port = decided(lab, sent)
    passed = sent - port["dropped"] - port["header_dropped"]
    return receiver.communicate(f"{passed}\n", timeout=120)[0]


def incast(lab, family="ipv4", packets=PACKETS, dscp=10):
    """All hosts but h0 send to h0; returns what h0's interface saw."""
    address = lab.host("h0")[family]
    receiver = start(lab, "h0", TRAFFIC, "receive")
    senders = [start(lab, f"h{i + 1}", TRAFFIC, "send", address, str(packets), str(SENDER_MBPS), f"ab0{i}", str(dscp))
               for i in range(SENDERS)]
    assert send_at_once(senders) == [f"{packets}\n"] * SENDERS
    seen = json.loads(seen_by(lab, receiver, SENDERS * packets))
    assert seen["tap_dropped"] == 0, "the test's own receiver was too slow"
    return seen


def assert_lossless_links(lab):
    assert lab.status()["log_running"]
    totals = lab.status()["totals"]
    for name in ("link_lost", "uplink_dropped", "queue_overflow", "gso_refused", "log_lost", "unlogged"):
        assert totals[name] == 0, name
    line = lab.status()["delay_line"]
    if line:
        assert (line["running"], line["overflow"], line["send_failed"], line["too_long"]) == (True, 0, 0, 0)


SHAPES = {
    ("full", "ipv4"): "frame 128 ip 114 ip_good 1 udp 94 checksum zero dscp 11",
    ("stale", "ipv4"): "frame 128 ip 114 ip_good 1 udp 94 checksum kept dscp 11",
    ("sai", "ipv4"): "frame 128 ip 114 ip_good 1 udp 4160 checksum kept dscp 11",
    ("raw", "ipv4"): "frame 128 ip 4180 ip_good 1 udp 4160 checksum kept dscp 11",
    ("full", "ipv6"): "frame 128 ip 114 ip_good 1 udp 74 checksum zero dscp 11",
    ("stale", "ipv6"): "frame 128 ip 114 ip_good 1 udp 74 checksum kept dscp 11",
    ("sai", "ipv6"): "frame 128 ip 114 ip_good 1 udp 4160 checksum kept dscp 11",
    ("raw", "ipv6"): "frame 128 ip 4200 ip_good 1 udp 4160 checksum kept dscp 11",
}


@pytest.mark.parametrize("mode, family", SHAPES)
def test_an_incast_loses_nothing_and_every_cut_packet_is_in_the_log(mode, family):
    with lab_up(*LINK, "--trim-mode", mode) as lab:
        seen = incast(lab, family)
        port = lab.port("h0")
        assert seen["whole"] + seen["cut"] == SENDERS * PACKETS
        assert seen["cut"] > 0, "the senders did not overload the port"
        assert (port["whole"], port["trimmed"]) == (seen["whole"], seen["cut"])
        assert port["marked"] == seen["marked"] > 0
        assert (port["dropped"], port["header_dropped"]) == (0, 0)
        assert seen["shapes"] == {SHAPES[mode, family]: seen["cut"]}
        assert sorted(lab.logged_trims()) == sorted("trim " + missing for missing in seen["ranges"])
        assert_lossless_links(lab)


def test_an_incast_without_a_delay_line_loses_nothing_either():
    with lab_up(*LINK, "--rtt-ms", "0") as lab:
        seen = incast(lab)
        assert lab.status()["delay_line"] is None
        assert seen["whole"] + seen["cut"] == SENDERS * PACKETS
        assert (lab.port("h0")["whole"], lab.port("h0")["trimmed"]) == (seen["whole"], seen["cut"])
        assert seen["cut"] > 0
        assert_lossless_links(lab)


def test_the_virtual_queue_is_named_and_loses_nothing_either():
    with lab_up(*LINK, "--virtual-queue") as lab:
        assert lab.status()["true_backlog"] is False
        seen = incast(lab)
        assert seen["whole"] + seen["cut"] == SENDERS * PACKETS
        assert seen["cut"] > 0


def test_without_trimming_the_switch_drops_and_counts_every_loss():
    with lab_up(*LINK, "--no-trim") as lab:
        seen = incast(lab)
        port = lab.port("h0")
        assert seen["cut"] == port["trimmed"] == 0
        assert port["dropped"] > 0
        assert seen["whole"] + port["dropped"] == SENDERS * PACKETS
        assert lab.logged_trims() == []
        assert_lossless_links(lab)


def test_packets_of_another_dscp_are_dropped_not_cut():
    with lab_up(*LINK) as lab:
        seen = incast(lab, dscp=0)
        port = lab.port("h0")
        assert seen["cut"] == port["trimmed"] == 0
        assert port["dropped"] > 0
        assert seen["whole"] + port["dropped"] == SENDERS * PACKETS


def test_control_packets_pass_whole_when_the_queue_is_full():
    with lab_up(*LINK, "--header-share", "0.5") as lab:
        address = lab.host("h0")["ipv4"]
        receiver = start(lab, "h0", TRAFFIC, "receive")
        words = [TRAFFIC, "send", address]
        data = [start(lab, host, *words, "1500", "100", "aa") for host in ("h1", "h2")]
        send_at_once([*data, start(lab, "h3", *words, "200", "10", "cc", "46")])
        seen = json.loads(seen_by(lab, receiver, 3200))
        assert seen["whole"] + seen["cut"] == 3200
        assert seen["cut"] > 0
        assert lab.port("h0")["control"] == 200
        assert {line.split()[1] for line in lab.logged_trims()} == {f"{0xaa:016x}"}


def test_a_header_class_that_is_too_small_drops_headers_and_counts_them_apart():
    with lab_up(*LINK, "--header-share", "0.01", "--header-queue-bytes", "2000") as lab:
        seen = incast(lab)
        port = lab.port("h0")
        assert port["header_dropped"] > 0
        assert seen["whole"] == port["whole"]
        assert seen["cut"] + port["header_dropped"] == port["trimmed"]
        assert seen["whole"] + port["trimmed"] == SENDERS * PACKETS


SEGMENTING_SENDER = """
import socket, struct, sys, time
sys.path.insert(0, sys.argv[1])
import traffic
sender = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
sender.setsockopt(socket.IPPROTO_UDP, 103, traffic.HEADER.size + traffic.PAYLOAD_BYTES)  # UDP_SEGMENT
sender.setsockopt(socket.IPPROTO_IP, socket.IP_TOS, 10 << 2 | traffic.ECT0)
sender.connect((sys.argv[2], traffic.PORT))
print("ready", flush=True)
sys.stdin.readline()
for burst in range(int(sys.argv[3])):
    sender.send(b"".join(traffic.data_header(0xee, burst * 15 + i) + bytes(traffic.PAYLOAD_BYTES) for i in range(15)))
    time.sleep(0.004)
"""


def test_super_packets_are_segmented_before_the_switch_and_none_is_lost():
    with lab_up(*LINK, "--uplink-share", "0") as lab:
        receiver = start(lab, "h0", TRAFFIC, "receive")
        send_at_once([start(lab, host, "-c", SEGMENTING_SENDER, TRAFFIC.rpartition("/")[0], "10.77.0.1", "200")
                      for host in ("h1", "h2")])
        seen = json.loads(seen_by(lab, receiver, 2 * 200 * 15))
        assert seen["tap_dropped"] == 0
        assert seen["whole"] + seen["cut"] == 2 * 200 * 15
        assert seen["cut"] > 0
        assert_lossless_links(lab)


# Reads what reaches kernel UDP and a raw socket: the table in docs/lab.md.
SOCKETS = """
import socket, sys
sys.path.insert(0, sys.argv[1])
import traffic
udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
raw = socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_UDP)
for one in (udp, raw):
    one.setsockopt(socket.SOL_SOCKET, 33, 128 << 20)
udp.bind(("0.0.0.0", traffic.PORT))
cut = {udp: 0, raw: 0}

def count(one):
    if len(one.recv(65536)) >= 1000:
        return False
    cut[one] += 1
    return True

traffic.Arrivals([udp, raw], count).run()
print(cut[udp], cut[raw])
"""


@pytest.mark.parametrize("mode, in_udp, in_raw", [("full", True, True), ("stale", False, True), ("sai", False, True),
                                                  ("raw", False, False)])
def test_which_socket_sees_a_cut_packet_depends_on_what_the_switch_repaired(mode, in_udp, in_raw):
    with lab_up(*LINK, "--trim-mode", mode) as lab:
        receiver = start(lab, "h0", "-c", SOCKETS, TRAFFIC.rpartition("/")[0])
        send_at_once([start(lab, f"h{i + 1}", TRAFFIC, "send", "10.77.0.1", str(PACKETS), str(SENDER_MBPS), f"{i}")
                      for i in range(SENDERS)])
        trimmed = decided(lab, SENDERS * PACKETS)["trimmed"]
        assert trimmed > 0
        udp_cut, raw_cut = map(int, receiver.communicate(f"{trimmed * (in_udp + in_raw)}\n", timeout=120)[0].split())
        assert udp_cut == (trimmed if in_udp else 0)
        assert raw_cut == (trimmed if in_raw else 0)


def test_the_round_trip_is_never_shorter_than_configured_and_its_least_is_near_it():
    with lab_up("--hosts", "2", "--rtt-ms", "5") as lab:
        for address in ("10.77.0.2", "fd00:77::2"):
            result = lab.exec("h0", "ping", "-q", "-c", "50", "-i", "0.02", address)
            least, middle, _ = (float(word) for word in result.stdout.partition("= ")[2].split("/")[:3])
            # Two passages of the line, each up to 0.1 ms early; the upper bound is loose, for a busy machine.
            assert least >= 5 - 0.2
            assert least < 7.5
            assert middle >= 5 - 0.2


def iperf3(lab, *flags, seconds=3):
    server = lab.start("h0", "iperf3", "-s", "-1", "--forceflush")
    while "listening" not in server.stdout.readline():
        assert server.poll() is None
    result = lab.exec("h1", "iperf3", "-c", "10.77.0.1", "-t", str(seconds), "-J", *flags)
    server.communicate(timeout=60)
    return json.loads(result.stdout)["end"]["sum_received"]["bits_per_second"] / 1e6


@pytest.mark.parametrize("rate_mbps", [100, 400])
def test_a_link_carries_its_rate_and_not_more(rate_mbps):
    with lab_up("--hosts", "2", "--rate-mbps", str(rate_mbps)) as lab:
        # A processor taken away makes a try slower, or lets it count what came after its time: of a link that carries
        # less or more, no try is right.
        udp, tcp = [], []
        for _ in range(10):
            payload = iperf3(lab, "-u", "-b", f"{2 * rate_mbps}M", "-l", "4096", "-w", "4M", seconds=1)
            udp.append(payload * (4096 + 8 + 20 + 14 + 24) / 4096)
            if 0.9 * rate_mbps < udp[-1] < 1.03 * rate_mbps:
                break
        assert any(0.7 * rate_mbps < each < 1.03 * rate_mbps for each in udp), udp
        for _ in range(5):
            tcp.append(iperf3(lab))
            if 0 < tcp[-1] < 1.02 * rate_mbps:
                break
        assert 0 < tcp[-1] < 1.02 * rate_mbps, tcp
        assert lab.status()["delay_line"]["overflow"] == 0


def test_tcp_over_ipv6_passes_the_line_with_good_checksums():
    with lab_up("--hosts", "2") as lab:
        server = lab.start("h0", "iperf3", "-s", "-1", "--forceflush")
        while "listening" not in server.stdout.readline():
            assert server.poll() is None
        result = lab.exec("h1", "iperf3", "-6", "-c", "fd00:77::1", "-n", "20M", "-J")
        server.communicate(timeout=60)
        assert json.loads(result.stdout)["end"]["sum_received"]["bytes"] > 5 << 20
        checksums = lab.exec("h0", "cat", "/proc/self/net/snmp").stdout
        names, values = [line.split() for line in checksums.splitlines() if line.startswith("Tcp:")]
        assert values[names.index("InCsumErrors")] == "0"


def test_bursts_overload_a_link_and_are_dropped_by_the_switch():
    with lab_up() as lab:
        output = run("burst", "--name", NAME, "--to", "h0", "--rate-mbps", "600", "--on-ms", "100", "--off-ms", "20",
                     "--duration-s", "2").stdout
        sent = int(output.partition("sent ")[2].split()[0])
        port = decided(lab, sent)
        assert port["dropped"] > 0
        assert port["trimmed"] == 0
        # The hosts' own announcements are few.
        assert sent <= port["other"] + port["dropped"] <= sent + 50
        # The host drops them without an answer.
        assert lab.port("burst")["other"] < 50


def test_a_frame_of_the_whole_mtu_passes():
    with lab_up("--hosts", "2") as lab:
        size = str(9000 - 28)
        assert lab.exec("h0", "ping", "-c", "3", "-i", "0.1", "-M", "do", "-s", size, "10.77.0.2").returncode == 0
        size = str(9000 - 48)
        assert lab.exec("h0", "ping", "-c", "3", "-i", "0.1", "-M", "do", "-s", size, "fd00:77::2").returncode == 0
