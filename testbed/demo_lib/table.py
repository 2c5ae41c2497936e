# SPDX-License-Identifier: Apache-2.0
# The results for a terminal: bars first, then the table.
from results import change, median_allreduce_ms

BAR_COLUMNS = 44
NAMES = {"tcp": "kernel TCP", "plain": "plain", "tight": "tight", "exempt-only": "exempt-only",
         "forgive-reduce": "forgive-reduce", "forgive-all": "forgive-all"}

COLUMNS = (
    # heading, width
    ("policy", 16), ("time s", 8), ("to tight", 9), ("to plain", 9), ("critical", 9), ("other", 8), ("forgiven", 9),
    ("resent", 8), ("trims", 8), ("marks", 8), ("cuts: mark", 11), ("trim", 7), ("rto", 5), ("exempt", 8), ("wrong", 6),
)


def percent(part, whole, digits=2):
    return f"{100 * part / whole:.{digits}f}%" if whole else "-"


def bars(variants):
    """A bar a policy, as long as its time."""
    if not variants:
        return []
    longest = max(variant["total_s"] for variant in variants)
    lines = []
    for variant in variants:
        length = round(BAR_COLUMNS * variant["total_s"] / longest) if longest else 0
        lines.append(f"  {NAMES[variant['name']]:<15}{'█' * max(length, 1):<{BAR_COLUMNS + 1}}"
                     f"{variant['total_s']:6.2f} s  {_change(variants, variant)}")
    return lines


def _change(variants, variant, baseline="tight"):
    value = change(variants, variant, baseline)
    return "" if value is None or variant["name"] == baseline else f"{100 * value:+.1f}%"


def _milliseconds(value):
    return "-" if value is None else f"{value:.1f}"


def cells(variants, variant):
    """One row's texts, in the order of COLUMNS."""
    cuts = variant["rate_cuts"]
    own = [NAMES[variant["name"]], f"{variant['total_s']:.2f}", _change(variants, variant) or "-",
           _change(variants, variant, "plain") or "-", _milliseconds(median_allreduce_ms(variant, True)),
           _milliseconds(median_allreduce_ms(variant, False))]
    if variant["name"] == "tcp":
        return own + ["-"] * 8 + [str(variant["wrong"])]
    return own + [
        percent(variant["forgiven_bytes"], variant["gradient_bytes"]),
        percent(variant["retransmitted_bytes"], variant["gradient_bytes"]), str(variant["trims"]),
        str(variant["marks"]), str(cuts["mark"]), str(cuts["trim"]), str(cuts["timeout"]),
        percent(variant["exempt_share"], 1, 1), str(variant["wrong"])]


def table(variants):
    lines = ["  " + "".join(f"{heading:<{width}}" if i == 0 else f"{heading:>{width}}"
                            for i, (heading, width) in enumerate(COLUMNS))]
    for variant in variants:
        lines.append("  " + "".join(f"{text:<{width}}" if i == 0 else f"{text:>{width}}" for i, (text, (_, width)) in
                                    enumerate(zip(cells(variants, variant), COLUMNS))))
    return lines


LEGEND = ("  time: all steps, median of the turns; critical, other: median all-reduce in ms on such steps; forgiven, "
          "resent:\n  of the gradient bytes; cuts: rate cuts by cause; exempt: share of the bytes sent while exempt.")


def _algorithms(variants):
    return list(dict.fromkeys(variant["algorithm"] for variant in variants))


def text(results, titles):
    """The whole summary. `titles` names (row, algorithm)."""
    lines = []
    for row in ("variants", "light"):
        for algorithm in _algorithms(results[row]):
            chosen = [variant for variant in results[row] if variant["algorithm"] == algorithm]
            lines += ["", titles[row, algorithm], ""] + bars(chosen) + [""] + table(chosen)
    return "\n".join(lines + ["", LEGEND])
