# SPDX-License-Identifier: Apache-2.0
# A fabric of leaves under spines: the kernel routes with ECMP by the 5-tuple, the trimming program queues at each port.
import dataclasses
import os

from . import fabric, system
from .parameters import MTU_BYTES

# The hash by which a leaf chooses a flow's spine, where the kernel lets it be fixed (6.11 and later): labs then repeat.
HASH_SEED = 1
BORDER = "border"  # the leaf of the burst host: bursts meet the other leaves' traffic at the spines

GATEWAY = "02:46:47:4c:00:00"  # of every leaf, as its hosts see it
LEAF_IPV4, LEAF_IPV6 = "10.79.1.{}", "fd00:79:1::{:x}"
SPINE_IPV4, SPINE_IPV6 = "10.79.0.{}", "fd00:79::{:x}"


@dataclasses.dataclass
class Switch:
    """A leaf or a spine: a network namespace whose interfaces to other switches have those switches' names."""

    name: str
    number: int
    is_leaf: bool
    hosts: list = dataclasses.field(default_factory=list)
    neighbours: list = dataclasses.field(default_factory=list)

    @property
    def ipv4(self):
        return (LEAF_IPV4 if self.is_leaf else SPINE_IPV4).format(self.number + 1)

    @property
    def ipv6(self):
        return (LEAF_IPV6 if self.is_leaf else SPINE_IPV6).format(self.number + 1)

    def ethernet_to(self, other):
        """Of the interface to another switch."""
        return f"02:46:47:{'4c' if self.is_leaf else '53'}:{other.number + 1:02x}:{self.number + 1:02x}"


def plan(parameters):
    """All hosts, and the switches, leaves first, with their hosts and neighbours."""
    hosts = fabric.hosts_of(parameters)
    leaves = [Switch(f"leaf{i}", i, True) for i in range(parameters.leaves)]
    for place, host in enumerate(hosts[:-1]):
        leaves[place * parameters.leaves // parameters.hosts].hosts.append(host)
    leaves.append(Switch(BORDER, parameters.leaves, True, [hosts[-1]]))
    spines = [Switch(f"spine{i}", i, False) for i in range(parameters.spines)]
    for leaf in leaves:
        leaf.neighbours = spines
    for spine in spines:
        spine.neighbours = leaves
    return hosts, leaves + spines


def build(lab, parameters, programs, trims_log):
    """As fabric.build_star. Returns the description."""
    hosts, switches = plan(parameters)
    os.mkdir(lab.folder, 0o755)
    names = [lab.namespace(one.name) for one in switches + hosts]
    system.batch("ip", None, [f"netns add {name}" for name in names])
    for switch in switches:
        _make_router(lab.namespace(switch.name))
        if switch.is_leaf:
            system.batch("ip", lab.namespace(switch.name), _links_of_leaf(lab, switch, parameters))
    for switch in switches:
        system.batch("ip", lab.namespace(switch.name), _routes(switch, switches, parameters))
    for host in hosts:
        fabric.build_host(lab, host, hosts, parameters, GATEWAY)
    true_backlog, processes = _start_switches(lab, switches, parameters, programs, trims_log)
    fabric.wait_for_links(lab, [lab.namespace(switch.name) for switch in switches], hosts)
    description = fabric.describe(lab, hosts, parameters, programs, trims_log, true_backlog)
    description["switches"] = [{
        "name": switch.name,
        "namespace": lab.namespace(switch.name),
        "pins": f"{lab.pins}-{switch.name}",
        "hosts": [host.name for host in switch.hosts],
        "uplinks": [other.name for other in switch.neighbours],
    } for switch in switches]
    description["processes"] = processes
    fabric.write_description(lab, description)
    return description


def _make_router(namespace):
    with system.inside(namespace):
        for path, value in {
            "net/ipv4/ip_forward": 1,
            "net/ipv6/conf/all/forwarding": 1,
            "net/ipv4/fib_multipath_hash_policy": 1,  # addresses, ports, protocol
            "net/ipv6/fib_multipath_hash_policy": 1,
            "net/ipv4/fib_multipath_hash_seed": HASH_SEED,  # of IPv6, too
            # A frame comes back from the delay line, not by the interface that leads to its source.
            "net/ipv4/conf/all/rp_filter": 0,
            "net/ipv4/conf/default/rp_filter": 0,
            "net/ipv4/conf/all/send_redirects": 0,
            "net/ipv4/conf/default/send_redirects": 0,
            "net/ipv6/conf/default/accept_dad": 0,
        }.items():
            system.write_sysctl(path, value)


def _links_of_leaf(lab, leaf, parameters):
    lines = []
    for host in leaf.hosts:
        lines += [fabric.host_link(lab, host), f"link set {host.port} address {GATEWAY} up"]
    for spine in leaf.neighbours:
        lines += [f"link add {spine.name} address {leaf.ethernet_to(spine)} mtu {MTU_BYTES} type veth peer name "
                  f"{leaf.name} address {spine.ethernet_to(leaf)} mtu {MTU_BYTES} netns {lab.namespace(spine.name)}",
                  f"link set {spine.name} up"]
    if parameters.rtt_ms > 0:
        lines += [*fabric.line_links(), f"link set {fabric.LINE_SWITCH_SIDE} address {GATEWAY}"]
    return lines


def _routes(switch, switches, parameters):
    """Lines for `ip`: addresses for ICMP errors, neighbours known beforehand, a route to each host."""
    lines = ["link set lo up", f"addr add {switch.ipv4}/32 dev lo", f"addr add {switch.ipv6}/128 dev lo nodad"]
    for other in switch.neighbours:
        to = f"lladdr {other.ethernet_to(switch)} dev {other.name} nud permanent"
        lines += [f"link set {other.name} up", f"neigh replace {other.ipv4} {to}", f"neigh replace {other.ipv6} {to}"]
    for leaf in switches[:parameters.leaves + 1]:
        ways = switch.neighbours if switch.is_leaf else [leaf]
        for host in leaf.hosts:
            for address, way in ((f"{host.ipv4}/32", "ipv4"), (f"{host.sink}/32", "ipv4"), (f"{host.ipv6}/128", "ipv6")):
                if leaf is switch:
                    lines += [f"route add {address} dev {host.port}",
                              f"neigh replace {address.partition('/')[0]} lladdr {host.ethernet} dev {host.port} "
                              "nud permanent"]
                else:
                    hops = [f"nexthop via {getattr(hop, way)} dev {hop.name} onlink" for hop in ways]
                    lines.append(f"route add {address} " + " ".join(hops))
    return lines


def _start_switches(lab, switches, parameters, programs, trims_log):
    """Queues, programs and delay lines. Returns whether all decide by the true backlog, and the processes."""
    true_backlog, processes = True, {"log": [], "delay_line": []}
    for switch in switches:
        namespace = lab.namespace(switch.name)
        uplinks = [other.name for other in switch.neighbours]
        for port in [host.port for host in switch.hosts] + uplinks:
            system.batch("tc", namespace, fabric.port_queue(port, parameters))
        true, process = fabric.start_switch(lab, namespace, switch.hosts, parameters, programs, trims_log,
                                            (switch.name, uplinks))
        true_backlog = true_backlog and true
        processes["log"].append(process)
        if switch.is_leaf and parameters.rtt_ms > 0:
            statistics = os.path.join(lab.folder, f"delay_line-{switch.name}.txt")
            processes["delay_line"].append(fabric.start_delay_line(lab, namespace, parameters, programs, statistics))
    return true_backlog, processes
