"""How tables, plans, problems, lags, differences and metrics are shown in notebooks and consoles."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from html import escape

MOST_ROWS = 200
"""The most rows of a table in HTML; a line below it says how many more there are."""
_SHORT = 32
"""The most characters of a cell that is not wrapped."""
_STYLE = """<style>
&{overflow-x:auto;max-width:100%;background:transparent;scrollbar-color:rgba(128,128,128,.7) transparent}
& table{border-collapse:collapse;margin:0;background:transparent;color:inherit;font-size:inherit}
& caption{caption-side:top;text-align:left;font-weight:bold;padding:4px 0;color:inherit;white-space:nowrap}
& th,& td{text-align:left;vertical-align:top;padding:2px 14px 2px 0;border:0;max-width:40em;color:inherit;
border-bottom:1px solid rgba(128,128,128,.35);background:transparent}
& th,& .short{white-space:nowrap}
& .long{min-width:20em}
& .number{text-align:right;white-space:nowrap;font-variant-numeric:tabular-nums}
& pre{margin:4px 0;padding:0;background:transparent;color:inherit;font-family:monospace;white-space:pre}
& p{margin:2px 0 2px 1.5em;overflow-wrap:break-word}
& p.title{margin:4px 0;font-weight:bold}
& p.rest{margin:4px 0}
& p.fix{margin-bottom:8px}
& pre.excerpt{margin-left:1.5em}
& .error,& .warning{padding:0 5px;border-radius:3px;background:#c62828;color:#fff}
& .warning{background:#ffb300;color:#000}
</style>""".replace("&", "div.kdsl.kdsl.kdsl")
"""The style of all HTML: the text has the colour of the notebook's theme, which may be a dark one in a light browser.

The repeated class is stronger than the styles that JupyterLab has for tables."""


class PlanText(str):
    """The lines of a plan: a string that notebooks and consoles show as lines, not escaped in quotes."""

    __slots__ = ()

    def __repr__(self) -> str:
        """Return the lines themselves."""
        return str(self)

    def _repr_html_(self) -> str:
        """Return the lines, which notebooks scroll and do not wrap."""
        return make_html(f"<pre>{escape(self)}</pre>")


def make_html(*parts: str) -> str:
    """Put parts that are HTML into a block with the style of kdsl, which scrolls where it is too wide."""
    return f'{_STYLE}<div class="kdsl">{"".join(parts)}</div>'


def table_html(
    title: str, names: Sequence[str], rows: Iterable[Sequence[object]], *, numbers: Collection[str] = ()
) -> str:
    """Write a table as HTML, with all of its values as their strings; None is an empty cell.

    Args:
        title: The caption.
        names: The names of the columns.
        rows: The cells of each row.
        numbers: The names of the columns that are aligned to the right.
    """
    kinds = ["number" if name in numbers else "" for name in names]
    head = "".join(_cell_html("th", name, kind) for name, kind in zip(names, kinds, strict=True))
    lines = ["".join(_cell_html("td", cell, kind) for cell, kind in zip(row, kinds, strict=True)) for row in rows]
    body = "".join(f"<tr>{line}</tr>" for line in lines[:MOST_ROWS])
    more = len(lines) - MOST_ROWS
    rest = f'<p class="rest">… {more:,} more row{"s" * (more > 1)}</p>' if more > 0 else ""
    caption = f"<caption>{escape(title)}</caption>"
    return f"<table>{caption}<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>{rest}"


def _cell_html(tag: str, value: object, kind: str) -> str:
    """Write a cell as HTML, whose class says how it is aligned and wrapped."""
    text = "" if value is None else str(value)
    kind = kind or ("short" if len(text) <= _SHORT else "long")
    return f'<{tag} class="{kind}">{escape(text)}</{tag}>'


def title_html(title: str) -> str:
    """Write the line above a list of problems as HTML."""
    return f'<p class="title">{escape(title)}</p>'


def problem_html(severity: str, place: str, message: str, fix: str, code: str, excerpt: str | None) -> str:
    """Write a problem as HTML.

    Args:
        severity: ``error`` or ``warning``.
        place: Where it is; may be empty.
        message: What is wrong.
        fix: What to write instead.
        code: Its code.
        excerpt: The lines of the declaration, with carets under the position; None if they are not known.
    """
    where = f" <b>{escape(place)}</b>" if place else ""
    kind = escape(severity)
    lines = "" if excerpt is None else f'<pre class="excerpt">{escape(excerpt)}</pre>'
    return (
        f'<p><span class="{kind}">{kind}</span>{where} {escape(message)}</p>{lines}'
        f'<p class="fix"><i>fix:</i> {escape(fix)} <code>{escape(code)}</code></p>'
    )
