"""The option ``schema`` of the Avro formats with a registry: the user's schema, which must match the table (SR-6)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import attrs

from kdsl.errors import Problem
from kdsl.types import model as t
from kdsl_formats._avro.model import AvroTypeError, Json, schema_type
from kdsl_formats._avro.resolution import has_record
from kdsl_formats._avro.schema import column_of_type, parse_schema, row_of


def parse_schema_option(text: str) -> Json:
    """Parse the value of the option."""
    schema: Json = parse_schema(text)
    return schema


def schema_problems(text: str, row: t.Row, title: str) -> Iterator[Problem]:
    """Report a 'schema' that is not an Avro record, or does not match the columns of the table: names, order and types.

    Timestamps have either mapping (`row_of`), but all the same one. The first ten differences are named; others are not
    mentioned.
    """
    try:
        rows = [strip_comments(_row_of(parse_schema_option(text), row, legacy)) for legacy in (False, True)]
    except AvroTypeError as e:
        yield Problem(
            "registry-schema",
            f"{title} has a 'schema' that cannot be used: {e}",
            "write an Avro record, or for a table of one column the schema of its values",
        )
        return
    differences, legacy_differences = (list(_find_differences(one, strip_comments(row), "")) for one in rows)
    if differences and legacy_differences:
        columns = ", ".join(map(str, rows[0].fields))
        yield Problem(
            "registry-schema",
            f"{title} has a 'schema' that does not match the table: {'; '.join(differences[:10])}",
            f"declare the columns {columns}; or omit 'schema' to derive it from the table",
        )


def _row_of(schema: Json, table: t.Row, legacy: bool) -> t.Row:
    """The row of a schema: of its record, or of a table's only column if it has no record, as a string."""
    kind = schema_type(schema)
    if has_record(kind) or len(table.fields) != 1:
        return row_of(schema, legacy_timestamps=legacy)
    return t.Row((t.Field(table.names[0], column_of_type(kind, legacy=legacy)),), nullable=False)


def _find_differences(schema: t.Row, table: t.Row, path: str) -> Iterator[str]:
    """Find how the columns of a schema differ from those of the table; yields a sentence for each difference.

    Types are only compared if the names and their order are the same.
    """
    if schema.names != table.names:
        missing = [name for name in table.names if name not in schema.names]
        more = [name for name in schema.names if name not in table.names]
        if missing:
            yield f"it has no {', '.join(repr(path + name) for name in missing)}"
        if more:
            yield f"the table has no {', '.join(repr(path + name) for name in more)}"
        if not missing and not more:
            yield f"it has {', '.join(schema.names)}, but the table has {', '.join(table.names)}, in another order"
        return
    for one, other in zip(schema.fields, table.fields, strict=True):
        if one.type == other.type:
            continue
        if isinstance(one.type, t.Row) and isinstance(other.type, t.Row) and one.type.nullable == other.type.nullable:
            yield from _find_differences(one.type, other.type, f"{path}{one.name}.")
        else:
            yield f"{path + one.name!r} is {one.type} in it, but {other.type} in the table"


def strip_comments(row: t.Row) -> t.Row:
    """A row type without comments, which is not nullable itself."""
    stripped = _strip_comments(row).as_nullable(False)
    assert isinstance(stripped, t.Row)
    return stripped


def _strip_comments(kind: t.DataType) -> t.DataType:
    """A type without comments."""
    changes: dict[str, Any] = {}
    match kind:
        case t.Row(fields=fields):
            changes = {"fields": tuple(t.Field(f.name, _strip_comments(f.type)) for f in fields)}
        case t.Map(key=key, value=value):
            changes = {"key": _strip_comments(key), "value": _strip_comments(value)}
        case t.Array(element=element) | t.Multiset(element=element):
            changes = {"element": _strip_comments(element)}
    return attrs.evolve(kind, **changes) if changes else kind
