"""Kafka Connect schemas, as its JsonConverter writes them: from a table's rows, and to a table's columns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import attrs

from kdsl.types import model as t
from kdsl.types.limits import MAX_DEPTH
from kdsl_formats._connect.values import MICROS, MILLIS, NANOS
from kdsl_formats._connect.wires import Dates, Decimals, Modes, TimeMode, Times, Timestamps, Wire, wire_of

CONNECT, DEBEZIUM = "org.apache.kafka.connect.data.", "io.debezium.time."
DECIMAL, VARIABLE = f"{CONNECT}Decimal", "io.debezium.data.VariableScaleDecimal"
PRECISION = "connect.decimal.precision"
_NESTED = (t.Array, t.Map, t.Multiset, t.Row)
_SIMPLE: Mapping[type[t.DataType], str] = {
    t.Boolean: "boolean", t.TinyInt: "int8", t.SmallInt: "int16", t.Int: "int32", t.BigInt: "int64", t.Float: "float",
    t.Double: "double", t.Binary: "bytes", t.VarBinary: "bytes",
}  # fmt: skip
_COLUMNS: Mapping[str, t.DataType] = {
    "boolean": t.Boolean(), "int8": t.TinyInt(), "int16": t.SmallInt(), "int32": t.Int(), "int64": t.BigInt(),
    "float": t.Float(), "double": t.Double(), "bytes": t.BYTES, "string": t.STRING,
}  # fmt: skip
VARIABLE_TYPE = t.Decimal(38, 18)
"""The column type of decimals that each have their own scale."""
_TIME_NAMES = {
    (Times, MILLIS): "Time", (Times, MICROS): "MicroTime", (Times, NANOS): "NanoTime", (Times, None): "IsoTime",
    (Timestamps, MILLIS): "Timestamp", (Timestamps, MICROS): "MicroTimestamp", (Timestamps, NANOS): "NanoTimestamp",
    (Timestamps, None): "IsoTimestamp",
}  # fmt: skip


@attrs.frozen
class TimeSchema:
    """A named schema of dates, times or timestamps.

    Attributes:
        type: The column type that holds them.
        mode: The setting of a connector that writes them; None if all do.
        unit: The unit of its numbers, in nanoseconds; None for strings.
    """

    type: t.DataType
    mode: TimeMode | None = None
    unit: int | None = None


TIME_SCHEMAS: Mapping[str, TimeSchema] = {
    f"{DEBEZIUM}Date": TimeSchema(t.Date(), "adaptive", MILLIS),
    f"{DEBEZIUM}Time": TimeSchema(t.Time(3), "adaptive", MILLIS),
    f"{DEBEZIUM}MicroTime": TimeSchema(t.Time(6), "adaptive", MICROS),
    f"{DEBEZIUM}NanoTime": TimeSchema(t.Time(9), "adaptive", NANOS),
    f"{DEBEZIUM}Timestamp": TimeSchema(t.Timestamp(3), "adaptive", MILLIS),
    f"{DEBEZIUM}MicroTimestamp": TimeSchema(t.Timestamp(6), "adaptive", MICROS),
    f"{DEBEZIUM}NanoTimestamp": TimeSchema(t.Timestamp(9), "adaptive", NANOS),
    f"{DEBEZIUM}IsoDate": TimeSchema(t.Date(), "isostring"),
    f"{DEBEZIUM}IsoTime": TimeSchema(t.Time(6), "isostring"),
    f"{DEBEZIUM}IsoTimestamp": TimeSchema(t.Timestamp(6), "isostring"),
    f"{DEBEZIUM}ZonedTime": TimeSchema(t.Time(6)),
    f"{DEBEZIUM}ZonedTimestamp": TimeSchema(t.TimestampLtz(6)),
    f"{CONNECT}Date": TimeSchema(t.Date(), "connect", MILLIS),
    f"{CONNECT}Time": TimeSchema(t.Time(3), "connect", MILLIS),
    f"{CONNECT}Timestamp": TimeSchema(t.Timestamp(3), "connect", MILLIS),
}
"""The named schemas of dates, times and timestamps."""


def describe_replaced_nulls(defaults: Mapping[str, Any], *, registered: bool) -> str:
    """Say which NULLs may arrive as defaults, and which setting of Kafka Connect's converter keeps them.

    Args:
        defaults: The defaults of nullable columns, by column.
        registered: Whether the converter writes messages whose schemas are in a registry.
    """
    shown = ", ".join(f"{name} ({default!r})" for name, default in defaults.items())
    setting = "ignore.default.for.nullables=true" if registered else "replace.null.with.default=false"
    return (
        f"NULL may arrive as the default in {shown}: Kafka Connect's converters write the default of a field in place "
        f"of NULL; set {setting} in the converter to keep NULL"
    )


def connect_schema(kind: t.DataType, modes: Modes) -> dict[str, Any]:
    """The schema of values that are written with some connector settings; it is optional if the type is nullable.

    Every type has one: it is a string where Kafka Connect has nothing closer.
    """
    wire = wire_of(kind, modes)
    return {**(_plain_schema(kind, modes) if wire is None else _wire_schema(wire, modes)), "optional": kind.nullable}


def _plain_schema(kind: t.DataType, modes: Modes) -> dict[str, Any]:
    """The schema of a type under the format's own rules, without ``optional``; inner types follow the settings."""
    match kind:
        case t.Decimal():
            return _decimal_schema(kind)
        case t.Array(element=element):
            return {"type": "array", "items": connect_schema(element, modes)}
        case t.Map(key=key, value=value):
            return {"type": "map", "keys": connect_schema(key, modes), "values": connect_schema(value, modes)}
        case t.Multiset(element=element):
            values = connect_schema(t.Int(nullable=False), modes)
            return {"type": "map", "keys": connect_schema(element, modes), "values": values}
        case t.Row(fields=fields):
            return {"type": "struct", "fields": [{**connect_schema(f.type, modes), "field": f.name} for f in fields]}
        case _:
            return {"type": _SIMPLE.get(type(kind), "string")}


def _decimal_schema(kind: t.Decimal) -> dict[str, Any]:
    """The schema of Kafka Connect's Decimal, without ``optional``."""
    parameters = {"scale": str(kind.scale), PRECISION: str(kind.precision)}
    return {"type": "bytes", "name": DECIMAL, "version": 1, "parameters": parameters}


def _wire_schema(wire: Wire, modes: Modes) -> dict[str, Any]:
    """The schema of a type whose form depends on connector settings."""
    match wire:
        case Decimals(decimal=kind, mode=mode):
            return _decimal_schema(kind) if mode == "precise" else {"type": mode}
        case Dates(iso=iso):
            of = "IsoDate" if iso else "Date"
            return _time_schema("string" if iso else "int32", of, modes)
        case Timestamps(zoned=True):
            return _time_schema("string", "ZonedTimestamp", Modes())
        case Times(unit=unit) | Timestamps(unit=unit):
            narrow = isinstance(wire, Times) and unit == MILLIS
            return _time_schema(
                "string" if unit is None else "int32" if narrow else "int64", _TIME_NAMES[type(wire), unit], modes
            )
        case _:
            return {"type": "bytes" if modes.binary == "bytes" else "string"}


def _time_schema(kind: str, name: str, modes: Modes) -> dict[str, Any]:
    """A schema of dates, times or timestamps, named as by Kafka Connect if the settings say so, else as by Debezium."""
    return {"type": kind, "name": f"{CONNECT if modes.times == 'connect' else DEBEZIUM}{name}", "version": 1}


@attrs.frozen
class SchemaTable:
    """A table that can hold the rows of a schema.

    Attributes:
        row: The columns.
        modes: The connector settings that write such values.
        notes: Hints for readers of the table declaration.
        types: The types of the columns by name, as observers infer them: nullable, and nested ones are STRING.
        defaults: The defaults of optional fields by name, without those that are null.
    """

    row: t.Row
    modes: Modes
    notes: tuple[str, ...]
    types: Mapping[str, t.DataType]
    defaults: Mapping[str, Any]


def fields_of(schema: Any) -> list[Mapping[str, Any]]:
    """The fields of a schema of rows, each with its name as ``field``; malformed ones are left out.

    Empty if it is not a schema of rows.
    """
    fields = schema.get("fields") if isinstance(schema, Mapping) else None
    if not isinstance(fields, list):
        return []
    return [f for f in fields if isinstance(f, Mapping) and isinstance(f.get("field"), str)]


def table_of_schema(schema: Any, members: Sequence[str] = ()) -> SchemaTable | None:
    """The table that a schema describes; None if it does not describe rows with at least one field, or is invalid.

    Optional fields are nullable. Times that the most frequent setting does not write stay numbers or strings.

    Args:
        schema: The schema of Kafka Connect.
        members: The members of the payload that are rows, the row before a change first; the last one that the schema
            has is read. Empty if the payload itself is a row.
    """
    if members:
        by_name = {f["field"]: f for f in fields_of(schema)}
        schema = next((by_name[name] for name in reversed(members) if name in by_name), None)
    names = _schema_names(schema)
    modes = Modes("precise" if {DECIMAL, VARIABLE}.intersection(names) else None, _most_frequent_mode(names))
    reader = _SchemaReader(modes)
    try:
        row = reader.read_column(schema, "")
    except (KeyError, TypeError, ValueError, OverflowError, RecursionError):
        return None
    if not isinstance(row, t.Row) or not row.fields:
        return None
    types = {f.name: t.STRING if isinstance(f.type, _NESTED) else f.type.as_nullable() for f in row.fields}
    optional = [f for f in fields_of(schema) if f.get("optional") and f.get("default") is not None]
    defaults = {f["field"]: f["default"] for f in optional}
    return SchemaTable(row, modes, tuple(reader.notes), types, defaults)


def _schema_names(schema: Any, depth: int = 0) -> list[str]:
    """The names of a schema and of the schemas inside it, repeated as they occur; without those of a map's keys.

    Schemas deeper than `MAX_DEPTH` are left out.
    """
    if not isinstance(schema, Mapping) or depth > MAX_DEPTH:
        return []
    inner = [*schema["fields"]] if isinstance(schema.get("fields"), list) else []
    inner += [schema[key] for key in ("items", "values") if key in schema]
    name = schema.get("name")
    own = [name] if isinstance(name, str) else []
    return [*own, *(each for one in inner for each in _schema_names(one, depth + 1))]


def _most_frequent_mode(names: list[str]) -> TimeMode | None:
    """The setting under which most of the times were written, the first of several.

    It is ``adaptive`` if all settings write them in the same way, and None if there are no times.
    """
    time_schemas = [TIME_SCHEMAS[name] for name in names if name in TIME_SCHEMAS]
    modes: list[TimeMode] = [time_schema.mode for time_schema in time_schemas if time_schema.mode is not None]
    if not modes:
        return "adaptive" if time_schemas else None
    return max(modes, key=modes.count)


class _SchemaReader:
    """Reads one schema."""

    def __init__(self, modes: Modes) -> None:
        self.modes = modes
        self.notes: list[str] = []

    def read_column(self, schema: Mapping[str, Any], path: str) -> t.DataType:
        """The column type of a schema; adds to ``notes``.

        An invalid schema raises KeyError, TypeError, ValueError or OverflowError.
        """
        return self._read_type(schema, path).as_nullable(bool(schema.get("optional")))

    def _read_type(self, schema: Mapping[str, Any], path: str) -> t.DataType:
        """Read the column type of a schema apart from ``optional``; adds to ``notes``; errors as in `read_column`."""
        kind, name = schema["type"], schema.get("name")
        if name == VARIABLE:
            self.notes.append(
                f"{path}: each value has its own scale, and is rounded to that of {VARIABLE_TYPE}; declare another "
                "precision and scale if you need them"
            )
            return VARIABLE_TYPE
        if name == DECIMAL:
            return self._read_decimal(schema.get("parameters") or {}, path)
        time_schema = TIME_SCHEMAS.get(name) if isinstance(name, str) else None
        if time_schema is not None and time_schema.mode in (None, self.modes.times):
            return time_schema.type
        if time_schema is not None:
            self.notes.append(f"{path}: it is a {name}, which time.precision.mode {self.modes.times!r} does not read")
        match kind:
            case "struct":
                return t.Row(tuple(self._read_field(f, path) for f in schema["fields"]))
            case "array":
                return t.Array(self.read_column(schema["items"], f"{path}[]"))
            case "map" if schema["keys"]["type"] == "string":
                return t.Map(t.STRING.as_nullable(False), self.read_column(schema["values"], f"{path}{{}}"))
            case "map":
                self.notes.append(f"{path}: a map whose keys are not strings becomes a STRING with its JSON")
                return t.STRING
            case _:
                return _COLUMNS[kind]

    def _read_field(self, schema: Mapping[str, Any], path: str) -> t.Field:
        """Read a field of the row at ``path``; adds to ``notes``; errors as in `read_column`."""
        name, doc = schema["field"], schema.get("doc")
        if not isinstance(name, str):
            raise TypeError(name)
        kind = self.read_column(schema, f"{path}.{name}" if path else name)
        return t.Field(name, kind, doc if isinstance(doc, str) else None)

    def _read_decimal(self, parameters: Mapping[str, Any], path: str) -> t.DataType:
        """Read the column type of a Decimal with these parameters; a precision that is cut to 38 is noted in ``notes``.

        Without a precision it is 38; one that is less than the scale becomes the scale.
        """
        scale, precision = int(parameters["scale"]), int(parameters.get(PRECISION, t.MAX_DECIMAL))
        if not 0 <= scale <= t.MAX_DECIMAL:
            raise ValueError(scale)
        if precision > t.MAX_DECIMAL:
            self.notes.append(
                f"{path}: it has up to {precision} digits; a value of more than {t.MAX_DECIMAL} is an error"
            )
        return t.Decimal(min(max(precision, scale, 1), t.MAX_DECIMAL), scale)
