# SPDX-License-Identifier: Apache-2.0
"""The package without torch: the library's structures, detector, scheduler, settings, and what it says is wrong."""
import copy
import ctypes
import json
import os
import pathlib
import pickle
import random
import re
import subprocess
import sys

import pytest

import forgive_torch
from forgive_torch import environment
from forgive_torch import library as lib

SOURCE = pathlib.Path(os.environ["FORGIVE_SOURCE"])
C_TYPES = {"uint64_t": ctypes.c_uint64, "uint32_t": ctypes.c_uint32, "double": ctypes.c_double,
           "const uint64_t*": ctypes.POINTER(ctypes.c_uint64)}


def fields_in_the_header(name):
    """(name, type) of each field of a structure, as forgive.h declares them."""
    text = re.sub(r"/\*.*?\*/", "", (SOURCE / "plugin" / "forgive.h").read_text(encoding="utf-8"), flags=re.S)
    body = re.search(r"typedef struct \w+ \{([^}]*)\} " + name + ";", text).group(1)
    found = []
    for declaration in body.split(";")[:-1]:
        kind, names = re.match(r"\s*(const uint64_t\*|\w+)\s+(.*)", declaration.strip(), re.S).groups()
        found += [(each.strip(), C_TYPES[kind]) for each in names.split(",")]
    return found


@pytest.mark.parametrize("structure, name", [
    (lib.Stats, "forgive_stats_t"), (lib.StepStats, "forgive_step_stats_t"), (lib.Range, "forgive_range_t"),
    (lib.DetectorConfig, "forgive_detector_config_t"), (lib.DetectorStats, "forgive_detector_stats_t")])
def test_structures_are_those_of_the_header(structure, name):
    assert list(structure._fields_) == fields_in_the_header(name)


@pytest.mark.parametrize("kind", ["accordion", "dblp", "steps"])
def test_the_detector_decides_as_the_program_in_cpp_does(tmp_path, kind):
    rng = random.Random(5)
    norms = [rng.choice([0.0, 1.0, 2.0, 3.0, float("nan")]) if i % 3 else rng.uniform(0.5, 2) for i in range(300)]
    (tmp_path / "norms.csv").write_text("step,norm\n" + "".join(f"{i},{n!r}\n" for i, n in enumerate(norms, 1)),
                                        encoding="utf-8")
    subprocess.run([os.environ["FORGIVE_REPLAY"], tmp_path / "norms.csv", "--detector", kind, "--window", "2",
                    "--threshold", "0.4", "--json", tmp_path / "found.json"], check=True, stdout=subprocess.DEVNULL)
    found = json.loads((tmp_path / "found.json").read_text(encoding="utf-8"))
    detector = forgive_torch.Detector(kind, window=2, threshold=0.4)
    decided = []
    for step, norm in enumerate(norms, 1):
        decided.append(detector.is_critical(step))
        detector.observe(step, norm)
    assert decided == [step["critical"] for step in found["steps"]]
    assert True in decided and False in decided
    assert detector.stats()["bad_norms"] == found["bad_norms"] > 0


def test_a_layer_of_its_own_can_be_asked():
    detector = forgive_torch.Detector(window=1, layers=2)
    for step, norms in enumerate([(1, 8), (1, 8), (1, 4)], 1):
        detector.observe(step, norms)
    assert detector.is_critical(4) and detector.is_layer_critical(1) and not detector.is_layer_critical(0)


@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy, lambda each: pickle.loads(pickle.dumps(each))])
def test_a_copy_of_a_detector_or_of_a_scheduler_is_one_of_its_own_with_the_same_state(copied):
    detector = forgive_torch.Detector(window=1, threshold=0.25, steps=[7])
    for step in (1, 2):
        detector.observe(step, 8.0)
    other = copied(detector)
    assert (other.window, other.threshold, other.steps, other.state()) == (1, 0.25, [7], detector.state())
    other.observe(3, 1.0)
    assert other.is_critical(4) and not detector.is_critical(4)
    del other  # what the first one holds stays
    detector.observe(3, 8.0)
    assert detector.stats()["observed_steps"] == 3
    scheduler = forgive_torch.StepScheduler(detector, first_step=4, plugin=False)
    run_steps(scheduler, [8])
    if copied is not copy.copy:
        assert copied(scheduler).state_dict() == scheduler.state_dict()


def test_norms_may_be_numbers_of_any_kind():
    numpy = pytest.importorskip("numpy")
    detector = forgive_torch.Detector(window=1)
    for step, norm in enumerate([1, 1.0, numpy.float32(1), numpy.array(1.0), numpy.array([1.0]), (1.0,)], 1):
        detector.observe(step, norm)
    assert detector.stats()["observed_steps"] == 6 and not detector.is_critical(7)
    with pytest.raises(forgive_torch.ForgiveError, match="norms None: give a number"):
        detector.observe(7, None)


@pytest.mark.parametrize("call", [lambda d: d.observe(-1, 1.0), lambda d: d.is_critical(2**64),
                                  lambda d: d.is_layer_critical(2**32), lambda d: d.is_critical(1.5)])
def test_a_number_that_the_interface_cannot_hold_is_refused(call):
    with pytest.raises(forgive_torch.ForgiveError, match="give a whole number from 0 to"):
        call(forgive_torch.Detector())


def run_steps(scheduler, norms):
    classes = []
    for norm in norms:
        with scheduler.step() as step:
            step.norm = norm
        classes.append(step.critical)
    return classes


def test_a_restarted_scheduler_decides_as_one_that_never_stopped():
    norms = [8, 8, 8, 4, 4, 4, 6, 6, 1, 1, 1]
    make = lambda: forgive_torch.StepScheduler(forgive_torch.Detector(window=2), plugin=False)  # noqa: E731
    whole = run_steps(make(), norms)
    for stop in range(len(norms)):
        before, after = make(), make()
        classes = run_steps(before, norms[:stop])
        after.load_state_dict(before.state_dict())
        assert classes + run_steps(after, norms[stop:]) == whole
        assert after.next_step == len(norms) + 1


def test_steps_begin_and_end_in_turn():
    scheduler = forgive_torch.StepScheduler(plugin=False)
    with pytest.raises(forgive_torch.ForgiveError, match="no step is open"):
        scheduler.end()
    scheduler.begin()
    with pytest.raises(forgive_torch.ForgiveError, match="step 1 is open"):
        scheduler.begin()
    for call in (scheduler.state_dict, lambda: scheduler.load_state_dict({}), lambda: copy.deepcopy(scheduler)):
        with pytest.raises(forgive_torch.ForgiveError, match="between steps"):
            call()


@pytest.mark.parametrize("state, complaint", [
    ({}, "has next_step and detector; this one has nothing"), ({"next_step": 1, "detector": "x"}, "a str is no saved"),
    (forgive_torch.StepScheduler(forgive_torch.Detector("dblp"), plugin=False).state_dict(), "another kind")])
def test_a_state_of_something_else_is_refused_and_changes_nothing(state, complaint):
    scheduler = forgive_torch.StepScheduler(plugin=False)
    run_steps(scheduler, [1])
    before = scheduler.state_dict()
    with pytest.raises(forgive_torch.ForgiveError, match=complaint):
        scheduler.load_state_dict(state)
    assert scheduler.state_dict() == before


class Plugin:
    """What a scheduler calls of the library."""

    def __init__(self):
        self.calls = []

    def forgive_step_begin(self, step, _, __):
        self.calls.append(("begin", step))
        return lib.OK

    def forgive_step_end(self, step):
        self.calls.append(("end", step))
        return lib.OK


@pytest.mark.parametrize("norm", ["abc", (1.0, 2.0)])
def test_the_budget_of_a_step_is_closed_whatever_its_norm_is_and_whatever_its_block_raises(norm):
    scheduler = forgive_torch.StepScheduler(plugin=False)
    scheduler._plugin = plugin = Plugin()
    with pytest.raises(forgive_torch.ForgiveError, match="norm"):
        with scheduler.step() as step:
            step.norm = norm
    with pytest.raises(KeyError):
        with scheduler.step():
            raise KeyError("of the user")
    assert plugin.calls == [("begin", 1), ("end", 1), ("begin", 2), ("end", 2)]


def test_a_step_that_the_plugin_refuses_goes_on_without_a_budget_and_says_why():
    scheduler = forgive_torch.StepScheduler()
    with pytest.warns(UserWarning, match="step 1 has no loss budget: the plugin has not been initialised"):
        scheduler.begin()
    assert not scheduler.budgeted and scheduler.refused[0][0] == 1
    scheduler.end(1.0)


@pytest.mark.parametrize("arguments, complaint", [
    ({"kind": "oracle"}, "detector oracle: accepted are accordion, dblp, steps"),
    ({"window": 0}, "window=0"), ({"threshold": float("nan")}, "threshold"),
    ({"kind": "steps", "steps": []}, "0 steps"), ({"kind": "steps", "steps": [-1]}, "step=-1"),
    ({"window": 1.5}, "window=1.5"), ({"layers": 2**32 + 1}, "layers=4294967297"),
    ({"kind": "dblp", "layers": 3}, "layers must be 1")])
def test_a_detector_that_makes_no_sense_is_refused(arguments, complaint):
    with pytest.raises(forgive_torch.ForgiveError, match=complaint):
        forgive_torch.Detector(**arguments)


def test_statistics_before_nccl_say_that_it_has_not_started():
    for call in (forgive_torch.stats, forgive_torch.ledger, lambda: forgive_torch.step_stats(1)):
        with pytest.raises(forgive_torch.ForgiveError, match="NCCL_NET=forgive"):
            call()


@pytest.fixture
def clean_environment(monkeypatch):
    for name in list(os.environ):
        if name.startswith(("NCCL_", "FORGIVE_")) and name != "FORGIVE_LIBRARY" or name == "WORLD_SIZE":
            monkeypatch.delenv(name)
    before = dict(os.environ)
    yield monkeypatch
    for name in set(os.environ) - set(before):
        del os.environ[name]


def test_enable_sets_what_nccl_reads_and_keeps_what_the_user_set(clean_environment):
    clean_environment.setenv("WORLD_SIZE", "8")
    clean_environment.setenv("FORGIVE_P_HIGH", "0.05")
    with pytest.warns(UserWarning, match="FORGIVE_P_HIGH=0.05 is set already and stays; not 0.2"):
        done = forgive_torch.enable(p_low=0.001, p_high=0.2, FORGIVE_STATS="s.%p")
    assert done["NCCL_NET"] == os.environ["NCCL_NET"] == "forgive"
    assert os.environ["NCCL_NET_PLUGIN"] == forgive_torch.find_library()
    assert (os.environ["FORGIVE_RING_RANKS"], os.environ["FORGIVE_GRADIENT_TRAFFIC"]) == ("8", "all")
    assert (os.environ["FORGIVE_P_LOW"], os.environ["FORGIVE_P_HIGH"]) == ("0.001", "0.05")
    assert (os.environ["NCCL_ALGO"], os.environ["NCCL_PROTO"]) == ("Ring", "Simple")
    assert os.environ["FORGIVE_STATS"] == "s.%p"


def test_enable_without_a_promise_leaves_the_rings_alone_and_does_not_follow_a_promise(clean_environment):
    forgive_torch.enable(promise=False)
    assert "NCCL_ALGO" not in os.environ and "FORGIVE_GRADIENT_TRAFFIC" not in os.environ
    forgive_torch.enable(ranks=2)
    with pytest.raises(forgive_torch.ForgiveError, match="FORGIVE_GRADIENT_TRAFFIC=all is set, which is a promise"):
        forgive_torch.enable(promise=False)


@pytest.mark.parametrize("value, text", [(0.0, "0"), (1, "1"), (0.000001, "0.000001"), (0.1, "0.1")])
def test_budgets_are_said_as_the_plugin_reads_them(clean_environment, value, text):
    assert forgive_torch.enable(ranks=2, p_low=value)["FORGIVE_P_LOW"] == text


@pytest.mark.parametrize("variables, expected", [
    ({}, 40), ({"FORGIVE_DSCP_DATA": "12"}, 48),
    ({"FORGIVE_DSCP_DATA": "12", "FORGIVE_TRAFFIC_CLASS": "104"}, 104)])
def test_gradients_have_the_code_point_that_the_switch_trims_unless_told_otherwise(clean_environment, variables,
                                                                                   expected):
    for name, value in variables.items():
        clean_environment.setenv(name, value)
    assert environment.traffic_class() == expected
    clean_environment.setenv("FORGIVE_TRAFFIC_CLASS", "gold")
    with pytest.raises(forgive_torch.ForgiveError, match="FORGIVE_TRAFFIC_CLASS=gold: not an integer"):
        environment.traffic_class()


@pytest.mark.parametrize("variables, arguments, complaint", [
    ({}, {}, "how many ranks"), ({}, {"ranks": 1}, "ranks=1"),
    ({"NCCL_NET": "Socket"}, {"ranks": 2}, "NCCL_NET=Socket"),
    ({}, {"ranks": 2, "P_LOW": 1}, "P_LOW: names begin with"), ({"WORLD_SIZE": "many"}, {}, "WORLD_SIZE=many: not a"),
    ({}, {"ranks": 2, "p_low": 1e-7}, "FORGIVE_P_LOW=1e-07: give a fraction"),
    ({}, {"ranks": 2, "p_high": float("nan")}, "FORGIVE_P_HIGH=nan: give a fraction")])
def test_enable_refuses_what_cannot_work(clean_environment, variables, arguments, complaint):
    for name, value in variables.items():
        clean_environment.setenv(name, value)
    with pytest.raises(forgive_torch.ForgiveError, match=complaint):
        forgive_torch.enable(**arguments)
    assert "NCCL_NET_PLUGIN" not in os.environ


def test_a_missing_or_foreign_library_is_named(monkeypatch, tmp_path):
    monkeypatch.setenv("FORGIVE_LIBRARY", str(tmp_path / "none.so"))
    with pytest.raises(forgive_torch.ForgiveError, match="none.so is missing: set FORGIVE_LIBRARY"):
        forgive_torch.find_library()
    (tmp_path / "text.so").write_text("no library", encoding="utf-8")
    with pytest.raises(forgive_torch.ForgiveError, match="text.so: cannot be loaded"):
        forgive_torch.load(str(tmp_path / "text.so"))
    with pytest.raises(forgive_torch.ForgiveError, match="is no library of this version"):
        forgive_torch.load(subprocess.run([sys.executable, "-c", "import _ctypes; print(_ctypes.__file__)"],
                                          capture_output=True, text=True, check=True).stdout.strip())


@pytest.mark.parametrize("text, complaint", [
    ("raise OSError('libcudart.so.12: cannot open shared object file')", "does not load: libcudart.so.12: cannot"),
    ("import a_part_that_is_missing", "does not load: No module named 'a_part_that_is_missing'")])
def test_a_torch_that_does_not_load_is_not_called_missing(tmp_path, text, complaint):
    (tmp_path / "torch.py").write_text(text + "\n", encoding="utf-8")
    done = subprocess.run([sys.executable, "-B", "-m", "forgive_torch"], capture_output=True, text=True, check=False,
                          env=dict(os.environ, PYTHONPATH=f"{tmp_path}:{SOURCE / 'plugin' / 'torch'}"))
    assert done.returncode == 1 and done.stderr == "" and f"torch: installed, but {complaint}" in done.stdout


def test_the_ledger_without_numpy_says_so(monkeypatch):
    monkeypatch.setitem(sys.modules, "numpy", None)
    with pytest.raises(forgive_torch.ForgiveError, match="needs numpy.*pip install numpy"):
        forgive_torch.ledger()
