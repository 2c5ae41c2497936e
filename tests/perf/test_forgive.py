# SPDX-License-Identifier: Apache-2.0
# forgive_perf over the real plugin on loopback: without faults, and with trims, drops and disorder injected.
import os

import pytest
from harness import COLLECTIVES, perf, read_json

PLUGIN = os.environ["FORGIVE_PLUGIN"]
FAULTS = "trim=0.05,drop=0.005,duplicate=0.01,reorder=0.02,corrupt=0.001,seed=7"


def faulty(trims, faults=FAULTS, **more):
    return dict(FORGIVE_GRADIENT_TRAFFIC="all", FORGIVE_TRIM="1", FORGIVE_FAULT=faults, FORGIVE_FAULT_LOG=str(trims),
                **more)


@pytest.mark.parametrize("api", ("v6", "v7", "v8", "v9", "v10", "v11", "v12"))
def test_every_version_is_right_without_loss_and_exact_with_it(tmp_path, api):
    run = perf("--plugin", PLUGIN, "--api", api, "--ranks", 2, "-b", "64K", "-e", "64K", "-n", 2)
    assert run.returncode == 0, run.stderr
    assert f"forgive, API {api}" in run.stdout
    trims, result = tmp_path / "trims", tmp_path / "result.json"
    run = perf("--plugin", PLUGIN, "--api", api, "--ranks", 2, "-b", "1M", "-e", "1M", "-n", 4, "-w", 1, "--trims",
               trims, "--json", result, env=faulty(trims))
    assert run.returncode == 0, run.stdout + run.stderr
    assert all(size["forgiven_bytes"] > 0 for size in read_json(result))
    assert "ranks identical: yes" in run.stdout


@pytest.mark.parametrize("algorithm", ("ring", "direct"))
@pytest.mark.parametrize("collective", COLLECTIVES)
def test_every_collective_is_right(collective, algorithm):
    run = perf("--plugin", PLUGIN, "--collective", collective, "--algorithm", algorithm, "--ranks", 3, "-b", "1K",
               "-e", "4M", "-f", 64, "-n", 3, "-w", 1)
    assert run.returncode == 0, run.stderr


@pytest.mark.parametrize("algorithm", ("ring", "direct"))
def test_four_ranks_are_right_from_small_to_large(algorithm):
    run = perf("--plugin", PLUGIN, "--algorithm", algorithm, "--ranks", 4, "-b", "1K", "-e", "64M", "-f", 16, "-n", 2,
               "-w", 1, timeout=300)
    assert run.returncode == 0, run.stderr


@pytest.mark.parametrize("eligible", ("reduce", "all"))
@pytest.mark.parametrize("algorithm", ("ring", "direct"))
def test_what_is_forgiven_is_exactly_what_the_ledger_says(tmp_path, algorithm, eligible):
    trims, result = tmp_path / "trims", tmp_path / "result.json"
    run = perf("--plugin", PLUGIN, "--algorithm", algorithm, "--ranks", 4, "-b", "1M", "-e", "4M", "-f", 4, "-n", 4,
               "-w", 1, "--trims", trims, "--json", result, env=faulty(trims, FORGIVE_ELIGIBLE=eligible))
    assert run.returncode == 0, run.stdout + run.stderr
    assert all(size["forgiven_bytes"] > 0 for size in read_json(result))
    if eligible == "reduce":
        assert "ranks identical: yes" in run.stdout


@pytest.mark.parametrize("ranks", (2, 3))
def test_mixed_traffic_is_forgiven_in_steps_only(tmp_path, ranks):
    trims = tmp_path / "trims"
    run = perf("--plugin", PLUGIN, "--ranks", ranks, "--scenario", "mixed", "--bytes", "4M", "--trims", trims,
               env=faulty(trims))
    assert run.returncode == 0, run.stdout + run.stderr
    forgiven = {}
    for line in run.stdout.splitlines():
        if line.endswith(" wrong"):
            what = line[1:27].strip()
            forgiven[what] = forgiven.get(what, 0) + int(line.split("B forgiven")[0].split()[-1])
    assert forgiven.pop("all-reduce in a step") > 0
    assert "all-gather in a step" in forgiven and sum(forgiven.values()) == 0
    assert "ranks identical: yes" in run.stdout


@pytest.mark.parametrize("expected", ("schedule", "learn"))
def test_steps_keep_their_budgets(tmp_path, expected):
    trims, result = tmp_path / "trims", tmp_path / "result.json"
    run = perf("--plugin", PLUGIN, "--ranks", 4, "--steps", 6, "--critical", "2", "--bytes", "4M", "--expected",
               expected, "--trims", trims, "--json", result, env=faulty(trims))
    assert run.returncode == 0, run.stdout + run.stderr
    written = read_json(result)
    steps = written["steps"]
    assert written["wrong"] == 0 and written["budget_violations"] == 0 and written["ranks_identical"]
    assert written["forgiven_bytes"] > 0 and 0 < written["exempt_share"] <= 1
    for step in steps[1:]:
        assert step["expected"] == step["received"] + step["forgiven"]
        assert step["forgiven"] <= step["expected"] * (0.005 if step["critical"] else 0.1)
    assert (steps[0]["forgiven"] > 0) == (expected == "schedule")


def test_no_draw_forgives_nothing_and_stays_exempt(tmp_path):
    trims, result = tmp_path / "trims", tmp_path / "result.json"
    run = perf("--plugin", PLUGIN, "--ranks", 3, "--steps", 3, "--bytes", "4M", "--trims", trims, "--json", result,
               env=faulty(trims, FORGIVE_P="0"))
    assert run.returncode == 0, run.stdout + run.stderr
    written = read_json(result)
    assert written["forgiven_bytes"] == 0 and written["exempt_share"] > 0 and written["trims"] > 0


def test_drops_are_never_forgiven(tmp_path):
    trims, result = tmp_path / "trims", tmp_path / "result.json"
    run = perf("--plugin", PLUGIN, "--ranks", 2, "--steps", 3, "--bytes", "4M", "--trims", trims, "--json", result,
               env=faulty(trims, "drop=0.02,seed=3"))
    assert run.returncode == 0, run.stdout + run.stderr
    written = read_json(result)
    assert written["forgiven_bytes"] == 0 and written["retransmitted_bytes"] > 0


# ---- Proofs: what NCCL says of a message, in place of the operator's word ----

def proved(trims, faults=FAULTS, **more):
    """The communicator is marked by its class; nobody gives the operator's word."""
    return dict(FORGIVE_TRAFFIC_CLASS="104", FORGIVE_FAULT=faults, FORGIVE_FAULT_LOG=str(trims), **more)


PROOFS = (("v10", "profiler"), ("v11", "attributes"), ("v11", "profiler"), ("v12", "attributes"), ("v12", "nccl"))


@pytest.mark.parametrize("api,proof", PROOFS)
def test_proved_steps_forgive_and_all_ranks_end_alike_in_every_step(tmp_path, api, proof):
    trims, result = tmp_path / "trims", tmp_path / "result.json"
    run = perf("--plugin", PLUGIN, "--api", api, "--proof", proof, "--ranks", 4, "--steps", 5, "--critical", "2",
               "--bytes", "4M", "--trims", trims, "--json", result, env=proved(trims))
    assert run.returncode == 0, run.stdout + run.stderr
    written = read_json(result)
    assert written["wrong"] == 0 and written["budget_violations"] == 0 and written["diverging_elements"] == 0
    assert written["ranks_identical"] and written["diverging_steps"] == 0
    assert all(step["forgiven"] > 0 for step in written["steps"] if not step["critical"])
    assert all(rank["not_posted_operator_latch"] == 0 for rank in written["per_rank"])


@pytest.mark.parametrize("collective", ("all_reduce", "reduce_scatter"))
def test_a_reduce_scatter_is_forgivable_where_nccl_says_that_it_is_one(tmp_path, collective):
    trims, result = tmp_path / "trims", tmp_path / "result.json"
    run = perf("--plugin", PLUGIN, "--proof", "nccl", "--collective", collective, "--ranks", 3, "-b", "3M", "-e",
               "3M", "-n", 4, "-w", 1, "--trims", trims, "--json", result, env=proved(trims))
    assert run.returncode == 0, run.stdout + run.stderr
    assert all(size["forgiven_bytes"] > 0 and size["wrong"] == 0 for size in read_json(result))


def test_a_communicator_of_another_class_loses_nothing(tmp_path):
    trims, result = tmp_path / "trims", tmp_path / "result.json"
    run = perf("--plugin", PLUGIN, "--proof", "nccl", "--ranks", 2, "--steps", 2, "--bytes", "4M", "--json", result,
               env=proved(trims, FORGIVE_COMMUNICATOR="^gradients"))
    assert run.returncode == 0, run.stdout + run.stderr
    written = read_json(result)
    assert written["forgiven_bytes"] == 0 and written["exempt_share"] == 0 and written["trims"] > 0


def test_without_the_word_nothing_is_forgiven_unless_nccl_speaks(tmp_path):
    trims, result = tmp_path / "trims", tmp_path / "result.json"
    run = perf("--plugin", PLUGIN, "--ranks", 2, "-b", "2M", "-e", "2M", "-n", 3, "--json", result, env=proved(trims))
    assert run.returncode == 0, run.stdout + run.stderr
    assert all(size["forgiven_bytes"] == 0 for size in read_json(result))


@pytest.mark.parametrize("proof", ("attributes", "nccl"))
def test_mixed_traffic_shifts_no_phase_where_nccl_says_what_it_is(tmp_path, proof):
    trims = tmp_path / "trims"
    run = perf("--plugin", PLUGIN, "--proof", proof, "--ranks", 3, "--scenario", "mixed", "--bytes", "4M", "--trims",
               trims, env=proved(trims))
    assert run.returncode == 0, run.stdout + run.stderr
    assert "ranks identical: yes" in run.stdout
    assert [line for line in run.stdout.splitlines() if "all-gather in a step" in line and " 0 B forgiven" in line]


@pytest.mark.parametrize("proof", ("word", "nccl"))
def test_all_phases_forgiven_make_ranks_differ_and_the_difference_is_reported(tmp_path, proof):
    trims, result = tmp_path / "trims", tmp_path / "result.json"
    mark = {"FORGIVE_GRADIENT_TRAFFIC": "all"} if proof == "word" else {"FORGIVE_TRAFFIC_CLASS": "104"}
    run = perf("--plugin", PLUGIN, "--proof", proof, "--ranks", 3, "--steps", 3, "--bytes", "4M", "--trims", trims,
               "--json", result, env=dict(mark, FORGIVE_ELIGIBLE="all", FORGIVE_FAULT=FAULTS,
                                          FORGIVE_FAULT_LOG=str(trims)))
    assert run.returncode == 0, run.stdout + run.stderr
    written = read_json(result)
    assert written["wrong"] == 0 and not written["ranks_identical"]
    assert written["diverging_steps"] > 0 and written["diverging_elements"] > 0 and written["largest_difference"] > 0
    assert f"# divergence: {written['diverging_elements']} elements" in run.stdout


# ---- Each operation as a step ----

@pytest.mark.parametrize("api,proof", (("v10", "profiler"), ("v12", "nccl")))
@pytest.mark.parametrize("collective", ("all_reduce", "reduce_scatter"))
def test_each_operation_is_a_step_with_a_budget_of_its_own(tmp_path, api, proof, collective):
    trims, result = tmp_path / "trims", tmp_path / "result.json"
    run = perf("--plugin", PLUGIN, "--api", api, "--proof", proof, "--collective", collective, "--ranks", 3, "-b",
               "3M", "-e", "3M", "-n", 6, "-w", 2, "--trims", trims, "--json", result,
               env=proved(trims, FORGIVE_STEP="operation", FORGIVE_DETECTOR="steps", FORGIVE_DETECTOR_STEPS="1,4"))
    assert run.returncode == 0, run.stdout + run.stderr
    assert all(size["forgiven_bytes"] > 0 and size["wrong"] == 0 for size in read_json(result))


def test_operations_without_a_profiler_are_no_steps(tmp_path):
    trims, result = tmp_path / "trims", tmp_path / "result.json"
    run = perf("--plugin", PLUGIN, "--proof", "attributes", "--ranks", 2, "-b", "2M", "-e", "2M", "-n", 3, "--json",
               result, env=proved(trims, FORGIVE_STEP="operation"))
    assert run.returncode == 0, run.stdout + run.stderr
    assert all(size["forgiven_bytes"] == 0 for size in read_json(result))


# ---- The budget's unit ----

@pytest.mark.parametrize("step", ("api", "operation"))
def test_a_budget_of_contributions_bounds_what_the_ring_loses(tmp_path, step):
    trims, result = tmp_path / "trims", tmp_path / "result.json"
    run = perf("--plugin", PLUGIN, "--proof", "nccl", "--ranks", 4, "-b", "4M", "-e", "4M", "-n", 4, "-w", 1,
               "--trims", trims, "--json", result,
               env=proved(trims, "trim=0.3,seed=7", FORGIVE_BUDGET_UNIT="contributions", FORGIVE_STEP=step,
                          FORGIVE_DETECTOR="steps", FORGIVE_DETECTOR_STEPS="1"))
    assert run.returncode == 0, run.stdout + run.stderr
    for size in read_json(result):
        assert 0 < size["forgiven_bytes"] < size["contributions_lost"] <= 0.1 * 5 * 4 * 3 * 2**20


@pytest.mark.parametrize("arguments,words", (
    (("--api", "v9", "--proof", "profiler"), "give --api v10"),
    (("--api", "v10", "--proof", "attributes"), "give --api v11"),
    (("--proof", "nccl", "--algorithm", "direct"), "leave out --algorithm"),
    (("--proof", "hope"), "--proof hope"),
))
def test_a_proof_that_cannot_be_given_is_named(arguments, words):
    run = perf("--plugin", PLUGIN, "--ranks", 2, *arguments)
    assert run.returncode == 2 and words in run.stderr, run.stderr


@pytest.mark.parametrize("variable, value", (("FORGIVE_INTERFACE", "nosuch0"),
                                             ("FORGIVE_FAULT_LOG", "/no/such/folder/x")))
def test_a_bad_variable_is_one_line_that_names_it_for_all_ranks_together(variable, value):
    run = perf("--plugin", PLUGIN, "--ranks", 3, "-b", "4K", "-e", "4K",
               env={variable: value, "FORGIVE_FAULT": "trim=0.1"})
    assert run.returncode == 3
    assert len(run.stderr.splitlines()) == 1, run.stderr
    assert variable in run.stderr and value in run.stderr


def test_a_ledger_that_cannot_be_written_is_one_line_and_a_failure(tmp_path):
    trims = tmp_path / "trims"
    run = perf("--plugin", PLUGIN, "--ranks", 2, "-b", "1M", "-e", "1M", "-n", 4, "-w", 1, "--trims", trims,
               "--ledger", "/dev/full", env=faulty(trims))
    assert run.returncode == 3
    assert run.stderr.splitlines() == ["forgive_perf: rank 0: cannot write /dev/full"]
