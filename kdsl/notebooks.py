"""How plans and tables are shown in notebooks and consoles."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape


class PlanText(str):
    """The lines of a plan: a string that notebooks and consoles show as lines, not escaped in quotes."""

    __slots__ = ()

    def __repr__(self) -> str:
        """Return the lines themselves."""
        return str(self)


def html_table(title: str, names: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table as HTML, with all of its strings as they are.

    Args:
        title: The caption.
        names: The names of the columns.
        rows: The cells of each row.
    """
    head = "".join(f"<th>{escape(name)}</th>" for name in names)
    body = "".join(f"<tr>{''.join(f'<td>{escape(cell)}</td>' for cell in row)}</tr>" for row in rows)
    return f"<table><caption>{escape(title)}</caption><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
