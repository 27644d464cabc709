"""Derives Avro schemas from column types, as Flink does, and column types from Avro schemas.

A table's columns become the record ``org.apache.flink.avro.generated.record``. A ROW in the column ``f`` becomes the
record ``record_f`` (deeper ones ``record_f_g``); a nullable type becomes the union ``["null", T]``, with the default
null in a field.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import attrs

from kdsl.errors import Problem, Where
from kdsl.types import model as t
from kdsl_formats._avro.connect import CONNECT_TIMESTAMP, connect_column
from kdsl_formats._avro.model import AvroTypeError, Json, Type, is_name, json_of, schema_type

__all__ = ["AvroTypeError", "Json", "avro_schema", "avro_type_problems", "parse_schema", "row_of"]

NAMESPACE = "org.apache.flink.avro.generated"
RECORD = "record"
_TIME_PROBLEMS = ("avro-time", "avro-timestamp", "avro-timestamp-ltz")  # problems
MEMBER = "member"
"""The prefix of the column names of a union of several types."""
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


def avro_schema(
    row: t.Row, *, legacy_timestamps: bool = True, for_reading: bool = False, instants: bool = False
) -> Any:
    """The schema of a table's rows, as Flink derives it.

    Args:
        row: The columns, with their names on the wire. A nullable row becomes a union with null.
        legacy_timestamps: Whether a TIMESTAMP is ``timestamp-millis`` and a TIMESTAMP_LTZ is not supported;
            otherwise a TIMESTAMP is ``local-timestamp-…`` and a TIMESTAMP_LTZ ``timestamp-…``. Inside an ARRAY or
            MAP it is always true, as in Flink.
        for_reading: Whether TIME, TIMESTAMP and TIMESTAMP_LTZ are supported with any precision, for a schema that
            writers' schemas are resolved to; the writers' schemas define the units.
        instants: Whether a TIMESTAMP_LTZ is ``timestamp-…`` with both mappings, and `legacy_timestamps` also decides
            inside an ARRAY or MAP; Flink has no such rule.

    Returns:
        The JSON of a record, or of a union of null and that record if the row is nullable.
    """
    for refusal in _find_refusals(row, "", legacy_timestamps, instants):
        if not for_reading or refusal.code not in _TIME_PROBLEMS:
            raise AvroTypeError(refusal.path, refusal.message)
    return _Deriver(instants).derive(row, RECORD, legacy_timestamps)


def avro_type_problems(
    row: t.Row, legacy_timestamps: bool, *, for_reading: bool = False, instants: bool = False
) -> Iterator[Problem]:
    """Report each reason for which `avro_schema`, with the same arguments, would fail (rules F-11 and F-12)."""
    for refusal in _find_refusals(row, "", legacy_timestamps, instants):
        if for_reading and refusal.code in _TIME_PROBLEMS:
            continue
        names = (n for n in row.names if refusal.path == n or refusal.path.startswith((f"{n}.", f"{n}[]")))
        column = next(names, None)
        inside = f" (at {refusal.path})" if refusal.path != column else ""
        yield Problem(refusal.code, refusal.message + inside, refusal.fix, Where(column=column))


@attrs.frozen
class _Refusal:
    """Something that a derived schema does not support."""

    code: str
    path: str
    message: str
    fix: str


def _find_refusals(kind: t.DataType, path: str, legacy: bool, instants: bool) -> Iterator[_Refusal]:
    """Everything in a type that a derived schema does not support.

    Args:
        kind: The type.
        path: Where the type is in the table's row; empty for the row itself, whose nested rows must not clash by name.
        legacy: Whether timestamps have the legacy mapping (`legacy_timestamps` of `avro_schema`).
        instants: As for `avro_schema`.
    """
    optional = legacy and (instants or not path.endswith("[]"))  # whether another mapping can be chosen here
    match kind:
        case t.Time(precision=precision) if precision > _MILLIS:
            yield _Refusal(
                "avro-time",
                path,
                f"Avro, as Flink uses it, supports TIME with up to {_MILLIS} digits, but {kind} has {precision}",
                f"use TIME({_MILLIS}), or STRING",
            )
        case t.TimestampLtz() if legacy and not instants:
            yield _Refusal(
                "avro-timestamp-ltz",
                path,
                f"the type {kind} is not supported by Avro {_mapping_phrase(legacy)}",
                _mapping_fix("use a TIMESTAMP(3)") if optional else "use a TIMESTAMP(3)",
            )
        case t.Timestamp(precision=precision) | t.TimestampLtz(precision=precision) if precision > (
            finest := _MILLIS if legacy and isinstance(kind, t.Timestamp) else _MICROS
        ):
            name = "TIMESTAMP" if isinstance(kind, t.Timestamp) else "TIMESTAMP_LTZ"
            fix = f"use {name}({finest})"
            yield _Refusal(
                "avro-timestamp",
                path,
                f"Avro {_mapping_phrase(legacy)} supports {name} with up to {finest} digits, but {kind} has "
                f"{precision}",
                _mapping_fix(fix) if optional and finest < precision <= _MICROS else fix,
            )
        case t.Array(element=element):
            yield from _find_refusals(element, f"{path}[]", legacy or not instants, instants)
        case t.Map(key=key) | t.Multiset(element=key):
            if not isinstance(key, t.Char | t.VarChar):
                value = kind.value if isinstance(kind, t.Map) else t.Int()
                whole = f"MAP<STRING, {value}>" if isinstance(kind, t.Map) else "MULTISET<STRING>"
                yield _Refusal(
                    "avro-map-key",
                    path,
                    f"the type {kind} is not supported by Avro, where the keys of a map are strings",
                    f"use {whole}, or ARRAY<ROW<`key` {key}, `value` {value}>>",
                )
            if isinstance(kind, t.Map):
                yield from _find_refusals(kind.value, f"{path}[]", legacy or not instants, instants)
        case t.Row(fields=fields):
            for field in fields:
                inside = f"{path}.{field.name}" if path else field.name
                if not is_name(field.name):
                    yield _Refusal(
                        "avro-name",
                        inside,
                        f"{field.name!r} is not a name in Avro, where a name has letters, digits and _ and does not "
                        "begin with a digit",
                        "choose a valid name for the column on the wire",
                    )
                yield from _find_refusals(field.type, inside, legacy, instants)
            if not path:
                yield from _find_name_clashes(kind)


def _mapping_phrase(legacy: bool) -> str:
    """The words of an error for the mapping of timestamps that is used."""
    return "in the legacy mapping of timestamps" if legacy else "without the legacy mapping of timestamps"


def _mapping_fix(fix: str) -> str:
    """Write a fix that offers first to turn the legacy mapping of timestamps off."""
    return f"set 'timestamp_mapping.legacy' to 'false', or {fix}"


def _find_name_clashes(row: t.Row) -> Iterator[_Refusal]:
    """Find nested rows that would get the name of an earlier one with other fields; those with equal fields share it.

    Such names are those of a ROW ``a_b``, and a ROW ``b`` inside a ROW ``a``.
    """
    rows: dict[str, tuple[str, t.Row]] = {}
    for name, path, kind in _rows_inside(row, RECORD, ""):
        other = rows.setdefault(name, (path, kind))
        if other[1].fields != kind.fields:
            yield _Refusal(
                "avro-name",
                path,
                f"the rows {other[0]!r} and {path!r} would both be the Avro record {name!r}",
                "choose another name for one of them on the wire",
            )


def _rows_inside(kind: t.DataType, name: str, path: str) -> Iterator[tuple[str, str, t.Row]]:
    """A type, if it is a row, and the rows inside it, with the names of their records and their paths."""
    match kind:
        case t.Row(fields=fields):
            yield name, path, kind
            for field in fields:
                yield from _rows_inside(
                    field.type, f"{name}_{field.name}", f"{path}.{field.name}" if path else field.name
                )
        case t.Array(element=inner) | t.Map(value=inner):
            yield from _rows_inside(inner, name, f"{path}[]")


class _Deriver:
    """Derives a schema of supported types (`_find_refusals`); of a record that occurs again it has only the name."""

    def __init__(self, instants: bool) -> None:
        self.records: set[str] = set()
        self.instants = instants

    def derive(self, kind: t.DataType, name: str, legacy: bool) -> Any:
        """The schema of a supported type, whose rows are records with this name; a union with null if it is nullable.

        The names of its records are stored in `records`.
        """
        schema = self._schema_without_null(kind, name, legacy)
        return ["null", schema] if kind.nullable else schema

    def _schema_without_null(self, kind: t.DataType, name: str, legacy: bool) -> Any:
        """The schema of a supported type as in `derive`, but without null; names of records are stored in `records`."""
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
                return {"type": "array", "items": self.derive(element, name, legacy or not self.instants)}
            case t.Map(value=value):
                return {"type": "map", "values": self.derive(value, name, legacy or not self.instants)}
            case t.Multiset():
                return {"type": "map", "values": self.derive(t.Int(), name, legacy)}
            case t.Row():
                return self._derive_record(kind, name, legacy)
            case _:
                return _SIMPLE[type(kind)]

    def _derive_record(self, row: t.Row, name: str, legacy: bool) -> Any:
        """Derive the schema of a row of supported types, with a namespace if it is the first.

        Only its name if that is in `records`, where new names are stored.
        """
        if name in self.records:
            return name
        outermost = not self.records
        self.records.add(name)
        fields = []
        for field in row.fields:
            field_schema: dict[str, Any] = {
                "name": field.name,
                "type": self.derive(field.type, f"{name}_{field.name}", legacy),
            }
            if field.type.nullable:
                field_schema["default"] = None
            fields.append(field_schema)
        head: dict[str, Any] = {"type": "record", "name": name}
        if outermost:
            head["namespace"] = NAMESPACE
        return head | {"fields": fields}


def row_of(
    schema: Json, *, legacy_timestamps: bool = True, connect: bool = False, connect_instants: bool = False
) -> t.Row:
    """The column types of an Avro schema's records.

    Args:
        schema: A record, or a union of a record and null (the row is nullable then).
        legacy_timestamps: Whether ``timestamp-…`` is a TIMESTAMP and ``local-timestamp-…`` a BIGINT, as in Flink by
            default; otherwise they are TIMESTAMP_LTZ and TIMESTAMP.
        connect: Whether times and decimals that Kafka Connect's converters wrote (``connect.name``) become the types
            that they represent; otherwise they stay numbers, strings and records.
        connect_instants: Whether Kafka Connect's own Timestamp is a TIMESTAMP_LTZ, as it defines; otherwise it is a
            TIMESTAMP, because Debezium uses it for local times.

    Returns:
        A row whose columns are NOT NULL except where the schema has a union with null. An enum and a uuid become a
        STRING, a fixed a VARBINARY of its size, a decimal a DECIMAL, a map a MAP with STRING keys. A union of several
        types, which Flink does not support, becomes a ROW with a nullable column ``member0``, ``member1``, … for each
        type except null; one of them has a value. The type null becomes a STRING that is always NULL. The ``doc`` of a
        field becomes the column's comment.
    """
    return row_of_type(
        schema_type(schema), legacy_timestamps=legacy_timestamps, connect=connect, connect_instants=connect_instants
    )


def row_of_type(
    kind: Type, *, legacy_timestamps: bool = True, connect: bool = False, connect_instants: bool = False
) -> t.Row:
    """The column types of the records of a schema that has been read; see `row_of`."""
    row = _ColumnTypes(legacy_timestamps, connect, connect_instants).column_type(kind, "", ())
    types = [branch.kind for branch in kind.branches or (kind,) if branch.kind != "null"]
    if not isinstance(row, t.Row) or types != ["record"]:
        raise AvroTypeError("", f"a table needs a schema of records, but this one is a schema of {row}")
    return row


def column_of_type(kind: Type, *, connect: bool = False, legacy: bool = False) -> t.DataType:
    """The column type that holds all values of a type.

    Args:
        kind: The type.
        connect: As for `row_of`.
        legacy: Whether timestamps have the legacy mapping (`row_of`), and not Avro's own meaning.
    """
    return _ColumnTypes(legacy, connect).column_type(kind, "", ())


@attrs.frozen
class _ColumnTypes:
    """Derives column types from a schema's types; see `row_of`."""

    legacy: bool
    connect: bool
    instants: bool = False

    def column_type(self, kind: Type, path: str, around: tuple[Type, ...]) -> t.DataType:
        """The column type of a schema inside the records `around`; NOT NULL except null, and unions with null.

        See `row_of` for the types. The precision of a decimal of Kafka Connect is cut to 38 digits.
        """
        if kind.kind == "union":
            return self._union_type(kind, path, around)
        return self._type_without_null(kind, path, around).as_nullable(kind.kind == "null")

    def _union_type(self, kind: Type, path: str, around: tuple[Type, ...]) -> t.DataType:
        """The column type of a union: of its only type, a row with a member for each type, or STRING for null alone."""
        members = [b for b in kind.branches if b.kind != "null"]
        null = len(members) < len(kind.branches)
        if len(members) == 1:
            return self.column_type(members[0], path, around).as_nullable(null)
        if not members:
            return t.STRING
        fields = tuple(
            t.Field(f"{MEMBER}{i}", self.column_type(m, f"{path}.{MEMBER}{i}", around).as_nullable())
            for i, m in enumerate(members)
        )
        return t.Row(fields, nullable=null)

    def _type_without_null(self, kind: Type, path: str, around: tuple[Type, ...]) -> t.DataType:
        """The column type of a schema that is not a union: with `connect` that of `connect_column`, if there is one."""
        meant = connect_column(kind) if self.connect else None
        if meant is not None:
            return t.TimestampLtz(_MILLIS) if self.instants and kind.connect == CONNECT_TIMESTAMP else meant
        match kind.kind:
            case "record":
                if kind in around:
                    raise AvroTypeError(
                        path,
                        f"the record {kind.name!r} contains itself, but a column type has a fixed depth; use a schema "
                        "without the inner field, or take the message as BYTES with the format 'raw'",
                    )
                return t.Row(
                    tuple(
                        t.Field(
                            f.name,
                            self.column_type(f.type, f"{path}.{f.name}" if path else f.name, (*around, kind)),
                            f.doc,
                        )
                        for f in kind.fields
                    )
                )
            case "array":
                return t.Array(self.column_type(kind.items, f"{path}[]", around))
            case "map":
                return t.Map(t.VarChar(nullable=False), self.column_type(kind.items, f"{path}[]", around))
            case "bytes" | "fixed" if kind.logical == "decimal":
                if kind.precision > t.MAX_DECIMAL:
                    raise AvroTypeError(
                        path,
                        f"a DECIMAL has at most {t.MAX_DECIMAL} digits, but this one has {kind.precision}; use a "
                        "smaller precision, or bytes without the logical type",
                    )
                return t.Decimal(kind.precision, kind.scale)
            case "fixed":
                return t.VarBinary(kind.size) if kind.size else t.BYTES
            case "int" | "long" if kind.logical:
                return _time_column(kind.logical, self.legacy)
            case _:
                return _COLUMNS[kind.kind]


def _time_column(logical: str, legacy: bool) -> t.DataType:
    """The column type of a number's logical type, as in `row_of`: a TIME, TIMESTAMP, TIMESTAMP_LTZ or BIGINT.

    It is a DATE for every other logical type.
    """
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


def parse_schema(text: str) -> Any:
    """Parse and check the JSON of an Avro schema."""
    schema = json_of(text)
    schema_type(schema)
    return schema
