# SPDX-License-Identifier: Apache-2.0
"""The table on the terminal, and the page with its figures."""
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(os.path.realpath(__file__))), "page_lib"))

COLOURS = {"gloo": "#777777", "tcp": "#bbaa55", "plain": "#4477aa", "tight": "#66ccee", "forgive-reduce": "#228833",
           "forgive-all": "#ee6677", "masks": "#aa3377"}
CRITICAL_COLOUR = "#f3e6c8"
SMOOTH_STEPS = 9


def _percent(part, whole):
    return f"{100 * part / whole:.2f} %" if whole else "-"


def _replicas(run):
    return "identical" if run["identical"] else f"{run['distance']:.2g} off"


def table(runs, metric):
    head = (f"{'policy':<15} {'train s':>8} {'carried s':>9} {'loss':>7} {metric:>9} {'critical':>8} {'forgiven':>9} "
            f"{'contrib. lost':>13} {'replicas':>10}")
    lines = [head, "-" * len(head)]
    for run in runs:
        share = _percent(run["forgiven"], run["forgiven"] + run["received"])
        metric_text = f"{run['metric']:.4f}" if run["metric"] is not None else "-"
        lines.append(f"{run['policy']:<15} {run['train_s']:>8.1f} {run['carried_s']:>9.1f} {run['loss']:>7.4f} "
                     f"{metric_text:>9} {run['critical_steps']:>8} {share:>9} {run['contributions_lost']:>13} "
                     f"{_replicas(run):>10}")
    return "\n".join(lines)


def _smooth(values, width=SMOOTH_STEPS):
    half = width // 2
    return [sum(values[max(0, i - half):i + half + 1]) / len(values[max(0, i - half):i + half + 1])
            for i in range(len(values))]


def _steps(run):
    return [row["step"] for row in run["steps"]]


def _evaluated(run):
    return [row for row in run["steps"] if "distance" in row]


def _learning(pyplot, runs, metric):
    figure, axes = pyplot.subplots(1, 2, figsize=(10, 3.8))
    for run in runs:
        colour = COLOURS[run["policy"]]
        axes[0].plot(_steps(run), _smooth([row["loss"] for row in run["steps"]]), color=colour, label=run["policy"],
                     linewidth=1.3)
        marked, seconds, sums = _evaluated(run), 0.0, {}
        for row in run["steps"]:
            seconds += row["seconds"]
            sums[row["step"]] = seconds
        axes[1].plot([sums[row["step"]] for row in marked], [row["metric"] for row in marked], "o-", color=colour,
                     markersize=3, linewidth=1.3)
    axes[0].set(title=f"training loss (mean of {SMOOTH_STEPS} steps)", xlabel="step")
    axes[1].set(title=f"{metric} on test data", xlabel="time in steps, s")
    axes[0].legend(fontsize=8)
    return figure


def _shade_critical(axis, run):
    """Runs of steps that are critical on rank 0."""
    first = None
    rows = run["steps"]
    for place, row in enumerate(rows):
        if row["critical"][0] and first is None:
            first = row["step"]
        last_of_run = place + 1 == len(rows) or not rows[place + 1]["critical"][0]
        if first is not None and row["critical"][0] and last_of_run:
            axis.axvspan(first - 0.5, row["step"] + 0.5, color=CRITICAL_COLOUR, linewidth=0, zorder=0)
            first = None


def _losses(pyplot, runs):
    """By step: what was lost, as shares; and the norms, shaded where critical, of the last run that lost something."""
    figure, axes = pyplot.subplots(3, 1, figsize=(10, 7.2), sharex=True)
    losing = [run for run in runs if run["forgiven"]]
    for run in losing:
        forgiven = [_share(row["forgiven"], row["forgiven"] + row["received"]) for row in run["steps"]]
        axes[0].plot(_steps(run), forgiven, color=COLOURS[run["policy"]], label=run["policy"], linewidth=1.2)
        axes[1].plot(_steps(run), [row["contributions_lost"] / 1000 for row in run["steps"]],
                     color=COLOURS[run["policy"]], label=run["policy"], linewidth=1.2)
    shown = (losing or runs)[-1]
    for axis in axes:
        _shade_critical(axis, shown)
    for rank in range(len(shown["steps"][0]["norms"])):
        axes[2].plot(_steps(shown), [row["norms"][rank] for row in shown["steps"]], linewidth=0.9,
                     label=f"rank {rank}")
    axes[0].set(title="bytes forgiven, % of the forgivable ones of all ranks")
    axes[1].set(title="contributions lost, thousand bytes")
    axes[2].set(title=f"gradient norms ({shown['policy']}; shaded: critical on rank 0)", xlabel="step")
    for axis, place in zip(axes, ("upper left", "upper left", "upper right")):
        if axis.get_legend_handles_labels()[0]:
            axis.legend(fontsize=8, loc=place)
    return figure


def _share(part, whole):
    return 100 * part / whole if whole else 0.0


def _divergence(pyplot, runs):
    """How far the farthest replica is from rank 0's, as a share of the length of rank 0's parameters."""
    figure, axis = pyplot.subplots(figsize=(10, 3))
    for run in runs:
        rows = _evaluated(run)
        axis.plot([row["step"] for row in rows], [_share(row["distance"], row["length"]) for row in rows], "o-",
                  color=COLOURS[run["policy"]], label=run["policy"], markersize=3, linewidth=1.3)
    axis.set(title="distance of the farthest replica, % of the length of rank 0's parameters", xlabel="step")
    axis.set_ylim(bottom=0)
    axis.legend(fontsize=8)
    return figure


HEADINGS = ("policy", "in steps, s", "in all-reduces, s", "last loss", "{metric}", "critical steps", "forgiven",
            "contributions lost, bytes", "trims", "replicas")


def _rows(runs):
    for run in runs:
        yield (run["policy"], f"{run['train_s']:.1f}", f"{run['carried_s']:.1f}", f"{run['loss']:.4f}",
               f"{run['metric']:.4f}" if run["metric"] is not None else "-", run["critical_steps"],
               _percent(run["forgiven"], run["forgiven"] + run["received"]), f"{run['contributions_lost']:,}",
               f"{run['trims']:,}", _replicas(run))


def page(found, metric, folder):
    """Writes index.html, and its figures beside it as PNG. Returns the page's path."""
    import figures  # matplotlib takes a second to load
    import page as pages
    runs = found["runs"]
    drawn = {"learning": _learning(figures.pyplot, runs, metric), "losses": _losses(figures.pyplot, runs),
             "divergence": _divergence(figures.pyplot, runs)}
    images = {name: figures.embed(figure, name, folder) for name, figure in drawn.items()}
    holds = ([f"Does not hold: {line}" for line in found["failures"]] or
             ["Everything that must hold does: budgets, ledgers, identical replicas where they must be."])
    top = pages.paragraphs([f"{found['model']}, {found['ranks']} ranks, seed {found['seed']}: one run for each policy."])
    top += pages.paragraphs(holds, "bad" if found["failures"] else "good")
    made = [f"{found['command']} at commit {found['commit']}", f"{found['machine']['cpus']} CPUs of "
            f"{found['machine']['cpu']}, {found['machine']['system']}, kernel {found['machine']['kernel']}"]
    path = os.path.join(folder, "index.html")
    headings = [heading.format(metric=metric) for heading in HEADINGS]
    pages.write(path, "testbed/train", "Training through the plugin", top, [
        ("Policies", pages.table(headings, _rows(runs))), ("Learning", images["learning"]),
        ("What was lost", images["losses"]), ("Replicas", images["divergence"]),
        ("Made by", pages.paragraphs(made, "small"))])
    return path
