"""What a rule of the resolver is: a named function from a definition and a direction to problems."""

from __future__ import annotations

from collections.abc import Callable, Iterator

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
        known = attrs.fields_dict(KafkaOptions)
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


def value_severity(table: TableDef, group: type[Options], attribute: str | None, direction: Direction) -> Severity:
    """How bad a wrong value of an option is: one that a direction does not look at does not stop it.

    Args:
        table: The table.
        group: The group of options.
        attribute: The Python name of the option, if the problem is one of an option.
        direction: The direction.
    """
    known = attrs.fields_dict(group)
    if attribute not in known:
        return "error"
    metadata = known[attribute].metadata
    prefix = metadata["key"].partition(".")[0] if group is KafkaOptions else ""
    side = metadata["side"] or {"scan": "read", "sink": "write"}.get(prefix)
    unused = side is not None and side != direction
    mode, _, what = attribute.partition("_")
    if group is KafkaOptions and mode in ("startup", "bounded") and what == "timestamp":
        unused = unused or getattr(table.options, mode) != what
    return "warning" if unused else "error"
