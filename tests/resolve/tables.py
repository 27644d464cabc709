"""A valid table, changed in one way by each test, and its problems."""

from __future__ import annotations

from kdsl.declare.config import ColumnConfig, Scalar, TableConfig, WatermarkConfig
from kdsl.declare.definition import TableDef
from kdsl.errors import Problem
from kdsl.formats import Direction
from kdsl.resolve import problems
from kdsl.types.parse import parse_type

GOOD: dict[str, Scalar] = {"connector": "kafka", "topic": "orders", "format": "json", "properties.group.id": "g"}
COLUMNS = ("id INT", "name STRING", "amount DOUBLE")


def column(text: str) -> ColumnConfig:
    """A column from ``name TYPE [METADATA [FROM key]] [VIRTUAL]`` or ``name TYPE AS expression``."""
    name, rest = text.split(" ", 1)
    rest, _, computed = rest.partition(" AS ")
    virtual = rest.endswith(" VIRTUAL")
    kind, _, key = rest.removesuffix(" VIRTUAL").partition(" METADATA")
    shows = key.removeprefix(" FROM ").strip() or True if " METADATA" in rest else False
    parse_type(kind)
    return ColumnConfig(name=name, type=kind, metadata=shows, virtual=virtual, computed=computed or None)


def table(
    *columns: str,
    options: dict[str, Scalar] | None = None,
    without: tuple[str, ...] = (),
    primary_key: tuple[str, ...] = (),
    watermark: WatermarkConfig | None = None,
) -> TableDef:
    """The good table with other columns, changed options, or options taken away."""
    changed = {key: value for key, value in {**GOOD, **(options or {})}.items() if key not in without}
    return TableConfig(
        name="orders",
        columns=[column(c) for c in columns or COLUMNS],
        options=changed,
        primary_key=list(primary_key),
        watermark=watermark,
    ).definition()


def errors(definition: TableDef, direction: Direction = "read") -> list[Problem]:
    """The errors of a table in a direction."""
    return [p for p in problems(definition, direction) if p.severity == "error"]


def codes(definition: TableDef, direction: Direction = "read") -> list[str]:
    """The codes of the errors of a table in a direction."""
    return [p.code for p in errors(definition, direction)]


def warnings(definition: TableDef, direction: Direction = "read") -> list[str]:
    """The codes of the warnings of a table in a direction."""
    return [p.code for p in problems(definition, direction) if p.severity == "warning"]
