"""Tables in a terminal, which stay readable where it is narrow."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Any

from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderResult
from rich.table import Column, Table
from rich.text import Text

_WHOLE = 32
"""The longest word, such as an id or a timestamp, that is never broken, in characters."""
_TEXT = 16
"""The narrowest column of values of several words, in characters."""


class Grid(Table):
    """A table that shows names and values as they are: Rich does not read brackets in them as markup.

    Where its columns do not fit into the terminal without breaking short words, each row is shown as lines of a name
    and a value. The lines above and below it may be longer than the table is wide.

    Args:
        title: The line above it; empty for none.
        columns: The names of the columns.
        right: Those of them whose values are aligned to the right.
        show_footer: Whether the columns have a footer.

    Attributes:
        title_line: The line above it, if there is one.
        note: The lines below it, if there are any.
    """

    def __init__(
        self, title: str = "", columns: Iterable[str] = (), *, right: Collection[str] = (), show_footer: bool = False
    ) -> None:
        super().__init__(show_footer=show_footer)
        self.title_line = Text(title, "table.title") if title else None
        self.note: Text | None = None
        for name in columns:
            self.add_column(name, justify="right" if name in right else "left")

    def add_column(self, header: Any = "", footer: Any = "", **options: Any) -> None:
        """Add a column; a long value is folded into several lines."""
        super().add_column(_as_text(header), _as_text(footer), **{"overflow": "fold", **options})

    def add_row(self, *cells: Any, **options: Any) -> None:
        """Add a row of values, each as its string; None is ``NULL``."""
        super().add_row(*(Text("NULL" if cell is None else str(cell)) for cell in cells), **options)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Render the lines above it, the table or the lists of its values, and the lines below it."""
        if self.title_line is not None:
            yield self.title_line
        if (widths := self._choose_widths(options.max_width)) is None:
            yield self._make_lists()
        else:
            for column, width in zip(self.columns, widths, strict=True):
                column.width = width
            yield from super().__rich_console__(console, options)
        if self.note is not None:
            yield self.note

    def _choose_widths(self, width: int) -> Sequence[int] | None:
        """Choose how wide each column is in a table of at most this width; None if the columns do not fit."""
        full, least = [], []
        for column in self.columns:
            header, *cells = _strings(column, footer=self.show_footer)
            full.append(max(map(_full_width, (header, *cells))))
            widest = max(map(_full_width, cells), default=0)
            least.append(max(1, min(widest, _TEXT), *(_longest_word(text) for text in (header, *cells))))
        spare = width - sum(least) - 3 * len(least) - 1  # a blank on both sides of each column, and the lines between
        if spare < 0:
            return None
        widths = list(least)
        by_need = sorted(range(len(full)), key=lambda i: full[i] - least[i])
        for rank, i in enumerate(by_need):  # those that need little get it, the others share what is left
            widths[i] += min(max(full[i] - least[i], 0), spare // (len(full) - rank))
            spare -= widths[i] - least[i]
        return widths

    def _make_lists(self) -> Table:
        """Make lines of a name and a value for each row, and for the footers; empty values are left out."""
        lists = Table(box=None, show_header=False, show_edge=False, pad_edge=False)
        lists.add_column(no_wrap=True, style="bold")
        lists.add_column(overflow="fold")
        styles = [row.style for row in self.rows]
        for cells, style in zip(self._list_rows(), [*styles, "bold"], strict=False):
            if lists.rows:
                lists.add_row()
            for column, text in zip(self.columns, cells, strict=True):
                if text.plain:
                    lists.add_row(_as_text(column.header), text, style=style)
        return lists

    def _list_rows(self) -> Iterator[tuple[Text, ...]]:
        """Yield the cells of each row, then the footers if they are shown."""
        yield from zip(*(map(_as_text, column.cells) for column in self.columns), strict=True)
        if self.show_footer:
            yield tuple(_as_text(column.footer) for column in self.columns)


def _as_text(content: Any) -> Text:
    return content if isinstance(content, Text) else Text(content)


def _strings(column: Column, *, footer: bool) -> list[str]:
    """The header of a column, its cells, and its footer if that is shown."""
    contents = [column.header, *column.cells, *([column.footer] if footer else [])]
    return [_as_text(content).plain for content in contents]


def _full_width(text: str) -> int:
    return max(map(cell_len, text.split("\n")))


def _longest_word(text: str) -> int:
    return min(_WHOLE, max(map(cell_len, text.split()), default=0))
