# SPDX-License-Identifier: Apache-2.0
# The lab's commands: what they leave behind, what they say to bad input, what an interrupt does.
import os
import shutil
import signal
import subprocess
import tempfile
import time

import pytest
from conftest import BUILD, LAB, NAME, command, lab_up, one_line, run, traces

pytestmark = pytest.mark.usefixtures("nothing_left")


def test_down_leaves_nothing_of_a_lab_that_was_used():
    with lab_up("--hosts", "2") as lab:
        assert lab.exec("h0", "ping", "-c", "1", "-W", "5", "10.77.0.2").returncode == 0


def test_hosts_have_the_addresses_that_status_says():
    with lab_up("--hosts", "3") as lab:
        status = lab.status()
        assert [host["name"] for host in status["hosts"]] == ["h0", "h1", "h2", "burst"]
        for host in status["hosts"]:
            shown = lab.exec(host["name"], "ip", "-o", "addr", "show", "dev", host["interface"]).stdout
            assert f" {host['ipv4']}/" in shown
            assert f" {host['ipv6']}/" in shown
        for address in (status["hosts"][1]["ipv4"], status["hosts"][1]["ipv6"]):
            assert lab.exec("h0", "ping", "-c", "1", "-W", "5", address).returncode == 0


def test_link_local_addresses_are_found_by_neighbour_discovery():
    with lab_up("--hosts", "2") as lab:
        shown = lab.exec("h1", "ip", "-6", "-o", "addr", "show", "dev", "fgv0", "scope", "link").stdout
        address = shown.split()[3].partition("/")[0]
        assert lab.exec("h0", "ping", "-c", "1", "-W", "5", f"{address}%fgv0").returncode == 0


def test_the_log_of_trims_may_have_spaces_and_umlauts_in_its_name(tmp_path):
    log = tmp_path / "a l\u00f6g" / "of trims.log"
    log.parent.mkdir()
    with lab_up("--hosts", "1", "--trims-log", str(log)) as lab:
        assert lab.status()["trims_log"] == str(log)
        assert log.exists() and [entry.name for entry in log.parent.iterdir()] == [log.name]


def test_down_of_a_lab_that_is_not_up_succeeds():
    assert run("down", "--name", "nosuch").returncode == 0


def test_down_ends_what_still_runs_in_the_lab():
    with lab_up("--hosts", "2") as lab:
        # It ignores the polite signal.
        sleeper = lab.start("h0", "sh", "-c", "trap '' TERM; echo here; while :; do sleep 60; done")
        assert sleeper.stdout.readline() == "here\n"
    assert sleeper.wait(timeout=10) != 0
    sleeper.stdout.close()


def test_exec_gives_back_the_command_s_own_exit_status():
    with lab_up("--hosts", "2") as lab:
        assert lab.exec("h0", "sh", "-c", "exit 7").returncode == 7
        missing = lab.exec("h0", "no-such-command")
        assert missing.returncode == 127
        assert "no-such-command" in missing.stderr
        assert "no host 'h9'" in one_line(lab.exec("h9", "true"))
        assert "no command" in one_line(run("exec", "--name", NAME, "h0"))


def test_a_second_up_of_the_same_name_is_refused_and_harms_nothing():
    with lab_up("--hosts", "2") as lab:
        assert "already up" in one_line(run("up", "--name", NAME, "--build", BUILD))
        assert lab.exec("h0", "ping", "-c", "1", "-W", "5", "10.77.0.2").returncode == 0


def test_two_labs_do_not_see_each_other():
    with (lab_up("--hosts", "2", name=NAME + "one") as one,
          lab_up("--hosts", "2", "--rtt-ms", "0", name=NAME + "two") as two):
        before = two.port("h1")["other"]
        assert one.exec("h0", "ping", "-c", "500", "-i", "0.002", "-W", "5", "-q", "10.77.0.2").returncode == 0
        assert one.port("h1")["other"] >= 500
        # Its own hosts' announcements may still arrive there, a few a second at most.
        assert two.port("h1")["other"] < before + 500
        assert one.status()["trims_log"] != two.status()["trims_log"]


@pytest.mark.parametrize("words", [("status",), ("status", "--json"), ("exec", "h0", "--", "true"),
                                   ("burst", "--to", "h0", "--rate-mbps", "1", "--on-ms", "1", "--off-ms", "1",
                                    "--duration-s", "1")])
def test_a_lab_that_is_not_up_is_one_clear_line(words):
    words = (words[0], "--name", NAME, *words[1:])
    assert f"lab '{NAME}' is not up: start it with `lab up --name {NAME}`" in one_line(run(*words))


BAD_INPUT = [
    (("up", "--hosts", "0"), "--hosts must be a whole number from 1 to 60, not 0"),
    (("up", "--hosts", "many"), "--hosts must be a whole number from 1 to 60, not 'many'"),
    (("up", "--rate-mbps", "-1"), "--rate-mbps must be a number from 1 to 40000, not -1"),
    (("up", "--rtt-ms", "nan"), "--rtt-ms must be a number from 0 to 2000"),
    (("up", "--trim-length", "100"), "--trim-length must be a whole number from 118 to 9000, not 100"),
    (("up", "--trim-mode", "half"), "--trim-mode must be one of full, stale, sai, raw, not 'half'"),
    (("up", "--ecn-min-bytes", "2000", "--ecn-max-bytes", "1000"), "ecn_max_bytes 1000 is below ecn_min_bytes 2000"),
    (("up", "--dscp-trimmed", "10"), "must be three different code points"),
    (("up", "--name", "no-hyphens"), "not 'no-hyphens'"),
    (("up", "--name", "../x"), "not '../x'"),
    (("up", "--build", "/nonexistent"), "no testbed/lab/forgive_lab_switch under /nonexistent"),
    (("up", "--config", "/nonexistent.toml"), "/nonexistent.toml: No such file or directory"),
    (("up", "--config", LAB), "not TOML"),
    (("up", "--variant", "light"), "--variant needs --config"),
    (("up", "--frobnicate"), "--frobnicate"),
    (("frobnicate",), "frobnicate"),
    ((), "command"),
    (("down", "--", "x"), "takes no command"),
]


@pytest.mark.parametrize("words, said", BAD_INPUT)
def test_bad_input_is_one_line_that_names_it(words, said):
    assert said in one_line(run(*words))


@pytest.mark.parametrize("text, said", [
    ("[lab]\nhostz = 3\n", "lab.hostz is not a parameter"),
    ("[lab]\nhosts = 3.5\n", "lab.hosts must be a whole number"),
    ("[lab]\nhosts = true\n", "lab.hosts must be a whole number"),
    ("[lab]\ntrim = 1\n", "lab.trim must be true or false"),
    ("[lab\n", "not TOML"),
])
def test_a_bad_file_is_one_line_that_names_file_and_key(tmp_path, text, said):
    path = tmp_path / "bad.toml"
    path.write_text(text)
    line = one_line(run("up", "--config", str(path)))
    assert str(path) in line and said in line


def test_flags_go_before_the_variant_and_the_variant_before_the_file(tmp_path):
    path = tmp_path / "good.toml"
    path.write_text("[lab]\nhosts = 2\nrate_mbps = 100\nrtt_ms = 0\n[light.lab]\nrate_mbps = 200\nrtt_ms = 1\n"
                    "[demo]\nsteps = 20\n")
    with lab_up("--config", str(path), "--variant", "light", "--rtt-ms", "2") as lab:
        parameters = lab.status()["parameters"]
        assert (parameters["hosts"], parameters["rate_mbps"], parameters["rtt_ms"]) == (2, 200, 2)
        assert parameters["bdp_bytes"] == 50000
    assert "no variant 'heavy'" in one_line(run("up", "--config", str(path), "--variant", "heavy"))


@pytest.mark.parametrize("variant", [(), ("--variant", "light")])
def test_the_committed_configuration_is_accepted(variant):
    with lab_up("--config", os.path.join(os.path.dirname(LAB), "dilated.toml"), *variant) as lab:
        assert lab.status()["parameters"]["bdp_bytes"] == 250000


def test_up_without_root_is_one_clear_line_and_leaves_nothing():
    # A copy that everybody may read, wherever the sources are.
    folder = tempfile.mkdtemp()
    try:
        for name in ("lab", "entry_lib"):
            shutil.copytree(os.path.join(os.path.dirname(LAB), "..", name), os.path.join(folder, name))
        os.chmod(folder, 0o755)
        result = subprocess.run(["/usr/bin/env", "python3", os.path.join(folder, "lab", "lab"), "up"], user=65534,
                                capture_output=True, text=True, check=False)
        assert "needs root" in one_line(result)
    finally:
        shutil.rmtree(folder)


def test_an_up_that_fails_late_undoes_everything():
    # The loader has attached its programs when it finds that it cannot write there.
    line = one_line(run("up", "--name", NAME, "--build", BUILD, "--trims-log", "/nonexistent/trims.log"))
    assert "/nonexistent/trims.log" in line


def start_up():
    return subprocess.Popen(command("up", "--name", NAME, "--build", BUILD), stderr=subprocess.PIPE,
                            stdout=subprocess.PIPE, text=True, start_new_session=True)


def wait_for(what, process):
    """Until a trace of the lab is there, so that the interrupt meets an `up` that has begun."""
    while process.poll() is None and not what():
        time.sleep(0.001)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("wait_s", [0, 0.03, 0.1, 0.2, 0.3])
def test_an_interrupted_up_leaves_nothing(number, wait_s):
    process = start_up()
    wait_for(lambda: os.path.exists(f"/run/forgive-lab/{NAME}"), process)
    time.sleep(wait_s)
    # As a terminal does: to the whole group, its tools included.
    os.killpg(process.pid, number)
    _, errors = process.communicate(timeout=30)
    if process.returncode == 0:  # it had finished
        run("down", "--name", NAME)
    else:
        assert len(errors.splitlines()) == 1, errors
    # The fixture looks for what is left.


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_that_comes_when_the_lab_is_up_leaves_it_up(number):
    process = start_up()
    assert "is up" in process.stdout.readline()
    os.killpg(process.pid, number)
    _, errors = process.communicate(timeout=30)
    assert (process.returncode, errors) == (0, "")
    run("down", "--name", NAME)


@pytest.mark.parametrize("wait_s", [0, 0.03, 0.1, 0.2, 0.3])
def test_down_cleans_up_after_an_up_that_was_killed(wait_s):
    process = start_up()
    wait_for(lambda: os.path.exists(f"/run/forgive-lab/{NAME}"), process)
    time.sleep(wait_s)
    process.kill()
    process.communicate()
    if os.path.exists(f"/run/forgive-lab/{NAME}/lab.json"):
        assert run("status", "--name", NAME).returncode == 0
    else:
        assert f"lab down --name {NAME}" in one_line(run("up", "--name", NAME, "--build", BUILD))
    assert run("down", "--name", NAME).returncode == 0


def test_a_burst_schedule_follows_from_its_seed_alone():
    with lab_up("--hosts", "2", "--rtt-ms", "0"):
        def schedule(seed):
            result = run("burst", "--name", NAME, "--to", "all", "--rate-mbps", "10", "--on-ms", "20", "--off-ms",
                         "50", "--duration-s", "5", "--seed", seed, "--print-schedule")
            assert result.returncode == 0, result.stderr
            return [tuple(int(word) for word in line.split()) for line in result.stdout.splitlines()]

        first = schedule("1")
        assert first == schedule("1") != schedule("2")
        for start, length, _ in first[:-1]:
            assert 10000 <= length <= 30000
            assert start + length < 5000000
        assert {to for _, _, to in first} == {0, 1}


def test_a_burst_ends_with_its_duration_and_by_a_signal():
    words = ("burst", "--name", NAME, "--to", "h0", "--rate-mbps", "50", "--on-ms", "20", "--off-ms", "5")
    with lab_up("--hosts", "2", "--rtt-ms", "0") as lab:
        result = run(*words, "--duration-s", "2")
        assert result.returncode == 0, result.stderr
        sent = int(result.stdout.partition("sent ")[2].split()[0])
        assert sent > 0
        deadline = time.monotonic() + 30  # they are on their way
        while lab.port("h0")["other"] < sent:
            assert time.monotonic() < deadline
        endless = subprocess.Popen(command(*words, "--duration-s", "3600"), stdout=subprocess.PIPE)
        before = lab.port("h0")["other"]
        while lab.port("h0")["other"] < before + 100:
            assert endless.poll() is None
        endless.terminate()
        endless.communicate(timeout=30)


def test_bad_burst_options_are_one_line():
    with lab_up("--hosts", "2", "--rtt-ms", "0"):
        words = ("burst", "--name", NAME, "--on-ms", "20", "--off-ms", "5", "--duration-s", "1")
        assert "--rate-mbps" in one_line(run(*words, "--to", "h0"))
        assert "'fast'" in one_line(run(*words, "--to", "h0", "--rate-mbps", "fast"))
        assert "no host 'h7'" in one_line(run(*words, "--to", "h0,h7", "--rate-mbps", "1"))
        assert "--to" in one_line(run(*words, "--rate-mbps", "1"))


def test_nothing_of_a_lab_is_visible_in_the_user_s_own_network():
    before = traces()["links"]
    with lab_up("--hosts", "2"):
        assert traces()["links"] == before
