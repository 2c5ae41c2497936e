#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Draws what forgive_replay found: norms with critical steps shaded, and the sweep; into PNG or HTML."""

import json
import math
import os
import sys

# The program finds this script by a link beside itself; the shared look is found from where the script is.
sys.path[:0] = [os.path.join(os.path.dirname(os.path.dirname(os.path.realpath(__file__))), room)
                for room in ("page_lib", "entry_lib")]

SAID = 2  # the exit status after a line that says what is wrong


def end(text):
    print(f"forgive_replay: --plot{text}", file=sys.stderr)
    sys.exit(SAID)


try:
    import figures
except ImportError:
    end(": python3-matplotlib is missing: apt-get install python3-matplotlib")
import page  # noqa: E402

CRITICAL, MISSED, FALSE_ALARM, LINE = "#f3e6c8", "#cc3311", "#aa7700", "#4477aa"
MANY = 12  # rows or columns of a sweep with more have no numbers in their cells


def runs(steps, wanted):
    """(first, last) step numbers of the runs of neighbouring rows that are wanted."""
    first = last = None
    for step in steps:
        if wanted(step):
            first, last = (step["step"] if first is None else first), step["step"]
        elif first is not None:
            yield first, last
            first = None
    if first is not None:
        yield first, last


def title_of(found):
    critical = f"{found['critical']} of {len(found['steps'])} steps critical"
    if found["detector"] == "steps":
        return f"a list of steps: {critical}"
    return f"{found['detector']}, window {found['window']}, threshold {found['threshold']:g}: {critical}"


def draw_norms(axis, found):
    """The norm of each step; the background says what the detector made of it."""
    steps = found["steps"]
    for first, last in runs(steps, lambda step: step["critical"]):
        axis.axvspan(first - 0.5, last + 0.5, color=CRITICAL, linewidth=0, zorder=0)
    for layer in range(len(steps[0]["norms"])):
        norms = [float(step["norms"][layer]) for step in steps]
        good = [norm if math.isfinite(norm) and norm >= 0 else math.nan for norm in norms]
        axis.plot([step["step"] for step in steps], good, color=LINE, linewidth=1.1, alpha=0.9)
    top = axis.get_ylim()[1]
    for wanted, colour, name in (
            (lambda step: step.get("truth") and not step["critical"], MISSED, "missed critical step"),
            (lambda step: step.get("truth") is False and step["critical"], FALSE_ALARM, "false alarm")):
        marked = [step["step"] for step in steps if wanted(step)]
        if marked:
            axis.plot(marked, [top] * len(marked), "|", color=colour, markersize=9, markeredgewidth=1.6, label=name)
    if axis.get_legend_handles_labels()[0]:
        axis.legend(loc="upper right", fontsize=8)
    axis.set(title=title_of(found), xlabel="step (shaded: critical)", ylabel="gradient norm")
    axis.set_xlim(steps[0]["step"] - 0.5, steps[-1]["step"] + 0.5)


def draw_sweep(figure, axis, found, value, title):
    """A number a point of the sweep, written into its cell."""
    windows = sorted({point["window"] for point in found["sweep"]})
    thresholds = sorted({point["threshold"] for point in found["sweep"]})
    table = {(point["window"], point["threshold"]): value(point) for point in found["sweep"]}
    image = axis.imshow([[table[w, t] for t in thresholds] for w in windows], aspect="auto", origin="lower",
                        cmap="viridis")
    axis.grid(False)
    if len(windows) <= MANY and len(thresholds) <= MANY:
        middle = (min(table.values()) + max(table.values())) / 2
        for row, window in enumerate(windows):
            for column, threshold in enumerate(thresholds):
                number = table[window, threshold]
                axis.text(column, row, str(number), ha="center", va="center", fontsize=7,
                          color="black" if number > middle else "white")
    axis.set_xticks(range(len(thresholds)), [f"{t:g}" for t in thresholds], fontsize=7)
    axis.set_yticks(range(len(windows)), windows, fontsize=8)
    axis.set(title=title, xlabel="threshold", ylabel="window, steps")
    figure.colorbar(image, ax=axis)


def draw_norms_figure(found):
    figure, axis = figures.pyplot.subplots(figsize=(9.5, 3.4))
    draw_norms(axis, found)
    return figure


def sweep_panels(found):
    panels = []
    if "sweep" in found:
        panels.append((lambda point: point["critical"], "critical steps"))
        if "comparison" in found:
            panels.append((lambda point: point["comparison"]["missed"], "missed critical steps"))
            panels.append((lambda point: point["comparison"]["false_alarms"], "false alarms"))
    return panels


def draw_sweep_figure(found):
    panels = sweep_panels(found)
    figure, axes = figures.pyplot.subplots(1, len(panels), figsize=(9.5, 3.4), squeeze=False)
    for axis, (value, title) in zip(axes[0], panels):
        draw_sweep(figure, axis, found, value, title)
    return figure


def draw(found):
    """Everything in one picture."""
    panels = sweep_panels(found)
    if not panels:
        return draw_norms_figure(found)
    figure = figures.pyplot.figure(figsize=(9.5, 6.8), layout="constrained")
    above, below = figure.subfigures(2, 1)
    draw_norms(above.subplots(), found)
    for axis, (value, title) in zip(below.subplots(1, len(panels), squeeze=False)[0], panels):
        draw_sweep(below, axis, found, value, title)
    return figure


def write_page(path, found):
    """One HTML file that needs nothing else."""
    rows = [("norms", found["norms"]), ("detector", found["detector"]), ("window", found["window"]),
            ("threshold", f"{found['threshold']:g}"), ("steps", len(found["steps"])),
            ("critical", found["critical"]), ("bad norms", found["bad_norms"]),
            ("P low, P high", f"{found['p_low']:g}, {found['p_high']:g}")]
    rows += [(f"labels: {name.replace('_', ' ')}", f"{value:g}") for name, value in
             found.get("comparison", {}).items()]
    sections = [("Steps", figures.svg_of(draw_norms_figure(found), "norms"))]
    if sweep_panels(found):
        sections.append(("Sweep", figures.svg_of(draw_sweep_figure(found), "sweep")))
    page.write(path, "forgive_replay", "forgive_replay", page.table(("", "value"), rows), sections)


def main(arguments):
    if len(arguments) != 2:
        sys.exit("usage: plot.py FOUND.json PLOT.png|PLOT.html (forgive_replay --plot calls it)")
    with open(arguments[0], encoding="utf-8") as file:
        found = json.load(file)
    try:
        if arguments[1].endswith(".html"):
            write_page(arguments[1], found)
        else:
            figures.save_png(draw(found), arguments[1], dpi=130)
    except OSError as error:
        end(f" {arguments[1]}: {error.strerror}")


if __name__ == "__main__":
    main(sys.argv[1:])
