# SPDX-License-Identifier: Apache-2.0
# Real faults under a running job: what the user sees, and that everything is exact afterwards.
import contextlib
import ctypes
import fcntl
import json
import os
import resource
import signal
import socket
import struct
import subprocess
import sys
import time

import pytest
from conftest import BUILD, LAB, lab_up
from job import HELD_STEPS, PERF, PIPE_BYTES, PLUGIN, SILENT, Job
from processes import clean_environment

sys.path.insert(0, os.path.dirname(LAB))
from labkit import fabric, system  # noqa: E402
from labkit.parameters import Parameters  # noqa: E402

pytestmark = pytest.mark.usefixtures("nothing_left")

# Nothing is trimmed here unless a test says so: whatever is missing afterwards was lost by the fault.
LINK = ("--hosts", "3", "--rate-mbps", "400", "--rtt-ms", "1", "--no-trim", "--queue-bytes", "400000")
RANKS = 3
# Of a job to which something happens after step 5: HELD_STEPS may be done by then.
STEPS = 5 + HELD_STEPS + 30


def environment(**own):
    usual = {"FORGIVE_GRADIENT_TRAFFIC": "all", "FORGIVE_RING_RANKS": "2", "FORGIVE_GRADIENT_RANKS": str(RANKS),
             "FORGIVE_INTERFACE": "fgv0", "FORGIVE_PEER_TIMEOUT_S": "10", "NCCL_SOCKET_FAMILY": "AF_INET"}
    return clean_environment(**usual | own)


class LabJob(Job):
    """A rank on each host of a lab."""

    def __init__(self, lab, folder, steps=None, size=1_000_000, wrap=None, hold_at=None, **own):
        """With steps: so much data that the links need 27 ms for each, however fast the machine is. Without:
        all-reduces that need 1.7 s each, so that every rank waits for packets when the fault comes. `wrap`: words
        before a rank's own, by rank."""
        words = ["--algorithm", "direct", "--timeout", "30"]
        words += (["--steps", str(steps), "--critical", "1", "--compute-ms", "5", "--bytes", str(size)] if steps else
                  ["-b", "64M", "-e", "64M", "-n", "1000", "-w", "1", "--no-check"])
        super().__init__(folder, "", RANKS, words, lambda rank, command, **options: lab.start(
            f"h{rank}", *(wrap or {}).get(rank, []), *command, env=environment(**own), **options), hold_at)


def on(lab, host, *words):
    result = lab.exec(host, *words)
    assert result.returncode == 0, result.stderr


def at_switch(lab, *words):
    subprocess.run(["ip", "netns", "exec", f"fgv-{lab.name}-switch", *words], check=True)


# ---- Links ----

@pytest.mark.parametrize("side", ("host", "switch"))
def test_a_link_that_is_down_for_a_second_costs_a_second_and_nothing_else(tmp_path, side):
    with lab_up(*LINK) as lab:
        job = LabJob(lab, tmp_path, steps=STEPS, hold_at=5)
        job.wait_for_step(5)
        if side == "host":
            on(lab, "h1", "ip", "link", "set", "fgv0", "down")
        else:
            at_switch(lab, "ip", "link", "set", "p1", "down")
        job.assert_stands_for(0.8)
        if side == "host":
            on(lab, "h1", "ip", "link", "set", "fgv0", "up")
        else:
            at_switch(lab, "ip", "link", "set", "p1", "up")
        job.assert_exact()


def blackhole(lab):
    """What h1 sends to h0 goes to an address that nobody has; the way back is as it was."""
    on(lab, "h1", "ip", "neigh", "replace", "10.77.0.1", "lladdr", "02:46:47:56:00:77", "dev", "fgv0", "nud",
       "permanent")


def heal(lab):
    on(lab, "h1", "ip", "neigh", "replace", "10.77.0.1", "lladdr", "02:46:47:56:00:01", "dev", "fgv0", "nud",
       "permanent")


def test_a_path_that_swallows_one_direction_for_a_while_costs_time_only(tmp_path):
    with lab_up(*LINK) as lab:
        job = LabJob(lab, tmp_path, steps=STEPS, hold_at=5)
        job.wait_for_step(5)
        blackhole(lab)
        job.assert_stands_for(0.8)
        heal(lab)
        job.assert_exact()


def test_a_path_that_swallows_one_direction_for_ever_is_a_clear_error_within_the_timeout(tmp_path):
    with lab_up(*LINK) as lab:
        job = LabJob(lab, tmp_path, FORGIVE_PEER_TIMEOUT_S="2")
        job.wait_for_traffic()
        blackhole(lab)
        job.assert_failed(SILENT)


def test_an_mtu_that_shrinks_for_a_while_stops_large_packets_and_harms_nothing(tmp_path):
    with lab_up(*LINK) as lab:
        job = LabJob(lab, tmp_path, steps=STEPS, hold_at=5)
        job.wait_for_step(5)
        on(lab, "h1", "ip", "link", "set", "fgv0", "mtu", "1500")
        job.assert_stands_for(0.8)
        on(lab, "h1", "ip", "link", "set", "fgv0", "mtu", "9000")
        job.assert_exact()


def test_a_port_whose_mtu_is_lowered_for_good_makes_packets_smaller_and_the_job_ends_exactly(tmp_path):
    with lab_up(*LINK) as lab:
        job = LabJob(lab, tmp_path, steps=STEPS, hold_at=5, FORGIVE_PEER_TIMEOUT_S="30")
        job.wait_for_step(5)
        at_switch(lab, "ip", "link", "set", "p1", "mtu", "1500")
        result = job.assert_exact()
        assert sum(rank["segment_cuts"] for rank in result["per_rank"]) > 0, "nothing vanished: this proves nothing"


# ---- The switch ----

def restart_switch(lab, job, rebuild=None):
    """The switch loses its program, and a port of it its very link; then both come again, empty."""
    own = fabric.Lab(lab.name)
    description = own.read()
    switch = own.namespace("switch")
    os.kill(description["processes"]["log"], signal.SIGTERM)
    ports = [port["ifname"] for port in system.query("ip", "-n", switch, "-j", "link", "show", "type", "veth")
             if port["ifname"] != fabric.LINE_PROGRAM_SIDE]
    for port in ports:
        at_switch(lab, "tc", "qdisc", "del", "dev", port, "clsact")
    job.assert_stands_for(0.5)
    if rebuild:
        parameters = Parameters(**{key: value for key, value in description["parameters"].items()
                                   if key in Parameters.__dataclass_fields__})
        hosts = [fabric.Host(f"h{i}", i + 1, f"p{i}") for i in range(RANKS)]
        host = next(host for host in hosts if host.name == rebuild)
        system.batch("ip", switch, [f"link del {host.port}"])
        system.batch("ip", switch, [
            f"link add {host.port} mtu 9000 type veth peer name fgv0 address {host.ethernet} mtu 9000 netns "
            f"{own.namespace(host.name)}", f"link set {host.port} up"])
        fabric.build_host(own, host, hosts, parameters)
        system.batch("tc", switch, fabric.port_queue(host.port, parameters))
    system.unmount(own.pins)
    _, description["processes"]["log"] = fabric.start(own, switch, "switch", [
        os.path.join(description["programs"], "forgive_lab_switch"), "run", os.path.join(own.folder, "switch.conf")])
    with open(own.description, "w", encoding="utf-8") as file:
        json.dump(description, file)


@pytest.mark.parametrize("rebuild", (None, "h1"), ids=("program", "program_and_link"))
def test_a_switch_that_restarts_costs_time_only(tmp_path, rebuild):
    with lab_up(*LINK) as lab:
        job = LabJob(lab, tmp_path, steps=STEPS, hold_at=5)
        job.wait_for_step(5)
        restart_switch(lab, job, rebuild)
        job.assert_exact()


# ---- Loss ----

def test_three_tenths_of_all_packets_lost_at_random_leave_every_byte_exact_and_none_forgiven(tmp_path):
    with lab_up(*LINK) as lab:
        result = LabJob(lab, tmp_path, steps=4, size=200_000, FORGIVE_FAULT="drop=0.3,seed=11").assert_exact()
        assert result["retransmitted_bytes"] > 0.2 * result["gradient_bytes"]
        assert result["trims"] == 0


# ---- Ranks ----

@contextlib.contextmanager
def copies_of_unix_sockets(pid):
    """Keeps a process's unix sockets open beyond its death: the harness must not learn of it by its own ways."""
    libc = ctypes.CDLL(None, use_errno=True)
    with contextlib.ExitStack() as stack:
        pidfd = os.pidfd_open(pid)
        stack.callback(os.close, pidfd)
        for entry in os.listdir(f"/proc/{pid}/fd"):
            if not os.readlink(f"/proc/{pid}/fd/{entry}").startswith("socket:"):
                continue
            copy = libc.syscall(438, pidfd, int(entry), 0)  # pidfd_getfd
            assert copy >= 0, os.strerror(ctypes.get_errno())
            one = socket.socket(fileno=copy)
            if one.family == socket.AF_UNIX:
                stack.callback(one.close)
            else:
                one.close()
        yield


def test_the_death_of_a_rank_ends_the_others_within_the_timeout_and_says_so(tmp_path):
    with lab_up(*LINK) as lab:
        job = LabJob(lab, tmp_path, FORGIVE_PEER_TIMEOUT_S="2")
        job.wait_for_traffic()
        with copies_of_unix_sockets(job.ranks[2].pid):
            job.ranks[2].kill()
            job.ranks[0].wait(timeout=60)
            job.ranks[1].wait(timeout=60)
        job.assert_failed(SILENT, ranks=(0, 1))


def test_a_rank_that_is_stopped_for_seconds_is_alive_until_the_timeout(tmp_path):
    with lab_up(*LINK) as lab:
        job = LabJob(lab, tmp_path, steps=STEPS, hold_at=5, FORGIVE_PEER_TIMEOUT_S="30")
        job.wait_for_step(5)
        job.ranks[1].send_signal(signal.SIGSTOP)
        with contextlib.ExitStack() as stack:
            stack.callback(job.ranks[1].send_signal, signal.SIGCONT)
            job.assert_stands_for(2.5)
        job.assert_exact()


def test_a_rank_that_was_stopped_longer_than_the_timeout_blames_nobody_for_its_own_silence(tmp_path):
    with lab_up(*LINK) as lab:
        job = LabJob(lab, tmp_path, FORGIVE_PEER_TIMEOUT_S="2")
        job.wait_for_traffic()
        job.ranks[1].send_signal(signal.SIGSTOP)
        with contextlib.ExitStack() as stack:
            stack.callback(job.ranks[1].send_signal, signal.SIGCONT)
            job.ranks[0].wait(timeout=60)
        errors, statuses = job.end()
        assert statuses == [3] * RANKS
        # Whoever notices first closes, and the other may hear of that before its own time is over.
        assert SILENT in errors[0] + errors[2] and SILENT not in errors[1], errors


def test_hosts_whose_clocks_differ_by_an_hour_do_not_notice(tmp_path):
    ahead = ["unshare", "--time", "--fork", "--kill-child", "--monotonic", "3600", "--boottime", "3600"]
    with lab_up(*LINK) as lab:
        LabJob(lab, tmp_path, steps=10, wrap={1: ahead}).assert_exact()


# ---- The time of day, which an operator or a time daemon sets ----

STEPPED_CLOCK = os.path.join(BUILD, "tests", "lab", "libstepped_clock.so")
# What would wait until a time of day, or read it by another way than clock_gettime(2).
OF_THE_TIME_OF_DAY = ("gettimeofday", "time", "timespec_get", "pthread_cond_timedwait", "sem_timedwait",
                      "pthread_mutex_timedlock", "clock_nanosleep", "timerfd_create", "timer_create",
                      "_ZNSt6chrono3_V212system_clock3nowEv")


class TimeOfDay:
    """The time of day of one process and its children, which can be set while it runs; this machine's stays."""

    def __init__(self, folder):
        self.file = os.path.join(folder, "time_of_day")
        self.wrap = ["env", f"LD_PRELOAD={STEPPED_CLOCK}", f"STEPPED_CLOCK={self.file}"]
        with open(self.file, "wb") as file:
            file.write(struct.pack("=q", 0))
        look = "import time\nfor _ in iter(input, ''): print(time.time(), time.monotonic(), flush=True)"
        self.witness = subprocess.Popen([*self.wrap, sys.executable, "-c", look], stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, text=True)

    def set(self, ahead_s):
        """Returns by how many hours a process with this clock saw its time of day jump, less the time that passed."""
        before = self._look()
        with open(self.file, "r+b") as file:
            file.write(struct.pack("=q", ahead_s))
        after = self._look()
        return round((after[0] - before[0] - (after[1] - before[1])) / 3600)

    def _look(self):
        self.witness.stdin.write("now\n")
        self.witness.stdin.flush()
        return [float(word) for word in self.witness.stdout.readline().split()]

    def end(self):
        self.witness.communicate("\n", timeout=20)


def statistics_of(folder, begin_ns, end_ns):
    """The lines of both files, all parsed, after a look at each time in them: CLOCK_MONOTONIC, while the ranks ran."""
    lines = []
    for name in sorted(name for name in os.listdir(folder) if name.startswith("statistics.")):
        with open(os.path.join(folder, name), encoding="utf-8") as file:
            own = [json.loads(line) for line in file]
        for line in own:
            assert begin_ns <= line["time_ns"] <= end_ns, (name, line)
            if line["type"] == "step":
                assert begin_ns <= line["begin_ns"] <= line["end_ns"] <= line["time_ns"], line
        lines.append(own)
    return lines


def test_a_time_of_day_set_by_an_hour_to_and_fro_while_a_job_runs_changes_nothing(tmp_path):
    trims, ledger, result = (str(tmp_path / name) for name in ("trims", "ledger", "result.json"))
    words = [PERF, "--plugin", PLUGIN, "--world", "2", "--rendezvous", f"unix:{tmp_path / 'rendezvous'}", "--timeout",
             "30", "--steps", "150", "--compute-ms", "20", "--bytes", "1M", "--trims", trims]
    own = environment(FORGIVE_INTERFACE="=lo", FORGIVE_RING_RANKS="2", FORGIVE_GRADIENT_RANKS="2", FORGIVE_TRIM="1",
                      FORGIVE_FAULT="trim=0.05,seed=7", FORGIVE_FAULT_LOG=trims, FORGIVE_TRACE_INTERVAL_US="10000",
                      FORGIVE_STATS=str(tmp_path / "statistics.%p"))
    begin_ns = time.monotonic_ns()
    clock = TimeOfDay(tmp_path)
    ranks = [subprocess.Popen([*words, "--rank", "0", "--json", result, "--ledger", ledger], env=own, text=True,
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE),
             subprocess.Popen([*clock.wrap, *words, "--rank", "1"], env=own, text=True, stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE)]
    # Of a line a step at most HELD_STEPS are in the pipe and as many more in our buffer: the job runs at each jump.
    fcntl.fcntl(ranks[0].stdout, fcntl.F_SETPIPE_SZ, PIPE_BYTES)
    jumps = []
    for line in ranks[0].stdout:
        if line.split()[:1] in (["10"], ["25"], ["40"]):
            if not jumps:
                with open(f"/proc/{ranks[1].pid}/maps", encoding="utf-8") as maps:
                    assert STEPPED_CLOCK in maps.read()
            jumps.append(clock.set((3600, 0, -3600)[len(jumps)]))
    errors = [rank.communicate(timeout=60)[1] for rank in ranks]
    clock.end()
    assert [rank.returncode for rank in ranks] == [0, 0] and SILENT not in "".join(errors), errors
    assert jumps == [1, -1, -1], "the clock was not set: this proves nothing"
    with open(result, encoding="utf-8") as file:
        written = json.load(file)
    assert (written["wrong"], written["budget_violations"], written["ranks_identical"]) == (0, 0, True)
    statistics = statistics_of(tmp_path, begin_ns, time.monotonic_ns())
    assert [[line["type"] for line in own].count("step") for own in statistics] == [150, 150]
    with open(ledger, encoding="ascii") as file:
        names, *ranges = [line.split() for line in file]
    ranges = [dict(zip(names[1:], each, strict=True)) for each in ranges]
    forgiven = sum(int(each["length"]) for each in ranges)
    assert forgiven == written["forgiven_bytes"] == sum(own[-1]["totals"]["forgiven_bytes"] for own in statistics) > 0


def test_the_library_asks_for_no_time_of_day_and_waits_for_none():
    symbols = subprocess.run(["nm", "-D", "--undefined-only", PLUGIN], capture_output=True, text=True, check=True)
    asked = {line.split()[1].partition("@")[0] for line in symbols.stdout.splitlines()}
    assert "clock_gettime" in asked
    assert not asked & set(OF_THE_TIME_OF_DAY)


# ---- What a host runs out of ----

def loopback(limit=None, **own):
    """Two ranks on loopback; `limit` is applied to them."""
    words = [PERF, "--plugin", PLUGIN, "--ranks", "2", "-b", "64K", "-e", "64K", "-n", "2", "--timeout", "20"]
    return subprocess.run(words, env=environment(FORGIVE_INTERFACE="=lo", **own), capture_output=True, text=True,
                          timeout=60, check=False, preexec_fn=limit)


def test_without_enough_descriptors_a_job_ends_with_one_line_that_names_the_limit():
    refused = 0
    for most in range(5, 12):  # with fewer the harness's own rendezvous fails first
        run = loopback(lambda most=most: resource.setrlimit(resource.RLIMIT_NOFILE, (most, most)))
        if run.returncode == 0:
            continue
        assert run.returncode in (2, 3), (most, run.returncode, run.stderr)
        own_lines = [line for line in run.stderr.splitlines() if line.startswith("forgive_perf: ")]
        # A rank that failed may be missed by another before it has said why.
        assert len(own_lines) == 1 and ("ulimit -n" in own_lines[0] or own_lines[0].endswith("is gone")), run.stderr
        refused += "NET/FORGIVE" in own_lines[0]
    assert refused > 0, "the plugin itself never lacked a descriptor"
    assert most == 11 and run.returncode == 0, "this many are enough"
