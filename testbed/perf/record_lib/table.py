# SPDX-License-Identifier: Apache-2.0
"""Samples in turns: medians, paired ratios, and the lines and tables made of them."""
import statistics


class Samples:
    """What one contestant's rounds gave: {figure: [one a round]} of one suite."""

    def __init__(self):
        self.units, self.values = {}, {}

    def add(self, figures):
        for name, (unit, value) in figures.items():
            self.units[name] = unit
            self.values.setdefault(name, []).append(value)

    def ratio(self, above, below):
        """The median of the rounds' ratios; None where a figure is missing."""
        if above not in self.values or below not in self.values:
            return None
        return statistics.median(a / b for a, b in zip(self.values[above], self.values[below]))


def lines(suite, samples, facts):
    """One dictionary a figure, for the file."""
    for name, values in samples.values.items():
        line = {"benchmark": f"{suite.name} {name}", "unit": samples.units[name],
                "median": statistics.median(values), "samples": values, "command": suite.command()}
        ratios = {ratio: samples.ratio(above, below) for ratio, above, below in suite.ratios if above == name}
        ratios = {ratio: value for ratio, value in ratios.items() if value is not None}
        if ratios:
            line["ratios"] = ratios
            line["least"] = {ratio: suite.least[ratio] for ratio in ratios if ratio in suite.least}
        yield {**facts, **line}


def _number(value):
    return f"{value:.1f}" if abs(value) >= 100 else f"{value:.3g}"


def grid(rows):
    """Rows of words under one another; the first row is the heading."""
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    return "\n".join("  ".join([row[0].ljust(widths[0]), *(word.rjust(width)
                                                           for word, width in zip(row[1:], widths[1:]))]).rstrip()
                     for row in rows)


def recorded(found):
    """The table of one run's lines."""
    rows = [("benchmark", "median", "unit", "least to largest", "ratios")]
    for line in found:
        ratios = ", ".join(f"{name} {value:.2f}" for name, value in line.get("ratios", {}).items())
        rows.append((line["benchmark"], _number(line["median"]), line["unit"],
                     f"{_number(min(line['samples']))} to {_number(max(line['samples']))}", ratios))
    return grid(rows)


def compared(first, second, names):
    """Two runs' lines. A ratio is the second's by the first's, within a round where they ran in turns."""
    by_name = {line["benchmark"]: line for line in second}
    rows = [("benchmark", "unit", *names, "ratio")]
    for line in first:
        other = by_name.get(line["benchmark"])
        if other is None:
            continue
        if line.get("turns") and line["turns"] == other.get("turns"):
            pairs = [b / a for a, b in zip(line["samples"], other["samples"]) if a]
            ratio = statistics.median(pairs) if pairs else None
        else:
            ratio = other["median"] / line["median"] if line["median"] else None
        rows.append((line["benchmark"], line["unit"], _number(line["median"]), _number(other["median"]),
                     "-" if ratio is None else f"{ratio:.3f}"))
    return grid(rows)
