# SPDX-License-Identifier: Apache-2.0
# The report: one HTML file that holds everything it shows.
import json

import figures
import findings
import page
import plots
from page import escape
from table import COLUMNS, cells


def _table(variants):
    return page.table([heading for heading, _ in COLUMNS], [cells(variants, variant) for variant in variants])


def _checks(results):
    if results["failures"]:
        items = "".join(f'<li class="bad">{escape(line)}</li>' for line in results["failures"])
        return f"<p>These lines must hold in every run, and did not:</p><ul>{items}</ul>"
    return ('<p class="good">In every run: no wrong element, no violation of a loss budget, as many trims seen by '
            "the transport as cut by the switch, nothing forgiven where nothing may be.</p>")


def _machine(results):
    machine = results["machine"]
    return (f'<p class="small">{escape(machine["cpu"])}, {machine["cpus"]} CPUs, {escape(machine["memory"])} '
            f'memory, {escape(machine["system"])}, kernel {escape(machine["kernel"])}; commit '
            f'{escape(results["commit"])}; command <code>{escape(results["command"])}</code>; '
            f'{results["duration_s"]:.0f} s.</p>')


def _sections(results, vesting, flows, pictures):
    variants, light = results["variants"], results["light"]
    yield "Time by policy", (
        "<p>A bar is the median of the turns, a dot one turn. All policies ran with the same parameters, in turns."
        "</p>" + figures.embed(plots.times(variants, light), "times", pictures))
    yield "Each step", figures.embed(plots.steps(variants), "steps", pictures)
    if vesting is not None:
        yield "The budget vests as bytes arrive", (
            "<p>A range may be forgiven only while forgiven bytes stay within the shaded area: a burst at the start "
            "of a step cannot use up the budget of the whole step.</p>" +
            figures.embed(plots.vesting(vesting), "vesting", pictures))
    if flows:
        rate_mbps = float(results["parameters"]["environment"]["FORGIVE_LINK_RATE_MBPS"])
        yield "One flow’s rate", (
            "<p>Where a flow is exempt, marks and trims change no rate.</p>" +
            figures.embed(plots.rates(flows, rate_mbps * 1e6), "rates", pictures))
    for algorithm in dict.fromkeys(variant["algorithm"] for variant in variants):
        yield f"All figures: {algorithm}", _table([v for v in variants if v["algorithm"] == algorithm])
    for algorithm in dict.fromkeys(variant["algorithm"] for variant in light):
        yield f"All figures: {algorithm}, the less congested row", (
            _table([v for v in light if v["algorithm"] == algorithm]))
    yield "What must hold", _checks(results)
    yield "Parameters", f'<pre>{escape(json.dumps(results["parameters"], indent=1))}</pre>'


def write(results, vesting, flows, path, pictures):
    """Writes the report to `path`, and its plots as PNG files into the folder `pictures`. May raise OSError."""
    top = page.paragraphs(findings.lead(results)) + page.paragraphs(results["notes"], "small") + _machine(results)
    page.write(path, "FORGIVE: the demo", "FORGIVE on a trimming switch", top,
               _sections(results, vesting, flows, pictures))
