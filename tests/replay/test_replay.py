# SPDX-License-Identifier: Apache-2.0
"""forgive_replay on norms whose classes are worked out by hand, its files, its pictures, and its complaints."""
import json
import os
import resource
import signal
import subprocess
import threading

import pytest

REPLAY = os.environ["FORGIVE_REPLAY"]
# window 1: each step is classified by the two norms before it.   C  C  -  -  C  -  -  C  -  C  -
NORMS = [8, 8, 8, 4, 4, 4, 6, 6, 1, 1, 1]
CRITICAL = [1, 2, 5, 8, 10]


def replay(*arguments, before=None):
    return subprocess.run([REPLAY, *map(str, arguments)], capture_output=True, text=True, timeout=60, check=False,
                          preexec_fn=before)


def write(path, text):
    path.write_text(text, encoding="utf-8")
    return path


@pytest.fixture
def norms(tmp_path):
    return write(tmp_path / "norms.csv", "step,norm\n" + "".join(f"{i},{n}\n" for i, n in enumerate(NORMS, 1)))


def found(tmp_path, *arguments):
    run = replay(*arguments, "--json", tmp_path / "found.json")
    assert run.returncode == 0, run.stderr
    return json.loads((tmp_path / "found.json").read_text(encoding="utf-8")), run.stdout


def critical(result):
    return [step["step"] for step in result["steps"] if step["critical"]]


def test_steps_are_critical_by_the_norms_before_them(tmp_path, norms):
    result, text = found(tmp_path, norms, "--window", 1, "--expected-bytes", 1000001)
    assert critical(result) == CRITICAL
    assert [step["budget"] for step in result["steps"]] == [5000 if i in CRITICAL else 100000 for i in range(1, 12)]
    assert "critical: 5 (45.5 %): 1-2, 5, 8, 10\n" in text
    assert "a step's budget: 5000 bytes or 100000 bytes of 1000001" in text
    assert "all steps together: 625001 bytes" in text  # 5 x 0.005 + 6 x 0.1 steps


def test_json_lines_say_the_same_as_csv(tmp_path, norms):
    lines = write(tmp_path / "norms.jsonl", "".join(json.dumps({"step": i, "norm": n, "loss": 1.5}) + "\n"
                                                    for i, n in enumerate(NORMS, 1)))
    from_csv, _ = found(tmp_path, norms, "--window", 1)
    from_json, _ = found(tmp_path, lines, "--window", 1)
    assert from_csv["steps"] == from_json["steps"]


def test_a_layer_that_changes_makes_its_step_critical(tmp_path):
    layers = write(tmp_path / "layers.csv", "step,norm_0,norm_1\n1,1,9\n2,1,9\n3,1,4.5\n4,1,4.5\n5,1,4.5\n")
    assert critical(found(tmp_path, layers, "--window", 1)[0]) == [1, 2, 4]
    lines = write(tmp_path / "layers.jsonl", '{"step":1,"norms":[1,9]}\n{"step":2,"norms":[1,9]}\n'
                                             '{"step":3,"norms":[1,4.5]}\n{"step":4,"norms":[1,4.5]}\n')
    assert critical(found(tmp_path, lines, "--window", 1)[0]) == [1, 2, 4]


def test_dblp_and_a_list_of_steps(tmp_path, norms):
    # Windows of two by DBLP end with 8, 4, 4, 6, 1.
    assert critical(found(tmp_path, norms, "--window", 2, "--detector", "dblp")[0]) == [1, 2, 3, 4, 5, 6, 9, 10, 11]
    assert critical(found(tmp_path, norms, "--detector", "steps")[0]) == [1, 2, 3]
    assert critical(found(tmp_path, norms, "--detector", "steps", "--steps", "4,11")[0]) == [4, 11]


@pytest.mark.parametrize("text", ["nan", "inf", "-inf", "-1", "1e999", "NaN"])
def test_bad_norms_are_counted_and_critical(tmp_path, text):
    norms = write(tmp_path / "bad.csv", f"step,norm\n1,1\n2,1\n3,{text}\n4,1\n5,1\n6,1\n")
    result, output = found(tmp_path, norms, "--window", 1)
    assert critical(result) == [1, 2, 4, 5]
    assert result["bad_norms"] == 1 and "negative): 1\n" in output


def test_json_lines_as_python_writes_them(tmp_path):
    rows = [1.0, 1.0, float("nan"), float("inf"), float("-inf"), None, 1.0]
    lines = write(tmp_path / "bad.jsonl", "".join(json.dumps({"step": i, "note": "NaN", "norm": n}) + "\n"
                                                  for i, n in enumerate(rows, 1)))
    assert found(tmp_path, lines, "--window", 1)[0]["bad_norms"] == 4


def test_truth_counts_misses_and_false_alarms_and_what_they_cost(tmp_path, norms):
    # Right are 1, 2, 5; 3 and 4 are missed; 8 and 10 are false alarms; 11 has no label.
    truth = write(tmp_path / "truth.csv", "step,critical\n" + "".join(f"{i},{int(i <= 5)}\n" for i in range(1, 11)))
    result, text = found(tmp_path, norms, "--window", 1, "--truth", truth)
    expected = {"labelled": 10, "critical": 5, "missed": 2, "false_alarms": 2}
    assert {name: result["comparison"][name] for name in expected} == expected
    assert result["comparison"]["missed_budget_steps"] == pytest.approx(2 * 0.095)
    assert "missed critical steps: 2 (40.0 %); budget that they got beyond P_low: 0.19 of a step's bytes" in text
    assert "false alarms: 2 (40.0 %)" in text
    lines = write(tmp_path / "truth.jsonl", "".join(json.dumps({"step": i, "critical": i <= 5}) + "\n"
                                                    for i in range(1, 11)))
    assert found(tmp_path, norms, "--window", 1, "--truth", lines)[0] == result


def test_a_sweep_has_every_window_with_every_threshold(tmp_path, norms):
    result, text = found(tmp_path, norms, "--sweep", "--windows", "1,2", "--thresholds", "0.5,0.9")
    points = {(point["window"], point["threshold"]): point["critical"] for point in result["sweep"]}
    # Windows of two have means 8, 6, 4, 6, 1, and so changes 1/4 (steps 5, 6), 1/3 (7, 8), 1/2 (9, 10), 5/6 (11).
    assert points == {(1, 0.5): 5, (1, 0.9): 2, (2, 0.5): 7, (2, 0.9): 4}
    assert text.count("\n       1") == 2
    for (window, threshold), count in points.items():
        alone, _ = found(tmp_path, norms, "--window", window, "--threshold", threshold)
        assert len(critical(alone)) == count


def test_the_csv_has_a_row_a_step(tmp_path, norms):
    truth = write(tmp_path / "truth.csv", "step,critical\n1,1\n3,0\n")
    assert replay(norms, "--window", 1, "--truth", truth, "--csv", tmp_path / "steps.csv").returncode == 0
    lines = (tmp_path / "steps.csv").read_text(encoding="utf-8").splitlines()
    assert lines[:4] == ["step,norm,critical,p,truth", "1,8,1,0.005,1", "2,8,1,0.005,", "3,8,0,0.1,0"]
    assert len(lines) == 12


def test_plots_are_pictures(tmp_path, norms):
    truth = write(tmp_path / "truth.csv", "step,critical\n1,1\n3,1\n8,0\n")
    run = replay(norms, "--window", 1, "--sweep", "--truth", truth, "--plot", tmp_path / "a.png", "--plot",
                 tmp_path / "a.html")
    assert run.returncode == 0, run.stderr
    assert (tmp_path / "a.png").read_bytes().startswith(b"\x89PNG")
    page = (tmp_path / "a.html").read_text(encoding="utf-8")
    assert "<svg" in page and "src=" not in page and "5</td>" in page


BAD_FILES = [
    ("a.csv", "", "a.csv: holds no step"),
    ("a.csv", "step,norm\n", "a.csv: holds no step"),
    ("a.csv", "step,loss\n1,2\n", 'a.csv:1: the header is "step,loss"; it must be step,norm'),
    ("a.csv", "1,2\n", 'a.csv:1: the header is "1,2"'),
    ("a.csv", "step,norm\n1,2\n2,abc\n", 'a.csv:3: norm "abc": not a number'),
    ("a.csv", "step,norm\n1,2\n\n2,\n", 'a.csv:4: norm "": not a number'),
    ("a.csv", "step,norm\n1,2\n2,3x\n", 'a.csv:3: norm "3x": not a number'),
    ("a.csv", "step,norm\n1,+-2\n", 'a.csv:2: norm "+-2": not a number'),
    ("a.csv", "\x1b[2J\x00\x07" + "x" * 9000, 'a.csv:1: the header is "?[2J??xxx'),
    ("a.jsonl", '{"step":1,"norm":"\\u001b[2J"}', 'a.jsonl:1: norm "?[2J": not a number'),
    ("a.csv", "step,norm\n-1,2\n", 'a.csv:2: step "-1": not a step number'),
    ("a.csv", "step,norm\n1.0,2\n", 'a.csv:2: step "1.0": not a step number'),
    ("a.csv", "step,norm\n1,2,3\n", "a.csv:2: 3 values where the header has 2 columns"),
    ("a.csv", "step,norm\n2,1\n2,1\n", "a.csv:3: step 2 after step 2: step numbers must rise"),
    ("a.jsonl", '{"step":1,"norm":1}\nnonsense\n', "a.jsonl:2: not a JSON object"),
    ("a.jsonl", '{"norm":1}\n', 'a.jsonl:1: the object has no "step"'),
    ("a.jsonl", '{"step":1}\n', 'a.jsonl:1: the object has no "norm"'),
    ("a.jsonl", '{"step":-1,"norm":1}\n', 'a.jsonl:1: "step" is not a step number'),
    ("a.jsonl", '{"step":1,"norm":[1]}\n', "a.jsonl:1: norm [1]: not a number"),
    ("a.jsonl", '{"step":1,"norms":[]}\n', 'a.jsonl:1: "norms" is not a list of numbers'),
    ("a.jsonl", '{"step":1,"norms":[1]}\n{"step":2,"norms":[1,2]}\n',
     "a.jsonl:2: 2 norms where the rows before have 1"),
]


@pytest.mark.parametrize("name, text, complaint", BAD_FILES)
def test_a_bad_row_is_named_by_file_and_line(tmp_path, name, text, complaint):
    run = replay(write(tmp_path / name, text), "--json", tmp_path / "out.json")
    assert run.returncode == 2 and run.stdout == ""
    assert complaint in run.stderr and run.stderr.count("\n") == 1
    assert len(run.stderr) < 400 and run.stderr.strip().isprintable()
    assert not (tmp_path / "out.json").exists()


@pytest.mark.parametrize("text, complaint", [
    ("step,critical\n1,2\n", 'truth.csv:2: critical "2": neither 0 nor 1'),
    ("step,critical\n1,1\n1,0\n", "truth.csv:3: step 1 has a label already"),
    ("step,norm\n1,1\n", "truth.csv:1: the header is"),
    ("step,critical\n77,1\n", "labels none of the steps"),
])
def test_a_bad_label_is_named_by_file_and_line(tmp_path, norms, text, complaint):
    run = replay(norms, "--truth", write(tmp_path / "truth.csv", text))
    assert run.returncode == 2 and complaint in run.stderr and run.stderr.count("\n") == 1


@pytest.mark.parametrize("arguments, complaint", [
    (["--window", "0"], "window=0"),
    (["--threshold", "0"], "threshold"),
    (["--detector", "oracle"], "--detector oracle: accepted are"),
    (["--detector", "steps", "--sweep"], "--sweep: a list of steps"),
    (["--p-low", "1.5"], "--p-low 1.5"),
    (["--plot", "a.gif"], "--plot a.gif: the name must end in .png or .html"),
    (["--json", "no/such/folder/a.json"], "no/such/folder/a.json: cannot be written"),
    (["--plot", "no/such/folder/a.png"], "--plot no/such/folder/a.png"),
    (["--nonsense"], "--nonsense"),
    (["--window", "-1"], "--window: -1"),
    (["--window", "99999999999999999999"], "--window: 99999999999999999999"),
    (["--steps", "1,-2"], "--steps: -2"),
    (["--p-low", ""], "--p-low"),
    (["--csv", ""], "--csv: its value is empty"),
    (["--expected-bytes", "1e3"], "--expected-bytes: 1e3"),
])
def test_bad_arguments_are_named(norms, arguments, complaint):
    run = replay(norms, *arguments)
    assert run.returncode == 2 and complaint in run.stderr and run.stdout == "" and run.stderr.count("\n") == 1


@pytest.mark.parametrize("arguments", [
    ["norms.csv", "--json", "norms.csv"], ["norms.csv", "--csv", "./norms.csv"],
    ["norms.csv", "--truth", "truth.csv", "--csv", "truth.csv"], ["norms.csv", "--csv", "out", "--json", "out"],
    ["norms.csv", "--plot", "a.png", "--plot", "a.png"]])
def test_no_result_takes_the_place_of_what_is_read_or_of_another(tmp_path, monkeypatch, norms, arguments):
    monkeypatch.chdir(tmp_path)
    write(tmp_path / "truth.csv", "step,critical\n1,1\n")
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    run = replay(*arguments)
    assert run.returncode == 2 and "is read or written already" in run.stderr and run.stderr.count("\n") == 1
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


@pytest.mark.parametrize("option, name, most_bytes", [("--json", "a.json", 500), ("--csv", "a.csv", 50),
                                                      ("--plot", "a.png", 9000), ("--plot", "a.html", 9000)])
def test_a_result_that_does_not_fit_leaves_what_was_there(tmp_path, norms, option, name, most_bytes):
    def small_disk():
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (most_bytes, most_bytes))
    write(tmp_path / name, "old")
    run = replay(norms, option, tmp_path / name, before=small_disk)
    assert run.returncode == 2 and run.stderr.count("\n") == 1 and "File too large" in run.stderr, run.stderr
    assert (tmp_path / name).read_text(encoding="utf-8") == "old"
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted({name, "norms.csv"})


def test_what_is_no_file_is_written_to_and_stays_what_it_is(tmp_path, norms):
    (tmp_path / "full").symlink_to("/dev/full")
    run = replay(norms, "--csv", tmp_path / "full")
    assert run.returncode == 2 and "No space left on device" in run.stderr and (tmp_path / "full").is_symlink()
    os.mkfifo(tmp_path / "pipe")
    got = []
    reader = threading.Thread(target=lambda: got.append((tmp_path / "pipe").read_text(encoding="utf-8")), daemon=True)
    reader.start()
    run = replay(norms, "--json", tmp_path / "pipe", "--window", 1)
    reader.join(30)
    assert run.returncode == 0 and critical(json.loads(got[0])) == CRITICAL and (tmp_path / "pipe").is_fifo()
    (tmp_path / "link").symlink_to("behind.csv")
    write(tmp_path / "behind.csv", "old")
    assert replay(norms, "--csv", tmp_path / "link").returncode == 0
    assert (tmp_path / "link").is_symlink() and "step,norm" in (tmp_path / "behind.csv").read_text(encoding="utf-8")


def test_a_missing_file_is_named(tmp_path):
    for name in (tmp_path / "none.csv", tmp_path):
        run = replay(name)
        assert run.returncode == 2 and f"{name}: " in run.stderr and run.stderr.count("\n") == 1
