# SPDX-License-Identifier: Apache-2.0
# How the testbed's Python programs begin and end, each of them: nothing runs long enough to need a build.
import os
import signal
import subprocess
import sys

import pytest

ROOT = os.path.realpath(os.path.join(os.path.dirname(__file__), "..", ".."))
TESTBED = os.path.join(ROOT, "testbed")
sys.path[:0] = [os.path.join(TESTBED, "entry_lib"), os.path.join(TESTBED, "demo_lib")]

import entry  # noqa: E402
import parameters  # noqa: E402
from errors import DemoError  # noqa: E402
from whole_files import write_whole  # noqa: E402

LAB = os.path.join(TESTBED, "lab", "lab")
PROGRAMS = {"demo": os.path.join(TESTBED, "demo_lib", "main.py"),
            "train": os.path.join(TESTBED, "train_lib", "main.py"),
            "report": os.path.join(TESTBED, "simulator", "report_lib", "main.py"), "lab": LAB}
every_program = pytest.mark.parametrize("name", PROGRAMS)
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="the lab needs root")

# A program that prints and does nothing else, with `begin` and `run` around it.
PRINTING = """
import sys
sys.path.insert(0, {folder!r})
import entry
entry.begin()
sys.exit(entry.run("program", lambda words: print({text!r}) or 0))
"""


def run(name, *words, **options):
    options = {"stdout": subprocess.PIPE, **options}
    return subprocess.run([sys.executable, "-B", PROGRAMS[name], *words], stderr=subprocess.PIPE, text=True,
                          timeout=60, check=False, **options)


def printing(text="a line", **options):
    script = PRINTING.format(folder=os.path.join(TESTBED, "entry_lib"), text=text)
    return subprocess.run([sys.executable, "-B", "-c", script], stderr=subprocess.PIPE, timeout=60, check=False,
                          **options)


@pytest.mark.parametrize("text, number", [("7", 7), ("007", 7), ("", None), ("-1", None), ("+1", None), ("1_0", None),
                                          ("\u00b2", None), ("\u0661", None), (" 1", None), ("1 ", None),
                                          ("0x10", None), ("1e3", None), ("nan", None), ("9" * 5000, None)])
def test_a_whole_number_is_decimal_digits_and_nothing_else(text, number):
    assert entry.whole_number(text) == number


@pytest.mark.parametrize("words, named", [([], None), (["--a", "b"], None), (["--a="], "--a"), (["--a", ""], "--a"),
                                          (["up", ""], "''"), (["--a=b"], None)])
def test_an_empty_word_is_found(words, named):
    assert entry.empty_word(words) == named


@pytest.mark.parametrize("words, line", [
    (["--steps", "x"], "argument --steps: x: give a number from 1 to 9 (some/program --help lists the options)"),
    (["--other"], "unrecognized arguments: --other (some/program --help lists the options)"),
    (["--steps="], "--steps: its value is empty: give one, or leave it out")])
def test_what_a_command_line_lacks_is_one_line_of_the_programs_own_error(capsys, words, line):
    parser = entry.Parser(failure=DemoError, prog="some/program")
    parser.add_argument("--steps", type=entry.number_between(1, 9))
    with pytest.raises(DemoError) as error:
        parser.parse_args(words)
    assert str(error.value) == line
    assert capsys.readouterr() == ("", "")
    assert parser.parse_args(["--steps", "9"]).steps == 9


def test_a_file_is_replaced_whole_by_its_own_name_and_by_a_links(tmp_path):
    file, link = tmp_path / "file", tmp_path / "link"
    link.symlink_to(file)
    for path, text in ((file, b"first"), (file, b"second"), (link, b"third")):
        write_whole(str(path), text)
        assert file.read_bytes() == text
    assert link.is_symlink() and sorted(os.listdir(tmp_path)) == ["file", "link"]


def test_a_device_and_a_pipe_are_written_to_and_stay_what_they_are(tmp_path):
    full, pipe = tmp_path / "full", tmp_path / "pipe"
    full.symlink_to("/dev/full")
    with pytest.raises(OSError, match="No space left"):
        write_whole(str(full), b"text")
    assert full.is_symlink() and full.is_char_device()
    os.mkfifo(pipe)
    with subprocess.Popen(["cat", pipe], stdout=subprocess.PIPE) as reader:
        write_whole(str(pipe), b"text")
        assert reader.communicate(timeout=10)[0] == b"text"
    assert pipe.is_fifo() and sorted(os.listdir(tmp_path)) == ["full", "pipe"]


@every_program
def test_help_that_cannot_be_written_is_one_line_that_names_standard_output(name):
    with open("/dev/full", "w", encoding="ascii") as full:
        done = run(name, "--help", stdout=full)
    assert done.returncode == 1
    assert done.stderr.count("\n") == 1 and "standard output: No space left" in done.stderr


@every_program
def test_standard_output_may_be_closed(name):
    done = run(name, "--help", stdout=None, preexec_fn=lambda: os.close(1))
    assert (done.returncode, done.stderr) == (0, "")


def test_a_reader_that_has_gone_is_named():
    reading, writing = os.pipe()
    os.close(reading)
    done = printing(stdout=writing)
    os.close(writing)
    assert done.returncode == 1 and done.stderr == b"program: standard output: Broken pipe\n"


def test_a_closed_standard_output_is_not_given_to_the_next_file(tmp_path):
    script = PRINTING.format(folder=os.path.join(TESTBED, "entry_lib"), text="a line").replace(
        "print(", f"open({str(tmp_path / 'file')!r}, 'w', buffering=1).write('mine') and print(")
    subprocess.run([sys.executable, "-B", "-c", script], preexec_fn=lambda: os.close(1), timeout=60, check=True)
    assert (tmp_path / "file").read_text() == "mine"


def test_what_a_character_set_lacks_is_printed_as_a_question_mark():
    environment = {**os.environ, "PYTHONIOENCODING": "latin-1", "PYTHONUTF8": "0"}
    done = printing("\u2588 \u00fc", stdout=subprocess.PIPE, env=environment)
    assert (done.returncode, done.stdout, done.stderr) == (0, b"? \xfc\n", b"")


@every_program
def test_an_empty_value_is_refused_in_one_line_that_names_it(name):
    words = {"lab": ["up", "--config="], "report": ["folder", "--output", ""]}.get(name, ["--config", ""])
    done = run(name, *words)
    assert done.returncode == 1
    assert done.stderr.count("\n") == 1
    assert "its value is empty" in done.stderr and ("--output" if name == "report" else "--config") in done.stderr


@pytest.mark.parametrize("name, option", [("demo", "--steps"), ("train", "--steps"), ("train", "--ranks"),
                                          ("train", "--seed")])
@pytest.mark.parametrize("text", ["\u00b2", "1_0", "99999999999999999999999", "nan", "0"])
def test_a_number_that_is_none_is_refused_in_one_line_that_names_the_option(name, option, text):
    done = run(name, option, text, "--userspace" if name == "demo" else "--local")
    assert done.returncode == 1
    assert done.stderr.count("\n") == 1 and option in done.stderr and text in done.stderr


@pytest.mark.parametrize("text", ["x", "1:", "1:2:3", "\u00b2:1"])
def test_a_training_refuses_a_death_that_is_not_a_rank_and_a_step(text):
    done = run("train", "--local", "--die", text)
    assert done.returncode == 1 and done.stderr.count("\n") == 1 and "--die" in done.stderr


@needs_root
@pytest.mark.parametrize("flag", ["--hosts", "--ecn-min-bytes", "--rate-mbps", "--dscp-data"])
@pytest.mark.parametrize("text", ["inf", "nan", "1e999", "1_0", "\u0661", "0x10", "9" * 5000])
def test_the_lab_refuses_a_number_that_is_none_in_one_line_that_names_the_flag(flag, text):
    done = run("lab", "up", "--name", "entrytest", f"{flag}={text}")
    if done.returncode == 0:
        run("lab", "down", "--name", "entrytest")
    assert done.returncode == 1
    assert done.stderr.count("\n") == 1 and flag in done.stderr


@pytest.mark.parametrize("signal_number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_before_anything_has_begun_says_nothing(signal_number):
    script = PRINTING.format(folder=os.path.join(TESTBED, "entry_lib"), text="x").replace(
        "lambda words: print", "lambda words: __import__('os').kill(__import__('os').getpid(), "
                               f"{int(signal_number)}) or __import__('time').sleep(30) or print")
    done = subprocess.run([sys.executable, "-B", "-c", script], capture_output=True, timeout=60, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (-signal_number, b"", b"")


DEMO_FILE = os.path.join(TESTBED, "demo.toml")


@pytest.mark.parametrize("old, new, named", [
    ("critical = [1, 2, 3, 20]", 'critical = ["1"]', "run.critical"),
    ("critical = [1, 2, 3, 20]", "critical = [-1]", "run.critical"),
    ("\nranks = 4", "\nranks = 5", "run.ranks"),
    ("\nranks = 4", "\nranks = 1", "run.ranks"),
    ("compute_ms = 20", "compute_ms = -1", "run.compute_ms"),
    ("bytes = 1750000", "bytes = 9223372036854775807", "run.bytes"),
    ('algorithms = ["direct", "ring"]\nlight', "algorithms = [1]\nlight", "run.algorithms"),
    ("[policy.plain]", "plain = 3\n[policy.plain2]", "policy.plain"),
    ("[quick]  #", "quick = 3\n[quick2]  #", "quick"),
])
def test_a_parameter_file_that_makes_no_sense_is_an_error_that_names_the_key(tmp_path, old, new, named):
    with open(DEMO_FILE, encoding="utf-8") as file:
        content = file.read()
    assert content.count(old) == 1
    changed = content.replace(old, new)
    if " = 3" in new:  # a key of the top level stands before all tables
        key, _, table = new.partition("\n")
        changed = (f"{key}\n" if named == "quick" else "") + content.replace(old, table)
        if named != "quick":
            changed = changed.replace("[policy.tcp]", f"[policy]\n{key}\n[policy.tcp]")
    path = tmp_path / "demo.toml"
    path.write_text(changed, encoding="utf-8")
    with pytest.raises(DemoError, match=f".*{named}"):
        parameters.load(str(path), quick=named == "quick")
