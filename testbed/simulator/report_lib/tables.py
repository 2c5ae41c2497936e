# SPDX-License-Identifier: Apache-2.0
# The report's tables: ours beside the specification's, a range over the seeds each.
import results

HEADINGS = ("policy", "seeds", "training s", "to tight", "spec", "given up", "spec", "retransmitted", "spec",
            "trim rate", "spec", "all-reduce ms, critical", "other", "timeouts", "violations")


def span(values, unit="", digits=1, sign=False):
    """`low..high` of some figures; one if they agree in the digits shown; - if there are none."""
    if not values:
        return "-"
    texts = [f"{value:{'+' if sign else ''}.{digits}f}" for value in (min(values), max(values))]
    text = texts[0] if texts[0] == texts[1] else "..".join(texts)
    return f"{text} {unit}".rstrip()


def _percent(values, digits=2, sign=False):
    return span([100 * value for value in values], "%", digits, sign)


def _seed(row, key):
    return span(row.get(key, []), "%", 1, sign=key.startswith("training"))


def family(policies, seed_rows):
    """Rows of HEADINGS, one a policy; those that the specification has come first, in its order."""
    order = [name for name in seed_rows if name in policies] + [name for name in policies if name not in seed_rows]
    rows = []
    for policy in order:
        runs, seed = policies[policy], seed_rows.get(policy, {})
        rows.append([
            policy, len(runs), span([run.summary["training_us"] / 1e6 for run in runs], digits=3),
            "-" if policy == "tight" else _percent(results.change_of_training(policies, policy), 1, True),
            "-" if policy == "tight" else _seed(seed, "training_percent"),
            _percent(results.figures(runs, "given_up")), _seed(seed, "given_up_percent"),
            _percent(results.figures(runs, "retransmitted")), _seed(seed, "retransmitted_percent"),
            _percent(results.figures(runs, "trim_rate")), _seed(seed, "trim_rate_percent"),
            span(results.figures(runs, "dp_ms_median.critical")), span(results.figures(runs, "dp_ms_median.other")),
            span([run.summary["timeouts"] for run in runs], digits=0),
            sum(run.summary["budget_violations"] for run in runs)])
    return rows


def statements(policies, seed_statements):
    """(what, ours, the specification's) for each sentence of its Results that our runs can answer."""
    rows = []
    for statement in seed_statements:
        if statement["plan"] not in policies:
            continue
        scale = statement.get("scale", 1)
        if "against" in statement:
            ours = results.ratios(policies, statement["plan"], statement["against"], statement["key"])
        else:
            ours = results.figures(policies[statement["plan"]], statement["key"])
        rows.append([statement["what"], span([value * scale for value in ours], statement["unit"], 2),
                     span(statement["seed"], statement["unit"], 2)])
    return rows
