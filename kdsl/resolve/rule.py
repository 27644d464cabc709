"""What a rule of the resolver is: a named function from a definition and a direction to problems."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import attrs

from kdsl.declare.connector import KafkaOptions
from kdsl.declare.definition import ColumnDef, TableDef
from kdsl.errors import Problem, Severity, Where
from kdsl.formats import Direction
from kdsl.options import Options

Rule = Callable[[TableDef, Direction], Iterator[Problem]]


def problem(
    table: TableDef,
    code: str,
    message: str,
    fix: str,
    *,
    column: ColumnDef | str | None = None,
    option: str | None = None,
    where: Where | None = None,
    severity: Severity = "error",
) -> Problem:
    """A problem of a table, at the place of a column or of an option where that is known.

    Args:
        table: The table.
        code: The stable name of the rule.
        message: What was declared and why it cannot work.
        fix: What to write instead.
        column: The column, or the name of one that may not exist.
        option: The Python name of a connector option, or the Flink key of another one.
        where: The place, where neither a column nor an option is it.
        severity: Whether it stops.
    """
    where = attrs.evolve(where or Where(), table=table.name)
    if isinstance(column, ColumnDef):
        where = attrs.evolve(column.where, table=table.name, column=column.name)
    elif column is not None:
        where = attrs.evolve(where, column=column)
    elif option is not None:
        known = attrs.fields_dict(type(table.options))
        key = known[option].metadata["key"] if option in known else option
        place = next((table.places[name] for name in (key, *_near(table, key)) if name in table.places), Where())
        where = attrs.evolve(place, table=table.name)
    return Problem(code, message, fix, where, severity).at(table.where)


def _near(table: TableDef, key: str) -> tuple[str, ...]:
    """The options at whose place a key may stand that has none of its own: Python declares several at once."""
    space, _, rest = key.partition(".")
    if space == "properties":
        return ("properties",)
    if key == "value.format":
        return ("format",)
    formats = {"key": table.key_format, "value": table.value_format}
    chosen = formats.get(space)
    if chosen is not None and rest.startswith(f"{chosen.identifier}."):
        return (f"{space}.format",)
    return ("format",) if table.value_format is not None and space == table.value_format.identifier else ()


def value_severity(options: Options, attribute: str | None, direction: Direction) -> Severity:
    """How bad a wrong value of an option is: one that a direction does not look at does not stop it.

    A value of the wrong kind always stops, unless the option says which side looks at it: the reference reads all
    options, whatever is done with the table, and judges those of a sink only when it writes (RULES, general facts).

    Args:
        options: The group of options.
        attribute: The Python name of the option, if the problem is one of an option.
        direction: The direction.
    """
    known = attrs.fields_dict(type(options))
    if attribute not in known:
        return "error"
    metadata = known[attribute].metadata
    side = metadata["side"]
    if side is None and isinstance(options, KafkaOptions) and _judged(metadata["check"], getattr(options, attribute)):
        side = {"scan": "read", "sink": "write"}.get(metadata["key"].partition(".")[0])
    return "warning" if side is not None and side != direction else "error"


def _judged(check: Callable[[Any], str | None] | None, value: object) -> bool:
    """Whether a value is of the right kind, and still wrong."""
    try:
        return check is not None and check(value) is not None
    except TypeError:
        return False
