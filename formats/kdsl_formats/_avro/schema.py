"""Avro schemas from column types, as the reference derives them, and column types from Avro schemas.

A table's columns become the record ``org.apache.flink.avro.generated.record``; a ROW in the column ``f`` the record
``record_f`` (deeper ones ``record_f_g``); a nullable type the union ``["null", T]``, with the default null where it is
a field (FORMATS section 3).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import attrs

from kdsl.errors import Problem, Where
from kdsl.types import model as t
from kdsl_formats._avro.model import AvroTypeError, Json, Type, is_name, json_of, schema_type

__all__ = ["AvroTypeError", "Json", "avro_schema", "avro_type_problems", "parsed", "row_of"]

NAMESPACE = "org.apache.flink.avro.generated"
RECORD = "record"
MEMBER = "member"
"""How the columns of a union of several types begin."""
_SIMPLE: dict[type[t.DataType], str] = {
    t.Boolean: "boolean",
    t.TinyInt: "int",
    t.SmallInt: "int",
    t.Int: "int",
    t.BigInt: "long",
    t.Float: "float",
    t.Double: "double",
    t.Char: "string",
    t.VarChar: "string",
    t.Binary: "bytes",
    t.VarBinary: "bytes",
}
_COLUMNS: dict[str, t.DataType] = {
    "null": t.STRING,
    "boolean": t.Boolean(),
    "int": t.Int(),
    "long": t.BigInt(),
    "float": t.Float(),
    "double": t.Double(),
    "bytes": t.BYTES,
    "string": t.STRING,
    "enum": t.STRING,
}
_MILLIS, _MICROS = 3, 6


def avro_schema(row: t.Row, *, legacy_timestamps: bool = True) -> Any:
    """The schema of a table's rows, as the reference derives it.

    Args:
        row: The columns; their names are those on the wire. A nullable row becomes the union with null.
        legacy_timestamps: Whether a TIMESTAMP is ``timestamp-millis`` and a TIMESTAMP_LTZ has no form; otherwise a
            TIMESTAMP is ``local-timestamp-…`` and a TIMESTAMP_LTZ ``timestamp-…``. Inside of an ARRAY or MAP it is
            always true, as in the reference.

    Returns:
        The JSON of a record; of a union of null and that record where the row is nullable.

    Raises:
        AvroTypeError: A column has a type, or a name, that such a schema cannot hold.
    """
    for refusal in _refusals(row, "", legacy_timestamps):
        raise AvroTypeError(refusal.path, refusal.message)
    return _Deriving().of(row, RECORD, legacy_timestamps)


def avro_type_problems(row: t.Row, legacy_timestamps: bool) -> Iterator[Problem]:
    """What `avro_schema` would refuse, all of it, with the column and what to write instead (rules F-11 and F-12)."""
    for refusal in _refusals(row, "", legacy_timestamps):
        names = (n for n in row.names if refusal.path == n or refusal.path.startswith((f"{n}.", f"{n}[]")))
        column = next(names, None)
        inside = f" (at {refusal.path})" if refusal.path != column else ""
        yield Problem(refusal.code, refusal.message + inside, refusal.fix, Where(column=column))


@attrs.frozen
class _Refusal:
    """Something that a derived schema cannot hold."""

    code: str
    path: str
    message: str
    fix: str


def _refusals(kind: t.DataType, path: str, legacy: bool) -> Iterator[_Refusal]:
    match kind:
        case t.Time(precision=precision) if precision > _MILLIS:
            yield _Refusal(
                "avro-time",
                path,
                f"Avro, as the reference uses it, holds TIME to {_MILLIS} digits, and the type {kind} asks for "
                f"{precision}",
                f"use TIME({_MILLIS}), or STRING",
            )
        case t.TimestampLtz() if legacy:
            yield _Refusal(
                "avro-timestamp-ltz",
                path,
                f"the type {kind} has no form in Avro {_mapping(legacy)}",
                "use a TIMESTAMP(3)" if path.endswith("[]") else _other_mapping("use a TIMESTAMP(3)"),
            )
        case t.Timestamp(precision=precision) | t.TimestampLtz(precision=precision) if precision > (
            most := _MILLIS if legacy else _MICROS
        ):
            name = "TIMESTAMP" if isinstance(kind, t.Timestamp) else "TIMESTAMP_LTZ"
            fix = f"use {name}({most})"
            yield _Refusal(
                "avro-timestamp",
                path,
                f"Avro {_mapping(legacy)} holds {name} to {most} digits, and the type {kind} asks for {precision}",
                _other_mapping(fix) if legacy and not path.endswith("[]") and precision <= _MICROS else fix,
            )
        case t.Array(element=element):
            yield from _refusals(element, f"{path}[]", True)
        case t.Map(key=key) | t.Multiset(element=key):
            if not isinstance(key, t.Char | t.VarChar):
                value = kind.value if isinstance(kind, t.Map) else t.Int()
                whole = f"MAP<STRING, {value}>" if isinstance(kind, t.Map) else "MULTISET<STRING>"
                yield _Refusal(
                    "avro-map-key",
                    path,
                    f"the type {kind} has no form in Avro, where the keys of a map are texts",
                    f"use {whole}, or ARRAY<ROW<`key` {key}, `value` {value}>>",
                )
            if isinstance(kind, t.Map):
                yield from _refusals(kind.value, f"{path}[]", True)
        case t.Row(fields=fields):
            for field in fields:
                inside = f"{path}.{field.name}" if path else field.name
                if not is_name(field.name):
                    yield _Refusal(
                        "avro-name",
                        inside,
                        f"{field.name!r} is no name in Avro, where a name has letters, digits and _ and begins with "
                        "no digit",
                        "give the column such a name on the wire",
                    )
                yield from _refusals(field.type, inside, legacy)
            if not path:
                yield from _clashes(kind)


def _mapping(legacy: bool) -> str:
    return "in the legacy mapping of timestamps" if legacy else "without the legacy mapping of timestamps"


def _other_mapping(fix: str) -> str:
    return f"set 'timestamp_mapping.legacy' to 'false', or {fix}"


def _clashes(row: t.Row) -> Iterator[_Refusal]:
    """Nested rows that would get one name: a ROW ``a_b``, and a ROW ``b`` inside of a ROW ``a``."""
    found: dict[str, tuple[str, t.Row]] = {}
    for name, path, kind in _nested(row, RECORD, ""):
        other = found.setdefault(name, (path, kind))
        if other[1].fields != kind.fields:
            yield _Refusal(
                "avro-name",
                path,
                f"the rows {other[0]!r} and {path!r} would both be the Avro record {name!r}",
                "give one of them another name on the wire",
            )


def _nested(kind: t.DataType, name: str, path: str) -> Iterator[tuple[str, str, t.Row]]:
    match kind:
        case t.Row(fields=fields):
            yield name, path, kind
            for field in fields:
                yield from _nested(field.type, f"{name}_{field.name}", f"{path}.{field.name}" if path else field.name)
        case t.Array(element=inner) | t.Map(value=inner):
            yield from _nested(inner, name, f"{path}[]")


class _Deriving:
    """Derives one schema; a record met again is named only."""

    def __init__(self) -> None:
        self.records: set[str] = set()

    def of(self, kind: t.DataType, name: str, legacy: bool) -> Any:
        made = self._present(kind, name, legacy)
        return ["null", made] if kind.nullable else made

    def _present(self, kind: t.DataType, name: str, legacy: bool) -> Any:
        match kind:
            case t.Decimal(precision=precision, scale=scale):
                return {"type": "bytes", "logicalType": "decimal", "precision": precision, "scale": scale}
            case t.Date():
                return {"type": "int", "logicalType": "date"}
            case t.Time():
                return {"type": "int", "logicalType": "time-millis"}
            case t.Timestamp(precision=precision) | t.TimestampLtz(precision=precision):
                unit = "millis" if precision <= _MILLIS else "micros"
                local = isinstance(kind, t.Timestamp) and not legacy
                return {"type": "long", "logicalType": f"{'local-' * local}timestamp-{unit}"}
            case t.Array(element=element):
                return {"type": "array", "items": self.of(element, name, True)}
            case t.Map(value=value):
                return {"type": "map", "values": self.of(value, name, True)}
            case t.Multiset():
                return {"type": "map", "values": self.of(t.Int(), name, True)}
            case t.Row():
                return self._record(kind, name, legacy)
            case _:
                return _SIMPLE[type(kind)]

    def _record(self, row: t.Row, name: str, legacy: bool) -> Any:
        if name in self.records:
            return name
        outermost = not self.records
        self.records.add(name)
        fields = []
        for field in row.fields:
            made: dict[str, Any] = {"name": field.name, "type": self.of(field.type, f"{name}_{field.name}", legacy)}
            if field.type.nullable:
                made["default"] = None
            fields.append(made)
        head: dict[str, Any] = {"type": "record", "name": name}
        if outermost:
            head["namespace"] = NAMESPACE
        return head | {"fields": fields}


def row_of(schema: Json, *, legacy_timestamps: bool = True) -> t.Row:
    """The column types of an Avro schema's records.

    Args:
        schema: A record, or a union of a record and null (the row is nullable then).
        legacy_timestamps: Whether ``timestamp-…`` is a TIMESTAMP and ``local-timestamp-…`` a BIGINT, as the reference
            has it by default; otherwise they are TIMESTAMP_LTZ and TIMESTAMP.

    Returns:
        A row whose columns are NOT NULL but where the schema has a union with null. An enum and a uuid are a STRING, a
        fixed a VARBINARY of its size, a decimal a DECIMAL, a map a MAP from STRING. A union of several types, which the
        reference cannot hold, is a ROW with a nullable column ``member0``, ``member1``, … for each type but null, of
        which one has a value. The type null is a STRING that is always NULL. What Avro says about a field (``doc``) is
        the column's comment.

    Raises:
        AvroTypeError: It is no schema of records, a record holds itself, or a decimal has more than 38 digits.
    """
    kind = schema_type(schema)
    made = _column(kind, "", legacy_timestamps, ())
    if not isinstance(made, t.Row) or sum(b.kind == "record" for b in kind.branches or (kind,)) != 1:
        raise AvroTypeError("", f"a table needs a schema of records, and this one is of {made}")
    return made


def _column(kind: Type, path: str, legacy: bool, around: tuple[Type, ...]) -> t.DataType:
    if kind.kind == "union":
        return _union_column(kind, path, legacy, around)
    return _present_column(kind, path, legacy, around).as_nullable(kind.kind == "null")


def _union_column(kind: Type, path: str, legacy: bool, around: tuple[Type, ...]) -> t.DataType:
    members = [b for b in kind.branches if b.kind != "null"]
    null = len(members) < len(kind.branches)
    if len(members) == 1:
        return _column(members[0], path, legacy, around).as_nullable(null)
    if not members:
        return t.STRING
    fields = tuple(
        t.Field(f"{MEMBER}{i}", _column(m, f"{path}.{MEMBER}{i}", legacy, around).as_nullable())
        for i, m in enumerate(members)
    )
    return t.Row(fields, nullable=null)


def _present_column(kind: Type, path: str, legacy: bool, around: tuple[Type, ...]) -> t.DataType:
    match kind.kind:
        case "record":
            if kind in around:
                raise AvroTypeError(path, f"the record {kind.name!r} holds itself, which no column type can")
            return t.Row(
                tuple(
                    t.Field(
                        f.name,
                        _column(f.type, f"{path}.{f.name}" if path else f.name, legacy, (*around, kind)),
                        f.doc,
                    )
                    for f in kind.fields
                )
            )
        case "array":
            return t.Array(_column(kind.items, f"{path}[]", legacy, around))
        case "map":
            return t.Map(t.VarChar(nullable=False), _column(kind.items, f"{path}[]", legacy, around))
        case "bytes" | "fixed" if kind.logical == "decimal":
            if kind.precision > t.MAX_DECIMAL:
                raise AvroTypeError(
                    path, f"a DECIMAL has {t.MAX_DECIMAL} digits, and this one asks for {kind.precision}"
                )
            return t.Decimal(kind.precision, kind.scale)
        case "fixed":
            return t.VarBinary(kind.size) if kind.size else t.BYTES
        case "int" | "long" if kind.logical:
            return _time_column(kind.logical, legacy)
        case _:
            return _COLUMNS[kind.kind]


def _time_column(logical: str, legacy: bool) -> t.DataType:
    name, _, unit = logical.rpartition("-")
    precision = {"millis": _MILLIS, "micros": _MICROS, "nanos": 9}.get(unit, 0)
    match name:
        case "time":
            return t.Time(precision)
        case "timestamp":
            return t.Timestamp(precision) if legacy else t.TimestampLtz(precision)
        case "local-timestamp":
            return t.BigInt() if legacy else t.Timestamp(precision)
        case _:
            return t.Date()


def parsed(text: str) -> Any:
    """The JSON of an Avro schema, checked.

    Raises:
        AvroTypeError: The text is no JSON, or the JSON is no Avro schema.
    """
    schema = json_of(text)
    schema_type(schema)
    return schema
