"""The option ``schema`` of the Avro formats with a registry: a schema that is the user's, and fits the table (SR-6)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import attrs

from kdsl.errors import Problem
from kdsl.types import model as t
from kdsl_formats._avro.model import AvroTypeError, Json
from kdsl_formats._avro.schema import parsed, row_of


def given_schema(text: str) -> Json:
    """The JSON of the option.

    Raises:
        AvroTypeError: It is no Avro schema.
    """
    found: Json = parsed(text)
    return found


def schema_problems(text: str, row: t.Row, title: str) -> Iterator[Problem]:
    """What is wrong with the option, for a table of these columns."""
    try:
        held = row_of(given_schema(text))
    except AvroTypeError as e:
        yield Problem("registry-schema", f"{title} has a 'schema' that cannot be used: {e}", "write an Avro record")
        return
    differences = list(_differences(bare(held), bare(row), ""))
    if differences:
        yield Problem(
            "registry-schema",
            f"{title} has a 'schema' that does not match the table: {'; '.join(differences[:10])}",
            f"declare the columns {', '.join(map(str, bare(held).fields))}; or leave 'schema' out, and it is derived "
            "from the table",
        )


def _differences(schema: t.Row, table: t.Row, path: str) -> Iterator[str]:
    if schema.names != table.names:
        missing = [name for name in table.names if name not in schema.names]
        more = [name for name in schema.names if name not in table.names]
        if missing:
            yield f"it has no {', '.join(repr(path + name) for name in missing)}"
        if more:
            yield f"the table has no {', '.join(repr(path + name) for name in more)}"
        if not missing and not more:
            yield f"it has {', '.join(schema.names)}, and the table {', '.join(table.names)}, in another order"
        return
    for one, other in zip(schema.fields, table.fields, strict=True):
        if one.type == other.type:
            continue
        if isinstance(one.type, t.Row) and isinstance(other.type, t.Row) and one.type.nullable == other.type.nullable:
            yield from _differences(one.type, other.type, f"{path}{one.name}.")
        else:
            yield f"{path + one.name!r} is {one.type} in it, and {other.type} in the table"


def bare(row: t.Row) -> t.Row:
    """A row type without comments; the row itself is not null."""
    found = _bare(row).as_nullable(False)
    assert isinstance(found, t.Row)
    return found


def _bare(kind: t.DataType) -> t.DataType:
    changes: dict[str, Any] = {}
    match kind:
        case t.Row(fields=fields):
            changes = {"fields": tuple(t.Field(f.name, _bare(f.type)) for f in fields)}
        case t.Map(key=key, value=value):
            changes = {"key": _bare(key), "value": _bare(value)}
        case t.Array(element=element) | t.Multiset(element=element):
            changes = {"element": _bare(element)}
    return attrs.evolve(kind, **changes) if changes else kind
