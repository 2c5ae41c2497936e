# SPDX-License-Identifier: Apache-2.0
# What a running lab has counted, for people and as JSON.
import contextlib
import json
import os
import subprocess

from . import system
from .fabric import DATA_CLASS, HEADER_CLASS, HOST_INTERFACE, ROOT_HANDLE
from .parameters import LabError

COLUMNS = ("whole", "trimmed", "marked", "control", "other", "dropped", "header_dropped", "queue_overflow",
           "gso_refused", "link_lost", "bytes")


def collect(lab):
    """The description of the lab with `ports`, `totals` and `delay_line` filled in."""
    status = lab.read()
    switch = status["switch_namespace"]
    counters = _switch_counters(lab, status)
    links = {link["ifname"]: link for link in system.query("ip", "-n", switch, "-s", "-j", "link", "show")}
    queues = system.query("tc", "-n", switch, "-s", "-j", "qdisc", "show")
    status["ports"] = []
    for host in status["hosts"]:
        link = links[host["port"]]
        entry = {"host": host["name"], "port": host["port"], "ifindex": link["ifindex"]}
        entry |= counters["ports"].get(str(link["ifindex"]), {})
        entry["header_dropped"] = _queue_drops(queues, host["port"], HEADER_CLASS)
        entry["queue_overflow"] = _queue_drops(queues, host["port"], DATA_CLASS)
        entry |= _host_losses(host, link)
        status["ports"].append(entry)
    names = [key for key in status["ports"][0] if key not in ("host", "port", "ifindex")]
    status["totals"] = {key: sum(port[key] for port in status["ports"]) for key in names}
    status["totals"]["unknown_destination"] = counters["unknown_destination"]
    running = system.processes_in([switch])
    status["log_running"] = status["processes"]["log"] in running
    status["delay_line"] = _delay_line(lab, status, running)
    return status


def _switch_counters(lab, status):
    program = os.path.join(status["programs"], "forgive_lab_switch")
    try:
        result = subprocess.run([program, "counters", lab.pins], capture_output=True, text=True, check=False)
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


def _delay_line(lab, status, running):
    if status["parameters"]["rtt_ms"] <= 0:
        return None
    values = {"running": status["processes"]["delay_line"] in running}
    with contextlib.suppress(OSError), open(lab.delay_statistics, encoding="ascii") as file:
        for line in file:
            key, _, value = line.strip().partition(" ")
            values[key] = int(value) if value.isdigit() else value
    return values


def text(status):
    """The same for people."""
    parameters = status["parameters"]
    lines = [f"lab {status['name']}: {parameters['hosts']} hosts, {parameters['rate_mbps']:g} Mbit/s, "
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
    lines.append(f"{'all':<21}" + "".join(f"{status['totals'][c]:>{w}}" for c, w in zip(COLUMNS, widths)))
    line = status["delay_line"]
    if line:
        lines += ["", "delay line: " + ", ".join(f"{key} {value}" for key, value in line.items())]
    return "\n".join(lines)
