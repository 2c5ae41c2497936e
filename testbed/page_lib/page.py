# SPDX-License-Identifier: Apache-2.0
# One self-contained HTML page: its look, its tables, its sections.
import html

from whole_files import write_whole

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


def escape(value):
    return html.escape(str(value))


def table(headings, rows):
    """Rows of texts under their headings; the first column names the row."""
    head = "".join(f"<th>{escape(heading)}</th>" for heading in headings)
    body = "".join("<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>\n" for row in rows)
    return f'<div class="scroll"><table><thead><tr>{head}</tr></thead><tbody>\n{body}</tbody></table></div>'


def paragraphs(lines, css="lead"):
    return "".join(f'<p class="{css}">{escape(line)}</p>\n' for line in lines)


def write(path, title, heading, top, sections):
    """Writes the page: `top` is HTML, `sections` pairs of a title and HTML. May raise OSError."""
    content = "".join(f"<h2>{escape(name)}</h2>\n{text}\n" for name, text in sections)
    text = (f'<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8"><title>{escape(title)}</title>\n'
            f'<meta name="viewport" content="width=device-width"><style>{STYLE}</style></head><body>\n'
            f"<h1>{escape(heading)}</h1>\n{top}{content}</body></html>\n")
    write_whole(path, text.encode())
