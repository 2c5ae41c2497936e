# SPDX-License-Identifier: Apache-2.0
# How every page's figures look, and their way into a page (SVG) and beside it (PNG).
import io
import os
import re

import matplotlib

from whole_files import write_whole

matplotlib.use("Agg")
from matplotlib import pyplot  # noqa: E402

pyplot.rcParams.update({
    "font.size": 10, "font.family": "sans-serif", "axes.spines.top": False, "axes.spines.right": False,
    "axes.grid": True, "grid.color": "#e4e4e4", "grid.linewidth": 0.8, "axes.axisbelow": True,
    "axes.titlesize": 11, "axes.titleweight": "bold", "axes.titlelocation": "left", "legend.frameon": False,
    "figure.constrained_layout.use": True, "svg.fonttype": "none",
})


def svg_of(figure, name):
    """The figure as SVG text that can stand in a page beside others: its ids are its own."""
    buffer = io.StringIO()
    with pyplot.rc_context({"svg.hashsalt": name}):
        figure.savefig(buffer, format="svg", metadata={"Date": None, "Creator": None})
    text = buffer.getvalue()
    text = text[text.index("<svg"):]
    text = re.sub(r'\bid="', f'id="{name}-', text)
    text = re.sub(r'url\(#', f'url(#{name}-', text)
    text = re.sub(r'xlink:href="#', f'xlink:href="#{name}-', text)
    # As wide as the column it stands in.
    return re.sub(r'(<svg[^>]*?) width="[^"]*"', r"\1", re.sub(r'(<svg[^>]*?) height="[^"]*"', r"\1", text, count=1),
                  count=1)


def save_png(figure, path, dpi=110):
    """May raise OSError."""
    content = io.BytesIO()
    figure.savefig(content, format="png", dpi=dpi)
    write_whole(path, content.getvalue())


def close(figure):
    pyplot.close(figure)


def embed(figure, name, pictures):
    """The SVG text of a figure, which is also saved as PICTURES/NAME.png and closed. May raise OSError."""
    text = svg_of(figure, name)
    os.makedirs(pictures, exist_ok=True)
    save_png(figure, f"{pictures}/{name}.png")
    close(figure)
    return text
