# SPDX-License-Identifier: Apache-2.0
# Builds a lab and takes it down: namespaces, links, queues, the switch and the delay line.
import contextlib
import dataclasses
import glob
import json
import os
import re
import select
import shutil
import signal
import subprocess
import time

from . import system
from .parameters import MTU_BYTES, TRIM_MODES, WIRE_OVERHEAD_BYTES, LabError

HOST_INTERFACE = "fgv0"
LINE_SWITCH_SIDE = "line0"
LINE_PROGRAM_SIDE = "line1"
BURST_HOST = "burst"
BURST_NUMBER = 254  # last byte of the burst host's addresses

ROOT_HANDLE = 0x1
HEADER_CLASS = 0x10
DATA_CLASS = 0x20

# The real queue is longer than the one that the switch decides by, so that it never decides by itself: two processors
# may both see the last free place, and an imagined queue drains on while the real one waits for its processor.
QUEUE_SLACK_BYTES = 16 << 20
# HTB drains about 0.6 % slower than it is told. The imagined queue must not be the shorter one, or the real one fills.
VIRTUAL_DRAIN_SHARE = 0.985
UPLINK_QUEUE_BYTES = 16 << 20
# A shaper that was late may catch up this much.
SHAPER_BURST_SECONDS = 0.0005
START_SECONDS = 20


@dataclasses.dataclass
class Host:
    """One port of the switch and what hangs on it."""

    name: str
    number: int  # last byte of its addresses
    port: str    # the switch's interface

    @property
    def ethernet(self):
        return f"02:46:47:56:00:{self.number:02x}"

    @property
    def ipv4(self):
        return f"10.77.0.{self.number}"

    @property
    def ipv6(self):
        return f"fd00:77::{self.number:x}"

    @property
    def sink(self):
        """An address that leads to this host and that it drops without a word: where bursts go."""
        return f"10.78.0.{self.number}"


class Lab:
    """Names and places of one lab; nothing here says that it is up."""

    def __init__(self, name):
        if not re.fullmatch(r"[a-z][a-z0-9]{0,14}", name):
            raise LabError(f"a lab's name is 1 to 15 of a-z and 0-9, a letter first, not '{name}'")
        self.name = name
        self.prefix = f"fgv-{name}-"
        self.folder = os.path.join(system.STATE_ROOT, name)
        self.pins = os.path.join(self.folder, "bpf")
        self.description = os.path.join(self.folder, "lab.json")
        self.delay_statistics = os.path.join(self.folder, "delay_line.txt")

    def namespace(self, host):
        return self.prefix + host

    def read(self):
        """The description that `up` wrote; raises LabError if the lab is not up."""
        try:
            with open(self.description, encoding="utf-8") as file:
                return json.load(file)
        except (FileNotFoundError, json.JSONDecodeError):
            pass
        except PermissionError as error:
            raise LabError(f"{self.description}: {error.strerror}: run it as root") from error
        option = "" if self.name == "main" else f" --name {self.name}"
        if self.leftovers():
            raise LabError(f"lab '{self.name}' is only half there (an interrupted `lab up`?): run `lab down{option}`")
        raise LabError(f"lab '{self.name}' is not up: start it with `lab up{option}`")

    def leftovers(self):
        return os.path.exists(self.folder) or bool(system.namespaces_of(self.prefix))


def find_build(folder):
    """The folder of the lab's programs: in `folder`, or in build/release or another preset beside the sources."""
    root = os.path.realpath(os.path.join(os.path.dirname(__file__), "..", "..", ".."))
    candidates = [folder] if folder else [os.path.join(root, "build", preset)
                                          for preset in ("release", "dev", "asan", "tsan")]
    for candidate in candidates:
        programs = os.path.join(os.path.abspath(candidate), "testbed", "lab")
        if os.access(os.path.join(programs, "forgive_lab_switch"), os.X_OK):
            return programs
    where = folder if folder else os.path.join(root, "build")
    raise LabError(f"no testbed/lab/forgive_lab_switch under {where}: build it (`cmake --preset release && "
                   "cmake --build --preset release`; it needs libbpf-dev and clang), or name the folder by --build")


def up(lab, parameters, build, trims_log=None, topology=None, when_up=lambda: None):
    """Builds the lab by `topology` (a star's function if not given); on any error or interrupt nothing of it is left.
    `when_up` is called at the last moment at which that is so. Returns the lab's description."""
    programs = find_build(build)
    with system.lock():
        if os.path.exists(lab.description):
            raise LabError(f"lab '{lab.name}' is already up: `lab down --name {lab.name}` first, or take another --name")
        if lab.leftovers():
            lab.read()
        try:
            description = (topology or build_star)(lab, parameters, programs,
                                                   trims_log or os.path.join(lab.folder, "trims.log"))
            when_up()
            return description
        except BaseException:
            with undisturbed():
                _take_down(lab)
            raise


def down(lab):
    """Takes away whatever there is of the lab. Returns whether there was anything."""
    if not lab.leftovers():
        return False
    with system.lock(), undisturbed():
        _take_down(lab)
    return True


def on_interrupt(handler):
    """Gives the signals that end a program from outside this handler. Returns each with the one that it had."""
    return [(number, signal.signal(number, handler)) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)]


@contextlib.contextmanager
def undisturbed():
    """No signal of the terminal stops the block half way."""
    before = on_interrupt(signal.SIG_IGN)
    try:
        yield
    finally:
        for number, handler in before:
            signal.signal(number, handler)


def _take_down(lab):
    namespaces = system.namespaces_of(lab.prefix)
    system.end_processes(namespaces)
    for pins in [lab.pins, *glob.glob(lab.pins + "-*")]:
        system.unmount(pins)
    for namespace in namespaces:
        system.unmount(system.namespace_path(namespace))
        with contextlib.suppress(FileNotFoundError):
            os.unlink(system.namespace_path(namespace))
    shutil.rmtree(lab.folder, ignore_errors=True)
    if lab.leftovers():
        raise LabError(f"lab '{lab.name}': something is left in {lab.folder} or {system.NAMESPACE_FOLDER}")


def build_star(lab, parameters, programs, trims_log):
    hosts = hosts_of(parameters)
    os.mkdir(lab.folder, 0o755)
    switch = lab.namespace("switch")
    system.batch("ip", None, [f"netns add {name}" for name in [switch] + [lab.namespace(h.name) for h in hosts]])
    _build_switch_links(lab, switch, hosts, parameters)
    for host in hosts:
        build_host(lab, host, hosts, parameters)
    for line in hosts:
        system.batch("tc", switch, port_queue(line.port, parameters))
    true_backlog, logger = start_switch(lab, switch, hosts, parameters, programs, trims_log)
    processes = {"log": logger}
    if parameters.rtt_ms > 0:
        processes["delay_line"] = start_delay_line(lab, switch, parameters, programs, lab.delay_statistics)
    wait_for_links(lab, [switch], hosts)
    description = describe(lab, hosts, parameters, programs, trims_log, true_backlog)
    description["switch_namespace"] = switch
    description["processes"] = processes
    write_description(lab, description)
    return description


def hosts_of(parameters):
    """All of them; the last is where bursts come from."""
    hosts = [Host(f"h{i}", i + 1, f"p{i}") for i in range(parameters.hosts)]
    return hosts + [Host(BURST_HOST, BURST_NUMBER, f"p{parameters.hosts}")]


def write_description(lab, description):
    with open(lab.description + ".new", "w", encoding="utf-8") as file:
        json.dump(description, file, indent=1)
    os.rename(lab.description + ".new", lab.description)


def line_links():
    """Lines for `ip`: the veth pair whose one end the delay line's program holds."""
    return [f"link add {LINE_SWITCH_SIDE} mtu {MTU_BYTES} type veth peer name {LINE_PROGRAM_SIDE} mtu {MTU_BYTES}",
            f"link set {LINE_SWITCH_SIDE} up", f"link set {LINE_PROGRAM_SIDE} up"]


def host_link(lab, host):
    """Line for `ip` in the switch's namespace: the link to the host."""
    return (f"link add {host.port} mtu {MTU_BYTES} type veth peer name {HOST_INTERFACE} "
            f"address {host.ethernet} mtu {MTU_BYTES} netns {lab.namespace(host.name)}")


def _build_switch_links(lab, switch, hosts, parameters):
    with system.inside(switch):
        # The switch speaks no protocol of its own.
        system.write_sysctl("net/ipv6/conf/all/disable_ipv6", 1)
        system.write_sysctl("net/ipv6/conf/default/disable_ipv6", 1)
    lines = []
    for host in hosts:
        lines += [host_link(lab, host), f"link set {host.port} up"]
    if parameters.rtt_ms > 0:
        lines += line_links()
    system.batch("ip", switch, lines)


def build_host(lab, host, hosts, parameters, gateway=None):
    """Where a gateway's Ethernet address is given, the host sends everything there, though it believes all others to
    be on its own link."""
    namespace = lab.namespace(host.name)
    with system.inside(namespace):
        system.write_sysctl("net/ipv4/ip_forward", 0)
        system.write_sysctl("net/ipv6/conf/all/forwarding", 0)
        system.write_sysctl("net/ipv6/conf/all/accept_ra", 0)
        system.write_sysctl(f"net/ipv6/conf/{HOST_INTERFACE}/accept_ra", 0)
        system.write_sysctl(f"net/ipv6/conf/{HOST_INTERFACE}/accept_dad", 0)
        # No super-packets, no checksums left to hardware: the switch cuts what is on the wire.
        system.run(["ethtool", "-K", HOST_INTERFACE, "tx", "off", "tso", "off", "gso", "off", "gro", "off",
                    "tx-udp-segmentation", "off"])
    lines = ["link set lo up", f"addr add {host.ipv4}/24 dev {HOST_INTERFACE}",
             f"addr add {host.ipv6}/64 dev {HOST_INTERFACE} nodad", f"link set {HOST_INTERFACE} up"]
    for other in hosts:
        if other is not host:
            # Known beforehand, so that no run begins with a resolution (which works too).
            to = f"lladdr {gateway or other.ethernet} dev {HOST_INTERFACE} nud permanent"
            lines += [f"neigh replace {other.ipv4} {to}", f"neigh replace {other.ipv6} {to}"]
    if host.name == BURST_HOST:
        lines.append(f"route add 10.78.0.0/24 dev {HOST_INTERFACE} src {host.ipv4}")
        lines += [f"neigh replace {other.sink} lladdr {gateway or other.ethernet} dev {HOST_INTERFACE} nud permanent"
                  for other in hosts if other is not host]
    system.batch("ip", namespace, lines)
    if parameters.uplink_share > 0 and host.name != BURST_HOST:
        system.batch("tc", namespace, _uplink_queue(parameters))


def _shaper_burst(rate_bps):
    return max(2 * (MTU_BYTES + 14 + WIRE_OVERHEAD_BYTES), int(rate_bps / 8 * SHAPER_BURST_SECONDS))


def _htb_class(device, number, parent, rate_bps, ceiling_bps, priority):
    return (f"class add dev {device} parent {ROOT_HANDLE:x}:{parent} classid {ROOT_HANDLE:x}:{number:x} htb "
            f"rate {int(rate_bps)}bit ceil {int(ceiling_bps)}bit burst {_shaper_burst(rate_bps)} "
            f"cburst {_shaper_burst(ceiling_bps)} prio {priority} quantum {MTU_BYTES + 14 + WIRE_OVERHEAD_BYTES}")


def _htb_root(device, default):
    # stab: without it a packet would be charged at the length it had before the egress hook cut it.
    return (f"qdisc add dev {device} root handle {ROOT_HANDLE:x}: stab overhead {WIRE_OVERHEAD_BYTES} "
            f"linklayer ethernet htb default {default:x}")


def port_queue(device, parameters):
    rate_bps = parameters.rate_mbps * 1e6
    header_bps = rate_bps * parameters.header_share
    data_limit = max(parameters.trim_threshold_bytes, parameters.queue_bytes) + QUEUE_SLACK_BYTES
    return [
        _htb_root(device, DATA_CLASS),
        _htb_class(device, 0x1, "", rate_bps, rate_bps, 0),
        _htb_class(device, HEADER_CLASS, "1", header_bps, header_bps, 0),
        _htb_class(device, DATA_CLASS, "1", rate_bps - header_bps, rate_bps, 1),
        f"qdisc add dev {device} parent {ROOT_HANDLE:x}:{HEADER_CLASS:x} bfifo limit {parameters.header_queue_bytes}",
        f"qdisc add dev {device} parent {ROOT_HANDLE:x}:{DATA_CLASS:x} bfifo limit {data_limit}",
    ]


def _uplink_queue(parameters):
    rate_bps = parameters.rate_mbps * parameters.uplink_share * 1e6
    return [
        _htb_root(HOST_INTERFACE, 0x1),
        _htb_class(HOST_INTERFACE, 0x1, "", rate_bps, rate_bps, 0),
        f"qdisc add dev {HOST_INTERFACE} parent {ROOT_HANDLE:x}:1 bfifo limit {UPLINK_QUEUE_BYTES}",
    ]


def start(lab, namespace, name, command):
    """Starts a program inside the namespace (so that `down` finds it there) and returns its line "ready ..." and its number."""
    log = os.path.join(lab.folder, f"{name}.log")
    with open(log, "wb") as errors, system.inside(namespace):
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=errors,
                                   cwd="/", start_new_session=True)
    # It outlives this program; nobody waits for it.
    process.returncode = 0
    with process.stdout:
        answered, _, _ = select.select([process.stdout], [], [], START_SECONDS)
        line = process.stdout.readline().decode() if answered else ""
    if line.startswith("ready"):
        return line, process.pid
    with open(log, encoding="utf-8", errors="replace") as file:
        words = " ".join(file.read().split())
    raise LabError(words or f"{command[0]} did not start within {START_SECONDS} s")


def start_switch(lab, switch, hosts, parameters, programs, trims_log, routed=None):
    """Returns whether the switch decides by the true backlog, and the number of the process that writes the log.
    `routed`: the switch's name and its interfaces to other switches, where the kernel routes."""
    name = "switch" if routed is None else routed[0]
    config = os.path.join(lab.folder, f"{name}.conf")
    values = {
        "pins": lab.pins if routed is None else f"{lab.pins}-{name}",
        "trims_log": trims_log,
        "virtual_queue": int(parameters.virtual_queue),
        "trim_enabled": int(parameters.trim),
        "trim_mode": TRIM_MODES.index(parameters.trim_mode),
        "trim_length": parameters.trim_length,
        "trim_threshold_bytes": parameters.trim_threshold_bytes,
        "queue_bytes": parameters.queue_bytes,
        "ecn_min_bytes": parameters.ecn_min_bytes,
        "ecn_max_bytes": parameters.ecn_max_bytes,
        "ecn_probability_ppm": round(parameters.ecn_probability * 1e6),
        "dscp_data": parameters.dscp_data,
        "dscp_control": parameters.dscp_control,
        "dscp_trimmed": parameters.dscp_trimmed,
        "header_priority": ROOT_HANDLE << 16 | HEADER_CLASS,
        "data_priority": ROOT_HANDLE << 16 | DATA_CLASS,
        "drain_bytes_per_second": int(parameters.rate_mbps * 1e6 / 8 * VIRTUAL_DRAIN_SHARE),
    }
    if parameters.rtt_ms > 0 and hosts:
        values["line"] = LINE_SWITCH_SIDE
    if routed is not None:
        values["routed"] = 1
    with open(config, "w", encoding="utf-8", errors="surrogateescape") as file:
        for key, value in values.items():
            file.write(f"{key} {value}\n")
        for host in hosts:
            file.write(f"port {host.port} {host.ethernet}\n")
        for uplink in routed[1] if routed is not None else ():
            file.write(f"uplink {uplink}\n")
    line, process = start(lab, switch, name, [os.path.join(programs, "forgive_lab_switch"), "run", config])
    return line.split() == ["ready", "true"], process


def start_delay_line(lab, switch, parameters, programs, statistics):
    """Returns the number of its process."""
    delay_us = max(1, round(parameters.rtt_ms * 1000 / 2))
    name = os.path.splitext(os.path.basename(statistics))[0]
    return start(lab, switch, name, [
        os.path.join(programs, "forgive_delay_line"), "--interface", LINE_PROGRAM_SIDE, "--delay-us", str(delay_us),
        "--frames", str(parameters.line_frames), "--statistics", statistics])[1]


def wait_for_links(lab, switches, hosts):
    """The kernel learns of a carrier by and by; a frame that is sent before is lost without a word."""
    deadline = time.monotonic() + START_SECONDS
    for host in hosts:
        with system.inside(lab.namespace(host.name)):
            while not system.is_link_local_ready(HOST_INTERFACE):
                if time.monotonic() > deadline:
                    raise LabError(f"{HOST_INTERFACE} of {host.name} did not come up within {START_SECONDS} s")
                time.sleep(0.002)
    while any(link["operstate"] != "UP" for switch in switches
              for link in system.query("ip", "-n", switch, "-j", "link", "show") if link["ifname"] != "lo"):
        if time.monotonic() > deadline:
            raise LabError(f"the ports of the switch did not come up within {START_SECONDS} s")
        time.sleep(0.002)


def describe(lab, hosts, parameters, programs, trims_log, true_backlog):
    return {
        "name": lab.name,
        "programs": programs,
        "parameters": dataclasses.asdict(parameters) | {"bdp_bytes": parameters.bdp_bytes},
        "true_backlog": true_backlog,
        "trims_log": trims_log,
        "hosts": [{
            "name": host.name,
            "namespace": lab.namespace(host.name),
            "interface": HOST_INTERFACE,
            "ipv4": host.ipv4,
            "ipv6": host.ipv6,
            "ethernet": host.ethernet,
            "sink": host.sink,
            "port": host.port,
        } for host in hosts],
    }
