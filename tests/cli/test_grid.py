"""Tables in terminals of several widths."""

from __future__ import annotations

import io

import pytest
from rich.console import Console
from rich.text import Text

from kdsl.cli.grid import Grid

ID = "orders-0-1799@1796039333795@abc"


def lines(grid: Grid, width: int) -> list[str]:
    screen = io.StringIO()
    Console(file=screen, width=width).print(grid)
    return [line.rstrip() for line in screen.getvalue().splitlines()]


def letters() -> Grid:
    grid = Grid("orders-dead: 2 letters", ("id", "table", "column", "bytes", "reason"), right=("bytes",))
    grid.add_row(ID, "Orders", "", 12, "the value is not JSON: it ends at character 12")
    grid.add_row(ID, "Orders", "amount", 13, "'many' is not a DOUBLE")
    return grid


def test_lines_above_and_below_are_not_wrapped_at_the_width_of_the_table() -> None:
    grid = Grid("Payments: 2 rows of the last records of payments", ("id",))
    grid.add_row(1)
    grid.note = Text("not updated since 12:00:00; retrying: no broker answers")

    first, *_, last = lines(grid, 80)
    assert first == "Payments: 2 rows of the last records of payments"
    assert last == "not updated since 12:00:00; retrying: no broker answers"


def test_a_narrow_terminal_shows_the_rows_as_lists_and_leaves_out_empty_values() -> None:
    assert lines(letters(), 60) == [
        "orders-dead: 2 letters",
        f"id      {ID}",
        "table   Orders",
        "bytes   12",
        "reason  the value is not JSON: it ends at character 12",
        "",
        f"id      {ID}",
        "table   Orders",
        "column  amount",
        "bytes   13",
        "reason  'many' is not a DOUBLE",
    ]


@pytest.mark.parametrize("width", [84, 90, 100, 120])
def test_no_short_word_is_broken_and_the_table_fits(width: int) -> None:
    shown = lines(letters(), width)

    assert all(len(line) <= width for line in shown)
    assert "┏" in shown[1]
    text = "\n".join(shown)
    assert all(word in text for word in (ID, "Orders", "amount", "column", "character", "DOUBLE"))


def test_long_values_are_folded() -> None:
    grid = Grid(columns=("key", "value"))
    grid.add_row("k", "x" * 200)

    shown = lines(grid, 80)
    assert all(len(line) <= 80 for line in shown)
    assert "".join(shown).count("x") == 200


def test_footers_are_shown_in_both_forms() -> None:
    grid = Grid("group g", show_footer=True)
    for name, footer in (("topic", "total"), ("lag", "7")):
        grid.add_column(name, footer)
    grid.add_row("orders-of-the-whole-world", 7)

    assert "total" in "\n".join(lines(grid, 80))
    assert lines(grid, 30)[-2:] == ["topic  total", "lag    7"]


def test_brackets_in_names_and_values_are_shown() -> None:
    grid = Grid("[bold]t[/x]: rows", show_footer=True)
    for name in ("[red]", "b"):
        grid.add_column(name, footer="[/]")
    grid.add_row("[/nothing]", None)

    for width in (80, 12):
        shown = "".join(lines(grid, width))
        assert all(text in shown for text in ("[red]", "[/]", "NULL"))
        assert width == 12 or "[/nothing]" in shown


def test_a_table_without_rows_or_columns() -> None:
    assert lines(Grid("nothing", ("a",)), 80)[0] == "nothing"
    assert lines(Grid("nothing"), 80)[0] == "nothing"
