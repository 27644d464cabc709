"""Defaults of columns in derived schemas: what a column gets from messages whose schema does not have it.

A default is JSON, as in an Avro schema, and belongs to the path of a column or of a field inside it (``address.city``,
``items[].sku``).
"""

from __future__ import annotations

import datetime as dt
import json
import math
from collections.abc import Iterator, Mapping
from decimal import Decimal
from typing import Any

import pyarrow as pa

from kdsl.types import model as t
from kdsl.types.arrow import arrow_type
from kdsl_formats._avro.model import AvroTypeError, Json, schema_type
from kdsl_formats._avro.resolution import default_of
from kdsl_formats._columns.unscaled import write_number

_EPOCH = dt.datetime(1970, 1, 1)
_MILLI, _MICRO = dt.timedelta(milliseconds=1), dt.timedelta(microseconds=1)
_MILLIS = 3  # digits of a second


def parse_defaults(text: str | None) -> dict[str, Any]:
    """Parse the defaults of an option: an object with a default for each path."""
    if text is None:
        return {}
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as e:
        raise AvroTypeError("", f"it is not JSON: {e}") from None
    if not isinstance(value, dict):
        raise AvroTypeError("", "it is not a JSON object")
    return value


def write_defaults(defaults: Mapping[str, Any]) -> str | None:
    """Write defaults as the string of an option; None without any."""
    return json.dumps(defaults, ensure_ascii=False) if defaults else None


def default_json(value: Any, kind: t.DataType) -> Any:
    """Convert a value of a column to the JSON of a default in the schema that is derived from the column.

    Args:
        value: The value, in the form that Arrow accepts; a map is a list of pairs.
        kind: The column's type.
    """
    if value is None:
        return None
    match kind:
        case t.Float() | t.Double() if not math.isfinite(value):
            raise ValueError(f"{value} is not a number in JSON")
        case t.Decimal(scale=scale):
            return write_number(int(Decimal(value).scaleb(scale))).decode("iso-8859-1")
        case t.Binary() | t.VarBinary():
            return bytes(value).decode("iso-8859-1")
        case t.Date():
            return (value - _EPOCH.date()).days
        case t.Time():
            return _count(dt.datetime.combine(_EPOCH, value) - _EPOCH, _MILLI)
        case t.Timestamp(precision=precision) | t.TimestampLtz(precision=precision):
            naive = value if value.tzinfo is None else value.astimezone(dt.UTC).replace(tzinfo=None)
            return _count(naive - _EPOCH, _MILLI if precision <= _MILLIS else _MICRO)
        case t.Array(element=element):
            return [default_json(v, element) for v in value]
        case t.Map(value=inner):
            return {_require_string(k): default_json(v, inner) for k, v in value}
        case t.Multiset():
            return {_require_string(k): v for k, v in value}
        case t.Row(fields=fields):
            return {f.name: default_json(value[f.name], f.type) for f in fields}
        case _:
            return value


def _count(duration: dt.timedelta, unit: dt.timedelta) -> int:
    """How many units a duration has; `ValueError` if it is not a multiple of the unit."""
    units, rest = divmod(duration, unit)
    if rest:
        raise ValueError(f"{duration} is finer than {unit}")
    return units


def _require_string(key: Any) -> str:
    """The key of a map if it is a string, else `ValueError`."""
    if not isinstance(key, str):
        raise ValueError(f"{key!r} is not a string")  # noqa: TRY004 - one error for all values
    return key


def add_defaults(schema: Json, defaults: Mapping[str, Any], *, written: bool) -> Json:
    """Return a derived schema with the defaults of its fields, by their paths; others are ignored.

    Args:
        schema: The schema.
        defaults: The defaults.
        written: Whether messages are written with it. Then a nullable column keeps its default null, and arrays, maps
            and rows with values have no default, because other readers accept null alone as that of a union inside.
    """
    return _add_inside(schema, "", defaults, written) if defaults else schema


def _add_inside(schema: Any, path: str, defaults: Mapping[str, Any], written: bool) -> Any:
    """Return a schema below a path with the defaults of the fields inside it; see `add_defaults`."""
    if isinstance(schema, list):
        return [_add_inside(branch, path, defaults, written) for branch in schema]
    if not isinstance(schema, dict):
        return schema
    match schema["type"]:
        case "record":
            return {**schema, "fields": [_add_to_field(f, path, defaults, written) for f in schema["fields"]]}
        case "array":
            return {**schema, "items": _add_inside(schema["items"], f"{path}[]", defaults, written)}
        case "map":
            return {**schema, "values": _add_inside(schema["values"], f"{path}[]", defaults, written)}
        case _:
            return schema


def _add_to_field(field: dict[str, Any], path: str, defaults: Mapping[str, Any], written: bool) -> dict[str, Any]:
    """Return a field of a record at a path with its default and those inside it; see `add_defaults`.

    The default of a union has to be of its first type, which is therefore not null unless the default is.
    """
    inside = f"{path}.{field['name']}" if path else field["name"]
    kind = _add_inside(field["type"], inside, defaults, written)
    default = defaults.get(inside)
    has_values = isinstance(default, dict | list) and bool(default)
    if default is None or (written and (isinstance(kind, list) or has_values)):
        return {**field, "type": kind}
    if isinstance(kind, list):
        kind = sorted(kind, key=lambda branch: branch == "null")
    return {**field, "type": kind, "default": default}


def find_default_problems(schema: Json, row: t.Row, defaults: Mapping[str, Any]) -> Iterator[str]:
    """Yield what is wrong with defaults: a path that the columns do not have, or a value of another type.

    Args:
        schema: The schema that is derived from the columns, without the defaults.
        row: The columns.
        defaults: The defaults.
    """
    record = schema_type(add_defaults(schema, defaults, written=False))
    fields = {}
    rows: list[tuple[str, Any, t.DataType]] = [("", record, row)]
    while rows:
        path, kind, column = rows.pop()
        branches = [b for b in kind.branches or (kind,) if b.kind != "null"]
        match branches[0].kind, column:
            case "record", t.Row(fields=members):
                for field, member in zip(branches[0].fields, members, strict=True):
                    inside = f"{path}.{field.name}" if path else field.name
                    fields[inside] = field, member.type
                    rows.append((inside, field.type, member.type))
            case "array" | "map", t.Array(element=inner) | t.Map(value=inner):
                rows.append((f"{path}[]", branches[0].items, inner))
    for path, default in defaults.items():
        if path not in fields:
            yield f"there is no column {path!r}"
            continue
        field, column = fields[path]
        if default is None:
            if not column.nullable:
                yield f"the default of {path!r} is null, but the column is NOT NULL"
            continue
        try:
            pa.scalar(default_of(field, column), arrow_type(column))
        except (AvroTypeError, ArithmeticError, pa.ArrowException, TypeError) as e:
            yield f"the default {default!r} of {path!r} does not fit {column.spelling}: {getattr(e, 'message', e)}"
