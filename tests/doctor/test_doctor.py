# SPDX-License-Identifier: Apache-2.0
# The doctor: what it says of this host, of wrong settings, of other plugins, and of libraries that hang or crash.
import json
import os
import shutil
import subprocess
import sys

import pytest

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.realpath(__file__))))
from processes import is_running  # noqa: E402

DOCTOR = os.environ["FORGIVE_DOCTOR"]
PLUGIN = os.environ["FORGIVE_PLUGIN"]
FAKE_PLUGIN = os.environ["FAKE_PLUGIN_LIBRARY"]
OTHER_PLUGIN = os.environ["FAKE_OTHER_LIBRARY"]
FAKE_NCCL = os.environ["FAKE_NCCL_LIBRARY"]
FAKE_IBVERBS = os.environ["FAKE_IBVERBS_LIBRARY"]
FROM_OUTSIDE = ("FORGIVE_", "FAKE_", "NCCL_", "LD_LIBRARY_PATH", "PYTHONPATH", "VIRTUAL_ENV", "CONDA_PREFIX")


def environment(own):
    kept = {name: value for name, value in os.environ.items() if not name.startswith(FROM_OUTSIDE)}
    return {**kept, "HOME": "/nonexistent", **own}


def doctor(*arguments, wrapper=(), cwd=None, **own):
    return subprocess.run([*wrapper, DOCTOR, *map(str, arguments)], env=environment(own), cwd=cwd,
                          capture_output=True, text=True, timeout=60, check=False)


def report(*arguments, **own):
    run = doctor("--json", *arguments, **own)
    assert run.stdout.startswith("{"), run.stderr
    found = json.loads(run.stdout)
    assert found["exit_status"] == run.returncode
    return found


def findings(found, name=None, status=None, section=None):
    return [finding for finding in found["findings"]
            if (name is None or finding["name"] == name) and (status is None or finding["status"] == status) and
            (section is None or finding["section"] == section)]


def only(found, name, status):
    matches = findings(found, name)
    assert [match["status"] for match in matches] == [status], matches
    return matches[0]


@pytest.fixture(name="nccl")
def nccl_folder(tmp_path):
    """A folder for LD_LIBRARY_PATH with an NCCL in it."""
    shutil.copy(FAKE_NCCL, tmp_path / "libnccl.so.2")
    return {"LD_LIBRARY_PATH": str(tmp_path)}


READY = {"NCCL_NET_PLUGIN": PLUGIN, "NCCL_NET": "forgive", "FORGIVE_LINK_RATE_MBPS": "1000"}


# ---- What it says of the library itself ----

def test_it_works_where_the_environment_is_right(nccl):
    found = report(**READY, **nccl, FAKE_NCCL="22304", FORGIVE_INTERFACE="lo")
    assert found["exit_status"] == 0 and found["failures"] == 0
    assert found["library"] == os.path.realpath(PLUGIN)
    assert found["devices"] == ["lo"] and found["nccl_versions"] == [22304]
    assert 8 in found["net_versions"]
    assert "in use (" in only(found, "driver udp", "ok")["text"]
    init = findings(found, "init", "ok")
    assert "ncclNet v8" in init[0]["text"] and "eligible: nothing" in init[0]["text"]


def test_a_person_reads_each_finding_with_its_way_out():
    run = doctor(NCCL_NET="Socket")
    assert run.returncode == 2
    lines = run.stdout.splitlines()
    at = next(i for i, line in enumerate(lines) if line.startswith("  [fail] NCCL_NET:"))
    assert lines[at + 1].strip() == "-> export NCCL_NET=forgive"
    assert lines[-1].startswith("It cannot work here as things stand: 1 failure, ")


def test_without_the_variables_the_lines_to_export_are_given():
    found = report("--library", PLUGIN)
    assert found["exit_status"] == 0
    assert only(found, "NCCL_NET_PLUGIN", "warn")["remedy"] == f"export NCCL_NET_PLUGIN={os.path.realpath(PLUGIN)}"
    assert only(found, "NCCL_NET", "warn")["remedy"] == "export NCCL_NET=forgive"


def test_a_warning_counts_only_when_strict():
    assert doctor("--library", PLUGIN).returncode == 0
    assert doctor("--library", PLUGIN, "--strict").returncode == 1


# ---- Settings, by the library's own word ----

def test_every_setting_that_does_not_parse_is_named_at_once():
    found = report(**READY, FORGIVE_P="7", FORGIVE_CC="slow", NCCL_SOCKET_FAMILY="IPX", FORGIVE_INTERFACE="lo")
    assert found["exit_status"] == 2
    assert [f["name"] for f in findings(found, status="fail", section="Start")] == [
        "FORGIVE_CC", "FORGIVE_P", "NCCL_SOCKET_FAMILY"]
    assert "dcqcn-paper" in only(found, "FORGIVE_CC", "fail")["text"]


def test_a_variable_that_does_not_exist_is_a_warning():
    found = report(**READY, FORGIVE_PLOW="0.1")
    assert found["exit_status"] == 0
    assert any("FORGIVE_PLOW" in f["text"] for f in findings(found, "init", "warn"))


def test_an_interface_that_is_not_there_fails_with_the_ones_that_are():
    found = report(**{**READY, "FORGIVE_INTERFACE": "nosuch0"})
    assert found["exit_status"] == 2
    assert "there are: lo" in only(found, "FORGIVE_INTERFACE", "fail")["text"]


def test_a_driver_that_is_not_built_is_said_by_the_library():
    found = report(**READY, FORGIVE_DRIVER="nosuch")
    assert found["exit_status"] == 2 and "udp" in only(found, "FORGIVE_DRIVER", "fail")["text"]


# ---- Facts of devices ----

NIC = "devices/pci0000:00/0000:00:01.0/0000:01:00.0"


def needs_namespaces(kind):
    can = subprocess.run(["unshare", kind, "true"], capture_output=True, check=False).returncode == 0
    if os.geteuid() != 0 or not can:
        pytest.skip("a host of its own needs root and namespaces")


def add_nic(sysfs, interface, number, speed):
    """An interface that is port 1 of the RDMA NIC mlx5_`number`, of `speed` Mbit/s."""
    net, rdma = f"class/net/{interface}", f"class/infiniband/mlx5_{number}"
    files = {f"{net}/mtu": "65536", f"{net}/operstate": "unknown", f"{net}/speed": speed,
             f"{net}/address": f"02:00:00:00:00:0{number + 7}", f"{rdma}/ports/1/state": "4: ACTIVE",
             f"{rdma}/sys_image_guid": f"0a00:0000:0000:000{number + 6}"}
    for name, text in files.items():
        (sysfs / name).parent.mkdir(parents=True, exist_ok=True)
        (sysfs / name).write_text(f"{text}\n", encoding="utf-8")
    place = NIC.replace("01.0", f"0{number + 1}.0")
    (sysfs / place).mkdir(parents=True)
    for link in (f"{net}/device", f"{rdma}/device"):
        (sysfs / link).symlink_to("../../../" + place)


@pytest.fixture(name="nic")
def sysfs_of_a_nic(tmp_path):
    """A command before the doctor for which lo is a port of an RDMA NIC, by a /sys of its own."""
    needs_namespaces("-m")
    add_nic(tmp_path / "sys", "lo", 0, 25000)
    return ("unshare", "-m", "sh", "-c", f"mount --bind '{tmp_path}/sys' /sys && exec \"$@\"", "sh")


@pytest.fixture(name="rails")
def host_of_rails(tmp_path):
    """The same with two NICs that are joined. The name of the first one looks like a device of several rails."""
    needs_namespaces("-mn")
    add_nic(tmp_path / "sys", "eth+0", 0, 25000)
    add_nic(tmp_path / "sys", "eth1", 1, 25000)
    links = ("ip link set lo up && ip link add eth+0 type veth peer name eth1 && ip addr add 10.77.0.1/24 dev eth+0 && "
             "ip addr add 10.78.0.1/24 dev eth1 && ip link set eth+0 up && ip link set eth1 up")
    return {**READY, "FORGIVE_RAILS": "eth+0,eth1", "FORGIVE_VERBS": "0", "wrapper": (
        "unshare", "-mn", "sh", "-c", f"{links} && mount --bind '{tmp_path}/sys' /sys && exec \"$@\"", "sh")}


def test_the_facts_of_each_rail_are_said_as_of_any_device(rails):
    found = report(**rails)
    assert found["devices"] == ["eth+0", "eth1"]
    for number, name in enumerate(found["devices"]):
        said = [finding["text"] for finding in findings(found, name, "ok", "Network")]
        place = NIC.replace("01.0", f"0{number + 1}.0")
        assert (f"speed 25000 Mbit/s, PCI path /sys/{place}, GUID 0x0a0000000000000{number + 6}, port 1; "
                f"from sysfs (mlx5_{number} port 1; FORGIVE_VERBS=0)") in said
        assert any(text.startswith("10.7") and text.endswith("unknown") for text in said)
    assert "25000 Mbit/s: one device of 50000 Mbit/s" in only(found, "rails", "ok")["text"]


def test_of_rails_of_different_speed_the_one_that_decides_is_named(rails, tmp_path):
    (tmp_path / "sys/class/net/eth1/speed").write_text("10000\n", encoding="utf-8")
    finding = only(report(**rails), "rails", "warn")
    assert finding["text"] == ("eth+0 25000 Mbit/s, eth1 10000 Mbit/s: they have equal shares, so eth1, the slowest, "
                               "decides: 20000 Mbit/s together")
    assert "FORGIVE_RAILS" in finding["remedy"]


def test_a_rail_without_a_speed_is_a_warning(rails, tmp_path):
    (tmp_path / "sys/class/net/eth1/speed").write_text("-1\n", encoding="utf-8")
    found = report(**{**rails, "FORGIVE_LINK_RATE_MBPS": ""})
    assert any("the kernel reports no speed" in f["text"] for f in findings(found, "eth1", "warn"))
    assert not any("no speed" in f["text"] for f in findings(found, "eth+0", "warn"))
    assert not findings(found, "rails")


def test_a_rail_whose_port_is_not_active_is_a_warning(rails, tmp_path):
    (tmp_path / "sys/class/infiniband/mlx5_1/ports/1/state").write_text("1: DOWN\n", encoding="utf-8")
    warnings = findings(report(**rails), "init", "warn")
    assert any("FORGIVE_RAILS: eth1: port 1 of mlx5_1 is not ACTIVE" in f["text"] for f in warnings)


def test_a_nics_facts_are_libibverbs_word_where_it_is_there(nic):
    found = report(**READY, wrapper=nic, FORGIVE_INTERFACE="lo", LD_LIBRARY_PATH=os.path.dirname(FAKE_IBVERBS))
    facts, = found["device_facts"]
    assert facts["speed_mbps"] == 100000 and facts["guid"] == "0x506b4b0300f48fb2" and facts["port"] == 1
    assert facts["pci_path"] == "/sys/" + NIC
    assert facts["facts_from"] == "libibverbs (mlx5_0 port 1)"
    said = [finding["text"] for finding in findings(found, "lo", "ok", "Network")]
    assert (f"speed 100000 Mbit/s, PCI path /sys/{NIC}, GUID 0x506b4b0300f48fb2, port 1; "
            "from libibverbs (mlx5_0 port 1)") in said


def test_a_nics_facts_are_the_kernels_where_libibverbs_does_not_answer_and_the_reason_is_said(nic):
    for own, why in (({"FORGIVE_VERBS": "0"}, "FORGIVE_VERBS=0"), ({"FAKE_IBVERBS": "open"}, "ibv_open_device")):
        found = report(**READY, **own, wrapper=nic, FORGIVE_INTERFACE="lo",
                       LD_LIBRARY_PATH=os.path.dirname(FAKE_IBVERBS))
        facts, = found["device_facts"]
        assert facts["speed_mbps"] == 25000 and facts["guid"] == "0x0a00000000000006"
        assert facts["facts_from"].startswith("sysfs (mlx5_0 port 1; ") and why in facts["facts_from"]


def test_a_port_that_is_not_active_is_no_device(nic, tmp_path):
    (tmp_path / "sys/class/infiniband/mlx5_0/ports/1/state").write_text("1: DOWN\n", encoding="utf-8")
    found = report(**READY, wrapper=nic, FORGIVE_INTERFACE="lo", FORGIVE_VERBS="0")
    assert found["exit_status"] == 2
    assert any("port 1 of mlx5_0 is not ACTIVE" in f["text"] for f in findings(found, status="fail"))


def test_the_driver_in_use_is_named_with_what_chose_it():
    by_itself = only(report(**READY, FORGIVE_INTERFACE="lo"), "driver udp", "ok")["text"]
    named = only(report(**READY, FORGIVE_INTERFACE="lo", FORGIVE_DRIVER="udp"), "driver udp", "ok")["text"]
    assert "uring" in by_itself and "(FORGIVE_DRIVER)" not in by_itself
    assert "(FORGIVE_DRIVER)" in named


def test_loopback_alone_is_a_warning():
    found = report(**READY, FORGIVE_INTERFACE="lo")
    assert "lo alone" in only(found, "interfaces", "warn")["text"]


def test_the_code_points_of_a_packet_to_itself_are_read_back():
    found = report(**READY, FORGIVE_INTERFACE="=lo", FORGIVE_DSCP_DATA="13")
    assert any("DSCP 13 with ECN to 127.0.0.1 arrives as sent" in f["text"] for f in findings(found, "lo", "ok"))


def test_the_operators_word_wants_ring_and_simple():
    word = {**READY, "FORGIVE_GRADIENT_TRAFFIC": "all", "FORGIVE_RING_RANKS": "4"}
    assert "NCCL_ALGO=Ring" in only(report(**word), "algorithm", "warn")["remedy"]
    assert only(report(**word, NCCL_ALGO="Ring", NCCL_PROTO="Simple"), "algorithm", "ok")


def test_the_configuration_file_of_nccl_counts(tmp_path):
    file = tmp_path / "nccl.conf"
    file.write_text("# ours\nNCCL_SOCKET_IFNAME=lo\nNCCL_NET=Socket\n")
    found = report(NCCL_NET_PLUGIN=PLUGIN, NCCL_NET="forgive", NCCL_CONF_FILE=str(file))
    assert found["devices"] == ["lo"]
    assert str(file) in only(found, "NCCL_SOCKET_IFNAME", "info")["text"]
    assert only(found, "NCCL_NET", "ok") if len(findings(found, "NCCL_NET")) == 1 else \
        [f["status"] for f in findings(found, "NCCL_NET")] == ["info", "ok"]


# ---- Other plugins, and NCCL ----

def test_another_plugin_in_its_place_fails():
    found = report(NCCL_NET_PLUGIN=OTHER_PLUGIN, NCCL_NET="forgive")
    assert found["exit_status"] == 2
    assert "another plugin (fake" in only(found, "NCCL_NET_PLUGIN", "fail")["text"]
    assert found["library"] == os.path.realpath(PLUGIN)


def test_a_name_that_no_plugin_has_fails():
    text = only(report(NCCL_NET_PLUGIN="nosuch"), "NCCL_NET_PLUGIN", "fail")["text"]
    assert "nosuch" in text and "No such file" in text


def test_a_name_is_found_on_the_loaders_path(tmp_path):
    shutil.copy(PLUGIN, tmp_path / "libnccl-net-forgive.so")
    found = report(NCCL_NET_PLUGIN="forgive", NCCL_NET="forgive", LD_LIBRARY_PATH=str(tmp_path))
    assert found["library"] == str((tmp_path / "libnccl-net-forgive.so").resolve())
    assert only(found, "NCCL_NET_PLUGIN", "ok")


def test_a_stranger_on_the_loaders_path_is_a_warning_unless_ours_is_named(tmp_path):
    shutil.copy(OTHER_PLUGIN, tmp_path / "libnccl-net.so")
    assert only(report(LD_LIBRARY_PATH=str(tmp_path)), "libnccl-net.so", "warn")
    assert only(report(**READY, LD_LIBRARY_PATH=str(tmp_path)), "libnccl-net.so", "info")


@pytest.mark.parametrize("version, most", ((21300, 6), (21804, 6), (21903, 7), (22005, 8), (22304, 8), (22403, 9),
                                           (22602, 10), (22807, 11), (23003, 12), (23203, 12)))
def test_the_interface_in_use_follows_from_nccls_version(nccl, version, most):
    found = report(**READY, **nccl, FAKE_NCCL=str(version))
    in_use = max(v for v in found["net_versions"] if v <= most)
    assert f"v{in_use}" in only(found, "loader path", "ok")["text"]
    assert any(f"ncclNet v{in_use}," in f["text"] for f in findings(found, "init", "ok"))


def test_an_nccl_that_is_too_old_fails(nccl):
    found = report(**READY, **nccl, FAKE_NCCL="21003")
    assert found["exit_status"] == 2 and "2.10.3" in only(found, "loader path", "fail")["text"]


def test_a_path_is_refused_where_nccl_takes_only_names(nccl):
    found = report(**READY, **nccl, FAKE_NCCL="21903")
    assert any("takes only a name" in f["text"] for f in findings(found, "NCCL_NET_PLUGIN", "fail"))


def test_an_nccl_that_hides_errors_is_a_warning(nccl):
    assert only(report(**READY, **nccl, FAKE_NCCL="22105"), "errors", "warn")["remedy"] == "FORGIVE_ABORT_ON_ERROR=1"
    assert not findings(report(**READY, **nccl, FAKE_NCCL="22105", FORGIVE_ABORT_ON_ERROR="1"), "errors")


def test_an_nccl_that_forgets_the_name_is_a_warning_unless_it_finds_the_link(nccl, tmp_path):
    own = {**READY, **nccl, "FAKE_NCCL": "22807"}
    assert "NCCL_NET_PLUGIN_REF_COUNT=1" in only(report(**own), "reload", "warn")["remedy"]
    assert not findings(report(**own, NCCL_NET_PLUGIN_REF_COUNT="1"), "reload")
    (tmp_path / "libnccl-net.so").symlink_to(PLUGIN)
    assert not findings(report(**own), "reload")


def test_an_nccl_of_a_python_package_is_found(tmp_path):
    folder = tmp_path / "nvidia" / "nccl" / "lib"
    folder.mkdir(parents=True)
    shutil.copy(FAKE_NCCL, folder / "libnccl.so.2")
    found = report(**READY, PYTHONPATH=str(tmp_path), FAKE_NCCL="22304")
    assert any(str(folder) in f["text"] and "2.23.4" in f["text"] for f in findings(found, "Python", "ok"))


# ---- It never hangs, never crashes, and leaves nothing behind ----

# Only the question that hangs may run into its limit: a slow machine needs its time for the others.
@pytest.mark.parametrize("mode, limit_s, name, words", (
    ("hang-load", 0.5, "load", "did not answer within 0.5 s"),
    ("crash-load", 30, "load", "signal 6"),
    ("hang-init", 5, "init", "did not answer within 5 s"),
    ("crash-init", 30, "init", "the last words"),
))
def test_a_library_that_hangs_or_crashes_is_a_finding(tmp_path, mode, limit_s, name, words):
    found = report("--library", FAKE_PLUGIN, "--timeout", limit_s, FAKE_PLUGIN=mode, cwd=tmp_path)
    assert found["exit_status"] == 2 and words in only(found, name, "fail")["text"]
    assert not list(tmp_path.iterdir())  # no core file


def test_a_library_that_never_stops_talking_is_cut_short():
    found = report("--library", FAKE_PLUGIN, FAKE_PLUGIN="loud")
    lines = findings(found, "init", "warn")
    assert 0 < len(lines) <= 200 and lines[0]["text"] == "line 0 of many"


def test_processes_that_a_library_starts_end_with_the_question(tmp_path):
    file = tmp_path / "pid"
    report("--library", FAKE_PLUGIN, FAKE_PLUGIN="orphan", FAKE_PLUGIN_PID=str(file))
    pid = int(file.read_text(encoding="utf-8"))
    for _ in range(3000):
        if not is_running(pid):
            return
        subprocess.run(["sleep", "0.01"], check=True)
    pytest.fail(f"process {pid} is still running")


def test_no_file_is_written_and_a_wrong_file_name_is_still_refused(tmp_path):
    stats, log = tmp_path / "stats.%p", tmp_path / "fault.log"
    found = report(**READY, FORGIVE_STATS=str(stats), FORGIVE_FAULT="trim=0.1", FORGIVE_FAULT_LOG=str(log),
                   cwd=tmp_path)
    assert found["exit_status"] == 0 and not findings(found, "FORGIVE_STATS")
    assert not list(tmp_path.iterdir())
    refused = report(**READY, FORGIVE_STATS=str(tmp_path / "stats.%z"))
    assert str(tmp_path / "stats.%z") in "".join(
        f"{f['name']}={f['text']}" for f in findings(refused, "FORGIVE_STATS", "fail"))


def test_a_folder_that_statistics_cannot_be_written_to_is_named():
    found = report(**READY, FORGIVE_STATS="/no/such/folder/x.%p")
    assert "/no/such/folder" in only(found, "FORGIVE_STATS", "warn")["text"]


@pytest.mark.skipif(os.geteuid() != 0 or shutil.which("setpriv") is None, reason="dropping a capability needs root")
def test_without_the_capability_cut_packets_are_said_to_be_lost():
    wrapper = ("setpriv", "--bounding-set=-net_raw", "--inh-caps=-net_raw")
    assert "CAP_NET_RAW" in only(report(**READY, wrapper=wrapper), "raw socket", "warn")["remedy"]
    assert only(report(**READY, wrapper=wrapper, FORGIVE_TRIM="0"), "raw socket", "info")


def test_a_small_limit_of_open_files_is_a_warning():
    found = report(**READY, wrapper=("prlimit", "--nofile=512:512"))
    assert "ulimit -n" in only(found, "open files", "warn")["remedy"]


@pytest.mark.parametrize("arguments, words", ((("--frobnicate",), "--frobnicate"), (("--timeout", "0"), "--timeout 0"),
                                              (("--timeout", "nan"), "--timeout"), (("--library",), "--library")))
def test_bad_input_is_one_line_and_its_own_status(arguments, words):
    run = doctor(*arguments)
    assert run.returncode == 3 and not run.stdout
    assert len(run.stderr.splitlines()) == 1 and words in run.stderr


def test_a_library_that_is_not_there_is_named():
    found = report("--library", "/no/such/library.so")
    assert found["exit_status"] == 2 and "/no/such/library.so" in only(found, "load", "fail")["text"]
    assert found["library"] is None


def test_a_closed_standard_output_is_an_error():
    with open("/dev/full", "w", encoding="utf-8") as full:
        run = subprocess.run([DOCTOR], env=environment({}), stdout=full, stderr=subprocess.PIPE, text=True, timeout=60,
                             check=False)
    assert run.returncode == 3 and "standard output" in run.stderr
