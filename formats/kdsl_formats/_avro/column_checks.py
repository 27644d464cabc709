"""Which columns the types of a table's schema fill."""

from __future__ import annotations

from typing import Any

from kdsl.types import model as t
from kdsl_formats._avro.model import AvroTypeError, Type

FILLS: dict[type[t.DataType], tuple[str, ...]] = {
    t.Boolean: ("boolean",),
    t.TinyInt: ("int",),
    t.SmallInt: ("int",),
    t.Int: ("int",),
    t.BigInt: ("long",),
    t.Float: ("float",),
    t.Double: ("double",),
    t.Char: ("string",),
    t.VarChar: ("string",),
    t.Binary: ("bytes", "fixed"),
    t.VarBinary: ("bytes", "fixed"),
    t.Decimal: ("bytes", "fixed"),
    t.Date: ("int",),
    t.Time: ("int", "long"),
    t.Timestamp: ("long",),
    t.TimestampLtz: ("long",),
}


def check_fills(r: Type, column: t.DataType, path: str) -> None:
    """Check that the table's schema can fill a column without parts."""
    for branch in r.branches or (r,):
        fits = branch.kind in FILLS.get(type(column), ()) or (
            branch.kind == "enum" and isinstance(column, t.Char | t.VarChar)
        )
        if type(column) in FILLS and branch.kind != "null" and not fits:
            raise mismatch_error(column, branch, path)


def require_type(column: t.DataType, wanted: Any, r: Type, path: str) -> Any:
    """Return the column if it is an instance of `wanted`, a class or a tuple of classes."""
    if not isinstance(column, wanted):
        raise mismatch_error(column, r, path)
    return column


def require_map(column: t.DataType, r: Type, path: str) -> t.Map | t.Multiset:
    """Return the column if it is a map with string keys, or a multiset of strings."""
    key = column.key if isinstance(column, t.Map) else column.element if isinstance(column, t.Multiset) else None
    if not isinstance(key, t.Char | t.VarChar) or not isinstance(column, t.Map | t.Multiset):
        raise mismatch_error(column, r, path)
    return column


def mismatch_error(column: t.DataType, r: Type, path: str) -> AvroTypeError:
    """Create the error of a column that cannot hold a type of the schema."""
    logical = f" ({r.logical})" if r.logical else ""
    return AvroTypeError(path, f"the schema has {r.type_name}{logical} here, which {column.spelling} cannot hold")


def member(column: t.DataType, name: str, r: Type, path: str) -> tuple[t.Row, t.DataType]:
    """Return the row type that represents a union, and the type of one of its members."""
    row = require_type(column, t.Row, r, path)
    kind = next((f.type for f in row.fields if f.name == name), None)
    if kind is None:
        raise mismatch_error(column, r, path)
    return row, kind
