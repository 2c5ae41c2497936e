# SPDX-License-Identifier: Apache-2.0
"""The table on the terminal, and the plots."""
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(os.path.realpath(__file__))), "page_lib"))

COLOURS = {"gloo": "#777777", "tcp": "#aaaaaa", "plain": "#4477aa", "tight": "#66ccee", "forgive-reduce": "#228833",
           "forgive-all": "#ee6677", "masks": "#aa3377"}
CRITICAL_COLOUR = "#f3e6c8"


def table(runs, metric):
    head = (f"{'policy':<15} {'train s':>8} {'carried s':>9} {'loss':>7} {metric:>9} {'critical':>8} {'forgiven':>9} "
            f"{'contrib. lost':>13} {'replicas':>10}")
    lines = [head, "-" * len(head)]
    for run in runs:
        whole = run["forgiven"] + run["received"]
        share = f"{100 * run['forgiven'] / whole:.2f} %" if whole else "-"
        metric_text = f"{run['metric']:.4f}" if run["metric"] is not None else "-"
        replicas = "identical" if run["identical"] else f"{run['distance']:.2g} off"
        lines.append(f"{run['policy']:<15} {run['train_s']:>8.1f} {run['carried_s']:>9.1f} {run['loss']:>7.4f} "
                     f"{metric_text:>9} {run['critical_steps']:>8} {share:>9} {run['contributions_lost']:>13} "
                     f"{replicas:>10}")
    return "\n".join(lines)


def _smooth(values, width=9):
    half = width // 2
    return [sum(values[max(0, i - half):i + half + 1]) / len(values[max(0, i - half):i + half + 1])
            for i in range(len(values))]


def _learning(pyplot, runs, metric):
    figure, axes = pyplot.subplots(1, 2, figsize=(10, 3.4))
    for run in runs:
        colour, steps = COLOURS[run["policy"]], [row["step"] for row in run["steps"]]
        axes[0].plot(steps, _smooth([row["loss"] for row in run["steps"]]), color=colour, label=run["policy"],
                     linewidth=1.3)
        marked = [row for row in run["steps"] if "metric" in row]
        seconds, sums = 0.0, {}
        for row in run["steps"]:
            seconds += row["seconds"]
            sums[row["step"]] = seconds
        axes[1].plot([sums[row["step"]] for row in marked], [row["metric"] for row in marked], "o-", color=colour,
                     markersize=3, linewidth=1.3)
    axes[0].set(title="training loss (mean of 9 steps)", xlabel="step")
    axes[1].set(title=metric, xlabel="time in steps, s")
    axes[0].legend(fontsize=8)
    return figure


def _losses(pyplot, runs):
    """By step: bytes forgiven as a share, and the norm with critical steps shaded, of the last forgiving run."""
    figure, axes = pyplot.subplots(2, 1, figsize=(10, 5), sharex=True)
    for run in runs:
        if run["forgiven"]:
            axes[0].plot([row["step"] for row in run["steps"]],
                         [100 * row["forgiven"] / max(1, row["forgiven"] + row["received"]) for row in run["steps"]],
                         color=COLOURS[run["policy"]], label=run["policy"], linewidth=1.2)
    shown = next((run for run in reversed(runs) if run["forgiven"]), runs[-1])
    for row in shown["steps"]:
        if row["critical"][0]:
            for axis in axes:
                axis.axvspan(row["step"] - 0.5, row["step"] + 0.5, color=CRITICAL_COLOUR, linewidth=0, zorder=0)
    for rank in range(len(shown["steps"][0]["norms"])):
        axes[1].plot([row["step"] for row in shown["steps"]], [row["norms"][rank] for row in shown["steps"]],
                     linewidth=0.9, label=f"rank {rank}")
    axes[0].set(title="bytes forgiven, % of the forgivable ones")
    if axes[0].get_legend_handles_labels()[0]:
        axes[0].legend(fontsize=8)
    axes[1].set(title=f"gradient norms ({shown['policy']}; shaded: critical on rank 0)", xlabel="step")
    return figure


def plots(runs, metric, folder):
    """Writes learning.png and losses.png."""
    import figures  # matplotlib takes a second to load
    names = []
    for name, figure in (("learning", _learning(figures.pyplot, runs, metric)),
                         ("losses", _losses(figures.pyplot, runs))):
        path = os.path.join(folder, name + ".png")
        figures.save_png(figure, path)
        figures.close(figure)
        names.append(path)
    return names
