# SPDX-License-Identifier: Apache-2.0
"""Draws the ratios of a run against what they must be at least."""
import os
import sys

sys.path[:0] = [os.path.join(os.path.dirname(os.path.realpath(__file__)), "..", "..", room)
                for room in ("page_lib", "entry_lib")]

import figures  # noqa: E402

ENOUGH, SHORT, GOAL = "#4477aa", "#cc3311", "#222222"


def draw(found, path):
    """`found`: lines of one run. A bar a ratio, the least it must be as a mark on it."""
    bars = [(f"{line['benchmark'].split(' ')[0]}: {ratio}", value, line.get("least", {}).get(ratio))
            for line in found for ratio, value in line.get("ratios", {}).items()]
    figure, axis = figures.pyplot.subplots(figsize=(8, 0.8 + 0.34 * len(bars)))
    for place, (_, value, least) in enumerate(bars):
        axis.barh(place, value, color=ENOUGH if least is None or value >= least else SHORT, height=0.62)
        axis.text(value, place, f" {value:.2f}", va="center", fontsize=8)
        if least is not None:
            axis.plot([least, least], [place - 0.42, place + 0.42], color=GOAL, linewidth=1.6)
    axis.set_yticks(range(len(bars)), [bar[0] for bar in bars], fontsize=8)
    axis.invert_yaxis()
    axis.set_xlabel("ratio within a round, median (mark: the least it must be)")
    first = found[0]
    changed = "+" if first["commit"].endswith("+") else ""
    cpus, day = first["machine"]["cpus"], first["date"][:10]
    axis.set_title(f"{first['commit'][:9]}{changed}, {cpus} CPUs, {day}", fontsize=9)
    figures.save_png(figure, path)
    figures.close(figure)
