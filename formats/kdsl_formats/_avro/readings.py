"""Which columns can hold the values of an Avro type: one table for all Avro formats whose messages name their schema.

A logical type, or the ``connect.name`` of Kafka Connect's converters, says what a number, a string or bytes mean. A
column of another meaning is refused, because it would have wrong values without an error.
"""

from __future__ import annotations

from collections.abc import Mapping

import attrs

from kdsl.types import model as t
from kdsl_formats._avro.connect import connect_column, conversion_of
from kdsl_formats._avro.model import AvroTypeError, Type
from kdsl_formats._avro.schema import column_of_type

_MILLIS = 3  # digits of a second
EXACT, WIDENED = "exact", "widened"
_STRINGS, _BYTES = (t.Char, t.VarChar), (t.Binary, t.VarBinary)
_MEANINGS = (t.Date, t.Time, t.Timestamp, t.TimestampLtz, t.Decimal)
"""The column types of values whose numbers, strings or bytes mean something else than themselves."""
_ON_THE_WIRE = {"int": "the number", "long": "the number", "string": "the text", "bytes": "the bytes"}
_ON_THE_WIRE["fixed"] = _ON_THE_WIRE["bytes"]


def _each(kinds: tuple[type[t.DataType], ...], reading: str) -> dict[type[t.DataType], str]:
    """The same reading for several column types."""
    return dict.fromkeys(kinds, reading)


_NUMBERS: dict[type[t.DataType], str] = {t.Float: "widened, rounded", t.Double: WIDENED}
_PLAIN: Mapping[str, Mapping[type[t.DataType], str]] = {
    "boolean": {t.Boolean: EXACT},
    "int": {
        **_each((t.TinyInt, t.SmallInt, t.Int), EXACT),
        t.BigInt: WIDENED,
        **_NUMBERS,
        t.Date: "as days since 1970-01-01",
        t.Time: "as milliseconds of the day",
    },
    "long": {
        t.BigInt: EXACT,
        **_each((t.Float, t.Double), "widened, rounded"),
        **_each((t.Timestamp, t.TimestampLtz), "as milliseconds since 1970-01-01, with up to 3 digits"),
    },
    "float": {t.Float: EXACT, t.Double: WIDENED},
    "double": {t.Double: EXACT, t.Decimal: "rounded to the scale"},
    "string": {
        **_each(_STRINGS, EXACT),
        **_each(_BYTES, "as UTF-8"),
        t.Decimal: "as the text of a number, rounded to the scale",
    },
    "bytes": {**_each(_BYTES, EXACT), **_each(_STRINGS, "as UTF-8"), t.Decimal: "as digits with the column's scale"},
    "fixed": _each(_BYTES, EXACT),
    "enum": _each(_STRINGS, EXACT),
}
"""How values of a type without another meaning are read, by type and column type; other columns are refused."""
_WITH_MEANING: Mapping[tuple[type[t.DataType], type[t.DataType]], str] = {
    **{(kind, kind): EXACT for kind in _MEANINGS},
    (t.Decimal, t.Decimal): "exact, rounded to the scale",
    (t.TimestampLtz, t.Timestamp): "as the date and time in UTC",
}
"""How values with a meaning are read, by the column type that they mean and the column type."""


@attrs.frozen
class Reading:
    """How the values of an Avro type become those of a column.

    Attributes:
        how: A phrase such as ``exact`` or ``as UTF-8``; empty if the column is refused.
        refusal: Why the column is refused, and what to declare instead; empty if it is not.
    """

    how: str = ""
    refusal: str = ""


def reading_of(wire: Type, column: t.DataType) -> Reading:
    """How values of a type without parts become those of a column.

    Args:
        wire: The writer's type; no null, union, record, array or map.
        column: The column's type.
    """
    meaning = _meaning_of(wire)
    if meaning is None:
        how = "" if _has_unknown_unit(wire, column) else _PLAIN[wire.kind].get(type(column), "")
    elif conversion_of(wire, column) is not None and _may_convert(meaning, column):
        zoned = isinstance(column, t.TimestampLtz) and isinstance(meaning, t.Timestamp)
        how = "as an instant of this time in UTC" if zoned else _WITH_MEANING[type(meaning), type(column)]
    elif wire.kind != "string" and (type(meaning), type(column)) in _WITH_MEANING:
        how = _WITH_MEANING[type(meaning), type(column)]
    elif isinstance(column, _MEANINGS) or (wire.kind in ("bytes", "fixed") and isinstance(column, _STRINGS)):
        how = ""
    else:
        plain = _PLAIN[wire.kind].get(type(column), "")
        how = plain and _ON_THE_WIRE[wire.kind] + (", rounded" if "rounded" in plain else "")
    return Reading(how) if how else Reading(refusal=refuse(wire, column))


def _meaning_of(wire: Type) -> t.DataType | None:
    """The date, time, timestamp or decimal that a type without parts means; None if it means its values themselves."""
    try:
        column = connect_column(wire) or column_of_type(wire)
    except AvroTypeError:  # a decimal with more digits than a DECIMAL: a column of fewer holds the smaller numbers
        return t.Decimal(t.MAX_DECIMAL, min(wire.scale, t.MAX_DECIMAL))
    return column if isinstance(column, _MEANINGS) else None


def _has_unknown_unit(wire: Type, column: t.DataType) -> bool:
    """Whether a number of no meaning would get one from a column, although nothing says what it counts.

    That is a number that Kafka Connect names as something else, such as a year, and one in a timestamp of more than
    milliseconds, whose digits do not say that the writer counts microseconds.
    """
    if wire.kind not in ("int", "long") or not isinstance(column, _MEANINGS):
        return False
    return wire.connect is not None or (isinstance(column, t.Timestamp | t.TimestampLtz) and column.precision > _MILLIS)


def _may_convert(meaning: t.DataType, column: t.DataType) -> bool:
    """Whether a conversion of Kafka Connect leads to a column that has the values' meaning."""
    instants = (t.Timestamp, t.TimestampLtz)
    return type(meaning) is type(column) or (isinstance(meaning, instants) and isinstance(column, instants))


def refuse(wire: Type, column: t.DataType, union: Type | None = None) -> str:
    """The reason why a column cannot hold values of a writer's type, with the declaration that can if there is one.

    Args:
        wire: The writer's type.
        column: The column's type.
        union: The union of the writer that the type is a branch of, if it is one.
    """
    if wire.kind == "null":
        return f"it is null, but the column is NOT NULL; declare it without NOT NULL, as {column.spelling}"
    reason = f"the writer's schema has {describe(wire)} here, which {column.spelling} cannot hold"
    declared = declaration_of(wire if union is None else union)
    return f"{reason}; declare the column as {declared}" if declared else reason


def declaration_of(wire: Type) -> str:
    """The column type, in SQL, that holds all values of a writer's type; empty if no column type does."""
    try:
        return column_of_type(wire, connect=True).spelling
    except AvroTypeError:
        return ""


def describe(wire: Type) -> str:
    """A writer's type in a sentence: its name or kind, and what its values mean."""
    if wire.name:
        return f"the {wire.kind} {wire.name}" + (f" ({wire.logical})" if wire.logical else "")
    meaning = wire.connect if connect_column(wire) is not None else wire.logical
    if wire.logical == "decimal":
        meaning = f"decimal({wire.precision}, {wire.scale})"
    return f"{wire.kind} ({meaning})" if meaning else wire.kind
