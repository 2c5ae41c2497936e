# SPDX-License-Identifier: Apache-2.0
# The report's plots.
from figures import pyplot
from matplotlib import ticker

COLOURS = {"tcp": "#777777", "plain": "#4477aa", "tight": "#66ccee", "exempt-only": "#ccbb44",
           "forgive-reduce": "#228833", "forgive-all": "#ee6677"}
CRITICAL_COLOUR = "#f3e6c8"
MOST_POINTS = 1200

def _thin(points):
    """No more points than a reader can see, first and last among them."""
    if len(points) <= MOST_POINTS:
        return points
    stride = -(-len(points) // MOST_POINTS)
    return points[::stride] + [points[-1]]


def times(variants, light):
    """Time of all steps by policy: a bar is the median, a dot a turn."""
    panels = []
    for title, rows in (("", variants), ("light: ", light)):
        for algorithm in dict.fromkeys(row["algorithm"] for row in rows):
            panels.append((title + algorithm, [row for row in rows if row["algorithm"] == algorithm]))
    figure, axes = pyplot.subplots(1, len(panels), figsize=(3.9 * len(panels), 3.0), squeeze=False)
    for axis, (title, rows) in zip(axes[0], panels):
        names = [row["name"] for row in rows]
        axis.barh(names, [row["total_s"] for row in rows], color=[COLOURS[name] for name in names], height=0.62)
        for place, row in enumerate(rows):
            axis.plot(row["turn_total_s"], [place] * row["turns"], "o", color="black", markersize=3, alpha=0.6)
            axis.annotate(f" {row['total_s']:.2f}", (max(row["turn_total_s"]), place), va="center", xytext=(4, 0),
                          textcoords="offset points")
        axis.invert_yaxis()
        axis.margins(x=0.16)
        axis.grid(axis="y", visible=False)
        axis.set(title=title, xlabel="time of all steps, s")
    return figure


def steps(variants):
    """The all-reduce of each step, by policy; critical steps are shaded."""
    algorithms = list(dict.fromkeys(row["algorithm"] for row in variants))
    figure, axes = pyplot.subplots(len(algorithms), 1, figsize=(9.0, 2.9 * len(algorithms)), squeeze=False)
    for axis, algorithm in zip(axes[:, 0], algorithms):
        rows = [row for row in variants if row["algorithm"] == algorithm]
        for step in rows[0]["steps"]:
            if step["critical"]:
                axis.axvspan(step["step"] - 0.5, step["step"] + 0.5, color=CRITICAL_COLOUR, zorder=0)
        for row in rows:
            axis.plot([step["step"] for step in row["steps"]], [step["allreduce_ms"] for step in row["steps"]],
                      "o-", color=COLOURS[row["name"]], markersize=3.5, linewidth=1.4, label=row["name"])
        axis.set(title=algorithm, xlabel="step (shaded: critical)", ylabel="all-reduce, ms")
        axis.set_ylim(bottom=0)
        axis.set_xlim(0.5, len(rows[0]["steps"]) + 0.5)
        axis.xaxis.set_major_locator(ticker.MaxNLocator(integer=True, nbins=20))
    axes[0, 0].legend(ncol=len(variants), loc="lower left", bbox_to_anchor=(0, 1.1), fontsize=9, handlelength=1.2,
                      columnspacing=1.2)
    return figure


def vesting(trace):
    """One rank's loss budget over one step: what is vested, what is forgiven, what is outstanding."""
    figure, axis = pyplot.subplots(figsize=(9.0, 3.4))
    points = _thin(trace.vesting)
    x = [point.time_ms for point in points]
    axis.axhline(trace.budget / 1e3, color="#555555", linestyle="--", linewidth=1.2, label="the step's whole budget")
    axis.fill_between(x, [point.vested / 1e3 for point in points], color="#228833", alpha=0.15, step="post",
                      label="vested so far: p/(1-p) x received")
    axis.step(x, [point.forgiven / 1e3 for point in points], where="post", color="#228833", linewidth=1.8,
              label="forgiven")
    axis.step(x, [point.outstanding / 1e3 for point in points], where="post", color="#ee6677", linewidth=1.2,
              label="outstanding: trimmed, neither arrived nor forgiven")
    axis.set(title=f"{trace.policy}, {trace.algorithm}, step {trace.step}, one receiving rank",
             xlabel="ms since the step's budget was opened", ylabel="kB")
    axis.set_ylim(bottom=0)
    axis.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0), fontsize=9)
    return figure


def rates(flows, link_rate_bps):
    """One flow's sending rate over some steps, a policy a panel; exempt stretches are shaded."""
    figure, axes = pyplot.subplots(len(flows), 1, figsize=(9.0, 1.7 * len(flows)), sharex=True, squeeze=False)
    for axis, flow in zip(axes[:, 0], flows):
        points = _thin(flow.points)
        x = [point.time_s for point in points]
        axis.step(x, [point.rate_bps / 1e6 for point in points], where="post", color=COLOURS[flow.policy],
                  linewidth=1.3)
        top = link_rate_bps / 1e6 * 1.08
        axis.fill_between(x, 0, top, where=[point.exempt for point in points], step="post",
                          color=COLOURS[flow.policy], alpha=0.14, linewidth=0)
        axis.set_ylim(0, top)
        axis.set_title(flow.policy)
        axis.set_ylabel("Mbit/s")
    axes[-1, 0].set_xlabel("s since the first sample shown (shaded: the flow is exempt)")
    return figure
