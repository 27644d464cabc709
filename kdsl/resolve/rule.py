"""A rule of the resolver: a function from a definition and a direction to problems."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import attrs

from kdsl.declare.connector import KafkaOptions
from kdsl.declare.definition import ColumnDef, TableDef
from kdsl.errors import Problem, Severity, Where
from kdsl.formats import Direction
from kdsl.options import Options

_PROPERTIES = "properties."
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
    """Return a problem of a table, located at a column or an option if that location is known, else at the table.

    A location that lacks a file or a line has those of the table.

    Args:
        table: The table.
        code: The stable name of the rule.
        message: What was declared and why it cannot work.
        fix: What to write instead.
        column: The column, or the name of one that may not exist.
        option: The Python name of a connector option, or the Flink key of another option or client property.
        where: The location, without a `ColumnDef` or an option.
        severity: Whether the problem is an error or a warning.
    """
    where = attrs.evolve(where or Where(), table=table.name)
    if isinstance(column, ColumnDef):
        where = attrs.evolve(column.where, table=table.name, column=column.name)
    elif column is not None:
        where = attrs.evolve(where, column=column)
    elif option is not None:
        known = attrs.fields_dict(type(table.options))
        key = known[option].metadata["key"] if option in known else option
        location = next(
            (
                table.option_locations[name]
                for name in (key, *_enclosing_options(table, key))
                if name in table.option_locations
            ),
            Where(),
        )
        where = attrs.evolve(location, table=table.name)
    of_client = option is not None and option.startswith(_PROPERTIES)
    return Problem(
        code,
        message,
        fix,
        where,
        severity,
        option=None if of_client else option,
        property=option.removeprefix(_PROPERTIES) if option is not None and of_client else None,
    ).at(table.where)


def _enclosing_options(table: TableDef, key: str) -> tuple[str, ...]:
    """Return the options whose location stands for that of a key without one, such as the format of its option."""
    space, _, rest = key.partition(".")
    if space == "properties":
        return ("properties",)
    if key == "value.format":
        return ("format",)
    if key.startswith("topic.config."):
        return ("topic.config.*",)
    formats = {"key": table.key_format, "value": table.value_format}
    chosen = formats.get(space)
    if chosen is not None and rest.startswith(f"{chosen.identifier}."):
        return (f"{space}.format",)
    return ("format",) if table.value_format is not None and space == table.value_format.identifier else ()


def value_severity(options: Options, attribute: str | None, direction: Direction) -> Severity:
    """The severity of a wrong value: a warning if only the other direction uses the option, else an error.

    The option may declare its side. Otherwise the key shows it (``scan.``, ``sink.``), but only for options of the
    connector, and not for a value of a wrong type: Flink reads all options of a table, but validates those of a sink
    only when it writes (RULES, general facts).

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
    if (
        side is None
        and isinstance(options, KafkaOptions)
        and _is_rejected(metadata["check"], getattr(options, attribute))
    ):
        side = {"scan": "read", "sink": "write"}.get(metadata["key"].partition(".")[0])
    return "warning" if side is not None and side != direction else "error"


def _is_rejected(check: Callable[[Any], str | None] | None, value: object) -> bool:
    """Whether the check of an option rejects a value; False without a check, or for a value of a wrong type."""
    try:
        return check is not None and check(value) is not None
    except TypeError:
        return False
