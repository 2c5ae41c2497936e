#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Draws what forgive_replay found: norms with critical steps shaded, and the sweep; into PNG or HTML."""

import html
import io
import json
import math
import sys

try:
    import matplotlib
    matplotlib.use("Agg")
    from matplotlib import pyplot
except ImportError:
    sys.exit("forgive_replay: --plot: python3-matplotlib is missing: apt-get install python3-matplotlib")

CRITICAL, MISSED, FALSE_ALARM, LINE = "#f3e6c8", "#cc3311", "#ccbb44", "#4477aa"


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
            axis.plot(marked, [top] * len(marked), "|", color=colour, markersize=9, label=name)
    if axis.get_legend_handles_labels()[0]:
        axis.legend(loc="upper right", fontsize=8)
    axis.set(title=f"{found['detector']}, window {found['window']}, threshold {found['threshold']:g}: "
                   f"{found['critical']} of {len(steps)} steps critical",
             xlabel="step (shaded: critical)", ylabel="gradient norm")
    axis.set_xlim(steps[0]["step"] - 0.5, steps[-1]["step"] + 0.5)


def draw_sweep(figure, axis, found, value, title):
    """A number a point of the sweep."""
    windows = sorted({point["window"] for point in found["sweep"]})
    thresholds = sorted({point["threshold"] for point in found["sweep"]})
    table = {(point["window"], point["threshold"]): value(point) for point in found["sweep"]}
    image = axis.imshow([[table[w, t] for t in thresholds] for w in windows], aspect="auto", origin="lower",
                        cmap="viridis")
    axis.set_xticks(range(len(thresholds)), [f"{t:g}" for t in thresholds], fontsize=7)
    axis.set_yticks(range(len(windows)), windows)
    axis.set(title=title, xlabel="threshold", ylabel="window, steps")
    figure.colorbar(image, ax=axis)


def draw(found):
    panels = []
    if "sweep" in found:
        panels.append((lambda point: point["critical"], "critical steps"))
        if "comparison" in found:
            panels.append((lambda point: point["comparison"]["missed"], "missed critical steps"))
            panels.append((lambda point: point["comparison"]["false_alarms"], "false alarms"))
    figure = pyplot.figure(figsize=(9.5, 3.4 + (3.2 if panels else 0)), layout="constrained")
    if not panels:
        draw_norms(figure.subplots(), found)
        return figure
    above, below = figure.subfigures(2, 1, height_ratios=(3.4, 3.2))
    draw_norms(above.subplots(), found)
    for axis, (value, title) in zip(below.subplots(1, len(panels), squeeze=False)[0], panels):
        draw_sweep(below, axis, found, value, title)
    return figure


def page(found, figure):
    """One HTML file that needs nothing else."""
    picture = io.StringIO()
    figure.savefig(picture, format="svg")
    rows = [("norms", found["norms"]), ("detector", found["detector"]), ("window", found["window"]),
            ("threshold", found["threshold"]), ("steps", len(found["steps"])), ("critical", found["critical"]),
            ("bad norms", found["bad_norms"]), ("P low, P high", f"{found['p_low']:g}, {found['p_high']:g}")]
    rows += [(f"labels: {name.replace('_', ' ')}", f"{value:g}") for name, value in
             found.get("comparison", {}).items()]
    cells = "".join(f"<tr><th>{html.escape(str(name))}</th><td>{html.escape(str(value))}</td></tr>"
                    for name, value in rows)
    return ("<!doctype html><meta charset='utf-8'><title>forgive_replay</title><style>body{font:14px sans-serif;"
            "max-width:60em;margin:2em auto}th{text-align:left;padding-right:1.5em}svg{max-width:100%;height:auto}"
            f"</style><h1>forgive_replay</h1><table>{cells}</table>{picture.getvalue().split('?>', 1)[-1]}")


def main(arguments):
    if len(arguments) != 2:
        sys.exit("usage: plot.py FOUND.json PLOT.png|PLOT.html (forgive_replay --plot calls it)")
    with open(arguments[0], encoding="utf-8") as file:
        found = json.load(file)
    figure = draw(found)
    try:
        if arguments[1].endswith(".html"):
            with open(arguments[1], "w", encoding="utf-8") as file:
                file.write(page(found, figure))
        else:
            figure.savefig(arguments[1], dpi=130)
    except OSError as error:
        sys.exit(f"forgive_replay: --plot {arguments[1]}: {error.strerror}")


if __name__ == "__main__":
    main(sys.argv[1:])
