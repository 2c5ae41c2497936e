# SPDX-License-Identifier: Apache-2.0
# The report's plots.
import math

import results
from figures import pyplot

CRITICAL_COLOUR = "#f3e6c8"
OURS, SEED = "#228833", "#aaaaaa"
PALETTE = ("#4477aa", "#ee6677", "#228833", "#ccbb44", "#66ccee", "#aa3377", "#777777")
PANELS_A_ROW = 6
NAME_WIDTH, NAME_HEIGHT = 90, 10  # points, of a policy's name in a plot


def training(policies, seed_rows):
    """Training time against tight: a bar is the median over the seeds, dots the seeds, grey the specification's."""
    names = [name for name in policies if name != "tight" and results.change_of_training(policies, name)]
    figure, axis = pyplot.subplots(figsize=(9.0, 0.5 + 0.46 * max(len(names), 2)))
    for place, name in enumerate(names):
        changes = [100 * change for change in results.change_of_training(policies, name)]
        axis.barh(place, results.median(changes), color=OURS, height=0.5, label=None if place else "here")
        axis.plot(changes, [place] * len(changes), "o", color="black", markersize=3)
        stated = seed_rows.get(name, {}).get("training_percent")
        if stated:
            axis.barh(place + 0.34, max(stated[1] - stated[0], 0.12), left=stated[0], color=SEED, height=0.16)
    axis.plot([], [], "s", color=SEED, label="the specification's range")
    axis.axvline(0, color="black", linewidth=0.8)
    axis.set_yticks(range(len(names)), names)
    axis.invert_yaxis()
    axis.grid(axis="y", visible=False)
    axis.set(xlabel="training time against tight, %")
    axis.legend(fontsize=9, loc="upper left", bbox_to_anchor=(1.0, 1.0))
    return figure


def all_reduce(policies):
    """The gradient all-reduce of each step, median over ranks, of the first seed of each policy."""
    figure, axis = pyplot.subplots(figsize=(9.0, 3.4))
    for index, (name, runs) in enumerate(policies.items()):
        steps = runs[0].steps
        axis.plot([step["step"] for step in steps], [step["dp_us"]["median"] / 1e3 for step in steps], marker="o",
                  markersize=3, linewidth=1.3, color=PALETTE[index % len(PALETTE)],
                  linestyle="-" if index < len(PALETTE) else "--", label=name)
    for step in next(iter(policies.values()))[0].steps:
        if step["critical"]:
            axis.axvspan(step["step"] - 0.5, step["step"] + 0.5, color=CRITICAL_COLOUR, zorder=0)
    axis.set_ylim(bottom=0)
    axis.set(xlabel="step (shaded: critical)", ylabel="gradient all-reduce, ms")
    axis.legend(fontsize=8, loc="upper left", bbox_to_anchor=(1.0, 1.0))
    return figure


def fifths(policies):
    """Where in a step bytes are trimmed, and how many of them are forgiven."""
    names = [name for name, runs in policies.items() if any(run.summary["trims"] for run in runs)]
    columns = min(max(len(names), 1), PANELS_A_ROW)
    rows = max(math.ceil(len(names) / columns), 1)
    figure, axes = pyplot.subplots(rows, columns, figsize=(2.0 + 1.7 * columns, 0.4 + 2.4 * rows), sharex=True,
                                   sharey=True, squeeze=False)
    for axis in axes.flat[len(names):]:
        axis.set_axis_off()
    for axis, name in zip(axes.flat, names):
        run = policies[name][0]
        trimmed, forgiven = (results.by_fifth(run, key) for key in ("trimmed_bytes_by_fifth",
                                                                     "forgiven_bytes_by_fifth"))
        axis.bar(range(1, 6), [value / 1e9 for value in trimmed], color="#ee6677", label="trimmed")
        axis.bar(range(1, 6), [value / 1e9 for value in forgiven], color=OURS, label="forgiven")
        axis.set_title(name, fontsize=9)
    figure.supxlabel("fifth of the gradient all-reduce", fontsize=10)
    figure.supylabel("GB", fontsize=10)
    axes[0, columns - 1].legend(fontsize=8)
    figure.tight_layout()
    return figure


def _name_points(axis, points):
    """Writes names beside their points, each above the one below where they would cover it. points: (name, x, y)."""
    axis.figure.canvas.draw()  # only then is it known where a point lies
    placed = []
    for name, x, y in sorted(points, key=lambda point: point[2]):
        right, up = axis.transData.transform((x, y)) * 72 / axis.figure.dpi
        height = up
        for other_right, other_height in placed:
            if abs(right - other_right) < NAME_WIDTH:
                height = max(height, other_height + NAME_HEIGHT)
        placed.append((right, height))
        axis.annotate(name, (x, y), xytext=(7, height - up - 3), textcoords="offset points", fontsize=8)


def trade(policies):
    """What time was saved for what was given up: one point a policy."""
    figure, axis = pyplot.subplots(figsize=(8, 5))
    points = []
    for index, (name, runs) in enumerate(policies.items()):
        changes = results.change_of_training(policies, name)
        given = results.figures(runs, "given_up")
        if not changes or not given:
            continue
        points.append((name, 100 * results.median(given), 100 * results.median(changes)))
        axis.plot(*points[-1][1:], "o", color=PALETTE[index % len(PALETTE)])
    axis.set(xlabel="gradient bytes given up, %", ylabel="training time against tight, %")
    axis.margins(x=0.2)
    _name_points(axis, points)
    return figure
