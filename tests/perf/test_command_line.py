# SPDX-License-Identifier: Apache-2.0
# Bad input: one clear line on standard error, exit status 2, nothing written.
import os
import resource
import shutil
import socket
import subprocess

import pytest
from harness import FAKE_NET, FAKE_NET_V6, PERF, environment, perf, read_json

TWO = ("--plugin", "tcp", "--ranks", "2")


def refused(run, *words):
    assert run.returncode == 2, run.stdout + run.stderr
    lines = run.stderr.splitlines()
    assert len(lines) == 1 and lines[0].startswith("forgive_perf: "), run.stderr
    for word in words:
        assert word in lines[0]


@pytest.mark.parametrize("arguments, words", (
    ((), ("--plugin", "--help")),
    (("--plugin", "tcp"), ("--ranks",)),
    (("--plugin", "tcp", "--ranks", "1"), ("--ranks 1", "2")),
    (("--plugin", "tcp", "--ranks", "2", "--rank", "0"), ("--ranks",)),
    (("--plugin", "tcp", "--rank", "0", "--world", "2"), ("--rendezvous",)),
    (("--plugin", "tcp", "--rank", "2", "--world", "2", "--rendezvous", "h:1"), ("--rank 2", "--world 2")),
    ((*TWO, "-b", "0"), ("-b 0",)),
    ((*TWO, "-b", "12Q"), ("-b 12Q", "64K")),
    ((*TWO, "-e", "3"), ("-e 3",)),
    ((*TWO, "-b", "8K", "-e", "4K"), ("-b 8K", "-e 4K")),
    ((*TWO, "-f", "1"), ("-f 1",)),
    ((*TWO, "-n", "0"), ("-n 0",)),
    ((*TWO, "--collective", "all_to_all"), ("all_to_all", "all_reduce")),
    ((*TWO, "--algorithm", "tree"), ("tree", "ring")),
    ((*TWO, "--api", "v5"), ("v5", "v12")),
    ((*TWO, "--scenario", "calm"), ("calm", "mixed")),
    ((*TWO, "--steps", "2", "--critical", "1,x"), ("--critical 1,x",)),
    ((*TWO, "--json", "/no/such/folder/x"), ("--json /no/such/folder/x",)),
    ((*TWO, "--frobnicate"), ("--frobnicate",)),
    ((*TWO, "--seed", "-1"), ("--seed", "-1")),
    ((*TWO, "--seed", "99999999999999999999"), ("--seed", "99999999999999999999")),
    ((*TWO, "--device", ""), ("--device",)),
    ((*TWO, "--compute-ms", ""), ("--compute-ms",)),
    ((*TWO, "--json", ""), ("--json", "empty")),
    ((*TWO, "--trims", ""), ("--trims", "empty")),
    ((*TWO, "--api", ""), ("--api", "empty")),
    ((*TWO, "--rank", "-1"), ("--rank -1",)),
    (("--plugin", "", "--ranks", "2"), ("--plugin", "empty")),
    ((*TWO, "--collective", "all_gather", "-b", "4"), ("4 bytes", "2 ranks")),
))
def test_a_bad_argument_is_named(arguments, words):
    refused(perf(*arguments), *words)


@pytest.mark.skipif(os.geteuid() == 0 and shutil.which("setpriv") is None, reason="root may write everywhere")
def test_a_file_that_could_not_be_replaced_in_the_end_is_refused_at_once(tmp_path):
    file = tmp_path / "file"
    file.write_text("before", encoding="utf-8")
    tmp_path.chmod(0o555)
    wrapper = ("setpriv", "--bounding-set=-dac_override", "--inh-caps=-dac_override") if os.geteuid() == 0 else ()
    refused(perf(*TWO, "-b", "64", "-e", "64", "--json", file, wrapper=wrapper), f"--json {file}: cannot write there")
    grows = perf(*TWO, "-b", "64", "-e", "64", "--ledger", file, wrapper=wrapper)
    assert grows.returncode == 0, grows.stderr
    assert file.read_text(encoding="utf-8").startswith("# operation")


def test_a_plugin_that_is_not_there_is_named():
    refused(perf("--plugin", "/no/such/plugin.so", "--ranks", 2), "/no/such/plugin.so", "--plugin")


def test_a_file_that_is_no_library_is_named(tmp_path):
    file = tmp_path / "plugin.so"
    file.write_text("not a library")
    refused(perf("--plugin", file, "--ranks", 2), str(file))


def test_a_library_that_is_no_plugin_is_named():
    refused(perf("--plugin", "libm.so.6", "--ranks", 2), "libm.so.6", "no ncclNet plugin")


def test_a_library_for_another_machine_is_not_said_to_be_missing(tmp_path):
    with open(FAKE_NET, "rb") as file:
        content = bytearray(file.read())
    content[18] ^= 0xff  # the machine of an ELF file
    library = tmp_path / "other.so"
    library.write_bytes(content)
    refused(perf("--plugin", library, "--ranks", 2), str(library), "another kind of machine")


def test_a_table_that_cannot_be_written_is_one_line_and_a_failure():
    with open("/dev/full", "w", encoding="ascii") as full:
        for arguments in (("--help",), ("--plugin", "tcp", "--ranks", "2", "-b", "4K", "-e", "4K", "-n", "1")):
            run = subprocess.run([PERF, *arguments], env=environment(), stdout=full, stderr=subprocess.PIPE,
                                 text=True, timeout=60, check=False)
            assert run.returncode == 3
            assert len(run.stderr.splitlines()) == 1 and "standard output: " in run.stderr, run.stderr


def test_a_closed_standard_output_is_not_given_to_the_results(tmp_path):
    result = tmp_path / "result.json"
    run = subprocess.run([PERF, "--plugin", "tcp", "--ranks", "2", "-b", "4K", "-e", "4K", "-n", "1", "--json",
                          result], env=environment(), preexec_fn=lambda: os.close(1), timeout=60, check=False)
    assert run.returncode == 0 and len(read_json(result)) == 1


@pytest.mark.parametrize("files", (5, 6, 7, 8, 9, 10, 12))
def test_too_few_descriptors_end_in_one_line_or_suffice(files):
    run = subprocess.run([PERF, "--plugin", "tcp", "--ranks", "2", "-b", "4K", "-e", "4K", "-n", "1", "--timeout",
                          "5"], env=environment(), capture_output=True, text=True, timeout=60, check=False,
                         preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (files, files)))
    assert len(run.stderr.splitlines()) == (0 if run.returncode == 0 else 1), run.stderr


def test_a_version_that_the_plugin_has_not_is_named():
    refused(perf("--plugin", FAKE_NET_V6, "--api", "v8", "--ranks", 2), "ncclNetPlugin_v8", "--api")


def test_a_device_that_the_plugin_has_not_is_named():
    refused(perf("--plugin", FAKE_NET, "--device", 1, "--ranks", 2), "--device 1")


@pytest.mark.parametrize("variable, value", (("FORGIVE_P_LOW", "much"), ("FORGIVE_P_HIGH", "1.5"),
                                             ("FORGIVE_ELIGIBLE", "some"), ("FORGIVE_GRADIENT_TRAFFIC", "yes"),
                                             ("FORGIVE_INTERFACE", "nosuch0")))
def test_a_bad_variable_is_named(variable, value):
    refused(perf(*TWO, env={variable: value}), variable, value)


def test_a_rendezvous_that_nobody_holds_is_named():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))  # bound, not listening: refused
        where = f"127.0.0.1:{probe.getsockname()[1]}"
        run = perf("--plugin", "tcp", "--rank", 1, "--world", 2, "--rendezvous", where, "--timeout", 1)
    refused(run, where, "rank 1")


def test_a_rendezvous_where_nobody_comes_ends():
    run = perf("--plugin", "tcp", "--rank", 0, "--world", 3, "--rendezvous", "127.0.0.1:0", "--timeout", 1)
    refused(run, "1, 2")


def test_a_busy_port_is_named():
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        holder.listen()
        where = f"127.0.0.1:{holder.getsockname()[1]}"
        run = perf("--plugin", "tcp", "--rank", 0, "--world", 2, "--rendezvous", where, "--timeout", 1)
    refused(run, where)


def test_ranks_with_other_options_are_told(tmp_path):
    rendezvous = f"unix:{tmp_path}/rendezvous"
    started = []
    for rank, size in ((0, "64K"), (1, "32K")):
        command = [PERF, "--plugin", "tcp", "--rank", str(rank), "--world", "2", "--rendezvous", rendezvous,
                   "-b", size, "-e", "64K", "--timeout", "20"]
        started.append(subprocess.Popen(command, env=environment(), stderr=subprocess.PIPE, text=True))
    for process in started:
        _, error = process.communicate(timeout=60)
        assert process.returncode == 2 and "rank 1 was started with other options" in error


def test_a_stranger_at_the_rendezvous_disturbs_nobody(tmp_path):
    path = f"{tmp_path}/rendezvous"
    command = [PERF, "--plugin", "tcp", "--world", "2", "--rendezvous", f"unix:{path}", "-b", "4K", "-e", "4K"]
    first = subprocess.Popen([*command, "--rank", "0"], env=environment(), stdout=subprocess.PIPE,
                             stderr=subprocess.PIPE, text=True)
    for _ in range(200):
        stranger = socket.socket(socket.AF_UNIX)
        try:
            stranger.connect(path)
            break
        except OSError:
            stranger.close()
            subprocess.run(["sleep", "0.05"], check=True)
    stranger.sendall(b"GET / HTTP/1.1\r\nHost: nobody\r\n\r\n")
    second = subprocess.run([*command, "--rank", "1"], env=environment(), timeout=60, check=False)
    _, error = first.communicate(timeout=60)
    stranger.close()
    assert (first.returncode, second.returncode) == (0, 0), error


def test_strangers_that_hold_the_line_at_the_rendezvous_keep_nobody_out(tmp_path):
    path = f"{tmp_path}/rendezvous"
    # Waiting for each of them in turn would take longer than the ranks wait.
    command = [PERF, "--plugin", "tcp", "--world", "2", "--rendezvous", f"unix:{path}", "-b", "4K", "-e", "4K",
               "--timeout", "10"]
    first = subprocess.Popen([*command, "--rank", "0"], env=environment(), stdout=subprocess.DEVNULL,
                             stderr=subprocess.PIPE, text=True)
    strangers = []
    for _ in range(200):
        stranger = socket.socket(socket.AF_UNIX)
        try:
            stranger.connect(path)
            strangers.append(stranger)
        except OSError:
            stranger.close()
            subprocess.run(["sleep", "0.05"], check=True)
        if len(strangers) == 20:
            break
    second = subprocess.run([*command, "--rank", "1"], env=environment(), stdout=subprocess.DEVNULL, timeout=60,
                            check=False)
    _, error = first.communicate(timeout=60)
    for stranger in strangers:
        stranger.close()
    assert len(strangers) == 20 and (first.returncode, second.returncode) == (0, 0), error


def test_help_goes_to_standard_output():
    run = perf("--help")
    assert run.returncode == 0 and "--plugin" in run.stdout and not run.stderr
