# SPDX-License-Identifier: Apache-2.0
# What a running lab has counted, for people and as JSON.
import contextlib
import glob
import json
import os
import subprocess

from . import system
from .fabric import DATA_CLASS, HEADER_CLASS, HOST_INTERFACE, ROOT_HANDLE
from .parameters import LabError

COLUMNS = ("whole", "trimmed", "marked", "control", "other", "dropped", "header_dropped", "queue_overflow",
           "gso_refused", "link_lost", "bytes")


def collect(lab):
    """The description of the lab with `ports`, `totals` and `delay_line` filled in; of a leaf-spine fabric
    `fabric_ports` too: those between switches."""
    status = lab.read()
    # A star is one switch, which the description does not list.
    star = {"name": "switch", "namespace": status.get("switch_namespace"), "pins": lab.pins, "uplinks": [],
            "hosts": [host["name"] for host in status["hosts"]]}
    switches = status.get("switches", [star])
    hosts = {host["name"]: host for host in status["hosts"]}
    entries, unknown = {}, 0
    fabric_ports = []
    for switch in switches:
        counters = _switch_counters(status, switch["pins"])
        unknown += counters["unknown_destination"]
        links = {link["ifname"]: link for link in
                 system.query("ip", "-n", switch["namespace"], "-s", "-j", "link", "show")}
        queues = system.query("tc", "-n", switch["namespace"], "-s", "-j", "qdisc", "show")
        for name in switch["hosts"]:
            entry = {"host": name, "port": hosts[name]["port"]}
            entries[name] = entry | _port(links[entry["port"]], counters, queues)
            entries[name] |= _host_losses(hosts[name], links[entry["port"]])
        for name in switch["uplinks"]:
            lost = sum(links[name]["stats64"][way]["dropped"] for way in ("rx", "tx"))
            fabric_ports.append({"switch": switch["name"], "to": name, "port": name} |
                                _port(links[name], counters, queues) | {"uplink_dropped": 0, "link_lost": lost})
    status["ports"] = [entries[name] for name in hosts]
    if fabric_ports:
        status["fabric_ports"] = fabric_ports
    names = [key for key in status["ports"][0] if key not in ("host", "port", "ifindex")]
    status["totals"] = {key: sum(port[key] for port in status["ports"] + fabric_ports) for key in names}
    status["totals"]["unknown_destination"] = unknown
    running = system.processes_in([switch["namespace"] for switch in switches])
    status["log_running"] = all(number in running for number in _numbers(status, "log"))
    status["delay_line"] = _delay_lines(lab, status, running)
    return status


def _numbers(status, kind):
    """Process numbers: one of a star, one a switch of other fabrics."""
    numbers = status["processes"][kind]
    return numbers if isinstance(numbers, list) else [numbers]


def _port(link, counters, queues):
    entry = {"ifindex": link["ifindex"]}
    entry |= counters["ports"].get(str(link["ifindex"]), {})
    entry["header_dropped"] = _queue_drops(queues, link["ifname"], HEADER_CLASS)
    entry["queue_overflow"] = _queue_drops(queues, link["ifname"], DATA_CLASS)
    return entry


def _switch_counters(status, pins):
    program = os.path.join(status["programs"], "forgive_lab_switch")
    try:
        result = subprocess.run([program, "counters", pins], capture_output=True, text=True, check=False)
    except OSError as error:
        raise LabError(f"{program}: {error.strerror}: the build that `lab up` used is gone") from error
    if result.returncode != 0:
        raise LabError(" ".join(result.stderr.split()))
    return json.loads(result.stdout)


def _queue_drops(queues, device, number):
    parent = f"{ROOT_HANDLE:x}:{number:x}"
    return sum(queue.get("drops", 0) for queue in queues if queue.get("dev") == device and
               queue.get("parent") == parent)


def _host_losses(host, port):
    """Losses that no switch would have: in a host's own sending queue, and between the ends of a veth pair."""
    link = system.query("ip", "-n", host["namespace"], "-s", "-j", "link", "show", "dev", HOST_INTERFACE)[0]
    queues = system.query("tc", "-n", host["namespace"], "-s", "-j", "qdisc", "show", "dev", HOST_INTERFACE)
    lost = sum(side["stats64"][way]["dropped"] for side in (link, port) for way in ("rx", "tx"))
    return {"uplink_dropped": _queue_drops(queues, HOST_INTERFACE, 1), "link_lost": lost}


def _delay_lines(lab, status, running):
    """What all of them counted: sums, but for `latest_us`, the worst."""
    if status["parameters"]["rtt_ms"] <= 0:
        return None
    values = {"running": all(number in running for number in _numbers(status, "delay_line"))}
    for path in sorted(glob.glob(os.path.join(glob.escape(lab.folder), "delay_line*.txt"))):
        with contextlib.suppress(OSError), open(path, encoding="ascii") as file:
            for line in file:
                key, _, value = line.strip().partition(" ")
                number = int(value) if value.isdigit() else value
                if key in values and isinstance(number, int):
                    number = max(values[key], number) if key == "latest_us" else values[key] + number
                values[key] = number
    return values


def shape(parameters):
    """In words; empty for a star."""
    if parameters["topology"] == "star":
        return ""
    return f"{parameters['leaves']} leaves under {parameters['spines']} spines"


def text(status):
    """The same for people."""
    parameters = status["parameters"]
    kind = shape(parameters)
    lines = [f"lab {status['name']}: {parameters['hosts']} hosts, {kind + ', ' if kind else ''}{parameters['rate_mbps']:g} Mbit/s, "
             f"{parameters['rtt_ms']:g} ms, BDP {parameters['bdp_bytes']} bytes; marks from "
             f"{parameters['ecn_min_bytes']} to {parameters['ecn_max_bytes']}, " +
             (f"trims ({parameters['trim_mode']}, {parameters['trim_length']} bytes left) beyond "
              f"{parameters['trim_threshold_bytes']}" if parameters["trim"] else "no trimming") +
             f", drops beyond {parameters['queue_bytes']}",
             "queue: " + ("the port's true backlog" if status["true_backlog"] else
                          "VIRTUAL (it drifts from the true one)"),
             f"trims: {status['trims_log']}" + ("" if status["log_running"] else " (its WRITER HAS ENDED)"), ""]
    widths = [max(8, len(column) + 1) for column in COLUMNS[:-1]] + [14]
    lines.append(f"{'to':<7}{'address':<14}" + "".join(f"{c:>{w}}" for c, w in zip(COLUMNS, widths)))
    for host, port in zip(status["hosts"], status["ports"]):
        lines.append(f"{host['name']:<7}{host['ipv4']:<14}" +
                     "".join(f"{port[c]:>{w}}" for c, w in zip(COLUMNS, widths)))
    for port in status.get("fabric_ports", []):
        lines.append(f"{port['switch']} to {port['to']:<8}".ljust(21) + "".join(f"{port[c]:>{w}}"
                                                                                for c, w in zip(COLUMNS, widths)))
    lines.append(f"{'all':<21}" + "".join(f"{status['totals'][c]:>{w}}" for c, w in zip(COLUMNS, widths)))
    line = status["delay_line"]
    if line:
        lines += ["", "delay line: " + ", ".join(f"{key} {value}" for key, value in line.items())]
    return "\n".join(lines)
