# SPDX-License-Identifier: Apache-2.0
# The report: one HTML file that holds everything it shows.
import html
import json

import findings
import plots
from table import COLUMNS, cells

STYLE = """
body { font: 16px/1.5 system-ui, sans-serif; color: #222; max-width: 62rem; margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.7rem; margin-bottom: 0.2rem; } h2 { font-size: 1.2rem; margin-top: 2.4rem; }
.lead { font-size: 1.1rem; } .small { color: #555; font-size: 0.85rem; }
svg { width: 100%; height: auto; display: block; margin: 0.6rem 0; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; font-size: 0.84rem; font-variant-numeric: tabular-nums; }
th, td { padding: 0.28rem 0.55rem; text-align: right; border-bottom: 1px solid #e4e4e4; white-space: nowrap; }
th:first-child, td:first-child { text-align: left; } th { font-weight: 600; }
.good { color: #1a6b29; } .bad { color: #b3152b; font-weight: 600; }
pre { background: #f6f6f6; padding: 0.8rem; overflow-x: auto; font-size: 0.8rem; }
"""


def _escape(value):
    return html.escape(str(value))


def _table(variants):
    head = "".join(f"<th>{_escape(heading)}</th>" for heading, _ in COLUMNS)
    body = "".join("<tr>" + "".join(f"<td>{_escape(cell)}</td>" for cell in cells(variants, variant)) + "</tr>\n"
                   for variant in variants)
    return f'<div class="scroll"><table><thead><tr>{head}</tr></thead><tbody>\n{body}</tbody></table></div>'


def _figure(figure, name, pictures):
    """The SVG of a figure; its PNG is put beside the report."""
    text = plots.svg_of(figure, name)
    plots.save_png(figure, f"{pictures}/{name}.png")
    plots.close(figure)
    return text


def _paragraphs(lines, css="lead"):
    return "".join(f'<p class="{css}">{_escape(line)}</p>\n' for line in lines)


def _checks(results):
    if results["failures"]:
        items = "".join(f'<li class="bad">{_escape(line)}</li>' for line in results["failures"])
        return f"<p>These lines must hold in every run, and did not:</p><ul>{items}</ul>"
    return ('<p class="good">In every run: no wrong element, no violation of a loss budget, as many trims seen by '
            "the transport as cut by the switch, nothing forgiven where nothing may be.</p>")


def _machine(results):
    machine = results["machine"]
    return (f'<p class="small">{_escape(machine["cpu"])}, {machine["cpus"]} CPUs, {_escape(machine["memory"])} '
            f'memory, {_escape(machine["system"])}, kernel {_escape(machine["kernel"])}; commit '
            f'{_escape(results["commit"])}; command <code>{_escape(results["command"])}</code>; '
            f'{results["duration_s"]:.0f} s.</p>')


def _sections(results, vesting, flows, pictures):
    variants, light = results["variants"], results["light"]
    yield "Time by policy", (
        "<p>A bar is the median of the turns, a dot one turn. All policies ran with the same parameters, in turns."
        "</p>" + _figure(plots.times(variants, light), "times", pictures))
    yield "Each step", _figure(plots.steps(variants), "steps", pictures)
    if vesting is not None:
        yield "The budget vests as bytes arrive", (
            "<p>A range may be forgiven only while forgiven bytes stay within the shaded area: a burst at the start "
            "of a step cannot use up the budget of the whole step.</p>" +
            _figure(plots.vesting(vesting), "vesting", pictures))
    if flows:
        rate_mbps = float(results["parameters"]["environment"]["FORGIVE_LINK_RATE_MBPS"])
        yield "One flow’s rate", (
            "<p>Where a flow is exempt, marks and trims change no rate.</p>" +
            _figure(plots.rates(flows, rate_mbps * 1e6), "rates", pictures))
    for algorithm in dict.fromkeys(variant["algorithm"] for variant in variants):
        yield f"All figures: {algorithm}", _table([v for v in variants if v["algorithm"] == algorithm])
    for algorithm in dict.fromkeys(variant["algorithm"] for variant in light):
        yield f"All figures: {algorithm}, the less congested row", (
            _table([v for v in light if v["algorithm"] == algorithm]))
    yield "What must hold", _checks(results)
    yield "Parameters", f'<pre>{_escape(json.dumps(results["parameters"], indent=1))}</pre>'


def write(results, vesting, flows, path, pictures):
    """Writes the report to `path`, and its plots as PNG files into the folder `pictures`. May raise OSError."""
    sections = "".join(f"<h2>{_escape(title)}</h2>\n{content}\n"
                       for title, content in _sections(results, vesting, flows, pictures))
    page = (f'<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8"><title>FORGIVE: the demo</title>\n'
            f'<meta name="viewport" content="width=device-width"><style>{STYLE}</style></head><body>\n'
            f"<h1>FORGIVE on a trimming switch</h1>\n{_paragraphs(findings.lead(results))}"
            f"{_paragraphs(results['notes'], 'small')}{_machine(results)}{sections}</body></html>\n")
    with open(path, "w", encoding="utf-8") as file:
        file.write(page)
