"""Write plans by hand, for the tests of the writing half."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kdsl.declare.metadata import METADATA
from kdsl.formats import format_class
from kdsl.plan.model import MetadataColumn, WritePlan
from kdsl.resolve.model import Part, Topics
from kdsl.types import model as t
from kdsl.types.parse import parse_type


def row(columns: Mapping[str, str]) -> t.Row:
    """A row type from names and SQL types."""
    return t.Row(tuple(t.Field(name, parse_type(kind)) for name, kind in columns.items()), nullable=False)


def part(format_name: str, columns: Mapping[str, str], prefix: str = "", **options: Any) -> Part:
    """A key or value of all given columns; the prefix is not on the wire."""
    wire = row({name.removeprefix(prefix): kind for name, kind in columns.items()})
    return Part(format_class(format_name)(**options), wire, tuple(columns))


def write_plan(
    value: Mapping[str, str] | None = None,
    *,
    key: Mapping[str, str] | None = None,
    metadata: Mapping[str, str] | None = None,
    types: Mapping[str, str] | None = None,
    topics: tuple[str, ...] = ("orders",),
    pattern: str | None = None,
    key_format: str = "json",
    value_format: str = "json",
    **rest: Any,
) -> WritePlan:
    """A plan over the columns of a key, a value and metadata.

    Args:
        value: The columns of the value and their types.
        key: The columns of the key.
        metadata: Metadata keys by column.
        types: The types of metadata columns that are not the metadata's own.
        topics: The topics.
        pattern: The pattern, instead of topics.
        key_format: The key's format.
        value_format: The value's format.
        rest: Other attributes of the plan.
    """
    shown = {
        column: parse_type(types[column]) if types and column in types else METADATA[name].type.as_nullable()
        for column, name in (metadata or {}).items()
    }
    columns = (*row(key or {}).fields, *row(value or {}).fields, *(t.Field(c, kind) for c, kind in shown.items()))
    return WritePlan(
        table="Orders",
        topics=Topics(pattern=pattern) if pattern else Topics(topics),
        columns=t.Row(columns, nullable=False),
        key=part(key_format, key) if key else None,
        value=part(value_format, value) if value else None,
        metadata=tuple(MetadataColumn(c, name, shown[c]) for c, name in (metadata or {}).items()),
        **rest,
    )
